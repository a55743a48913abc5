// The plan of the index pairs. Words like tap and row offset are defined in README.md.
#include "turnout/sparse_conv.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "indices/indices.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "runtime/stream_copy.h"
#include "simd/copy.h"
#include "sparse_conv/index.h"
#include "sparse_conv/kernels.h"
#include "sparse_conv/signature.h"

namespace turnout {
namespace {

using namespace core;
using namespace families::sparse_conv;

constexpr std::int64_t kPairBytes = 2 * sizeof(std::int32_t);
constexpr std::int64_t kLeastBlock = 8192;  // fewer sites are not worth a block of their own

// floor(a / b) for b > 0.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0); }

std::int64_t output_size(const IndicePairsParams& p, int d) {
  const std::int64_t in = p.spatial_shape[d], kernel = p.kernel_size[d];
  if (kernel == -1) return 1;
  if (p.mode == ConvMode::transposed)
    return (in - 1) * p.stride[d] - 2 * p.padding[d] + kernel + p.output_padding[d];
  const std::int64_t reach = in + 2 * p.padding[d] - p.dilation[d] * (kernel - 1) - 1;
  return p.stride[d] > 0 ? floor_divide(reach, p.stride[d]) + 1 : 0;
}

// Fills in the defaults. Arguments whose length is not that of spatial_shape are left for the checks to
// refuse.
IndicePairsParams resolved(const IndicePairsParams& given) {
  IndicePairsParams p = given;
  const int dims = p.spatial_shape.count();
  const auto fill = [&](Dims& values, std::int64_t value) {
    if (values.count() == 0) values = Dims::filled(dims, value);
  };
  const bool submanifold = p.mode == ConvMode::submanifold;
  const bool centred = submanifold && p.padding.count() == 0, derived = p.output_shape.count() == 0;
  fill(p.stride, 1);
  fill(p.padding, 0);
  fill(p.dilation, 1);
  if (p.output_padding.count() != dims) p.output_padding = Dims::filled(dims, 0);
  bool in_range = true;  // if not, the checks refuse an argument before they look at derived ones
  for (const Dims* values :
       {&p.spatial_shape, &p.kernel_size, &p.stride, &p.padding, &p.dilation, &p.output_padding}) {
    if (values->count() != dims) return p;
    for (int d = 0; d < dims; ++d) in_range &= (*values)[d] >= -1 && (*values)[d] <= kMaxSpatial;
  }
  fill(p.output_shape, 1);
  for (int d = 0; d < dims && in_range; ++d) {
    if (derived) p.output_shape[d] = submanifold ? p.spatial_shape[d] : output_size(p, d);
    if (p.kernel_size[d] == -1 && p.mode == ConvMode::sparse) p.kernel_size[d] = p.spatial_shape[d];
    if (centred) p.padding[d] = p.kernel_size[d] / 2 * p.dilation[d];
  }
  return p;
}

// Checks what the signature does not see, because resolved() has turned it into other arguments.
void check_given(Call& call, const IndicePairsParams& given) {
  const Dims &kernel = given.kernel_size, &beyond = given.output_padding;
  const std::int64_t dims = given.spatial_shape.count();
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::bad_param, concat("get_indice_pairs: ", what));
  };
  call.check([&] {
    if (beyond.count() > 0 && beyond.count() != dims)
      refuse(
          concat("output_padding has ", std::int64_t{beyond.count()}, " elements, expected dims = ", dims));
    for (int d = 0; d < beyond.count(); ++d)
      if (beyond[d] < 0 || beyond[d] > kMaxSpatial)
        refuse(
            concat("output_padding[", std::int64_t{d}, "] is ", beyond[d], ", expected 0 .. ", kMaxSpatial));
    if (given.mode != ConvMode::submanifold || given.padding.count() > 0) return;
    for (int d = 0; d < kernel.count(); ++d)
      if (kernel[d] % 2 == 0)
        refuse(concat("kernel_size[", std::int64_t{d}, "] is ", kernel[d],
                      ", expected an odd number in submanifold mode when no padding is given"));
  });
}

// The scalars in the order of the signature. They point into `p`.
std::array<ScalarValue, 8> scalars_of(const IndicePairsParams& p) {
  const auto values = [](const Dims& dims) { return ScalarValue(dims.data(), dims.count()); };
  return {p.batch_size,      values(p.spatial_shape), values(p.kernel_size),  values(p.stride),
          values(p.padding), values(p.dilation),      values(p.output_shape), p.mode};
}

