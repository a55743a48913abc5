// Grouped matrix products: each group of rows is multiplied by its own matrix; and the matrices' gradients.
#include <algorithm>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "indices/indices.h"
#include "moe_experts/products.h"
#include "moe_experts/signature.h"
#include "runtime/call.h"
#include "runtime/parallel.h"
#include "turnout/moe_experts.h"

namespace turnout {
namespace families::moe_experts {

using namespace core;
namespace {

// begins[g] .. begins[g + 1]: the rows of group g. offs have been checked; values that another thread changed
// since then are clamped, so that no row is out of bounds.
void read_offs(const ConstTensor& offs, std::int64_t rows, std::int64_t* begins) {
  begins[0] = 0;
  visit_index(offs.dtype, [&](auto type) {
    const auto* ends = static_cast<const typename decltype(type)::type*>(offs.data);
    for (std::int64_t g = 0; g < offs.shape[0]; ++g)
      begins[g + 1] = std::clamp(load_once(ends + g), begins[g], rows);
  });
}

// Converts rows of a 16-bit tensor to f32, a block at a time; other rows are read in place.
template <class Lane>
struct RowReader {
  const matrix::Kernels<Lane>& kernels;
  const std::byte* data;
  DType dtype;
  std::int64_t columns;

  bool widens() const { return size_of(dtype) == 2; }
  std::int64_t wide_size(std::int64_t rows) const { return widens() ? rows * columns : 0; }
  void read(std::int64_t first, std::int64_t rows, const Lane** to, Lane* wide) const {
    const std::int64_t bytes = columns * size_of(dtype);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::byte* at = data + (first + r) * bytes;
      const void* there = at;
      if (widens()) kernels.widen(&there, dtype, 1, columns, wide + r * columns, columns);
      to[r] = widens() ? wide + r * columns : reinterpret_cast<const Lane*>(at);
    }
  }
};

template <class Lane>
RowReader<Lane> reader_of(const matrix::Kernels<Lane>& kernels, const ConstTensor& t) {
  return {kernels, static_cast<const std::byte*>(t.data), t.dtype, t.shape[1]};
}

int threads_for(std::int64_t rows, std::int64_t depth, std::int64_t columns, int threads) {
  const double products =
      static_cast<double>(rows) * static_cast<double>(depth) * static_cast<double>(columns);
  return products < kParallelProducts ? 1 : threads;
}

template <class Lane>
void multiply_groups(Context& context, Call& call, const ConstTensor& input, const ConstTensor& weight,
                     const ConstTensor& offs, const ConstTensor& bias, const Tensor& out) {
  const std::int64_t rows = input.shape[0], groups = offs.shape[0], columns = out.shape[1];
  const Weights weights{weight.data,      weight.dtype,     weight.shape[1], columns,
                        weight.stride[0], weight.stride[1], weight.stride[2]};
  const auto& kernels = matrix::kernels<Lane>(context.isa());
  const Products<Lane> products(context.isa(), weights);
  const RowReader<Lane> reader = reader_of(kernels, input);
  const std::int64_t block_columns = products.block_columns();
  const int threads = threads_for(rows, weights.depth, columns, context.threads());
  const std::size_t sums = array_bytes<Lane>(kRowBlock * block_columns),
                    of_bias = array_bytes<Lane>(block_columns);
  const std::size_t wide = array_bytes<Lane>(reader.wide_size(kRowBlock));
  const std::size_t worker = sums + of_bias + wide + array_bytes<Lane>(products.panel_size());
  call.chose(products.in_place() ? "weights in place" : "packed weights", threads);
  Scratch& scratch = call.scratch(array_bytes<std::int64_t>(groups + 1) + Blocks::scratch_bytes(groups) +
                                  static_cast<std::size_t>(threads) * worker);
  auto* begins = scratch.take<std::int64_t>(groups + 1);
  read_offs(offs, rows, begins);
  const Blocks blocks(begins, groups, columns, block_columns, kRowBlock,
                      scratch.take<std::int64_t>(groups + 1));
  auto* memory = scratch.rest();
  const std::int64_t size = size_of(out.dtype);
  auto* to = static_cast<std::byte*>(out.data);
  parallel_for(
      context, blocks.count(), 1,
      [&](std::int64_t first, std::int64_t end, int number) {
        std::byte* own = memory + static_cast<std::size_t>(number) * worker;
        auto* sum = reinterpret_cast<Lane*>(own);
        auto* added = reinterpret_cast<Lane*>(own + sums);
        auto* widened = reinterpret_cast<Lane*>(own + sums + of_bias);
        auto* panel = reinterpret_cast<Lane*>(own + sums + of_bias + wide);
        const Lane* from[kRowBlock];
        Lane* at[kRowBlock];
        for (std::int64_t i = first; i < end; ++i) {
          const Block b = blocks[i];
          reader.read(b.first_row, b.rows, from, widened);
          for (std::int64_t r = 0; r < b.rows; ++r) at[r] = sum + r * block_columns;
          products.run(from, at, b.rows, {b.group, b.first_column, b.columns}, panel);
          if (!bias.is_absent()) {
            const void* row =
                static_cast<const std::byte*>(bias.data) + (b.group * columns + b.first_column) * size;
            kernels.widen(&row, bias.dtype, 1, b.columns, added, block_columns);
          }
          for (std::int64_t r = 0; r < b.rows; ++r)
            kernels.round(at[r], bias.is_absent() ? nullptr : added, b.columns,
                          to + ((b.first_row + r) * columns + b.first_column) * size, out.dtype);
        }
      },
      threads);
  const std::int64_t done = begins[groups] * columns * size;
  std::fill(to + done, to + rows * columns * size, std::byte{0});
}

// Bytes of a weight gradient that a thread sums at a time.
constexpr std::int64_t kGradientBytes = 256 << 10;

template <class Lane>
void add_products(Context& context, Call& call, const ConstTensor& input, const ConstTensor& out_grad,
                  const ConstTensor& offs, const Tensor& weight_grad, const Tensor& bias_grad) {
  const std::int64_t rows = input.shape[0], depth = input.shape[1], columns = out_grad.shape[1];
  const std::int64_t groups = offs.shape[0], size = size_of(input.dtype);
  const auto& kernels = matrix::kernels<Lane>(context.isa());
  const RowReader<Lane> inputs = reader_of(kernels, input), grads = reader_of(kernels, out_grad);
  const std::int64_t stride = kernels.padded(columns);
  const std::int64_t rows_of_block = std::clamp<std::int64_t>(
      kGradientBytes / std::max<std::int64_t>(stride * std::int64_t{sizeof(Lane)}, 1), 8,
      std::max<std::int64_t>(depth, 8));
  const std::int64_t blocks = depth == 0 ? 1 : (depth + rows_of_block - 1) / rows_of_block;
  const int threads = threads_for(rows, depth, columns, context.threads());
  const std::size_t sums = array_bytes<Lane>(rows_of_block * stride), of_bias = array_bytes<Lane>(stride);
  const std::size_t wide_in = array_bytes<Lane>(inputs.wide_size(kRowBlock));
  const std::size_t worker = sums + of_bias + wide_in + array_bytes<Lane>(grads.wide_size(kRowBlock));
  call.chose("blocks of the gradient", threads);
  Scratch& scratch =
      call.scratch(array_bytes<std::int64_t>(groups + 1) + static_cast<std::size_t>(threads) * worker);
  auto* begins = scratch.take<std::int64_t>(groups + 1);
  read_offs(offs, rows, begins);
  auto* memory = scratch.rest();
  const Stop stop;
  parallel_for(
      context, groups * blocks, 1,
      [&](std::int64_t first, std::int64_t end, int number) {
        std::byte* own = memory + static_cast<std::size_t>(number) * worker;
        auto* sum = reinterpret_cast<Lane*>(own);
        auto* bias_sum = reinterpret_cast<Lane*>(own + sums);
        auto* wide_input = reinterpret_cast<Lane*>(own + sums + of_bias);
        auto* wide_grad = reinterpret_cast<Lane*>(own + sums + of_bias + wide_in);
        const Lane *from[kRowBlock], *with[kRowBlock];
        for (std::int64_t i = first; i < end; ++i) {
          const std::int64_t g = i / blocks, at = i % blocks * rows_of_block;
          const std::int64_t count = std::min(rows_of_block, depth - at);
          std::fill_n(sum, count * stride, Lane{0});
          std::fill_n(bias_sum, columns, Lane{0});
          for (const auto [row, n] : pieces(begins[g], begins[g + 1], kRowBlock)) {
            if (stop.is_asked()) return;
            inputs.read(row, n, from, wide_input);
            grads.read(row, n, with, wide_grad);
            for (std::int64_t r = 0; r < n; ++r) from[r] += at;
            kernels.add_outer(from, with, n, count, columns, sum, stride);
            if (bias_grad.is_absent() || at != 0) continue;
            for (std::int64_t r = 0; r < n; ++r)
              for (std::int64_t c = 0; c < columns; ++c) bias_sum[c] += with[r][c];
          }
          auto* to = static_cast<std::byte*>(weight_grad.data) + (g * depth + at) * columns * size;
          for (std::int64_t d = 0; d < count; ++d)
            kernels.round(sum + d * stride, nullptr, columns, to + d * columns * size, weight_grad.dtype);
          if (!bias_grad.is_absent() && at == 0)
            kernels.round(bias_sum, nullptr, columns,
                          static_cast<std::byte*>(bias_grad.data) + g * columns * size, bias_grad.dtype);
        }
      },
      threads);
}

}  // namespace

void check_offs(const Arguments& arguments, const Positions& at) {
  const Slot& offs = arguments.slot(at[0]);
  const std::int64_t rows = arguments.size(at[1]);
  visit_index(offs.dtype, [&](auto type) {
    const auto* ends = static_cast<const typename decltype(type)::type*>(offs.data);
    std::int64_t before = 0;
    for (std::int64_t g = 0; g < offs.shape[0]; ++g) {
      const std::int64_t end = load_once(ends + g);
      if (end < before || end > rows)
        arguments.fail(ErrorCode::bad_param,
                       concat("offs[", g, "] is ", end, ", expected ", before, " .. ", rows, ", ascending"));
      before = end;
    }
  });
}

}  // namespace families::moe_experts

using namespace families::moe_experts;

void grouped_mm(const ConstTensor& input, const ConstTensor& weight, const ConstTensor& offs,
                const ConstTensor& bias, const Tensor& out, const Caller& caller) {
  Call call(caller, kGroupedMm, {input, weight, offs, bias, out}, {});
  if (call.nothing_to_do()) return;
  visit_lane(input.dtype, [&](auto lane) {
    multiply_groups<typename decltype(lane)::type>(caller.context(), call, input, weight, offs, bias, out);
  });
}

void grouped_mm_backward_weight(const ConstTensor& input, const ConstTensor& out_grad,
                                const ConstTensor& offs, const Tensor& weight_grad, const Tensor& bias_grad,
                                const Caller& caller) {
  Call call(caller, kGroupedMmBackwardWeight, {input, out_grad, offs, weight_grad, bias_grad}, {});
  if (call.nothing_to_do()) return;
  visit_lane(input.dtype, [&](auto lane) {
    add_products<typename decltype(lane)::type>(caller.context(), call, input, out_grad, offs, weight_grad,
                                                bias_grad);
  });
}

}  // namespace turnout
