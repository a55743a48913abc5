// The order of checks of this family's C functions, written out by hand. The generated negative tests trust
// the signatures; these tests do not.
#include <gtest/gtest.h>

#include "c_stairs.h"

namespace turnout::test {
namespace {

constexpr std::int64_t k2To31 = std::int64_t{1} << 31;

// A call of an operator or of its workspace query. The tensors are px, py, opt_boundary, p, ans or ans_grad,
// and for the backward function px_grad, py_grad.
template <bool kIsBackward, bool kIsQuery>
struct LatticeCall {
  bool has_handle = false, has_size = false, has_workspace = false, is_apart = false, is_in_range = false;
  std::size_t workspace_size = 10;
  std::int64_t batch = 1, symbols = 2, frames = 3;
  // The boundary is present from the start, because it may be absent.
  std::vector<Part> parts = {{.wrong_extent = {kNegative, kNegative, 1}},
                             {.wrong_extent = {1, 1, kNegative}},
                             {.described = true, .wrong_extent = {1, 1}},
                             {.wrong_extent = {1, 1, 1}},
                             {.wrong_extent = {1}},
                             {.wrong_extent = {1, 1, 1}},
                             {.wrong_extent = {1, 1, 1}}};

  mluOpStatus_t run(mluOpHandle_t handle) const {
    static float px[64], py[64], p[64], ans[64], px_grad[64], py_grad[64];
    static std::int64_t boundary[4];
    static char workspace[1 << 16];
    boundary[3] = is_in_range ? 2 : 3;
    float* const first_output = kIsBackward ? px_grad : p;
    Given g(parts.size());
    g.add(parts[0], {batch, symbols, frames + 1}, MLUOP_DTYPE_FLOAT, is_apart ? px : first_output);
    g.add(parts[1], {batch, symbols + 1, frames}, MLUOP_DTYPE_FLOAT, py);
    g.add(parts[2], {batch, 4}, MLUOP_DTYPE_INT64, boundary);
    g.add(parts[3], {batch, symbols + 1, frames + 1}, MLUOP_DTYPE_FLOAT, p);
    g.add(parts[4], {batch}, MLUOP_DTYPE_FLOAT, ans);
    g.add(parts[5], {batch, symbols, frames + 1}, MLUOP_DTYPE_FLOAT, px_grad);
    g.add(parts[6], {batch, symbols + 1, frames}, MLUOP_DTYPE_FLOAT, py_grad);
    const mluOpHandle_t given = has_handle ? handle : nullptr;
    std::size_t size = 0;
    std::size_t* const to = has_size ? &size : nullptr;
    void* const memory = has_workspace ? workspace : nullptr;
    const auto& d = g.desc;
    const auto& data = g.data;
    if (kIsQuery)
      return kIsBackward
                 ? mluOpGetMutualInformationBackwardWorkspaceSize(given, d[0], d[1], d[2], d[3], d[4], true,
                                                                  to)
                 : mluOpGetMutualInformationForwardWorkspaceSize(given, d[0], d[1], d[2], d[3], d[4], to);
    return kIsBackward ? mluOpMutualInformationBackward(given, d[0], data[0], d[1], data[1], d[2], data[2],
                                                        d[3], data[3], d[4], data[4], true, memory,
                                                        workspace_size, d[5], data[5], d[6], data[6])
                       : mluOpMutualInformationForward(given, d[0], data[0], d[1], data[1], d[2], data[2],
                                                       d[3], data[3], memory, workspace_size, d[4], data[4]);
  }
};

// The order of checks of the MLU-OPS interface.
template <bool kIsBackward>
void expect_order(const std::string& function, std::vector<std::string> names, const std::string& overlap) {
  using Call = LatticeCall<kIsBackward, false>;
  Stairs<Call> stairs(function);
  const EachTensor<Call> each{stairs, names};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  for (std::size_t i = 0; i < names.size(); ++i)
    if (i != 2) each.missing(i);
  each.ranks();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (i != 2) each.extent(i, 0);
  each.extent(0, 1);  // negative
  each.extent(1, 2);  // negative
  stairs.unsupported("px.shape[2] is 5, expected 4 = py.shape[2] + 1",
                     [](Call& c) { c.parts[0].wrong_extent[2] = 0; });
  each.extent(1, 1);
  each.extent(2, 0);
  each.extent(2, 1);
  each.extent(3, 1);
  each.extent(3, 2);
  for (std::size_t i = 5; i < names.size(); ++i)
    for (std::size_t dim : {1, 2}) each.extent(i, dim);
  // A tensor with at most one element is never strided, so from now on all have more.
  stairs.unsupported("px is strided", [](Call& c) { c.batch = 2, c.symbols = c.frames = 1 << 16; });
  each.strided();
  for (std::size_t i = 0; i < names.size(); ++i)
    stairs.unsupported(names[i] + " has dtype ", [i](Call& c) { c.parts[i].right_dtype = true; });
  stairs.unsupported("px has 8590065664 elements",
                     [](Call& c) { c.batch = 1, c.symbols = k2To31, c.frames = 0; });
  stairs.unsupported("px has 2147483648 elements", [](Call& c) { c.symbols = 0, c.frames = k2To31; });
  stairs.unsupported("py has 2147483648 elements", [](Call& c) { c.frames = 0, c.batch = k2To31 / 4; });
  stairs.unsupported("opt_boundary has 2147483648 elements",
                     [](Call& c) { c.batch = 1, c.symbols = k2To31 - 1; });
  stairs.unsupported("p has 2147483648 elements", [](Call& c) { c.batch = 0, c.symbols = 2; });
  stairs.succeeds([](Call& c) {
    c.batch = 1;
    c.symbols = kIsBackward ? 0 : 2;
  });
  if (kIsBackward) stairs.succeeds([](Call& c) { c.symbols = 2; });
  stairs.bad("workspace is NULL and workspace_size is 10", [](Call& c) { c.frames = 2; });
  stairs.bad("workspace is NULL and workspace_size is 10", [](Call& c) { c.has_workspace = true; });
  stairs.bad("workspace_size is 10 bytes, expected ", [](Call& c) { c.workspace_size = 1 << 16; });
  const std::vector<std::size_t> pointers =
      kIsBackward ? std::vector<std::size_t>{0, 5, 1, 6, 3, 4, 2} : std::vector<std::size_t>{0, 1, 3, 4, 2};
  for (std::size_t i : pointers)
    stairs.bad(names[i] + ".data is null", [i](Call& c) {
      c.parts[i].has_data = true;
      c.parts[i].described = i != 2;
    });
  stairs.bad("opt_boundary.data is given without a descriptor", [](Call& c) { c.parts[2].described = true; });
  stairs.bad(overlap, [](Call& c) { c.is_apart = true; });
  stairs.bad("opt_boundary[0, 3] is 3, expected 0 .. 2", [](Call& c) { c.is_in_range = true; });
  stairs.succeeds();
  stairs.climb();
}

TEST(CMutualInformationOrder, OfForwardIsTheContract) {
  expect_order<false>("mluOpMutualInformationForward", {"px", "py", "opt_boundary", "p", "ans"},
                      "p overlaps px");
}

TEST(CMutualInformationOrder, OfBackwardIsTheContract) {
  expect_order<true>("mluOpMutualInformationBackward",
                     {"px", "py", "opt_boundary", "p", "ans_grad", "px_grad", "py_grad"},
                     "px_grad overlaps px");
}

// The queries check neither shapes nor dtypes nor strides.
template <bool kIsBackward>
void expect_order_of_query(const std::string& function, const std::string& ans) {
  using Call = LatticeCall<kIsBackward, true>;
  Stairs<Call> stairs(function);
  const EachTensor<Call> each{stairs, {"px", "py", "opt_boundary", "p", ans}};
  stairs.bad("handle is NULL", [](Call& c) { c.has_handle = true; });
  stairs.bad("workspace_size is NULL", [](Call& c) { c.has_size = true; });
  for (std::size_t i : {0, 1, 3, 4}) each.missing(i);
  stairs.succeeds([](Call& c) { c.parts[2].described = false; });
  stairs.succeeds();
  stairs.climb();
}

TEST(CMutualInformationOrder, OfTheQueriesIsTheContract) {
  expect_order_of_query<false>("mluOpGetMutualInformationForwardWorkspaceSize", "ans");
  expect_order_of_query<true>("mluOpGetMutualInformationBackwardWorkspaceSize", "ans_grad");
}

}  // namespace
}  // namespace turnout::test
