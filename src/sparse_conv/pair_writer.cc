// Searches the index for pairs and writes them. README.md defines terms like tap and row offset.
#include "sparse_conv/pair_writer.h"

#include <algorithm>
#include <cstring>

#include "runtime/parallel.h"
#include "runtime/stream_copy.h"
#include "simd/copy.h"
#include "sparse_conv/kernels.h"

namespace turnout::families::sparse_conv {

using namespace core;
namespace {

constexpr std::int64_t kPairBytes = 2 * sizeof(std::int32_t);
constexpr std::int64_t kLeastBlock = 8192;  // fewer sites are not worth a separate block

}  // namespace

PairWriter::PairWriter(const PairIndex& index, const ConstTensor& indices, int threads)
    : index_(index), indices_(indices) {
  const std::int64_t rows = indices.shape[0], offsets = index.geometry().offset_count;
  const std::int64_t bytes = rows * index.geometry().kernel_volume * kPairBytes;
  parallel_ = bytes >= kParallelBytes;
  stream_ = is_streamed(bytes);
  if (!parallel_ || offsets == 0 || threads == 1) return;
  // With few row offsets there must be several blocks to keep all threads busy.
  const std::int64_t wanted = (4 * std::int64_t{threads} - 1) / offsets + 1;
  blocks_ = std::clamp<std::int64_t>(wanted, 1, rows / kLeastBlock + 1);
  workers_ = static_cast<int>(std::min<std::int64_t>(threads, offsets * blocks_));
}

std::int64_t PairWriter::count_elements() const {
  return index_.geometry().offset_count * blocks_ * index_.geometry().last_taps();
}
std::int64_t PairWriter::word_elements() const { return (index_.home_count() + 1) * workers_; }

std::size_t PairWriter::scratch_bytes() const {
  return array_bytes<std::int64_t>(count_elements()) + array_bytes<RankWord>(word_elements());
}

void PairWriter::run(Context& context, const Tensor& out_indices, const Tensor& indice_pairs,
                     const Tensor& indice_num, Scratch& scratch) const {
  auto* counts = scratch.take<std::int64_t>(count_elements());
  auto* words = scratch.take<RankWord>(word_elements());
  auto* pairs = static_cast<std::int32_t*>(indice_pairs.data);
  auto* num = static_cast<std::int32_t*>(indice_num.data);
  find_pairs(context, pairs, counts, words);
  join_blocks(context, pairs, counts, num);
  if (indices_.shape[0] > 0) fill_tails(context, pairs, num);
  write_sites(context, out_indices);
}

// Searches every window under every row offset; counts is [row offsets, blocks, taps]. The pairs of a block
// are written where they would be if every site of the earlier blocks had one; join_blocks() then closes the
// gaps.
void PairWriter::find_pairs(Context& context, std::int32_t* pairs, std::int64_t* counts,
                            RankWord* words) const {
  const Geometry& g = index_.geometry();
  const std::int64_t block_count = blocks_, taps = g.last_taps(), rows = indices_.shape[0];
  const ProbeKernels& kernels = probe_kernels(context.isa());
  const std::int64_t tasks = g.offset_count * block_count;
  const Stop stop;
  parallel_for(
      context, tasks, parallel_ ? 1 : tasks,
      [&](std::int64_t first, std::int64_t last, int worker) {
        RankWord* met = words + worker * (index_.home_count() + 1);
        for (std::int64_t task = first; task < last; ++task) {
          const RowOffset& offset = g.offsets[task / block_count];
          index_.look_up(offset.leaf_delta, met);
          for (std::int32_t w = 0; w < g.window_count; ++w) {
            if (stop.is_asked()) return;
            const Window& window = g.windows[w];
            const std::int64_t cls = std::int64_t{offset.cls} * g.last().classes + window.cls;
            const std::int64_t start = index_.class_start(cls), sites = index_.class_start(cls + 1) - start;
            const std::int64_t begin = block_begin(sites, task % block_count);
            const std::int64_t end = block_begin(sites, task % block_count + 1);
            std::int64_t* at = counts + task * taps + window.first_tap;
            std::fill_n(at, window.taps, begin < end ? begin : 0);
            if (begin == end) continue;
            const ProbeTask probe{met,
                                  index_.homes(window.slot) + start,
                                  index_.bits(window.slot) + start,
                                  index_.rows() != nullptr ? index_.rows() + start : nullptr,
                                  index_.row_of(),
                                  g.taps + window.first_tap,
                                  window.taps,
                                  window.mask,
                                  pairs + offset.k * 2 * rows,
                                  rows,
                                  stream_};
            kernels.probe(probe, begin, end, at);
            for (std::int32_t t = 0; t < window.taps; ++t) at[t] -= begin;
          }
        }
        if (stream_) copy_kernels(context.isa()).finish();
      },
      workers_);
}

// Closes the gaps between the blocks of each kernel offset, and writes its number of pairs.
void PairWriter::join_blocks(Context& context, std::int32_t* pairs, const std::int64_t* counts,
                             std::int32_t* num) const {
  const Geometry& g = index_.geometry();
  const std::int64_t block_count = blocks_, taps = g.last_taps(), rows = indices_.shape[0];
  std::fill_n(num, g.kernel_volume, 0);
  parallel_for(context, g.offset_count * taps, block_count > 1 ? 1 : g.offset_count * taps,
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t i = first; i < last; ++i) {
                   const RowOffset& offset = g.offsets[i / taps];
                   const Tap& tap = g.taps[i % taps];
                   const std::int64_t cls =
                       std::int64_t{offset.cls} * g.last().classes + g.last().offsets[tap.k].cls;
                   const std::int64_t sites = index_.class_start(cls + 1) - index_.class_start(cls);
                   const std::int64_t* count = counts + i / taps * block_count * taps + i % taps;
                   std::int32_t* to = pairs + (offset.k + tap.k) * 2 * rows;
                   std::int64_t sum = count[0];
                   for (std::int64_t block = 1; block < block_count; ++block) {
                     const std::int64_t begin = block_begin(sites, block);
                     const auto bytes = static_cast<std::size_t>(count[block * taps]) * sizeof(*to);
                     std::memmove(to + sum, to + begin, bytes);
                     std::memmove(to + rows + sum, to + rows + begin, bytes);
                     sum += count[block * taps];
                   }
                   num[offset.k + tap.k] = static_cast<std::int32_t>(sum);
                 }
               });
}

