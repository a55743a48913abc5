// Tests arrays of more than 2^31 elements that occupy the memory of a few rows.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "dynamic_scatter/test_cases.h"
#include "sanitizer.h"

namespace turnout::test {
namespace {

constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 1;  // more elements than int32 can count

// Address space for kFar 16-bit floats and a few rows more.
constexpr std::int64_t kFold = 8 << 20, kOwn = 16 << 20;
constexpr std::int64_t kBytes = (2 * kFar + (4 << 20)) / kFold * kFold + kFold;

std::byte* mapped(void* where, std::int64_t bytes, int flags, int file = -1) {
  void* memory =
      mmap(where, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// Two arrays that all tests share. `in` is zeros, of which only the parts that a test writes take memory. The
// first and the last bytes of `out` have separate memory; everything in between maps the same few pages
// repeatedly, so that it can be written but not compared.
class DynamicScatterLarge : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (kReducedShapes) return;
    in_ = mapped(nullptr, kBytes, MAP_PRIVATE | MAP_ANONYMOUS);
    if (in_ != nullptr) madvise(in_, kBytes, MADV_HUGEPAGE);  // 2048 page faults instead of a million
    const int file = memfd_create("folded", MFD_CLOEXEC);
    std::byte* all = mapped(nullptr, kBytes, MAP_PRIVATE | MAP_ANONYMOUS);
    bool is_there = all != nullptr && file >= 0 && ftruncate(file, kFold) == 0;
    for (std::int64_t at = kOwn; is_there && at < kBytes - kOwn; at += kFold)
      is_there = mapped(all + at, kFold, MAP_FIXED | MAP_SHARED | MAP_POPULATE, file) != nullptr;
    if (file >= 0) close(file);
    if (is_there) {
      out_ = all;
    } else if (all != nullptr) {
      munmap(all, kBytes);
    }
  }
  static void TearDownTestSuite() {
    for (std::byte* array : {in_, out_})
      if (array != nullptr) munmap(array, kBytes);
  }
  void SetUp() override {
    if (kReducedShapes) GTEST_SKIP() << "the memory that a sanitizer keeps beside the arrays is not shared";
    if (in_ == nullptr || out_ == nullptr) GTEST_SKIP() << "this system gives no 4.3 GB of address space";
    madvise(in_, kBytes, MADV_DONTNEED);  // zeros again
  }

  static bf16* in() { return reinterpret_cast<bf16*>(in_); }
  static bf16* out() { return reinterpret_cast<bf16*>(out_); }
  static ConstTensor in_view(std::initializer_list<Size> shape) { return {in_, DType::bf16, shape}; }
  static Tensor out_view(std::initializer_list<Size> shape) { return {out_, DType::bf16, shape}; }

 private:
  static inline std::byte *in_ = nullptr, *out_ = nullptr;
};

bf16 bf(float v) { return core::from_float<bf16>(v); }
float value(bf16 v) { return core::to_float(v); }

template <class T>
ConstTensor const_view(const std::vector<T>& values, std::initializer_list<Size> shape) {
  return view(values.data(), shape);
}

// Few points with very many channels. The first and the last are in one voxel, the others in none.
TEST_F(DynamicScatterLarge, ManyChannels) {
  constexpr std::int64_t kChannels = 512012, kPoints = kFar / kChannels + 2;
  constexpr std::int64_t kEnd = (kPoints - 1) * kChannels;  // where the last point begins
  static_assert(kEnd > kFar - 1 && (kEnd + kChannels) * 2 <= kBytes);
  in()[0] = bf(3);
  in()[kChannels - 1] = bf(1);
  in()[kEnd] = in()[kEnd + kChannels - 1] = bf(2);
  std::vector<std::int32_t> coors = sized<std::int32_t>(kPoints, -1), map = coors, cells(1), count(1);
  coors.front() = coors.back() = 5;
  std::vector<bf16> voxel_feats = sized<bf16>(kChannels), grad = sized<bf16>(kChannels, bf(8));
  const ConstTensor feats = in_view({kPoints, kChannels}), reduced = const_view(voxel_feats, {1, kChannels});
  const auto forward = [&](Reduce reduce_type) {
    EXPECT_EQ(dynamic_scatter_forward(feats, const_view(coors, {kPoints, 1}),
                                      view(voxel_feats.data(), {1, kChannels}), view(cells.data(), {1, 1}),
                                      view(map.data(), {kPoints}), view(count.data(), {1}), reduce_type),
              1);
    return std::pair(value(voxel_feats.front()), value(voxel_feats.back()));
  };
  EXPECT_EQ(forward(Reduce::sum), std::pair(5.0f, 3.0f));
  EXPECT_EQ(forward(Reduce::max), std::pair(3.0f, 2.0f));
  EXPECT_EQ(map.front(), 0);
  EXPECT_EQ(map.back(), 0);
  for (const std::int64_t i : {std::int64_t{0}, kChannels - 1, kEnd, kEnd + kChannels - 1})
    out()[i] = bf(kOld);
  dynamic_scatter_backward(const_view(grad, {1, kChannels}), feats, reduced, const_view(map, {kPoints}),
                           nullptr, nullptr, out_view({kPoints, kChannels}), Reduce::max);
  EXPECT_EQ(value(out()[0]), 8);
  EXPECT_EQ(value(out()[kChannels - 1]), 0);
  EXPECT_EQ(value(out()[kChannels]), 0);
  EXPECT_EQ(value(out()[kEnd - 1]), 0);
  EXPECT_EQ(value(out()[kEnd]), 0);
  EXPECT_EQ(value(out()[kEnd + kChannels - 1]), 8);
}

// Each point is a voxel, in reverse order, except the last, which is in the voxel of the first.
TEST_F(DynamicScatterLarge, ManyPointsAndVoxels) {
  constexpr std::int64_t kChannels = 2048, kPoints = kFar / kChannels + 3, kVoxels = kPoints - 1;
  constexpr std::int64_t kEnd = (kPoints - 1) * kChannels, kEndVoxel = (kVoxels - 1) * kChannels;
  static_assert(kEndVoxel > kFar - 1 && (kEnd + kChannels) * 2 <= kBytes);
  std::vector<std::int32_t> coors(kPoints), map(kPoints), cells(kVoxels), count(kVoxels);
  for (std::int64_t x = 0; x < kPoints; ++x)
    coors.data()[x] = static_cast<std::int32_t>(x == kPoints - 1 ? kPoints : kPoints - x);
  in()[0] = bf(3);
  in()[kEnd] = bf(4);
  out()[kEndVoxel] = bf(kOld);
  EXPECT_EQ(dynamic_scatter_forward(in_view({kPoints, kChannels}), const_view(coors, {kPoints, 1}),
                                    out_view({kVoxels, kChannels}), view(cells.data(), {kVoxels, 1}),
                                    view(map.data(), {kPoints}), view(count.data(), {kVoxels}), Reduce::mean),
            kVoxels);
  EXPECT_EQ(map.front(), kVoxels - 1);
  EXPECT_EQ(map.back(), kVoxels - 1);
  EXPECT_EQ(count.back(), 2);
  EXPECT_EQ(value(out()[kEndVoxel]), 3.5f);
  EXPECT_EQ(value(out()[kEndVoxel + 1]), 0);

  in()[kEndVoxel + 7] = bf(12);  // now as gradients
  out()[7] = out()[kEnd + 7] = bf(kOld);
  const ConstTensor counts = const_view(count, {kVoxels});
  dynamic_scatter_backward(in_view({kVoxels, kChannels}), nullptr, nullptr, const_view(map, {kPoints}),
                           counts, nullptr, out_view({kPoints, kChannels}), Reduce::mean);
  EXPECT_EQ(value(out()[7]), 6);
  EXPECT_EQ(value(out()[8]), 0);
  EXPECT_EQ(value(out()[kEnd + 7]), 6);
  EXPECT_EQ(value(out()[kEnd + 8]), 0);
}

// Points with very many features, all in one voxel.
TEST_F(DynamicScatterLarge, VoxelsOfLongPoints) {
  constexpr std::int64_t kFeatures = 512012, kPoints = kFar / kFeatures + 2;
  constexpr std::int64_t kEnd = (kPoints - 1) * kFeatures;
  const double size[3] = {1, 1, 1}, range[6] = {0, 0, 0, 4, 4, 4};
  in()[kEnd] = bf(0.5f);
  in()[kEnd + kFeatures - 1] = bf(42);
  out()[kEnd] = out()[kEnd + kFeatures - 1] = bf(kOld);
  std::vector<std::int64_t> coors(3, kOld), num(1), all(3 * kPoints);
  const ConstTensor points = in_view({kPoints, kFeatures});
  EXPECT_EQ(voxelize_hard(points, out_view({1, kPoints, kFeatures}), view(coors.data(), {1, 3}),
                          view(num.data(), {1}), nullptr, size, range),
            1);
  EXPECT_EQ(num[0], kPoints);
  EXPECT_EQ(coors, (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(value(out()[kEnd - 1]), 0);
  EXPECT_EQ(value(out()[kEnd]), 0.5f);
  EXPECT_EQ(value(out()[kEnd + kFeatures - 1]), 42);

  in()[kEnd] = bf(3);
  voxelize(points, view(all.data(), {kPoints, 3}), size, range);
  EXPECT_EQ(all.back(), 3);
  EXPECT_EQ(all.data()[3 * kPoints - 4], 0);
}

}  // namespace
}  // namespace turnout::test
