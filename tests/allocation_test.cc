// Checks that a repeated call allocates nothing: small and large calls, on one thread and on two.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "c_descriptors.h"
#include "count_allocations.h"
#include "example_call.h"
#include "registry.h"
#include "turnout/turnout.h"

namespace turnout::test {
namespace {

// Index pairs of `rows` sites on a diagonal, with both kinds of index (bitmap and sorted keys), and the
// convolutions and pooling operators that use them.
struct Pairs {
  std::int64_t rows;
  std::vector<std::int32_t> indices, out, pairs, num;
  std::vector<float> features, features_out, input_grad, filters;

  explicit Pairs(std::int64_t n)
      : rows(n),
        indices(3 * n),
        out(3 * 9 * n),
        pairs(9 * 2 * n),
        num(9),
        features(8 * n),
        features_out(8 * 9 * n),
        input_grad(8 * n),
        filters(9 * 8 * 8) {
    for (std::size_t i = 0; i < indices.size(); ++i)
      indices[i] = i % 3 == 0 ? 0 : static_cast<std::int32_t>(i / 3);
  }
  void run(Context& context) {
    const ConstTensor sites = view(indices.data(), {rows, 3});
    const Tensor outputs = view(out.data(), {9 * rows, 3}), found = view(pairs.data(), {9, 2, rows}),
                 counts = view(num.data(), {9});
    for (ConvMode mode : {ConvMode::sparse, ConvMode::submanifold, ConvMode::transposed}) {
      for (std::int64_t length : {rows, std::int64_t{10'000'000}}) {
        const std::int64_t stride = mode == ConvMode::submanifold ? 1 : 2;
        const IndicePairsParams params{.spatial_shape = {length, length},
                                       .kernel_size = {3, 3},
                                       .stride = {stride, stride},
                                       .padding = {1, 1},
                                       .mode = mode};
        const IndicePairs index(sites, params, context);
        index.write(outputs, found, counts);
        get_indice_pairs(sites, outputs, found, counts, params, context);
        const Tensor x = view(features.data(), {rows, 8}), dx = view(input_grad.data(), {rows, 8});
        const Tensor y = view(features_out.data(), {index.num_act_out(), 8});
        const Tensor w = view(filters.data(), {9, 8, 8});
        indice_convolution_forward(x, w, found, counts, nullptr, nullptr, y, {}, context);
        indice_convolution_backward_data(y, w, found, counts, nullptr, dx, {}, context);
        indice_convolution_backward_filter(x, y, found, counts, w, {}, context);
        indice_max_pool_forward(x, found, counts, y, PoolInit::zero, context);
        indice_max_pool_backward(x, y, y, found, counts, dx, context);
      }
    }
  }
};

// Points of four features: voxelization, reductions and their gradients, both with the operators and with a
// VoxelIndex.
struct Scatter {
  std::int64_t points;
  std::vector<float> feats, voxel_feats, grad_feats, voxels;
  std::vector<std::int32_t> coors, voxel_coors, map, count;

  explicit Scatter(std::int64_t n)
      : points(n),
        feats(4 * n),
        voxel_feats(4 * n),
        grad_feats(4 * n),
        voxels(8 * n),
        coors(3 * n),
        voxel_coors(3 * n),
        map(n),
        count(n) {
    for (std::size_t i = 0; i < feats.size(); ++i) feats[i] = static_cast<float>(i * 7919 % 5000) / 50;
  }
  void run(Context& context) {
    const double size[3] = {1, 1, 10}, range[6] = {0, 0, 0, 90, 100, 100};  // some points are outside
    const ConstTensor rows = view(feats.data(), {points, 4}), cells = view(coors.data(), {points, 3});
    voxelize(rows, view(coors.data(), {points, 3}), size, range, context);
    voxelize_hard(rows, view(voxels.data(), {points, 2, 4}), view(voxel_coors.data(), {points, 3}),
                  view(count.data(), {points}), nullptr, size, range, context);
    for (const Reduce reduce_type : {Reduce::sum, Reduce::mean, Reduce::max}) {
      const std::int64_t found = dynamic_scatter_forward(
          rows, cells, view(voxel_feats.data(), {points, 4}), view(voxel_coors.data(), {points, 3}),
          view(map.data(), {points}), view(count.data(), {points}), reduce_type, context);
      const ConstTensor reduced = view(voxel_feats.data(), {found, 4}), counts = view(count.data(), {found});
      dynamic_scatter_backward(reduced, rows, reduced, view(map.data(), {points}), counts, nullptr,
                               view(grad_feats.data(), {points, 4}), reduce_type, context);
      const VoxelIndex index(cells, context);
      index.write(view(voxel_coors.data(), {found, 3}), view(map.data(), {points}),
                  view(count.data(), {found}));
      index.reduce(rows, view(voxel_feats.data(), {found, 4}), reduce_type);
      index.reduce_backward(reduced, rows, reduced, view(grad_feats.data(), {points, 4}), reduce_type);
    }
  }
};

// The parts of the RNN-T losses, forward and backward, in one batch of two.
struct Transducer {
  static constexpr std::int64_t kSymbols = 3, kRows = 2, kClasses = 20, kWidth = 16;
  std::int64_t frames;
  std::vector<float> logits, grad, lm, am, lm_grad, am_grad, weight, weight_grad, px, py, n, score;
  std::vector<std::int64_t> text, ranges, boundary, symbol_frames;