// Fills the rest of each row of pairs with -1.
void PairWriter::fill_tails(Context& context, std::int32_t* pairs, const std::int32_t* num) const {
  const std::int64_t rows = indices_.shape[0], all = index_.geometry().kernel_volume * 2 * rows;
  const bool stream = stream_;
  const ProbeKernels& kernels = probe_kernels(context.isa());
  const std::int64_t grain = kRangeBytes / std::int64_t{sizeof(*pairs)};
  parallel_for(context, all, parallel_ ? grain : all, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin / rows; line * rows < end; ++line) {
      const std::int64_t from = std::max(begin, line * rows + num[line / 2]);
      const std::int64_t to = std::min(end, (line + 1) * rows);
      if (from < to) kernels.fill(pairs + from, to - from, stream);
    }
    if (stream) copy_kernels(context.isa()).finish();
  });
}

void PairWriter::write_sites(Context& context, const Tensor& out_indices) const {
  const std::int64_t columns = out_indices.shape[1], active = index_.active();
  const std::int64_t bytes = active * columns * size_of(out_indices.dtype);
  if (index_.geometry().submanifold) {
    if (is_streamed(bytes)) {
      stream_copy(context, out_indices.data, indices_.data, bytes);
    } else if (bytes > 0) {
      std::memcpy(out_indices.data, indices_.data, static_cast<std::size_t>(bytes));
    }
  } else {
    index_.write_outputs(context, out_indices);
  }
  const std::int64_t left = (out_indices.shape[0] - active) * columns * size_of(out_indices.dtype);
  serial_for(0, left, [&](std::int64_t begin, std::int64_t end) {
    std::memset(static_cast<std::byte*>(out_indices.data) + bytes + begin, 0xFF,
                static_cast<std::size_t>(end - begin));
  });
}

}  // namespace turnout::families::sparse_conv
