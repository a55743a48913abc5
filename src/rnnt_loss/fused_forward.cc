// Plan of the fused joiner and log-probabilities.
#include "core/dtypes.h"
#include "rnnt_loss/fused.h"
#include "rnnt_loss/signature.h"
#include "runtime/parallel.h"

namespace turnout::families::rnnt_loss {

using namespace core;
namespace {

template <class T>
void forward(Call& call, const FusedShape& shape, const JoinerInputs& from, const Lattices::Source& source,
             const Tensor& px, const Tensor& py, const Tensor& normalizer, const Tensor& nan_at) {
  using Lane = LaneOf<T>;
  Context& context = call.context();
  const FrameRanges ranges(shape.joint, shape.is_parallel());
  const int workers = shape.is_parallel() ? context.threads() : 1;
  Joiner<T> joiner(shape, from, context.isa());
  Scratch& scratch = call.scratch(Lattices::scratch_bytes(shape.joint.lattice, true) +
                                  array_bytes<std::int64_t>(ranges.count) + joiner.shared_bytes() +
                                  static_cast<std::size_t>(workers) * joiner.tile_bytes());
  const Lattices lattices(call, shape.joint.lattice, source, scratch);
  auto* found = scratch.take<std::int64_t>(ranges.count);
  joiner.pack(scratch);
  auto* memory = scratch.take<std::byte>(static_cast<std::int64_t>(joiner.tile_bytes()) * workers);
  call.chose("tiles of rows", workers);
  parallel_for(
      context, ranges.count, ranges.grain(),
      [&](std::int64_t begin, std::int64_t end, int worker) {
        const FpEnvironment environment(Denormals::flushed);
        const auto tile = joiner.tile(memory + joiner.tile_bytes() * static_cast<std::size_t>(worker));
        for (std::int64_t i = begin; i < end; ++i) {
          const JointRange<Lane> range(shape.joint, lattices, ranges, i);
          StepWriter<Lane> writer(range, shape.joint, joiner.rows(), px.data, py.data,
                                  static_cast<Lane*>(normalizer.data));
          const auto flush = [&](const Row* rows, std::int64_t count) {
            joiner.fill(rows, count, tile);
            for (std::int64_t k = 0; k < count; ++k)
              writer.write(tile.logits + k * joiner.padded_classes(), rows[k].place, rows[k].t, rows[k].s,
                           rows[k].symbol);
          };
          RowQueue queue(flush);
          range.visit(
              [&](std::int64_t place, std::int64_t t, std::int64_t s, std::int64_t symbol) {
                queue.add({place, range.batch_row(), t, s, symbol});
              },
              writer.outside());
          queue.finish();
          found[i] = writer.nan_at();
        }
      },
      workers);
  ranges.first_of_each(found, shape.joint.lattice.batch, static_cast<std::int64_t*>(nan_at.data));
}

}  // namespace
}  // namespace turnout::families::rnnt_loss

namespace turnout {

using namespace families::rnnt_loss;

void rnnt_logprobs_fused_forward(const ConstTensor& am, const ConstTensor& lm, const ConstTensor& weight,
                                 const ConstTensor& bias, const ConstTensor& symbols,
                                 const ConstTensor& ranges, const ConstTensor& boundary, const Tensor& px,
                                 const Tensor& py, const Tensor& normalizer, const Tensor& nan_at,
                                 const RnntFusedParams& params, const Caller& caller) {
  Call call(caller, kRnntLogprobsFusedForward,
            {am, lm, weight, bias, symbols, ranges, boundary, px, py, normalizer, nan_at},
            {params.activation, params.termination_symbol, params.use_hat_loss});
  if (call.nothing_to_do()) return;
  const JoinerInputs joiner{am, lm, weight, bias};
  const FusedShape shape = shape_of(joiner, symbols, ranges, px.shape[2], params);
  const Lattices::Source source = source_of(call, weight, symbols, ranges, boundary, params);
  visit_float(am.dtype, [&](auto type) {
    forward<typename decltype(type)::type>(call, shape, joiner, source, px, py, normalizer, nan_at);
  });
}

}  // namespace turnout
