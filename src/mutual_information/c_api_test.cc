// Mutual information through the C interface: results are close to the definition in double; memory that must
// not change; lattices without symbols or frames; the workspace protocol.
#include "mutual_information/c_test_cases.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "c_workspace.h"
#include "mutual_information/plan.h"

namespace turnout::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class CMutualInformation : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mluOpCreate(&handle), kOk); }
  void TearDown() override { EXPECT_EQ(mluOpDestroy(handle), kOk); }

  Lattices random(std::int64_t batch, std::int64_t symbols, std::int64_t frames, float limit,
                  std::vector<std::int64_t> boundary = {}) const {
    return {handle, batch, symbols, frames, std::move(boundary), limit};
  }

  mluOpHandle_t handle = nullptr;
};

void expect_values(const Floats& got, const Floats& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6f) << i;
}

TEST_F(CMutualInformation, WorkedExample) {
  Lattices call(handle, 1, 1, 1);
  call.px = {-1, -2};
  call.py = {-0.5, -0.25};
  ASSERT_EQ(call.forward(), kOk) << turnoutLastError();
  expect_values(call.p, {0, -0.5f, -1, -0.998071f});
  expect_values(call.ans, {-0.998071f});
  ASSERT_EQ(call.backward(true), kOk) << turnoutLastError();
  expect_values(call.px_grad, {0.777300f, 0.222700f});
  expect_values(call.py_grad, {0.222700f, 0.777300f});
  expect_values(call.ans_grad, {1});
}

// The cases that MLU-OPS ships. In these, p is random for the backward function too.
TEST_F(CMutualInformation, ShippedCases) {
  struct Case {
    std::int64_t batch, symbols, frames;
    float limit;
    std::vector<std::int64_t> boundary;
  };
  const Case cases[] = {{1, 178, 179, 2.5f, {1, 2, 120, 130}},
                        {1, 179, 180, 2.5f, {2, 3, 179, 180}},
                        {2, 380, 380, 1.5f, {5, 2, 380, 380, 5, 2, 3, 1}}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.symbols);
    Lattices call = random(one.batch, one.symbols, one.frames, one.limit, one.boundary);
    fill(call.p, one.limit, 4);
    call.expect_backward(true);
    fill(call.p, one.limit, 4);
    call.expect_forward();
    fill(call.ans_grad, 2, 5);
    call.expect_backward(false);
    call.expect_backward(true);
  }
}

TEST_F(CMutualInformation, ScaleOfTheSeed) {
  Lattices call = random(4, 15, 104, 3);
  call.expect_forward();
  call.expect_backward(false);
  call.expect_backward(true);
}

// More cells than the on-chip memory of the document holds, 163840.
TEST_F(CMutualInformation, MoreCellsThanFitOnTheChip) {
  Lattices call = random(1, 450, 400, 1);
  call.expect_forward();
  call.expect_backward(true);
}

TEST_F(CMutualInformation, ShapesAroundTheEdges) {
  for (std::int64_t symbols : {0, 1, 2, 7, 33}) {
    for (std::int64_t frames : {0, 1, 2, 16, 31}) {
      SCOPED_TRACE(testing::Message() << symbols << " x " << frames);
      Lattices whole = random(3, symbols, frames, 2);
      whole.expect_forward();
      if (symbols + frames > 0) whole.expect_backward(true);
      // The whole lattice, only the last cell, a line along each side.
      const std::int64_t s = symbols / 2, t = frames / 2;
      Lattices part = random(5, symbols, frames, 2,
                             {0, 0,      symbols, frames, symbols, frames, symbols, frames, s,       0,
                              s, frames, 0,       t,      symbols, t,      s,       t,      symbols, frames});
      part.expect_forward();
      if (symbols + frames > 0) part.expect_backward(true);
    }
  }
}

