// The order of checks of this family's C functions, written out by hand. The generated negative tests trust
// the signatures; these tests do not.
#include <gtest/gtest.h>

#include "c_stairs.h"

namespace turnout::test {
namespace {

constexpr std::int64_t k2To31 = std::int64_t{1} << 31;

// The tensors are features or grad_output, indices, weights, and output or grad_features.
template <bool kBackward>
struct InterpolateCall {
  bool has_handle = false, is_apart = false;
  std::int64_t batch = 2, channels = 2, rows = 3, centers = 4;
  std::vector<Part> parts = {{.wrong_extent = {kNegative, 0, kBackward ? 1 : kNegative}},
                             {.wrong_extent = {1, kNegative, 1}},
                             {.wrong_extent = {1, 1, 1}},
                             {.wrong_extent = {1, 1, kBackward ? kNegative : 1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float first[64], weights[64], last[64];
    static std::int32_t indices[64];
    Given g(parts.size());
    const Shape of_rows = {batch, channels, rows}, of_centers = {batch, channels, centers};
    g.add(parts[0], kBackward ? of_centers : of_rows, MLUOP_DTYPE_FLOAT, is_apart ? first : last);
    g.add(parts[1], {batch, centers, 3}, MLUOP_DTYPE_INT32, indices);
    g.add(parts[2], {batch, centers, 3}, MLUOP_DTYPE_FLOAT, weights);
    g.add(parts[3], kBackward ? of_rows : of_centers, MLUOP_DTYPE_FLOAT, last);
    const auto function = kBackward ? mluOpThreeInterpolateBackward : mluOpThreeInterpolateForward;
    return function(has_handle ? handle : nullptr, g.desc[0], g.data[0], g.desc[1], g.data[1], g.desc[2],
                    g.data[2], g.desc[3], g.data[3]);
  }
};

TEST(CGroupingOrder, OfThreeInterpolateForwardIsTheContract) {
  using Call = InterpolateCall<false>;
  Stairs<Call> stairs("mluOpThreeInterpolateForward");
  const EachTensor<Call> each{stairs, {"features", "indices", "weights", "output"}};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i : {0, 1, 2, 3}) each.missing(i);
  each.ranks();
  each.layouts();
  each.dtypes();
  for (std::size_t i : {0, 1, 2}) each.extent(i, 0);
  each.extent(1, 1);
  each.extent(2, 1);
  each.extent(1, 2);
  each.extent(2, 2);
  for (std::size_t d : {0, 1, 2}) each.extent(3, d);
  each.extent(0, 2);
  each.strided();
  stairs.bad("features.data is null", [](Call& c) { c.rows = k2To31 / 4, c.centers = k2To31 / 4; });
  stairs.unsupported("features has 2147483648 elements", [](Call& c) { c.rows = 0; });
  stairs.unsupported("indices has 3221225472 elements", [](Call& c) { c.centers = 0; });
  stairs.bad("indices has shape [2, 0, 3], expected at least one element",
             [](Call& c) { c.batch = 0, c.centers = 4; });
  stairs.bad("indices has shape [0, 4, 3]", [](Call& c) { c.batch = 2, c.channels = 0; });
  stairs.bad("output has shape [2, 0, 4]", [](Call& c) { c.channels = 2; });
  stairs.succeeds([](Call& c) { c.rows = 3; });
  each.data();
  stairs.bad("output overlaps features", [](Call& c) { c.is_apart = true; });
  stairs.succeeds();
  stairs.climb();
}

TEST(CGroupingOrder, OfThreeInterpolateBackwardIsTheContract) {
  using Call = InterpolateCall<true>;
  Stairs<Call> stairs("mluOpThreeInterpolateBackward");
  const EachTensor<Call> each{stairs, {"grad_output", "indices", "weights", "grad_features"}};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i : {0, 1, 2, 3}) each.missing(i);
  each.ranks();
  each.layouts();
  each.dtypes();
  for (std::size_t i : {0, 1, 2}) each.extent(i, 0);
  each.extent(1, 1);
  each.extent(2, 1);
  each.extent(1, 2);
  each.extent(2, 2);
  each.extent(3, 0);
  each.extent(3, 1);
  each.extent(0, 2);
  each.extent(3, 2);
  each.strided();
  stairs.bad("grad_output.data is null", [](Call& c) { c.rows = k2To31 / 4, c.centers = k2To31 / 4; });
  stairs.unsupported("grad_output has 2147483648 elements",
                     [](Call& c) { c.centers = k2To31 / 6 + 1, c.channels = 1; });
  stairs.unsupported("indices has 2147483652 elements", [](Call& c) { c.channels = 2, c.centers = 0; });
  stairs.unsupported("grad_features has 2147483648 elements", [](Call& c) { c.rows = 0; });
  stairs.bad("grad_output has shape [2, 2, 0], expected at least one element",
             [](Call& c) { c.batch = 0, c.centers = 4; });
  stairs.bad("grad_output has shape [0, 2, 4]", [](Call& c) { c.batch = 2, c.channels = 0; });
  stairs.bad("grad_output has shape [2, 0, 4]", [](Call& c) { c.channels = 2; });
  stairs.succeeds([](Call& c) { c.rows = 3; });
  each.data();
  stairs.bad("grad_features overlaps grad_output", [](Call& c) { c.is_apart = true; });
  stairs.succeeds();
  stairs.climb();
}

}  // namespace
}  // namespace turnout::test