  explicit Transducer(std::int64_t t)
      : frames(t),
        logits(2 * t * kRows * kClasses),
        grad(logits.size()),
        lm(2 * (kSymbols + 1) * kClasses),
        am(2 * t * kClasses),
        lm_grad(lm.size()),
        am_grad(am.size()),
        weight(kClasses * kWidth),
        weight_grad(weight.size()),
        px(2 * kSymbols * (t + 1)),
        py(2 * (kSymbols + 1) * t),
        n(py.size()),
        score(2),
        text(2 * kSymbols, 1),
        ranges(2 * t * kRows),
        boundary{0, 0, kSymbols, t, 0, 0, 1, t / 2},
        symbol_frames(2 * kSymbols) {}
  void run(Context& context) {
    const ConstTensor words = view(text.data(), {2, kSymbols}), box = view(boundary.data(), {2, 4});
    const Tensor x = view(px.data(), {2, kSymbols, frames + 1}),
                 y = view(py.data(), {2, kSymbols + 1, frames}),
                 kept = view(ranges.data(), {2, frames, kRows});
    const Tensor nan_at = view(symbol_frames.data(), {2}), norm = view(n.data(), {2, frames, kRows}),
                 of_sums = view(n.data(), {2, kSymbols + 1, frames});
    const Tensor rows = view(logits.data(), {2, frames, kRows, kClasses}),
                 rows_grad = view(grad.data(), {2, frames, kRows, kClasses});
    const Tensor l = view(lm.data(), {2, kSymbols + 1, kClasses}), a = view(am.data(), {2, frames, kClasses}),
                 dl = view(lm_grad.data(), {2, kSymbols + 1, kClasses}),
                 da = view(am_grad.data(), {2, frames, kClasses});
    rnnt_prune_ranges(x, y, box, kept, PruneScore::flow, context);
    rnnt_logprobs_simple_forward(l, a, words, box, x, y, of_sums, nan_at, 0, context);
    rnnt_logprobs_simple_backward(l, a, words, box, of_sums, x, y, dl, da, 0, context);
    rnnt_logprobs_pruned_forward(rows, words, kept, box, x, y, norm, nan_at, {}, context);
    rnnt_logprobs_pruned_backward(rows, words, kept, box, norm, x, y, rows_grad, {}, context);
    rnnt_pruning_forward(l, kept, rows, context);
    rnnt_pruning_backward(rows, kept, dl, context);
    const ConstTensor w = view(weight.data(), {kWidth, kClasses});
    const Tensor dw = view(weight_grad.data(), {kWidth, kClasses});
    const RnntFusedParams params{.activation = RnntActivation::tanh};
    rnnt_logprobs_fused_forward(a, l, w, nullptr, words, kept, box, x, y, norm, nan_at, params, context);
    rnnt_logprobs_fused_backward(a, l, w, nullptr, words, kept, box, norm, x, y, da, dl, dw, nullptr, params,
                                 context);
    rnnt_align(x, y, box, view(symbol_frames.data(), {2, kSymbols}), view(score.data(), {2}), context);
    std::fill(px.begin(), px.end(), 0.0f);  // occupations for the ranges of the next round
    std::fill(py.begin(), py.end(), 0.0f);
  }
};

// One call of each operator on `rows` tokens of `hidden` floats.
struct Calls {
  std::int64_t rows, hidden;
  std::vector<float> gates, input, output;
  std::vector<std::int32_t> indices, locations, counts, number;
  Pairs index_pairs;
  Scatter scatter;
  Transducer transducer;
  std::vector<float> grad_gates;
  std::vector<std::int32_t> order;
  std::vector<std::int64_t> sums, sizes, chunks;