TEST_F(CMutualInformation, OutsideTheBoundaryPStaysAndGradientsAreZero) {
  Lattices call = random(1, 2, 3, 1, {1, 1, 2, 2});
  ASSERT_EQ(call.forward(), kOk) << turnoutLastError();
  ASSERT_EQ(call.backward(true), kOk) << turnoutLastError();
  for (std::size_t s = 0; s < 3; ++s)
    for (std::size_t t = 0; t < 4; ++t) {
      const bool inside = s >= 1 && t >= 1 && t <= 2;
      EXPECT_EQ(call.p[s * 4 + t] == kUnwritten, !inside) << s << ", " << t;
      if (s < 2) {
        EXPECT_EQ(call.px_grad[s * 4 + t] == 0, !inside) << s << ", " << t;
      }
      if (t < 3) {
        EXPECT_EQ(call.py_grad[s * 3 + t] == 0, !(inside && t < 2)) << s << ", " << t;
      }
    }
}

TEST_F(CMutualInformation, WithoutOverwriteTheBitsOfAnsGradStay) {
  Lattices call = random(3, 4, 5, 2);
  ASSERT_EQ(call.forward(), kOk);
  call.ans_grad = {-0.0f, std::numeric_limits<float>::quiet_NaN(), kInf};
  const Floats before = call.ans_grad;
  ASSERT_EQ(call.backward(false), kOk) << turnoutLastError();
  EXPECT_EQ(std::memcmp(call.ans_grad.data(), before.data(), sizeof(float) * 3), 0);
}

// Lattices whose begin is beyond their end, in either direction, between others that are not empty.
TEST_F(CMutualInformation, EmptyLattices) {
  Lattices call = random(4, 3, 4, 2, {0, 0, 3, 4, 2, 0, 1, 4, 0, 3, 3, 2, 1, 1, 3, 3});
  const Floats grad = call.ans_grad;
  call.expect_forward();
  EXPECT_EQ(call.ans[1], 0.0f);
  EXPECT_EQ(call.ans[2], 0.0f);
  EXPECT_TRUE(
      std::all_of(call.p.begin() + 20, call.p.begin() + 60, [](float value) { return value == kUnwritten; }));
  call.expect_backward(true);
  EXPECT_EQ(call.ans_grad[1], grad[1]);
  EXPECT_EQ(call.ans_grad[2], grad[2]);
  for (std::size_t i = 15; i < 45; ++i) ASSERT_EQ(call.px_grad[i], 0.0f);
  for (std::size_t i = 16; i < 48; ++i) ASSERT_EQ(call.py_grad[i], 0.0f);
}

TEST_F(CMutualInformation, BoundariesOutOfRangeAreBadBeforeAnythingIsWritten) {
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  for (std::size_t column = 0; column < 4; ++column) {
    const std::int64_t limit = column % 2 == 0 ? 3 : 5;
    for (std::int64_t wrong : {std::int64_t{-1}, limit + 1, kLeast, kMost}) {
      Lattices call(handle, 3, 3, 5, {0, 0, 3, 5, 1, 1, 2, 2, 0, 0, 3, 5});
      call.boundary[4 + column] = wrong;
      call.boundary[8] = -7;
      const std::string message = "boundary[1, " + std::to_string(column) + "] is " + std::to_string(wrong) +
                                  ", expected 0 .. " + std::to_string(limit);
      EXPECT_EQ(call.forward(), kBad);
      EXPECT_NE(std::string(turnoutLastError()).find(message), std::string::npos) << turnoutLastError();
      EXPECT_EQ(call.backward(true), kBad);
      EXPECT_NE(std::string(turnoutLastError()).find(message), std::string::npos) << turnoutLastError();
      call.expect_untouched();
    }
  }
}

TEST_F(CMutualInformation, UnreachableCells) {
  Lattices call = random(2, 6, 9, 2);
  for (std::size_t i = 0; i < call.px.size(); ++i)
    if (i % 10 > 4 || i < 60) call.px[i] = -kInf;  // only blanks pass the first lattice
  call.expect_forward();
  EXPECT_EQ(call.ans[0], -kInf);
  call.expect_backward(true);
}

