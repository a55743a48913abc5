// Re-routing through the C interface: results match the definition; the workspace protocol; the inverse.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "c_descriptors.h"
#include "c_workspace.h"
#include "moe_re_routing/reference.h"

namespace turnout::test {
namespace {

using Bytes = std::vector<char>;
constexpr char kPaint = 0x5A;

// One call: rows of bytes for any dtype, outputs filled with a pattern, and a workspace of the queried size.
template <class Count>
struct ReRouting {
  mluOpHandle_t handle;
  std::int64_t ranks, experts, rows, hidden, scale_width;  // scale_width 0: scales [rows]; -1: no scales
  mluOpDataType_t dtype;
  std::int64_t element;
  std::vector<Count> counts, number;
  Bytes tokens, scales, permuted, permuted_scales;
  std::vector<std::int32_t> idx;
  Descriptor tokens_desc, counts_desc, scales_desc, idx_desc, number_desc;
  std::int64_t number_type = 1, idx_type = 0;
  std::size_t required = 0;
  Bytes workspace;

  ReRouting(mluOpHandle_t handle_, std::vector<Count> c, std::int64_t experts_, std::int64_t hidden_,
            std::int64_t scale_width_ = -1, mluOpDataType_t dtype_ = MLUOP_DTYPE_HALF)
      : handle(handle_),
        ranks(static_cast<std::int64_t>(c.size()) / experts_),
        experts(experts_),
        rows(std::accumulate(c.begin(), c.end(), std::int64_t{0})),
        hidden(hidden_),
        scale_width(scale_width_),
        dtype(dtype_),
        element(size_of_dtype(dtype_)),
        counts(std::move(c)),
        number(static_cast<std::size_t>(experts), 77),
        tokens(random_bytes(rows * hidden * element)),
        scales(random_bytes(rows * scale_bytes())),
        permuted(tokens.size(), kPaint),
        permuted_scales(static_cast<std::size_t>(rows * 4), kPaint),
        idx(static_cast<std::size_t>(rows), 77),
        tokens_desc(dtype, {rows, hidden}),
        counts_desc(sizeof(Count) == 8 ? MLUOP_DTYPE_INT64 : MLUOP_DTYPE_INT32, {ranks, experts}),
        scales_desc(MLUOP_DTYPE_FLOAT,
                    scale_width > 0 ? std::vector<std::int64_t>{rows, scale_width} : std::vector{rows}),
        idx_desc(MLUOP_DTYPE_INT32, {rows}),
        number_desc(sizeof(Count) == 8 ? MLUOP_DTYPE_INT64 : MLUOP_DTYPE_INT32, {experts}) {
    if (has_scales()) permuted_scales.assign(scales.size(), kPaint);
    EXPECT_EQ(mluOpGetMoeReRoutingWorkspaceSize(handle, tokens_desc, counts_desc,
                                                scales_desc.when(has_scales()), &required),
              kOk)
        << turnoutLastError();
    workspace.resize(required);
  }

  bool has_scales() const { return scale_width >= 0; }
  std::int64_t scale_bytes() const { return has_scales() ? std::max<std::int64_t>(scale_width, 1) * 4 : 0; }
  static std::int64_t size_of_dtype(mluOpDataType_t dtype) {
    std::size_t size = 0;
    EXPECT_EQ(mluOpGetSizeOfDataType(dtype, &size), kOk);
    return static_cast<std::int64_t>(size);
  }
  static Bytes random_bytes(std::int64_t count) {
    std::minstd_rand random(5);
    Bytes bytes(static_cast<std::size_t>(count));
    for (char& byte : bytes) byte = static_cast<char>(random() >> 7);
    return bytes;
  }

  mluOpStatus_t run() { return run(workspace.data(), workspace.size()); }
  mluOpStatus_t run(void* memory, std::size_t size) {
    const mluOpTensorDescriptor_t scale = scales_desc.when(has_scales());
    return mluOpMoeReRouting(handle, tokens_desc, tokens.data(), counts_desc, counts.data(), scale,
                             has_scales() ? scales.data() : nullptr, number_type, idx_type, memory, size,
                             tokens_desc, permuted.data(), scale,
                             has_scales() ? permuted_scales.data() : nullptr, idx_desc, idx.data(),
                             number_desc, number.data());
  }
  mluOpStatus_t run_back(Bytes& back) {
    return mluOpMoeReRoutingInverse(handle, tokens_desc, permuted.data(), idx_desc, idx.data(), idx_type,
                                    tokens_desc, back.data());
  }

