// MoE dispatch through the C interface: results match the definition, and statuses are those clients rely on.
#include <gtest/gtest.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "c_descriptors.h"
#include "moe_dispatch/reference.h"
#include "sanitizer.h"
#include "turnout/mluop/mlu_op.h"

namespace turnout::test {
namespace {

// Scalars in the order of the C function: tokens, capacity, hidden, experts.
constexpr int kReduction = kReducedShapes ? 16 : 1;

struct Scale {
  int samples, capacity, hidden, num_experts;
  std::size_t rows() const {
    return static_cast<std::size_t>(num_experts) * static_cast<std::size_t>(capacity);
  }
};

struct Buffers {
  std::vector<float> gates, input, dispatch;
  std::vector<std::int32_t> indices, locations;

  // Nonzero initial contents, about a tenth of the tokens out of range, and random duplicates.
  Buffers(const Scale& s, unsigned seed)
      : gates(static_cast<std::size_t>(s.samples)),
        input(gates.size() * static_cast<std::size_t>(s.hidden)),
        dispatch(s.rows() * static_cast<std::size_t>(s.hidden)),
        indices(gates.size()),
        locations(gates.size()) {
    std::minstd_rand random(seed);
    const auto real = [&] { return static_cast<float>(random() % 2001) / 1000.0f - 1.0f; };
    const auto below = [&](int n) {
      return static_cast<std::int32_t>(random() % static_cast<unsigned>(n + 1 + n / 10));
    };
    for (float& x : gates) x = real();
    for (float& x : input) x = real();
    for (float& x : dispatch) x = real();
    for (std::int32_t& x : indices) x = below(s.num_experts) - (random() % 50 == 0 ? s.num_experts + 1 : 0);
    for (std::int32_t& x : locations) x = below(s.capacity);
  }
};

class CMoeDispatch : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }

  mluOpStatus_t forward(const Scale& s, const float* gates, const std::int32_t* indices,
                        const std::int32_t* locations, const float* input, float* dispatch) {
    const Descriptor token(MLUOP_DTYPE_FLOAT, {s.samples}), route(MLUOP_DTYPE_INT32, {s.samples}),
        tokens(MLUOP_DTYPE_FLOAT, {s.samples, s.hidden}),
        rows(MLUOP_DTYPE_FLOAT, {std::int64_t{s.num_experts} * s.capacity, s.hidden});
    return mluOpMoeDispatchForward(handle, token, gates, route, indices, route, locations, tokens, input,
                                   s.samples, s.capacity, s.hidden, s.num_experts, rows, dispatch);
  }
  mluOpStatus_t forward(const Scale& s, Buffers& b) {
    return forward(s, b.gates.data(), b.indices.data(), b.locations.data(), b.input.data(),
                   b.dispatch.data());
  }
  mluOpStatus_t forward_without_data(const Scale& s) {
    return forward(s, nullptr, nullptr, nullptr, nullptr, nullptr);
  }

  void expect_equal_to_definition(const Scale& s, Buffers& b) {
    std::vector<float> expected = b.dispatch;
    reference::moe_dispatch_forward(b.gates.data(), b.indices.data(), b.locations.data(), b.input.data(),
                                    expected.data(), 1, s.samples, s.hidden,
                                    {.capacity = s.capacity, .num_experts = s.num_experts});
    ASSERT_EQ(forward(s, b), kOk) << turnoutLastError();
    EXPECT_EQ(std::memcmp(expected.data(), b.dispatch.data(), expected.size() * sizeof(float)), 0);
  }

  mluOpHandle_t handle = nullptr;
};

TEST_F(CMoeDispatch, WorkedExample) {
  const float gates[] = {0.5f, 2.0f, 1.0f, -1.0f}, input[] = {2, 4, 6, 1, 2, 3, 7, 7, 7, 1, 0, -8};
  const std::int32_t indices[] = {1, 0, 0, 1}, locations[] = {0, 1, 2, 0};
  float dispatch[] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
  const float expected[] = {9, 9, 9, 2, 4, 6, -1, -0.0f, 8, 9, 9, 9};  // the last token on row 2 wins
  ASSERT_EQ(forward({4, 2, 3, 2}, gates, indices, locations, input, dispatch), kOk) << turnoutLastError();
  EXPECT_EQ(std::memcmp(dispatch, expected, sizeof(expected)), 0);
  EXPECT_STREQ(turnoutLastError(), "");
}