TEST_F(CMutualInformation, WithoutSymbolsOrFrames) {
  Lattices line = random(2, 0, 4, 1);  // Lattices passes px and px_grad as NULL
  line.expect_forward();
  EXPECT_FLOAT_EQ(line.ans[1], line.py[4] + line.py[5] + line.py[6] + line.py[7]);
  line.expect_backward(true);
  Lattices column = random(2, 3, 0, 1);
  column.expect_forward();
  EXPECT_FLOAT_EQ(column.ans[0], column.px[0] + column.px[1] + column.px[2]);
  column.expect_backward(true);
}

TEST_F(CMutualInformation, OneCell) {
  Lattices call(handle, 2, 0, 0);
  ASSERT_EQ(call.forward(), kOk) << turnoutLastError();
  EXPECT_EQ(call.p, Floats(2, 0.0f));
  EXPECT_EQ(call.ans, Floats(2, 0.0f));
  // The backward function has nothing to do, so it reads nothing and needs no workspace.
  call.boundary = {9, 9, 9, 9, 9, 9, 9, 9};
  EXPECT_EQ(call.backward(true), kOk) << turnoutLastError();
  EXPECT_EQ(call.ans_grad, Floats(2, 1.0f));
  EXPECT_EQ(
      mluOpMutualInformationBackward(handle, call.px_desc, nullptr, call.py_desc, nullptr, call.boundary_desc,
                                     nullptr, call.p_desc, nullptr, call.ans_desc, nullptr, true, nullptr, 10,
                                     call.px_desc, nullptr, call.py_desc, nullptr),
      kOk)
      << turnoutLastError();
}

TEST_F(CMutualInformation, WithoutRowsThereIsNothingToDo) {
  Lattices call(handle, 0, 3, 5);
  EXPECT_EQ(call.forward_required, 0u);
  EXPECT_EQ(call.backward_required, 0u);
  EXPECT_EQ(call.forward(nullptr, 10), kOk) << turnoutLastError();
  EXPECT_EQ(call.backward(true, nullptr, 10), kOk) << turnoutLastError();
}

TEST_F(CMutualInformation, WorkspaceProtocol) {
  const std::string name[] = {"mluOpMutualInformationForward", "mluOpMutualInformationBackward"};
  for (int i = 0; i < 2; ++i) {
    Lattices call(handle, 1, 1, 1);
    const auto run = [&](void* memory, std::size_t size) {
      return i == 0 ? call.forward(memory, size) : call.backward(true, memory, size);
    };
    const std::size_t required = i == 0 ? call.forward_required : call.backward_required;
    EXPECT_EQ(run(nullptr, required + 1), kBad) << "a size without memory";
    EXPECT_EQ(turnoutLastError(), name[i] + ": workspace is NULL and workspace_size is " +
                                      std::to_string(required + 1) + ", expected memory");
    if (required > 0) {
      EXPECT_EQ(run(nullptr, 0), kBad);
      EXPECT_EQ(turnoutLastError(),
                name[i] + ": workspace_size is 0 bytes, expected " + std::to_string(required) + " or more");
      EXPECT_EQ(run(call.workspace.data(), 0), kBad);
      EXPECT_EQ(run(call.workspace.data(), required - 1), kBad);
      EXPECT_EQ(turnoutLastError(), name[i] + ": workspace_size is " + std::to_string(required - 1) +
                                        " bytes, expected " + std::to_string(required) + " or more");
      std::vector<float> shared(required);
      shared[4] = call.py[0];
      call.py.swap(shared);
      EXPECT_EQ(run(call.py.data(), required), kBad) << "the workspace is py";
      call.py.swap(shared);
    }
    call.expect_untouched();
    EXPECT_EQ(run(required == 0 ? nullptr : call.workspace.data(), required), kOk) << turnoutLastError();
  }
}

// A call uses the workspace at any alignment, and writes no byte around it.
TEST_F(CMutualInformation, NothingAroundTheWorkspaceIsTouched) {
  for (std::size_t offset : kWorkspaceOffsets) {
    Lattices call = random(3, 20, 40, 2);
    const std::size_t required = std::max(call.forward_required, call.backward_required);
    PaintedWorkspace workspace(required, offset);
    ASSERT_EQ(call.forward(workspace.begin(), call.forward_required), kOk) << turnoutLastError();
    ASSERT_EQ(call.backward(true, workspace.begin(), call.backward_required), kOk) << turnoutLastError();
    workspace.expect_used_and_nothing_around_it();
  }
}