void check_count(int count) {
  if (count < 0 || count > Dims::kMax)
    throw Error(ErrorCode::bad_param, concat("Dims: ", std::int64_t{count}, " values, expected at most ",
                                             std::int64_t{Dims::kMax}));
}

}  // namespace

Dims::Dims(const std::int64_t* values, int count) : count_(count) {
  check_count(count);
  std::copy(values, values + count, values_);
}

Dims Dims::filled(int count, std::int64_t value) {
  check_count(count);
  Dims dims;
  dims.count_ = count;
  std::fill(dims.values_, dims.values_ + count, value);
  return dims;
}

Dims indice_pairs_output_shape(const IndicePairsParams& params) {
  IndicePairsParams p = params;
  p.output_shape = {};
  return resolved(p).output_shape;
}

void families::sparse_conv::check_mode(const Arguments& arguments, const Positions& at) {
  if (static_cast<ConvMode>(arguments.size(at[0])) != ConvMode::submanifold) return;
  const std::int64_t* stride = arguments.scalar(at[1]).values;
  const std::int64_t* in = arguments.scalar(at[2]).values;
  const std::int64_t* out = arguments.scalar(at[3]).values;
  for (std::int64_t d = 0; d < arguments.scalar(at[2]).value; ++d) {
    if (stride[d] != 1)
      arguments.fail(ErrorCode::bad_param,
                     concat("stride[", d, "] is ", stride[d], ", expected 1 in submanifold mode"));
    if (out[d] != in[d])
      arguments.fail(ErrorCode::bad_param, concat("output_shape[", d, "] is ", out[d], ", expected ", in[d],
                                                  " as spatial_shape in submanifold mode"));
  }
}

void families::sparse_conv::check_coordinates(const Arguments& arguments, const Positions& at) {
  const Slot& indices = arguments.slot(at[0]);
  const std::int64_t rows = indices.shape[0];
  const int columns = static_cast<int>(indices.shape[1]);
  std::int64_t limits[Dims::kMax + 1] = {arguments.size(at[1])};
  std::copy_n(arguments.scalar(at[2]).values, columns - 1, limits + 1);
  if (all_in_range({indices.data, indices.dtype, indices.shape, indices.rank}, limits)) return;
  visit_index(indices.dtype, [&](auto type) {
    const auto* data = static_cast<const typename decltype(type)::type*>(indices.data);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const std::int64_t limit = limits[i % columns];
      if (!in_range(data[i], limit))
        arguments.fail(ErrorCode::bad_param, concat("indices[", i / columns, ", ", i % columns, "] is ",
                                                    std::int64_t{data[i]}, ", expected 0 .. ", limit - 1));
    }
  });
}

struct IndicePairs::State {
  Context& context;
  ConstTensor indices;
  IndicePairsParams params;
  Scratch memory;  // this State lies there
  PairIndex index;

  State(Context& where, Call& call, const ConstTensor& sites, const IndicePairsParams& p, Scratch&& scratch)
      : context(where),
        indices(sites),
        params(p),
        memory(std::move(scratch)),
        index(where, call, sites, p, memory) {}

  static State* make(Context& context, Call& call, const ConstTensor& indices, const IndicePairsParams& p) {
    Scratch memory = call.lease(indice_pairs_scratch(indices.shape[0], p));
    void* place = memory.take<std::byte>(sizeof(State));
    State* state = new (place) State(context, call, indices, p, std::move(memory));
    call.chose(state->index.is_bitmap() ? "bitmap" : "sorted keys", context.threads());
    return state;
  }
  void destroy() {
    const Scratch kept = std::move(memory);
    this->~State();
  }

  void write(Call& call, const Tensor& out_indices, const Tensor& indice_pairs,
             const Tensor& indice_num) const;
  // How the pairs are written. Decided once per call: another thread may change the number of threads
  // meanwhile.
  struct Plan {
    std::int64_t blocks;  // the sites of a window are cut into so many blocks
    int workers;          // threads that search at the same time, at most
    bool parallel, stream;
    std::int64_t begin(std::int64_t sites, std::int64_t block) const { return sites * block / blocks; }
  };
  Plan plan() const;
  void find_pairs(const Plan& plan, std::int32_t* pairs, std::int64_t* counts, RankWord* words) const;
  void join_blocks(const Plan& plan, std::int32_t* pairs, const std::int64_t* counts,
                   std::int32_t* num) const;
  void fill_tails(const Plan& plan, std::int32_t* pairs, const std::int32_t* num) const;
  void write_sites(const Tensor& out_indices) const;
  std::int64_t pair_bytes() const { return indices.shape[0] * index.geometry().kernel_volume * kPairBytes; }
};

