// Plan of the gradients of the fused joiner and log-probabilities.
#include <algorithm>

#include "core/dtypes.h"
#include "rnnt_loss/fused.h"
#include "rnnt_loss/signature.h"
#include "runtime/parallel.h"

namespace turnout::families::rnnt_loss {

using namespace core;
namespace {

// Limits of the number of separate sums of the weight gradient, and of their total bytes.
constexpr std::int64_t kMostGroups = 16, kGroupBytes = std::int64_t{64} << 20;

struct JoinerGrads {
  const Tensor &am, &lm, &weight, &bias;
};

// Rows of the batch are split into groups, each with a separate sum of the weight gradient. The groups depend
// only on shapes, and their sums are added in order.
template <class T>
class FusedBackward {
 public:
  using Lane = LaneOf<T>;

  FusedBackward(const Joiner<T>& joiner, const Lattices& lattices, const ConstTensor& normalizer,
                const ConstTensor& px_grad, const ConstTensor& py_grad)
      : joiner_(joiner),
        shape_(joiner.shape()),
        lattices_(lattices),
        normalizer_(static_cast<const Lane*>(normalizer.data)),
        px_grad_(px_grad.data),
        py_grad_(py_grad.data) {}

  static std::int64_t sum_size(const Joiner<T>& joiner) {  // weights, followed by the bias
    return joiner.shape().joint.classes * joiner.padded_width() + joiner.padded_classes();
  }
  static std::int64_t groups(const Joiner<T>& joiner) {
    const std::int64_t bytes = sum_size(joiner) * std::int64_t{sizeof(Lane)};
    return std::clamp<std::int64_t>(std::min(joiner.shape().joint.lattice.batch, kGroupBytes / bytes), 1,
                                    kMostGroups);
  }
  static std::int64_t packed_size(const Joiner<T>& joiner) {
    return joiner.matrix().packed_size(joiner.shape().joint.classes, joiner.shape().width);
  }
  static std::size_t worker_bytes(const Joiner<T>& joiner) {
    const LatticeShape& lattice = joiner.shape().joint.lattice;
    return joiner.tile_bytes() + array_bytes<Lane>(kTileRows * joiner.padded_width()) +
           array_bytes<Lane>(lattice.frames * joiner.shape().width) +
           array_bytes<Lane>((lattice.symbols + 1) * joiner.shape().width);
  }

  void pack(Lane* packed) {
    packed_ = packed;
    joiner_.matrix().pack(
        {joiner_.weight(), dtype_of<T>, shape_.joint.classes, shape_.width, shape_.width, 1}, packed);
  }

  // Processes rows first .. last-1 of the batch. `sums` are those of the weights and the bias.
  void group(std::int64_t first, std::int64_t last, Lane* sums, std::byte* memory, T* am_grad,
             T* lm_grad) const {
    const LatticeShape& lattice = shape_.joint.lattice;
    const std::int64_t width = shape_.width, positions = lattice.symbols + 1;
    const auto tile = joiner_.tile(memory);
    memory += joiner_.tile_bytes();
    auto* hidden_grad = reinterpret_cast<Lane*>(memory);
    memory += array_bytes<Lane>(kTileRows * joiner_.padded_width());
    auto* am_sum = reinterpret_cast<Lane*>(memory);
    auto* lm_sum = reinterpret_cast<Lane*>(memory + array_bytes<Lane>(lattice.frames * width));
    std::fill_n(sums, sum_size(joiner_), Lane{0});
    const auto round = joiner_.matrix().round;
    for (std::int64_t b = first; b < last; ++b) {
      std::fill_n(am_sum, lattice.frames * width, Lane{0});
      std::fill_n(lm_sum, positions * width, Lane{0});
      const auto flush = [&](const Row* rows, std::int64_t count) {
        if (!stop_.is_asked()) add_tile(rows, count, tile, hidden_grad, sums, am_sum, lm_sum);
      };
      RowQueue queue(flush);
      const JointRange<Lane> range(shape_.joint, lattices_, b);
      range.visit(
          [&](std::int64_t place, std::int64_t t, std::int64_t s, std::int64_t symbol) {
            const StepGrads<Lane> grads(range, px_grad_, py_grad_, t, s, symbol);
            if (!grads.are_zero()) queue.add({place, b, t, s, symbol});
          },
          [](std::int64_t, std::int64_t) {});
      queue.finish();
      for (std::int64_t t = 0; t < lattice.frames; ++t)
        round(am_sum + t * width, nullptr, width, am_grad + (b * lattice.frames + t) * width, dtype_of<T>);
      for (std::int64_t s = 0; s < positions; ++s)
        round(lm_sum + s * width, nullptr, width, lm_grad + (b * positions + s) * width, dtype_of<T>);
    }
  }