TEST_F(CMutualInformation, TheSizeIsThatOfThePlanOnTheThreadsOfTheHandle) {
  const auto with_margin = [](std::size_t bytes) { return bytes == 0 ? 0 : bytes + 63; };
  for (int threads : {1, 2, 5}) {
    handle->context.set_threads(threads);
    Lattices call = random(6, 30, 50, 2);
    const families::mutual_information::LatticePlan plan(6, 30, 50, threads);
    EXPECT_EQ(call.forward_required, with_margin(plan.scratch_bytes()));
    EXPECT_EQ(call.backward_required, with_margin(plan.scratch_bytes()));
    call.expect_forward();
    call.expect_backward(true);
  }
}

TEST_F(CMutualInformation, QueriesLookAtNoShape) {
  const std::int64_t huge = std::int64_t{1} << 40;
  const Descriptor vector(MLUOP_DTYPE_INT8, {7}), negative(MLUOP_DTYPE_HALF, {-1, 2, 3});
  const Descriptor large(MLUOP_DTYPE_FLOAT, {huge, huge, huge}), odd(MLUOP_DTYPE_FLOAT, {2, 0, 9});
  const Descriptor limit(MLUOP_DTYPE_FLOAT, {1, 1 << 15, 1 << 16});  // 2^31 elements: one too many
  mluOpTensorDescriptor_t unset = nullptr;
  ASSERT_EQ(mluOpCreateTensorDescriptor(&unset), kOk);
  for (mluOpTensorDescriptor_t x :
       {static_cast<mluOpTensorDescriptor_t>(vector), static_cast<mluOpTensorDescriptor_t>(negative),
        static_cast<mluOpTensorDescriptor_t>(large), static_cast<mluOpTensorDescriptor_t>(limit),
        static_cast<mluOpTensorDescriptor_t>(odd), unset}) {
    for (const mluOpTensorDescriptor_t boundary : {static_cast<mluOpTensorDescriptor_t>(vector), x}) {
      std::size_t size = 1;
      EXPECT_EQ(mluOpGetMutualInformationForwardWorkspaceSize(handle, vector, x, boundary, x, x, &size), kOk);
      EXPECT_EQ(size, 0u);
      size = 1;
      EXPECT_EQ(
          mluOpGetMutualInformationBackwardWorkspaceSize(handle, x, vector, boundary, x, x, false, &size),
          kOk);
      EXPECT_EQ(size, 0u);
    }
  }
  EXPECT_EQ(mluOpDestroyTensorDescriptor(unset), kOk);
}

TEST_F(CMutualInformation, OverlapAndAlignment) {
  Lattices call(handle, 1, 1, 1);
  const auto backward = [&](void* px_grad, void* py_grad) {
    return mluOpMutualInformationBackward(
        handle, call.px_desc, call.px.data(), call.py_desc, call.py.data(), nullptr, nullptr, call.p_desc,
        call.p.data(), call.ans_desc, call.ans_grad.data(), true, call.workspace.data(),
        call.workspace.size(), call.px_desc, px_grad, call.py_desc, py_grad);
  };
  EXPECT_EQ(backward(call.px.data(), call.py_grad.data()), kBad);
  EXPECT_NE(std::string(turnoutLastError()).find("px_grad overlaps px"), std::string::npos);
  EXPECT_EQ(backward(call.px_grad.data(), call.px_grad.data()), kBad);
  EXPECT_EQ(backward(call.px_grad.data(), reinterpret_cast<char*>(call.py_grad.data()) + 1), kBad);
  EXPECT_NE(std::string(turnoutLastError()).find("py_grad.data is not aligned"), std::string::npos);
  call.expect_untouched();
}

}  // namespace
}  // namespace turnout::test