std::size_t families::sparse_conv::indice_pairs_scratch(std::int64_t rows, const IndicePairsParams& params) {
  return padded(sizeof(IndicePairs::State)) + PairIndex::bytes(rows, params);
}

IndicePairs::State::Plan IndicePairs::State::plan() const {
  const std::int64_t threads = context.threads(), offsets = index.geometry().offset_count;
  const bool parallel = pair_bytes() >= kParallelBytes, stream = pair_bytes() >= kStreamBytes;
  if (!parallel || offsets == 0 || threads == 1) return {1, 1, parallel, stream};
  // With few row offsets there must be several blocks to keep all threads busy.
  const std::int64_t wanted = (4 * threads - 1) / offsets + 1;
  const std::int64_t blocks = std::clamp<std::int64_t>(wanted, 1, indices.shape[0] / kLeastBlock + 1);
  return {blocks, static_cast<int>(std::min(threads, offsets * blocks)), parallel, stream};
}

// Searches every window under every row offset; counts is [row offsets, blocks, taps]. The pairs of a block
// are written where they would be if every site of the earlier blocks had one; join_blocks() moves them
// together.
void IndicePairs::State::find_pairs(const Plan& plan, std::int32_t* pairs, std::int64_t* counts,
                                    RankWord* words) const {
  const Geometry& g = index.geometry();
  const std::int64_t block_count = plan.blocks, taps = g.last_taps(), rows = indices.shape[0];
  const ProbeKernels& kernels = probe_kernels(context.isa());
  const std::int64_t tasks = g.offset_count * block_count;
  parallel_for(
      context, tasks, plan.parallel ? 1 : tasks,
      [&](std::int64_t first, std::int64_t last, int worker) {
        RankWord* met = words + worker * (index.home_count() + 1);
        for (std::int64_t task = first; task < last; ++task) {
          const RowOffset& offset = g.offsets[task / block_count];
          index.look_up(offset.leaf_delta, met);
          for (std::int32_t w = 0; w < g.window_count; ++w) {
            const Window& window = g.windows[w];
            const std::int64_t cls = std::int64_t{offset.cls} * g.last().classes + window.cls;
            const std::int64_t start = index.class_start(cls), sites = index.class_start(cls + 1) - start;
            const std::int64_t begin = plan.begin(sites, task % block_count);
            const std::int64_t end = plan.begin(sites, task % block_count + 1);
            std::int64_t* at = counts + task * taps + window.first_tap;
            std::fill_n(at, window.taps, begin < end ? begin : 0);
            if (begin == end) continue;
            const ProbeTask probe{met,
                                  index.homes(window.slot) + start,
                                  index.bits(window.slot) + start,
                                  index.rows() != nullptr ? index.rows() + start : nullptr,
                                  index.row_of(),
                                  g.taps + window.first_tap,
                                  window.taps,
                                  window.mask,
                                  pairs + offset.k * 2 * rows,
                                  rows,
                                  plan.stream};
            kernels.probe(probe, begin, end, at);
            for (std::int32_t t = 0; t < window.taps; ++t) at[t] -= begin;
          }
        }
        if (plan.stream) copy_kernels(context.isa()).finish();
      },
      plan.workers);
}