  void expect_untouched() const {
    for (const Bytes* bytes : {&permuted, &permuted_scales})
      EXPECT_TRUE(std::all_of(bytes->begin(), bytes->end(), [](char byte) { return byte == kPaint; }));
    EXPECT_EQ(idx, std::vector<std::int32_t>(idx.size(), 77));
    EXPECT_EQ(number, std::vector<Count>(number.size(), 77));
  }

  // Tests both values of both attributes, and the inverse.
  void expect_equal_to_definition() {
    for (number_type = 0; number_type < 2; ++number_type) {
      for (idx_type = 0; idx_type < 2; ++idx_type) {
        ASSERT_EQ(run(), kOk) << turnoutLastError();
        Bytes want(tokens.size()), want_scales(scales.size());
        std::vector<std::int32_t> want_idx(idx.size());
        std::vector<Count> want_number(number.size());
        reference::moe_re_routing(
            tokens.data(), hidden * element, counts.data(), ranks, experts, scales.data(), scale_bytes(),
            want.data(), want_scales.data(), want_idx.data(), want_number.data(),
            {static_cast<ExpertTokenNum>(number_type), static_cast<TokenIdx>(idx_type)});
        EXPECT_EQ(permuted, want);
        if (has_scales()) {
          EXPECT_EQ(permuted_scales, want_scales);
        }
        EXPECT_EQ(idx, want_idx);
        EXPECT_EQ(number, want_number);
        Bytes back(tokens.size());
        ASSERT_EQ(run_back(back), kOk) << turnoutLastError();
        EXPECT_EQ(back, tokens);
      }
    }
    number_type = 1;
    idx_type = 0;
  }
};

class CMoeReRouting : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }

  // Counts with many zeros and a few long runs.
  template <class Count>
  static std::vector<Count> some_counts(std::size_t size, int most) {
    std::minstd_rand random(3);
    std::vector<Count> counts(size);
    for (Count& count : counts)
      count = static_cast<Count>(random() % 2 ? 0 : random() % static_cast<unsigned>(most));
    return counts;
  }

  mluOpHandle_t handle = nullptr;
  const std::vector<std::int32_t> example = {1, 2, 1, 2, 1, 0};  // of 2 ranks for 3 experts
};

TEST_F(CMoeReRouting, WorkedExample) {
  ReRouting<std::int32_t> call(handle, example, 3, 1, -1, MLUOP_DTYPE_INT8);
  std::iota(call.tokens.begin(), call.tokens.end(), 0);
  ASSERT_EQ(call.run(), kOk) << turnoutLastError();
  EXPECT_STREQ(turnoutLastError(), "");
  EXPECT_EQ(call.permuted, (Bytes{0, 4, 5, 1, 2, 6, 3}));
  EXPECT_EQ(call.idx, (std::vector{0, 4, 5, 1, 2, 6, 3}));
  EXPECT_EQ(call.number, (std::vector{3, 3, 1}));
  call.idx_type = 1;
  call.number_type = 0;
  ASSERT_EQ(call.run(), kOk);
  EXPECT_EQ(call.permuted, (Bytes{0, 4, 5, 1, 2, 6, 3}));
  EXPECT_EQ(call.idx, (std::vector{0, 3, 4, 6, 1, 2, 5}));
  EXPECT_EQ(call.number, (std::vector{3, 6, 7}));
}

TEST_F(CMoeReRouting, EqualsTheDefinition) {
  for (std::int64_t scale_width : {-1, 0, 1, 3}) {
    ReRouting<std::int32_t>(handle, example, 3, 5, scale_width).expect_equal_to_definition();
    ReRouting<std::int64_t>(handle, {2, 1, 3, 2}, 2, 16, scale_width).expect_equal_to_definition();
    ReRouting<std::int32_t>(handle, some_counts<std::int32_t>(16 * 16, 9), 16, 385, scale_width)
        .expect_equal_to_definition();
  }
  ReRouting<std::int64_t>(handle, some_counts<std::int64_t>(4 * 16, 90), 16, 1024, 0)
      .expect_equal_to_definition();
  ReRouting<std::int32_t>(handle, {7}, 1, 3).expect_equal_to_definition();
}