TEST_F(CMoeDispatch, NamedScales) {
  for (const Scale& s : {Scale{18432 / kReduction, 11520 / kReduction, 512, 2},
                         Scale{4608 / kReduction, 2880 / kReduction, 1024, 2},
                         Scale{31, 2880 / kReduction, 10240, 2}, Scale{1, 1, 1, 1}, Scale{7, 3, 5, 3}}) {
    Buffers b(s, 7);
    expect_equal_to_definition(s, b);
  }
}

TEST_F(CMoeDispatch, TheLastOfEqualRowsWins) {
  const Scale s{18432, 11520, 16, 2};
  Buffers b(s, 11);
  for (std::size_t i = 0; i < b.indices.size(); ++i) {
    b.indices[i] = 0;
    b.locations[i] %= 500;
  }
  expect_equal_to_definition(s, b);
}

TEST_F(CMoeDispatch, OutOfRangeIsDroppedAndSpecialValuesAreMultiplied) {
  const Scale s{8, 4, 3, 2};
  Buffers b(s, 13);
  const std::int32_t extremes[] = {INT32_MIN, INT32_MAX, -1, 2, 0, 1, 0, 1};
  std::copy(extremes, extremes + 8, b.indices.begin());
  const std::int32_t slots[] = {INT32_MAX, INT32_MIN, 0, 0, 4, -1, 1, 2};
  std::copy(slots, slots + 8, b.locations.begin());
  b.gates[6] = 0.0f;
  b.input[18] = std::numeric_limits<float>::infinity();
  b.input[19] = -0.0f;
  b.input[20] = std::numeric_limits<float>::denorm_min();
  expect_equal_to_definition(s, b);
}

TEST_F(CMoeDispatch, EmptyTensorsNeedNoMemory) {
  for (const Scale& s : {Scale{0, 8192, 2048, 2}, Scale{8192, 8192, 0, 2}, Scale{8192, 0, 2048, 2},
                         Scale{8192, 2, 2048, 0}, Scale{0, 0, 0, 0}})
    EXPECT_EQ(forward_without_data(s), kOk) << turnoutLastError();
}