 private:
  void add_tile(const Row* rows, std::int64_t count, const typename Joiner<T>::Tile& tile, Lane* hidden_grad,
                Lane* sums, Lane* am_sum, Lane* lm_sum) const {
    const std::int64_t width = shape_.width, classes = shape_.joint.classes;
    const RowKernels<Lane>& kernels = joiner_.rows();
    joiner_.fill(rows, count, tile);
    const Lane *logits[kTileRows], *hidden[kTileRows];
    Lane* grads[kTileRows];
    const auto add = kernels.add(dtype_of<Lane>);
    for (std::int64_t i = 0; i < count; ++i) {
      Lane* row = tile.logits + i * joiner_.padded_classes();
      const JointRange<Lane> range(shape_.joint, lattices_, rows[i].b);
      const StepGrads<Lane> of_steps(range, px_grad_, py_grad_, rows[i].t, rows[i].s, rows[i].symbol);
      of_steps.to_logits(shape_.joint, kernels, row, normalizer_[rows[i].place], rows[i].symbol, row);
      add(row, classes, sums + classes * joiner_.padded_width());
      logits[i] = row;
      hidden[i] = tile.hidden + i * joiner_.padded_width();
      grads[i] = hidden_grad + i * joiner_.padded_width();
    }
    joiner_.matrix().add_outer(logits, hidden, count, classes, width, sums, joiner_.padded_width());
    joiner_.matrix().multiply(logits, grads, count, packed_, classes, joiner_.padded_width(),
                              matrix::Write::store);
    for (std::int64_t i = 0; i < count; ++i) {
      kernels.activation_gradient(grads[i], hidden[i], width, shape_.activation);
      add(grads[i], width, am_sum + rows[i].t * width);
      add(grads[i], width, lm_sum + rows[i].s * width);
    }
  }

  const Joiner<T>& joiner_;
  const FusedShape& shape_;
  const Lattices& lattices_;
  const Lane* normalizer_;
  const void *px_grad_, *py_grad_;
  const Stop stop_;
  Lane* packed_ = nullptr;
};

template <class T>
void backward(Call& call, const FusedShape& shape, const JoinerInputs& from, const Lattices::Source& source,
              const ConstTensor& normalizer, const ConstTensor& px_grad, const ConstTensor& py_grad,
              const JoinerGrads& to) {
  using Lane = LaneOf<T>;
  using Plan = FusedBackward<T>;
  Context& context = call.context();
  Joiner<T> joiner(shape, from, context.isa());
  const std::int64_t batch = shape.joint.lattice.batch, groups = Plan::groups(joiner);
  const std::int64_t sum_size = Plan::sum_size(joiner);
  const int workers = shape.is_parallel() ? context.threads() : 1;
  const std::size_t worker_bytes = Plan::worker_bytes(joiner);
  Scratch& scratch =
      call.scratch(Lattices::scratch_bytes(shape.joint.lattice, true) + joiner.shared_bytes() +
                   array_bytes<Lane>(Plan::packed_size(joiner)) + array_bytes<Lane>(groups * sum_size) +
                   static_cast<std::size_t>(workers) * worker_bytes);
  const Lattices lattices(call, shape.joint.lattice, source, scratch);
  joiner.pack(scratch);
  Plan plan(joiner, lattices, normalizer, px_grad, py_grad);
  plan.pack(scratch.take<Lane>(Plan::packed_size(joiner)));
  auto* sums = scratch.take<Lane>(groups * sum_size);
  auto* memory = scratch.take<std::byte>(static_cast<std::int64_t>(worker_bytes) * workers);
  call.chose("tiles of rows, in groups", workers);
  parallel_for(
      context, groups, 1,
      [&](std::int64_t g, std::int64_t, int worker) {
        const FpEnvironment environment(Denormals::flushed);
        plan.group(batch * g / groups, batch * (g + 1) / groups, sums + g * sum_size,
                   memory + worker_bytes * static_cast<std::size_t>(worker), static_cast<T*>(to.am.data),
                   static_cast<T*>(to.lm.data));
      },
      workers);
  const auto add = joiner.rows().add(dtype_of<Lane>);
  for (std::int64_t g = 1; g < groups; ++g) add(sums + g * sum_size, sum_size, sums);
  const auto round = joiner.matrix().round;
  for (std::int64_t c = 0; c < shape.joint.classes; ++c)
    round(sums + c * joiner.padded_width(), nullptr, shape.width,
          static_cast<T*>(to.weight.data) + c * shape.width, dtype_of<T>);
  if (!to.bias.is_absent())
    round(sums + shape.joint.classes * joiner.padded_width(), nullptr, shape.joint.classes, to.bias.data,
          dtype_of<T>);
}

}  // namespace
}  // namespace turnout::families::rnnt_loss

namespace turnout {

using namespace families::rnnt_loss;

void rnnt_logprobs_fused_backward(const ConstTensor& am, const ConstTensor& lm, const ConstTensor& weight,
                                  const ConstTensor& bias, const ConstTensor& symbols,
                                  const ConstTensor& ranges, const ConstTensor& boundary,
                                  const ConstTensor& normalizer, const ConstTensor& px_grad,
                                  const ConstTensor& py_grad, const Tensor& am_grad, const Tensor& lm_grad,
                                  const Tensor& weight_grad, const Tensor& bias_grad,
                                  const RnntFusedParams& params, const Caller& caller) {
  Call call(caller, kRnntLogprobsFusedBackward,
            {am, lm, weight, bias, symbols, ranges, boundary, normalizer, px_grad, py_grad, am_grad, lm_grad,
             weight_grad, bias_grad},
            {params.activation, params.termination_symbol, params.use_hat_loss});
  if (call.nothing_to_do()) return;
  const JoinerInputs joiner{am, lm, weight, bias};
  const FusedShape shape = shape_of(joiner, symbols, ranges, px_grad.shape[2], params);
  const Lattices::Source source = source_of(call, weight, symbols, ranges, boundary, params);
  visit_float(am.dtype, [&](auto type) {
    backward<typename decltype(type)::type>(call, shape, joiner, source, normalizer, px_grad, py_grad,
                                            {am_grad, lm_grad, weight_grad, bias_grad});
  });
}

}  // namespace turnout