TEST_F(CMoeReRouting, EveryDTypeWithASizeMoves) {
  int moved = 0;
  for (int value = 1; value < 128; ++value) {
    const auto dtype = static_cast<mluOpDataType_t>(value);
    std::size_t size = 0;
    if (mluOpGetSizeOfDataType(dtype, &size) != kOk) continue;
    if (dtype == MLUOP_DTYPE_INT31 || dtype == MLUOP_DTYPE_COMPLEX_HALF || dtype == MLUOP_DTYPE_COMPLEX_FLOAT)
      continue;
    ReRouting<std::int32_t>(handle, example, 3, 6, 0, dtype).expect_equal_to_definition();
    ++moved;
  }
  EXPECT_EQ(moved, 16);  // with the three 8-bit floats
  const Descriptor complex(MLUOP_DTYPE_COMPLEX_FLOAT, {7, 2}), counts(MLUOP_DTYPE_INT32, {2, 3});
  std::size_t size = 0;
  EXPECT_EQ(mluOpGetMoeReRoutingWorkspaceSize(handle, complex, counts, nullptr, &size), kBad);
}

TEST_F(CMoeReRouting, ScalesOfEightBits) {
  const Descriptor tokens_desc(MLUOP_DTYPE_FLOAT8_E4M3FN, {3, 2}), counts_desc(MLUOP_DTYPE_INT32, {2, 2}),
      scales_desc(MLUOP_DTYPE_FLOAT8_E8M0, {3, 3}), idx_desc(MLUOP_DTYPE_INT32, {3}),
      number_desc(MLUOP_DTYPE_INT32, {2});
  const std::int32_t counts[] = {0, 1, 2, 0};
  const char tokens[] = "aAbBcC", scales[] = "012345678";
  char permuted[7] = "", permuted_scales[10] = "", workspace[512];
  std::int32_t idx[3], number[2];
  ASSERT_EQ(mluOpMoeReRouting(handle, tokens_desc, tokens, counts_desc, counts, scales_desc, scales, 1, 0,
                              workspace, sizeof(workspace), tokens_desc, permuted, scales_desc,
                              permuted_scales, idx_desc, idx, number_desc, number),
            kOk)
      << turnoutLastError();
  EXPECT_STREQ(permuted, "bBcCaA");
  EXPECT_STREQ(permuted_scales, "345678012");
}

TEST_F(CMoeReRouting, WithoutTokensTheExpertsAreStillCounted) {
  ReRouting<std::int32_t> call(handle, {0, 0, 0, 0, 0, 0}, 3, 5, 0);
  EXPECT_EQ(call.required, 0u);
  for (call.number_type = 0; call.number_type < 2; ++call.number_type) {
    call.number.assign(3, 77);
    ASSERT_EQ(mluOpMoeReRouting(handle, call.tokens_desc, nullptr, call.counts_desc, call.counts.data(),
                                call.scales_desc, nullptr, call.number_type, 0, nullptr, 0, call.tokens_desc,
                                nullptr, call.scales_desc, nullptr, call.idx_desc, nullptr, call.number_desc,
                                call.number.data()),
              kOk)
        << turnoutLastError();
    EXPECT_EQ(call.number, (std::vector{0, 0, 0}));
  }
  call.number_type = 1;
  EXPECT_EQ(call.run(nullptr, 64), kOk) << "a call without tokens needs no workspace, whatever size is given";
  call.counts[4] = 1;
  call.number_type = 1;
  EXPECT_EQ(call.run(nullptr, 0), kBad);
  Bytes none;
  EXPECT_EQ(call.run_back(none), kOk) << turnoutLastError();
}

TEST_F(CMoeReRouting, WorkspaceProtocol) {
  ReRouting<std::int32_t> call(handle, example, 3, 5, 0);
  ASSERT_GT(call.required, 0u);
  EXPECT_EQ(call.run(nullptr, call.required), kBad);
  EXPECT_EQ(call.run(nullptr, 0), kBad);
  EXPECT_EQ(call.run(call.workspace.data(), 0), kBad);
  EXPECT_EQ(call.run(call.workspace.data(), call.required - 1), kBad);
  EXPECT_EQ(turnoutLastError(), "mluOpMoeReRouting: workspace_size is " + std::to_string(call.required - 1) +
                                    " bytes, expected " + std::to_string(call.required) + " or more");
  // A workspace that overlaps a tensor: the plan would overwrite counts that it has checked.
  Bytes shared(call.required + call.counts.size() * sizeof(std::int32_t) + 64);
  auto* inside = reinterpret_cast<std::int32_t*>(shared.data()) + 8;
  std::copy(call.counts.begin(), call.counts.end(), inside);
  EXPECT_EQ(mluOpMoeReRouting(handle, call.tokens_desc, call.tokens.data(), call.counts_desc, inside, nullptr,
                              nullptr, 1, 0, shared.data(), shared.size(), call.tokens_desc,
                              call.permuted.data(), nullptr, nullptr, call.idx_desc, call.idx.data(),
                              call.number_desc, call.number.data()),
            kBad);
  EXPECT_STREQ(turnoutLastError(),
               "mluOpMoeReRouting: workspace overlaps counts in memory, expected separate buffers");
  call.expect_untouched();
  call.expect_equal_to_definition();
}