TEST_F(CMoeDispatch, MoreTokensThanSlotsAreBad) {
  EXPECT_EQ(forward_without_data({18, 8, 3, 2}), kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpMoeDispatchForward: samples is 18, expected at most 16 = num_experts * capacity");
  Buffers b({18, 8, 3, 2}, 17);
  const std::vector<float> before = b.dispatch;
  EXPECT_EQ(forward({18, 8, 3, 2}, b), kBad);
  EXPECT_EQ(before, b.dispatch);
}

TEST_F(CMoeDispatch, LargeTensorsAreNotSupported) {
  EXPECT_EQ(forward_without_data({1073741825, INT_MAX, 4, 1}), kUnsupported);
  EXPECT_EQ(forward_without_data({1, 1 << 16, 1 << 15, 1}), kUnsupported);        // dispatch: 2^31
  EXPECT_EQ(forward_without_data({1, INT_MAX, INT_MAX, INT_MAX}), kUnsupported);  // far beyond int64
  EXPECT_EQ(forward_without_data({1, 1, INT_MAX, 1}), kBad);  // 2^31 - 1: only data is missing
  EXPECT_NE(std::string(turnoutLastError()).find("indices.data is null"), std::string::npos)
      << turnoutLastError();
}

TEST_F(CMoeDispatch, NoLayoutIsRefused) {
  const int one[] = {1}, row[] = {1, 1};
  const Descriptor token(MLUOP_DTYPE_FLOAT, {1}), route(MLUOP_DTYPE_INT32, {1}),
      tokens(MLUOP_DTYPE_FLOAT, {1, 1});
  mluOpSetTensorDescriptor(token, MLUOP_LAYOUT_NHWC, MLUOP_DTYPE_FLOAT, 1, one);
  mluOpSetTensorDescriptor(tokens, static_cast<mluOpTensorLayout_t>(77), MLUOP_DTYPE_FLOAT, 2, row);
  const float gate = 2, input = 3;
  const std::int32_t zero = 0;
  float dispatch = 0;
  EXPECT_EQ(mluOpMoeDispatchForward(handle, token, &gate, route, &zero, route, &zero, tokens, &input, 1, 1, 1,
                                    1, tokens, &dispatch),
            kOk);
  EXPECT_EQ(dispatch, 6);
}

// dispatch may be in place of input; the result is as if input had been copied first.
TEST_F(CMoeDispatch, InPlace) {
  const Scale s{4, 2, 3, 2};
  Buffers b(s, 19);
  const std::vector<float> tokens = b.dispatch;
  std::vector<float> expected = b.dispatch;
  ASSERT_EQ(forward(s, b.gates.data(), b.indices.data(), b.locations.data(), tokens.data(), expected.data()),
            kOk);
  EXPECT_EQ(
      forward(s, b.gates.data(), b.indices.data(), b.locations.data(), b.dispatch.data(), b.dispatch.data()),
      kOk)
      << turnoutLastError();
  EXPECT_EQ(b.dispatch, expected);
}

TEST_F(CMoeDispatch, OverlapWithRoutingIsBad) {
  const Scale s{4, 2, 3, 2};
  Buffers b(s, 19);
  const std::vector<float> before = b.dispatch;
  EXPECT_EQ(forward(s, &b.dispatch.back() - 3, b.indices.data(), b.locations.data(), b.input.data(),
                    b.dispatch.data()),
            kBad);
  EXPECT_NE(std::string(turnoutLastError()).find("dispatch overlaps gates"), std::string::npos)
      << turnoutLastError();
  EXPECT_EQ(before, b.dispatch);
}

// -- gradients ---------------------------------------------------------------------------------------------

class CMoeDispatchGradient : public CMoeDispatch {
 protected:
  mluOpStatus_t backward_data(const Scale& s, const float* gates, const std::int32_t* indices,
                              const std::int32_t* locations, const float* dispatch, float* grad_input) {
    const Descriptor token(MLUOP_DTYPE_FLOAT, {s.samples}), route(MLUOP_DTYPE_INT32, {s.samples}),
        tokens(MLUOP_DTYPE_FLOAT, {s.samples, s.hidden}),
        rows(MLUOP_DTYPE_FLOAT, {std::int64_t{s.num_experts} * s.capacity, s.hidden});
    return mluOpMoeDispatchBackwardData(handle, token, gates, route, indices, route, locations, rows,
                                        dispatch, s.samples, s.capacity, s.hidden, s.num_experts, tokens,
                                        grad_input);
  }
  mluOpStatus_t backward_gate(const Scale& s, const std::int32_t* indices, const std::int32_t* locations,
                              const float* input, const float* dispatch, float* grad_gates) {
    const Descriptor token(MLUOP_DTYPE_FLOAT, {s.samples}), route(MLUOP_DTYPE_INT32, {s.samples}),
        tokens(MLUOP_DTYPE_FLOAT, {s.samples, s.hidden}),
        rows(MLUOP_DTYPE_FLOAT, {std::int64_t{s.num_experts} * s.capacity, s.hidden});
    std::size_t size = 7;
    EXPECT_EQ(mluOpGetMoeDispatchBackwardGateWorkspaceSize(handle, tokens, &size), kOk) << turnoutLastError();
    EXPECT_EQ(size, 0u);
    return mluOpMoeDispatchBackwardGate(handle, route, indices, route, locations, tokens, input, rows,
                                        dispatch, s.samples, s.capacity, s.hidden, s.num_experts, nullptr, 0,
                                        token, grad_gates);
  }

  void expect_equal_to_definition(const Scale& s, Buffers& b) {
    const auto rows = reference::rows_of(b.indices.data(), b.locations.data(), s.samples,
                                         {.capacity = s.capacity, .num_experts = s.num_experts});
    const reference::RoutingShape shape{s.samples, 1, true};
    std::vector<float> expected(b.input.size()), grad_input(b.input.size(), 7), grad_gates(b.gates.size(), 7);
    std::vector<double> products(b.gates.size()), sizes(b.gates.size());
    reference::gather_rows(shape, rows, b.gates.data(), b.dispatch.data(), expected.data(), s.hidden);
    reference::dot_rows(shape, rows, b.input.data(), b.dispatch.data(), products.data(), sizes.data(),
                        s.hidden);
    ASSERT_EQ(backward_data(s, b.gates.data(), b.indices.data(), b.locations.data(), b.dispatch.data(),
                            grad_input.data()),
              kOk)
        << turnoutLastError();
    EXPECT_EQ(std::memcmp(expected.data(), grad_input.data(), expected.size() * sizeof(float)), 0);
    ASSERT_EQ(backward_gate(s, b.indices.data(), b.locations.data(), b.input.data(), b.dispatch.data(),
                            grad_gates.data()),
              kOk)
        << turnoutLastError();
    for (std::size_t i = 0; i < products.size(); ++i)
      ASSERT_NEAR(grad_gates[i], products[i], 1e-6 * sizes[i]) << i;
  }
};

// The network scale and the sizes of MLU-OPS's test cases, including one with more tokens than slots, and one
// with very long rows.
TEST_F(CMoeDispatchGradient, NamedScales) {
  for (const Scale& s :
       {Scale{18432 / kReduction, 11520 / kReduction, 512, 2}, Scale{33, 10, 512, 2}, Scale{8, 256, 128, 2},
        Scale{35, 35, 51213, 1}, Scale{819, 819, 2048, 2}, Scale{1, 1, 1, 1}}) {
    Buffers b(s, 23);
    expect_equal_to_definition(s, b);
  }
}

TEST_F(CMoeDispatchGradient, EmptyTensors) {
  for (const Scale& s : {Scale{0, 8, 4, 2}, Scale{8, 8, 0, 2}, Scale{0, 0, 0, 0}})
    EXPECT_EQ(backward_data(s, nullptr, nullptr, nullptr, nullptr, nullptr), kOk) << turnoutLastError();
  EXPECT_EQ(backward_gate({0, 8, 4, 2}, nullptr, nullptr, nullptr, nullptr, nullptr), kOk);
  for (const Scale& s : {Scale{3, 0, 2, 2}, Scale{3, 2, 2, 0}}) {
    std::vector<float> grad_input(6, 7), grad_gates(3, 7);
    EXPECT_EQ(backward_data(s, nullptr, nullptr, nullptr, nullptr, grad_input.data()), kOk);
    EXPECT_EQ(grad_input, std::vector<float>(6, 0));
    EXPECT_EQ(backward_gate(s, nullptr, nullptr, nullptr, nullptr, grad_gates.data()), kOk);
    EXPECT_EQ(grad_gates, std::vector<float>(3, 0));
    EXPECT_EQ(backward_data(s, nullptr, nullptr, nullptr, nullptr, nullptr), kBad);
    EXPECT_STREQ(turnoutLastError(),
                 "mluOpMoeDispatchBackwardData: grad_input.data is null, expected memory for shape [3, 2]");
    EXPECT_EQ(backward_gate(s, nullptr, nullptr, nullptr, nullptr, nullptr), kBad);
  }
}

// A missing input is found before the first write.
TEST_F(CMoeDispatchGradient, AFailingCallWritesNothing) {
  const Scale s{4, 2, 3, 2};
  Buffers b(s, 19);
  std::vector<float> grad_input(12, 7);
  EXPECT_EQ(
      backward_data(s, b.gates.data(), b.indices.data(), b.locations.data(), nullptr, grad_input.data()),
      kBad);
  EXPECT_EQ(grad_input, std::vector<float>(12, 7));
}

TEST_F(CMoeDispatchGradient, LargeTensorsAreNotSupported) {
  EXPECT_EQ(backward_data({1073741825, INT_MAX, 4, 1}, nullptr, nullptr, nullptr, nullptr, nullptr),
            kUnsupported);
  EXPECT_EQ(backward_gate({1073741825, INT_MAX, 4, 1}, nullptr, nullptr, nullptr, nullptr, nullptr),
            kUnsupported);
}

TEST_F(CMoeDispatchGradient, TheQueryChecksItsArguments) {
  const Descriptor tokens(MLUOP_DTYPE_FLOAT, {3, 4});
  std::size_t size = 7;
  EXPECT_EQ(mluOpGetMoeDispatchBackwardGateWorkspaceSize(nullptr, tokens, &size), kBad);
  EXPECT_EQ(mluOpGetMoeDispatchBackwardGateWorkspaceSize(handle, nullptr, &size), kBad);
  EXPECT_EQ(mluOpGetMoeDispatchBackwardGateWorkspaceSize(handle, tokens, nullptr), kBad);
  EXPECT_EQ(size, 7u);
}

}  // namespace
}  // namespace turnout::test
