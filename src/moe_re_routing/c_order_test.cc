// The order of checks of the re-routing functions, written out by hand. The generated negative tests trust
// the signatures; these tests do not.
#include <gtest/gtest.h>

#include "c_stairs.h"

namespace turnout::test {
namespace {

constexpr std::int64_t kTooManyRows = std::int64_t{1} << 31;

struct ReRoutingCall {
  bool has_handle = false, has_workspace = false;
  std::size_t workspace_size = 10;
  std::int64_t rows = kTooManyRows, hidden = 0, ranks = 0, experts = 0, number_type = 2, idx_type = -1;
  // The first tensor that has a size defines it; a negative size is an error.
  std::vector<Part> parts = {{.wrong_extent = {kNegative, kNegative}},
                             {.wrong_extent = {kNegative, kNegative}},
                             {.described = true, .wrong_extent = {1, kNegative}},
                             {.wrong_extent = {1, 1}},
                             {.wrong_extent = {1, 1}},
                             {.wrong_extent = {1}},
                             {.wrong_extent = {1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float tokens[8], scales[12], permuted[8], permuted_scales[12];
    static std::int32_t counts[] = {1, 0, 2, 1}, idx[4], number[2];
    static char workspace[512];
    Given g(parts.size());
    g.add(parts[0], {rows, hidden}, MLUOP_DTYPE_FLOAT, tokens);
    g.add(parts[1], {ranks, experts}, MLUOP_DTYPE_INT32, counts);
    g.add(parts[2], {rows, 3}, MLUOP_DTYPE_FLOAT, scales);
    g.add(parts[3], {rows, hidden}, MLUOP_DTYPE_FLOAT, permuted);
    g.add(parts[4], {rows, 3}, MLUOP_DTYPE_FLOAT, permuted_scales);
    g.add(parts[5], {rows}, MLUOP_DTYPE_INT32, idx);
    g.add(parts[6], {experts}, MLUOP_DTYPE_INT32, number);
    return mluOpMoeReRouting(has_handle ? handle : nullptr, g.desc[0], g.data[0], g.desc[1], g.data[1],
                             g.desc[2], g.data[2], number_type, idx_type, has_workspace ? workspace : nullptr,
                             workspace_size, g.desc[3], g.data[3], g.desc[4], g.data[4], g.desc[5], g.data[5],
                             g.desc[6], g.data[6]);
  }
};

TEST(CMoeReRoutingOrder, IsTheContract) {
  using Call = ReRoutingCall;
  Stairs<Call> stairs("mluOpMoeReRouting");
  const EachTensor<Call> each{
      stairs, {"tokens", "counts", "scales", "permute_tokens", "permute_scales", "idx", "expert_token_num"}};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i : {0, 1, 3}) each.missing(i);
  each.missing(4, ", expected together with scales");
  for (std::size_t i : {5, 6}) each.missing(i);
  each.ranks();
  each.dtypes();
  stairs.bad("expert_token_num_type is 2", [](Call& c) { c.number_type = 0; });
  stairs.bad("idx_type is -1", [](Call& c) { c.idx_type = 1; });
  each.extents();
  stairs.bad("tokens.shape[1] is 0, expected 1 or more", [](Call& c) { c.hidden = 2; });
  stairs.bad("counts.shape[0] is 0, expected 1 or more", [](Call& c) { c.ranks = 2; });
  stairs.bad("counts.shape[1] is 0, expected 1 or more", [](Call& c) { c.experts = 2; });
  each.strided();
  stairs.unsupported("tokens has 4294967296 elements", [](Call& c) { c.rows = 4; });
  stairs.bad("workspace is NULL", [](Call& c) { c.has_workspace = true; });
  stairs.bad("workspace_size is 10 bytes, expected ", [](Call& c) { c.workspace_size = 512; });
  each.data();
  stairs.succeeds();
  stairs.climb();
}

struct InverseCall {
  bool has_handle = false;
  std::int64_t rows = kTooManyRows, hidden = 0, idx_type = 2;
  std::vector<Part> parts = {
      {.wrong_extent = {kNegative, kNegative}}, {.wrong_extent = {1}}, {.wrong_extent = {1, 1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float permuted[8], tokens[8];
    static std::int32_t idx[] = {3, 1, 0, 2};
    Given g(parts.size());
    g.add(parts[0], {rows, hidden}, MLUOP_DTYPE_FLOAT, permuted);
    g.add(parts[1], {rows}, MLUOP_DTYPE_INT32, idx);
    g.add(parts[2], {rows, hidden}, MLUOP_DTYPE_FLOAT, tokens);
    return mluOpMoeReRoutingInverse(has_handle ? handle : nullptr, g.desc[0], g.data[0], g.desc[1], g.data[1],
                                    idx_type, g.desc[2], g.data[2]);
  }
};

TEST(CMoeReRoutingOrder, OfTheInverseIsTheContract) {
  using Call = InverseCall;
  Stairs<Call> stairs("mluOpMoeReRoutingInverse");
  const EachTensor<Call> each{stairs, {"permute_tokens", "idx", "tokens"}};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i : {0, 1, 2}) each.missing(i);
  each.ranks();
  each.dtypes();
  stairs.bad("idx_type is 2", [](Call& c) { c.idx_type = 0; });
  each.extents();
  stairs.bad("permute_tokens.shape[1] is 0, expected 1 or more", [](Call& c) { c.hidden = 2; });
  each.strided();
  stairs.unsupported("permute_tokens has 4294967296 elements", [](Call& c) { c.rows = 0; });
  stairs.succeeds([](Call& c) { c.rows = 4; });  // empty
  each.data();
  stairs.succeeds();
  stairs.climb();
}

}  // namespace
}  // namespace turnout::test