// The plan uses the caller's workspace, at any address, and no byte outside it.
TEST_F(CMoeReRouting, TheWorkspaceIsUsedAndNothingAroundIt) {
  for (std::size_t offset : kWorkspaceOffsets) {
    ReRouting<std::int32_t> call(handle, example, 3, 5, 0);
    PaintedWorkspace workspace(call.required, offset);
    ASSERT_EQ(call.run(workspace.begin(), call.required), kOk) << turnoutLastError();
    workspace.expect_used_and_nothing_around_it();
    call.workspace = workspace.memory();  // larger than required, with the contents of another call
    call.expect_equal_to_definition();
  }
}

TEST_F(CMoeReRouting, TheQueryChecksWhatItGets) {
  const Descriptor tokens(MLUOP_DTYPE_HALF, {7, 5}), counts(MLUOP_DTYPE_INT64, {2, 3}),
      scales(MLUOP_DTYPE_FLOAT, {7}), short_scales(MLUOP_DTYPE_FLOAT, {6}),
      no_hidden(MLUOP_DTYPE_HALF, {7, 0}), no_ranks(MLUOP_DTYPE_INT64, {0, 3}),
      no_experts(MLUOP_DTYPE_INT64, {2, 0});
  const auto query = [&](mluOpTensorDescriptor_t t, mluOpTensorDescriptor_t c, mluOpTensorDescriptor_t s) {
    std::size_t size = 1234;
    const mluOpStatus_t status = mluOpGetMoeReRoutingWorkspaceSize(handle, t, c, s, &size);
    EXPECT_EQ(size == 1234, status != kOk);
    return status;
  };
  EXPECT_EQ(query(tokens, counts, scales), kOk);
  EXPECT_EQ(query(tokens, counts, nullptr), kOk);
  EXPECT_EQ(query(nullptr, counts, scales), kBad);
  EXPECT_EQ(query(tokens, nullptr, scales), kBad);
  EXPECT_EQ(query(tokens, counts, short_scales), kBad);
  EXPECT_EQ(query(no_hidden, counts, nullptr), kBad);
  EXPECT_EQ(query(tokens, no_ranks, nullptr), kBad);
  EXPECT_EQ(query(tokens, no_experts, nullptr), kBad);
  EXPECT_EQ(mluOpGetMoeReRoutingWorkspaceSize(handle, tokens, counts, scales, nullptr), kBad);
  EXPECT_STREQ(turnoutLastError(), "mluOpGetMoeReRoutingWorkspaceSize: workspace_size is NULL");
  std::size_t size = 0;
  EXPECT_EQ(mluOpGetMoeReRoutingWorkspaceSize(nullptr, tokens, counts, scales, &size), kBad);
}

TEST_F(CMoeReRouting, ScalesComeWhollyOrNotAtAll) {
  ReRouting<std::int32_t> call(handle, example, 3, 5, 0);
  const auto run = [&](bool desc, bool data, bool out_desc, bool out_data) {
    return mluOpMoeReRouting(
        handle, call.tokens_desc, call.tokens.data(), call.counts_desc, call.counts.data(),
        call.scales_desc.when(desc), data ? call.scales.data() : nullptr, 1, 0, call.workspace.data(),
        call.workspace.size(), call.tokens_desc, call.permuted.data(), call.scales_desc.when(out_desc),
        out_data ? call.permuted_scales.data() : nullptr, call.idx_desc, call.idx.data(), call.number_desc,
        call.number.data());
  };
  for (int given = 0; given < 16; ++given) {
    const bool desc = given & 1, data = given & 2, out_desc = given & 4, out_data = given & 8;
    const bool fits = desc == data && out_desc == out_data && (out_desc || !desc);
    call.permuted_scales.assign(call.permuted_scales.size(), kPaint);
    EXPECT_EQ(run(desc, data, out_desc, out_data), fits ? kOk : kBad) << given << turnoutLastError();
    EXPECT_EQ(call.permuted_scales == Bytes(call.permuted_scales.size(), kPaint), !(fits && desc)) << given;
  }
}