  Calls(std::int64_t n, std::int64_t h)
      : rows(n),
        hidden(h),
        gates(n, 1.0f),
        input(n * h),
        output(n * h),
        indices(n),
        locations(n),
        counts(4),
        number(2),
        index_pairs(n * 4),
        scatter(n * 16),
        transducer(std::min<std::int64_t>(n, 300)),
        grad_gates(n),
        order(n),
        sums(1),
        sizes{0, n},
        chunks{1, 0} {
    std::iota(locations.rbegin(), locations.rend(), 0);
    counts[1] = static_cast<std::int32_t>(n);
  }
  void run(Context& context) {
    for (Fill fill : {Fill::keep, Fill::zero})
      moe_dispatch_forward(view(gates.data(), {rows}), view(indices.data(), {rows}),
                           view(locations.data(), {rows}), view(input.data(), {rows, hidden}),
                           view(output.data(), {rows, hidden}),
                           {.capacity = rows, .num_experts = 1, .fill = fill}, context);
    moe_dispatch_forward(view(gates.data(), {rows}), view(indices.data(), {rows}),
                         view(locations.data(), {rows}), view(output.data(), {rows, hidden}),
                         view(output.data(), {rows, hidden}), {.capacity = rows, .num_experts = 1}, context);
    moe_re_routing(view(input.data(), {rows, hidden}), view(counts.data(), {2, 2}), nullptr,
                   view(output.data(), {rows, hidden}), nullptr, view(indices.data(), {rows}),
                   view(number.data(), {2}), {}, context);
    moe_re_routing_inverse(view(output.data(), {rows, hidden}), view(indices.data(), {rows}),
                           view(input.data(), {rows, hidden}), TokenIdx::gather, context);
    std::fill(indices.begin(), indices.end(), 0);
    run_gradients(context);
    index_pairs.run(context);
    scatter.run(context);
    transducer.run(context);
    std::fill(indices.begin(), indices.end(), 0);
  }
  // Gradients of dispatch, combine, slots and permutes.
  void run_gradients(Context& context) {
    const ConstTensor weights = view(gates.data(), {rows}), slots = view(locations.data(), {rows});
    const ConstTensor experts = view(indices.data(), {rows}), tokens = view(input.data(), {rows, hidden});
    const Tensor result = view(output.data(), {rows, hidden}), products = view(grad_gates.data(), {rows});
    const MoeBuffers buffers{.capacity = rows, .num_experts = 1};
    moe_dispatch_backward_data(weights, experts, slots, tokens, result, buffers, context);
    moe_dispatch_backward(weights, experts, slots, tokens, tokens, result, products, buffers, context);
    moe_combine(tokens, experts, slots, weights, result, rows, context);
    moe_combine_backward(tokens, tokens, experts, slots, weights, result, products, rows, context);
    moe_locations(experts, weights, view(order.data(), {rows}), view(sums.data(), {1}), 1, context);
    moe_token_permute(tokens, experts, result, view(order.data(), {rows}), context);
    sort_chunks_by_idxs(tokens, view(sizes.data(), {2}), view(chunks.data(), {2}), nullptr, result, nullptr,
                        context);
  }
};

TEST(Allocations, ARepeatedCallMakesNone) {
  for (int threads : {1, 2}) {
    Context context({.threads = threads});
    Calls small(3, 5), large(4096, 512);
    small.run(context);
    large.run(context);
    const std::int64_t before = allocations();
    for (int repeat = 0; repeat < 10; ++repeat) {
      small.run(context);
      large.run(context);
    }
    EXPECT_EQ(allocations() - before, 0) << threads << " threads";
    context.trim();
    large.run(context);
    EXPECT_GT(allocations() - before, 0) << "the counter counts";
  }
}

// The calls above are large and small; this covers the remaining operators.
TEST(Allocations, ARepeatedExampleCallMakesNone) {
  for (const core::Operator& op : core::operators()) {
    Context context({.threads = 2});
    ExampleCall example(*op.signature, op.example);
    const auto scalars = example.scalar_values();
    std::int64_t made = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      if (op.prepare != nullptr) op.prepare(example.tensors.data());
      const std::int64_t before = allocations();
      op.invoke(context, example.tensors.data(), scalars.data());
      if (repeat > 0) made += allocations() - before;
    }
    EXPECT_EQ(made, 0) << op.signature->op;
  }
}

TEST(Allocations, ARepeatedCCallMakesNone) {
  mluOpHandle_t handle = nullptr;
  ASSERT_EQ(mluOpCreate(&handle), MLUOP_STATUS_SUCCESS);
  for (int rows : {3, 4096}) {
    Calls c(rows, 512);
    const Descriptor gates(MLUOP_DTYPE_FLOAT, {rows}), route(MLUOP_DTYPE_INT32, {rows}),
        tokens(MLUOP_DTYPE_FLOAT, {rows, 512});
    const auto call = [&] {
      return mluOpMoeDispatchForward(handle, gates, c.gates.data(), route, c.indices.data(), route,
                                     c.locations.data(), tokens, c.input.data(), rows, rows, 512, 1, tokens,
                                     c.output.data());
    };
    ASSERT_EQ(call(), MLUOP_STATUS_SUCCESS);
    const std::int64_t before = allocations();
    for (int repeat = 0; repeat < 10; ++repeat) EXPECT_EQ(call(), MLUOP_STATUS_SUCCESS);
    EXPECT_EQ(allocations() - before, 0) << rows << " rows";
  }
  mluOpDestroy(handle);
}

TEST(Allocations, ACCallWithAWorkspaceMakesNoneFromTheFirstOn) {
  mluOpHandle_t handle = nullptr;
  ASSERT_EQ(mluOpCreate(&handle), MLUOP_STATUS_SUCCESS);
  Calls c(3, 5);
  const Descriptor tokens(MLUOP_DTYPE_FLOAT, {3, 5}), counts(MLUOP_DTYPE_INT32, {2, 2}),
      idx(MLUOP_DTYPE_INT32, {3}), number(MLUOP_DTYPE_INT32, {2});
  std::size_t size = 0;
  ASSERT_EQ(mluOpGetMoeReRoutingWorkspaceSize(handle, tokens, counts, nullptr, &size), MLUOP_STATUS_SUCCESS);
  std::vector<char> workspace(size);
  const std::int64_t before = allocations();
  for (int repeat = 0; repeat < 3; ++repeat)
    EXPECT_EQ(mluOpMoeReRouting(handle, tokens, c.input.data(), counts, c.counts.data(), nullptr, nullptr, 1,
                                0, workspace.data(), size, tokens, c.output.data(), nullptr, nullptr, idx,
                                c.indices.data(), number, c.number.data()),
              MLUOP_STATUS_SUCCESS);
  EXPECT_EQ(allocations() - before, 0);
  mluOpDestroy(handle);
}

// The counts and lists of a convolution, whose size depends on the counts, are in the workspace too.
TEST(Allocations, ACConvolutionMakesNoneFromTheFirstOn) {
  mluOpHandle_t handle = nullptr;
  ASSERT_EQ(mluOpCreate(&handle), MLUOP_STATUS_SUCCESS);
  constexpr std::int64_t kRows = 200, kOffsets = 3, kChannels = 8;
  const std::vector<float> features(kRows * kChannels, 1), filters(kOffsets * kChannels * kChannels, 1);
  std::vector<std::int32_t> pairs;
  for (std::int64_t side = 0; side < 2 * kOffsets; ++side)
    for (int row = 0; row < kRows; ++row) pairs.push_back(row);
  const std::vector<std::int64_t> counts(kOffsets, kRows);
  std::vector<float> out(features.size());
  const Descriptor rows(MLUOP_DTYPE_FLOAT, {kRows, kChannels}),
      kernel(MLUOP_DTYPE_FLOAT, {1, 1, kOffsets, kChannels, kChannels}),
      listed(MLUOP_DTYPE_INT32, {kOffsets, 2, kRows});
  std::size_t size = 0;
  ASSERT_EQ(mluOpGetIndiceConvolutionForwardWorkspaceSize(handle, rows, kernel, listed, rows, counts.data(),
                                                          kRows, 0, 0, &size),
            MLUOP_STATUS_SUCCESS);
  std::vector<char> workspace(size);
  const std::int64_t before = allocations();
  for (int repeat = 0; repeat < 3; ++repeat)
    EXPECT_EQ(mluOpIndiceConvolutionForward(handle, rows, features.data(), kernel, filters.data(), listed,
                                            pairs.data(), counts.data(), kRows, 0, 0, workspace.data(), size,
                                            rows, out.data()),
              MLUOP_STATUS_SUCCESS);
  EXPECT_EQ(allocations() - before, 0);
  EXPECT_EQ(out[0], static_cast<float>(kOffsets * kChannels));
  mluOpDestroy(handle);
}

}  // namespace
}  // namespace turnout::test