// Moves the blocks of each kernel offset together and writes how many pairs it has.
void IndicePairs::State::join_blocks(const Plan& plan, std::int32_t* pairs, const std::int64_t* counts,
                                     std::int32_t* num) const {
  const Geometry& g = index.geometry();
  const std::int64_t block_count = plan.blocks, taps = g.last_taps(), rows = indices.shape[0];
  std::fill_n(num, g.kernel_volume, 0);
  parallel_for(context, g.offset_count * taps, block_count > 1 ? 1 : g.offset_count * taps,
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t i = first; i < last; ++i) {
                   const RowOffset& offset = g.offsets[i / taps];
                   const Tap& tap = g.taps[i % taps];
                   const std::int64_t cls =
                       std::int64_t{offset.cls} * g.last().classes + g.last().offsets[tap.k].cls;
                   const std::int64_t sites = index.class_start(cls + 1) - index.class_start(cls);
                   const std::int64_t* count = counts + i / taps * block_count * taps + i % taps;
                   std::int32_t* to = pairs + (offset.k + tap.k) * 2 * rows;
                   std::int64_t sum = count[0];
                   for (std::int64_t block = 1; block < block_count; ++block) {
                     const std::int64_t begin = plan.begin(sites, block);
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
void IndicePairs::State::fill_tails(const Plan& plan, std::int32_t* pairs, const std::int32_t* num) const {
  const std::int64_t rows = indices.shape[0], all = index.geometry().kernel_volume * 2 * rows;
  const bool stream = plan.stream;
  const ProbeKernels& kernels = probe_kernels(context.isa());
  const std::int64_t grain = kRangeBytes / std::int64_t{sizeof(*pairs)};
  parallel_for(context, all, plan.parallel ? grain : all, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin / rows; line * rows < end; ++line) {
      const std::int64_t from = std::max(begin, line * rows + num[line / 2]);
      const std::int64_t to = std::min(end, (line + 1) * rows);
      if (from < to) kernels.fill(pairs + from, to - from, stream);
    }
    if (stream) copy_kernels(context.isa()).finish();
  });
}

void IndicePairs::State::write_sites(const Tensor& out_indices) const {
  const std::int64_t columns = out_indices.shape[1], active = index.active();
  const std::int64_t bytes = active * columns * size_of(out_indices.dtype);
  if (index.geometry().submanifold) {
    if (bytes >= kStreamBytes) {
      stream_copy(context, out_indices.data, indices.data, bytes);
    } else if (bytes > 0) {
      std::memcpy(out_indices.data, indices.data, static_cast<std::size_t>(bytes));
    }
  } else {
    index.write_outputs(context, out_indices);
  }
  const std::int64_t left = (out_indices.shape[0] - active) * columns * size_of(out_indices.dtype);
  if (left > 0)
    std::memset(static_cast<std::byte*>(out_indices.data) + bytes, 0xFF, static_cast<std::size_t>(left));
}

void IndicePairs::State::write(Call& call, const Tensor& out_indices, const Tensor& indice_pairs,
                               const Tensor& indice_num) const {
  call.check([&] {
    if (out_indices.shape[0] < index.active())
      throw Error(ErrorCode::bad_param,
                  concat("get_indice_pairs: out_indices.shape[0] is ", out_indices.shape[0],
                         ", expected num_act_out = ", index.active(), " or more"));
  });
  const Geometry& g = index.geometry();
  const Plan how = plan();
  const std::int64_t counters = g.offset_count * how.blocks * g.last_taps();
  const std::int64_t words = (index.home_count() + 1) * how.workers;
  Scratch& scratch = call.scratch(padded(static_cast<std::size_t>(counters) * sizeof(std::int64_t)) +
                                  static_cast<std::size_t>(words) * sizeof(RankWord));
  auto* counts = scratch.take<std::int64_t>(counters);
  auto* pairs = static_cast<std::int32_t*>(indice_pairs.data);
  auto* num = static_cast<std::int32_t*>(indice_num.data);
  find_pairs(how, pairs, counts, scratch.take<RankWord>(words));
  join_blocks(how, pairs, counts, num);
  if (indices.shape[0] > 0) fill_tails(how, pairs, num);
  write_sites(out_indices);
}

IndicePairs::IndicePairs(Context& context, const ConstTensor& indices, const IndicePairsParams& params) {
  const IndicePairsParams p = resolved(params);
  Call call(context, kIndicePairsIndex, {indices, Slot(), Slot(), Slot()}, scalars_of(p));
  check_given(call, params);
  state_ = State::make(context, call, indices, p);
}

IndicePairs::~IndicePairs() { state_->destroy(); }

std::int64_t IndicePairs::num_act_out() const { return state_->index.active(); }
std::int64_t IndicePairs::kernel_volume() const { return state_->index.geometry().kernel_volume; }
const Dims& IndicePairs::output_shape() const { return state_->params.output_shape; }

void IndicePairs::write(const Tensor& out_indices, const Tensor& indice_pairs,
                        const Tensor& indice_num) const {
  Call call(state_->context, kIndicePairsResult, {state_->indices, out_indices, indice_pairs, indice_num},
            scalars_of(state_->params));
  if (call.nothing_to_do()) return;
  state_->write(call, out_indices, indice_pairs, indice_num);
}

std::int64_t get_indice_pairs(Context& context, const ConstTensor& indices, const Tensor& out_indices,
                              const Tensor& indice_pairs, const Tensor& indice_num,
                              const IndicePairsParams& params) {
  const IndicePairsParams p = resolved(params);
  Call call(context, kGetIndicePairs, {indices, out_indices, indice_pairs, indice_num}, scalars_of(p));
  check_given(call, params);
  if (call.nothing_to_do()) return 0;
  const IndicePairs pairs(IndicePairs::State::make(context, call, indices, p));
  pairs.state_->write(call, out_indices, indice_pairs, indice_num);
  return pairs.num_act_out();
}

}  // namespace turnout