TEST_F(CMoeReRouting, CountsAreCheckedBeforeAnythingIsWritten) {
  ReRouting<std::int64_t> call(handle, {1, 2, 1, 2, 1, 0}, 3, 5, 0);
  const auto expect_bad = [&](std::vector<std::int64_t> counts, const std::string& message) {
    call.counts = std::move(counts);
    EXPECT_EQ(call.run(), kBad);
    EXPECT_NE(std::string(turnoutLastError()).find(message), std::string::npos) << turnoutLastError();
    call.expect_untouched();
  };
  expect_bad({1, 2, 1, 2, -1, 2}, "mluOpMoeReRouting: counts[1, 1] is -1, expected 0 or more");
  expect_bad({1, 2, 1, 2, 0, 0}, "mluOpMoeReRouting: counts sums to 6, expected the 7 rows");
  expect_bad({1, 2, 1, 2, 1, 1}, "[1, 2] is 1, expected at most 0");
  expect_bad({INT64_MAX, INT64_MAX, 2, 2, 4, 0}, "[0, 0] is 9223372036854775807");
}

TEST_F(CMoeReRouting, AttributesAreWholeNumbersOf64Bits) {
  ReRouting<std::int32_t> call(handle, example, 3, 5, 0);
  for (std::int64_t wrong : {std::int64_t{-1}, std::int64_t{2}, std::int64_t{1} << 32, INT64_MIN}) {
    call.number_type = wrong;
    EXPECT_EQ(call.run(), kBad) << wrong;
    call.number_type = 1;
    call.idx_type = wrong;
    EXPECT_EQ(call.run(), kBad) << wrong;
    Bytes back(call.tokens.size(), kPaint);
    EXPECT_EQ(call.run_back(back), kBad) << wrong;
    call.idx_type = 0;
  }
  call.expect_untouched();
}

TEST_F(CMoeReRouting, OverlapIsBad) {
  ReRouting<std::int32_t> call(handle, example, 3, 5);
  const Bytes before = call.tokens;
  call.permuted.swap(call.tokens);
  EXPECT_EQ(mluOpMoeReRouting(handle, call.tokens_desc, call.permuted.data(), call.counts_desc,
                              call.counts.data(), nullptr, nullptr, 1, 0, call.workspace.data(),
                              call.workspace.size(), call.tokens_desc, call.permuted.data(), nullptr, nullptr,
                              call.idx_desc, call.idx.data(), call.number_desc, call.number.data()),
            kBad);
  std::iota(call.idx.begin(), call.idx.end(), 0);
  EXPECT_EQ(call.run_back(call.permuted), kBad);
  EXPECT_NE(std::string(turnoutLastError()).find("overlaps"), std::string::npos) << turnoutLastError();
  EXPECT_EQ(call.permuted, before);
}

TEST_F(CMoeReRouting, TheInverseNeedsAPermutation) {
  ReRouting<std::int32_t> call(handle, example, 3, 5);
  for (call.idx_type = 0; call.idx_type < 2; ++call.idx_type) {
    const auto expect_bad = [&](std::vector<std::int32_t> idx, const std::string& message) {
      call.idx = std::move(idx);
      Bytes back(call.tokens.size(), kPaint);
      EXPECT_EQ(call.run_back(back), kBad);
      EXPECT_NE(std::string(turnoutLastError()).find(message), std::string::npos) << turnoutLastError();
      EXPECT_EQ(back, Bytes(back.size(), kPaint));
    };
    expect_bad({0, 1, 2, 3, 4, 5, 5},
               "mluOpMoeReRoutingInverse: idx[6] is 5, equal to [5], expected a permutation");
    expect_bad({0, 1, 2, 7, 4, 5, 6}, "[3] is 7, expected 0 .. 6");
    expect_bad({-1, 1, 2, 3, 4, 5, 6}, "[0] is -1, expected 0 .. 6");
  }
}

TEST_F(CMoeReRouting, LargeTensorsAreNotSupported) {
  const Descriptor tokens(MLUOP_DTYPE_INT8, {1 << 16, 1 << 15}), counts(MLUOP_DTYPE_INT32, {2, 3}),
      idx(MLUOP_DTYPE_INT32, {1 << 16}), number(MLUOP_DTYPE_INT32, {3});
  std::size_t size = 0;
  EXPECT_EQ(mluOpGetMoeReRoutingWorkspaceSize(handle, tokens, counts, nullptr, &size), kUnsupported);
  EXPECT_EQ(mluOpMoeReRouting(handle, tokens, nullptr, counts, nullptr, nullptr, nullptr, 1, 0, nullptr, 0,
                              tokens, nullptr, nullptr, nullptr, idx, nullptr, number, nullptr),
            kUnsupported);
  EXPECT_EQ(mluOpMoeReRoutingInverse(handle, tokens, nullptr, idx, nullptr, 0, tokens, nullptr),
            kUnsupported);
}

}  // namespace
}  // namespace turnout::test
