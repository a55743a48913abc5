// Implements DirectSums and DirectExtremes: the plans. direct_kernels.cc and extreme_kernels.cc have the
// loops.
#include "dynamic_scatter/direct.h"

#include <algorithm>
#include <cstring>

#include "core/dtypes.h"
#include "runtime/parallel.h"

namespace turnout::families::dynamic_scatter {

using namespace core;
namespace {

// A table that does not stay in the cache is updated in main memory, which takes longer than grouping the
// rows, unless rows are so short that the grouping takes most of the time.
constexpr std::int64_t kCachedBytes = 1 << 20, kMostBytes = 8 << 20;
constexpr std::int64_t kShortRowBytes = 64;
// Two threads that group rows take longer than one that adds them if the rows are short or there are few.
constexpr std::int64_t kNarrowBytes = 128, kNarrowBytesOfNearTable = 256, kNearBytes = 64 << 10;
constexpr std::int64_t kFewBytes = 2 * kParallelBytes;
constexpr int kFewThreads = 4;

bool is_half(DType dtype) { return size_of(dtype) == 2; }
std::int64_t lane_bytes(DType dtype) { return std::max<std::int64_t>(size_of(dtype), 4); }

}  // namespace

bool DirectPlan::pays(int threads) const {
  const std::int64_t bytes = groups_ * row_bytes_;
  if (groups_ > 2 * rows_ || bytes > (row_bytes_ <= kShortRowBytes ? kMostBytes : kCachedBytes)) return false;
  if (threads == 1 || rows_ * row_bytes_ < kFewBytes) return true;
  return threads <= kFewThreads &&
         row_bytes_ < (bytes <= kNearBytes ? kNarrowBytesOfNearTable : kNarrowBytes);
}

template <class Add>
void DirectPlan::run(Call& call, const Add& add) const {
  call.chose("in order", 1);
  serial_for(0, rows_, add);
}

DirectSums::DirectSums(std::int64_t rows, const Tensor& out, Reduce reduce_type)
    : plan_(rows, out.shape[0], out.shape[1], lane_bytes(out.dtype)), out_(out), reduce_type_(reduce_type) {}

std::size_t DirectSums::scratch_bytes() const {
  return (is_half(out_.dtype) ? array_bytes<float>(plan_.elements()) : 0) +
         (reduce_type_ == Reduce::mean ? array_bytes<std::int32_t>(plan_.groups()) : 0);
}

void DirectSums::run(Context& context, Call& call, const std::int32_t* map, const void* src,
                     Scratch& scratch) const {
  const DirectKernels::Add add = direct_kernels(context.isa()).add(out_.dtype);
  void* sums = is_half(out_.dtype) ? scratch.take<float>(plan_.elements()) : out_.data;
  std::memset(sums, 0, static_cast<std::size_t>(plan_.elements() * lane_bytes(out_.dtype)));
  const DirectTask task{map, plan_.channels(), src, sums};
  plan_.run(call, [&](std::int64_t first, std::int64_t last) { add(task, first, last); });
  if (!is_half(out_.dtype) && reduce_type_ != Reduce::mean) return;
  std::int32_t* counts = nullptr;
  if (reduce_type_ == Reduce::mean) {
    counts = scratch.take<std::int32_t>(plan_.groups());
    std::fill_n(counts, plan_.groups(), 0);
    serial_for(0, plan_.rows(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t x = begin; x < end; ++x) ++counts[map[x]];
    });
  }
  const FpEnvironment environment;
  direct_kernels(context.isa())
      .finish(out_.dtype, reduce_type_)(sums, counts, plan_.groups(), plan_.channels(), out_.data);
}

DirectExtremes::DirectExtremes(std::int64_t rows, const Tensor& out, const Tensor& arg, Extreme which)
    : plan_(rows, out.shape[0], out.shape[1],
            lane_bytes(out.dtype) + (arg.is_absent() ? 0 : std::int64_t{sizeof(*DirectExtremeTask::from)})),
      out_(out),
      arg_(arg),
      which_(which) {}

std::size_t DirectExtremes::scratch_bytes() const {
  return (is_half(out_.dtype) ? array_bytes<float>(plan_.elements()) : 0) +
         (arg_.is_absent() ? 0 : array_bytes<std::int32_t>(plan_.elements()));
}

void DirectExtremes::run(Context& context, Call& call, const std::int32_t* map, const void* src,
                         Scratch& scratch) const {
  const ExtremeKernels& kernels = extreme_kernels(context.isa());
  const std::int64_t elements = plan_.elements();
  void* best = is_half(out_.dtype) ? scratch.take<float>(elements) : out_.data;
  auto* from = arg_.is_absent() ? nullptr : scratch.take<std::int32_t>(elements);
  const DirectExtremeTask task{map, plan_.channels(), src, best, from};
  kernels.start(which_, out_.dtype)(elements, best);
  if (from != nullptr) std::fill_n(from, elements, static_cast<std::int32_t>(plan_.rows()));
  const auto add = kernels.add(which_, out_.dtype, from != nullptr);
  plan_.run(call, [&](std::int64_t first, std::int64_t last) { add(task, first, last); });
  kernels.finish(which_, out_.dtype)(elements, best, out_.data);
  if (from != nullptr)
    visit_index(arg_.dtype, [&](auto type) {
      std::copy_n(from, elements, static_cast<typename decltype(type)::type*>(arg_.data));
    });
}

}  // namespace turnout::families::dynamic_scatter
