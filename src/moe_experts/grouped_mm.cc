// Grouped matrix products: each group of rows is multiplied by its own matrix; and the matrices' gradients.
#include <algorithm>

#include "core/dtypes.h"
#include "core/pieces.h"
#include "indices/indices.h"
#include "matrix/row_products.h"
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

// The addresses of rows first .. first + rows - 1 of a matrix, from element `at` on.
void find_rows(const ConstTensor& matrix, std::int64_t first, std::int64_t rows, std::int64_t at,
               const void** to) {
  const auto* data = static_cast<const std::byte*>(matrix.data);
  for (std::int64_t r = 0; r < rows; ++r)
    to[r] = data + ((first + r) * matrix.shape[1] + at) * size_of(matrix.dtype);
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
  const Products<Lane> products(context.isa(), weights);
  const matrix::RowProducts<Lane> reader(context.isa(), input.dtype);
  const auto& kernels = reader.kernels();
  const std::int64_t block_columns = products.block_columns();
  const int threads = threads_for(rows, weights.depth, columns, context.threads());
  const std::size_t sums = array_bytes<Lane>(kRowBlock * block_columns),
                    of_bias = array_bytes<Lane>(block_columns);
  const std::size_t wide = products.takes_bf16() ? 0 : reader.wide_bytes(kRowBlock, weights.depth);
  const std::size_t worker = sums + of_bias + wide + array_bytes<Lane>(products.panel_size());
  call.chose(products.in_place() ? "weights in place" : "packed weights", threads);
  call.uses(products.last_isa());
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
        const void* from[kRowBlock];
        const Lane* lanes[kRowBlock];
        Lane* at[kRowBlock];
        for (std::int64_t i = first; i < end; ++i) {
          const Block b = blocks[i];
          const ColumnBlock columns_of{b.group, b.first_column, b.columns};
          find_rows(input, b.first_row, b.rows, 0, from);
          for (std::int64_t r = 0; r < b.rows; ++r) at[r] = sum + r * block_columns;
          if (products.takes_bf16()) {
            if constexpr (std::is_same_v<Lane, float>) products.run_bf16(from, at, b.rows, columns_of);
          } else {
            reader.read(from, b.rows, weights.depth, lanes, widened);
            products.run(lanes, at, b.rows, columns_of, panel);
          }
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

// The elements from a row of sums to the next. Rows that are a power of two apart would share few lines of
// the cache.
template <class Lane>
std::int64_t sums_stride(const matrix::Kernels<Lane>& kernels, std::int64_t columns) {
  const std::int64_t padded = kernels.padded(columns);
  return padded * std::int64_t{sizeof(Lane)} % 512 == 0 ? padded + kernels.lanes : padded;
}

template <class Lane>
void add_products(Context& context, Call& call, const ConstTensor& input, const ConstTensor& out_grad,
                  const ConstTensor& offs, const Tensor& weight_grad, const Tensor& bias_grad) {
  const std::int64_t rows = input.shape[0], depth = input.shape[1], columns = out_grad.shape[1];
  const std::int64_t groups = offs.shape[0], size = size_of(input.dtype);
  const matrix::RowProducts<Lane> products(context.isa(), input.dtype);
  const auto& kernels = products.kernels();
  // Sums in the dtype of the result, without padding, need no memory of their own.
  const bool adds_in_place = size == sizeof(Lane) && kernels.padded(columns) == columns && depth > 0;
  const std::int64_t stride = adds_in_place ? columns : sums_stride(kernels, columns);
  const std::int64_t rows_of_block = std::clamp<std::int64_t>(
      kGradientBytes / std::max<std::int64_t>(stride * std::int64_t{sizeof(Lane)}, 1), 8,
      std::max<std::int64_t>(depth, 8));
  const std::int64_t blocks = depth == 0 ? 1 : (depth + rows_of_block - 1) / rows_of_block;
  const int threads = threads_for(rows, depth, columns, context.threads());
  const std::size_t sums = array_bytes<Lane>(rows_of_block * stride), of_bias = array_bytes<Lane>(stride);
  const std::size_t wide_in = products.wide_bytes(kRowBlock, rows_of_block);
  // The sum of a bias needs the rows in lanes, whatever the products need.
  const std::size_t wide_with = bias_grad.is_absent() ? products.wide_bytes(kRowBlock, columns)
                                                      : products.read_bytes(kRowBlock, columns);
  const std::size_t worker = sums + of_bias + wide_in + wide_with;
  call.chose("blocks of the gradient", threads);
  call.uses(products.last_isa());
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
        auto* own_sum = reinterpret_cast<Lane*>(own);
        auto* bias_sum = reinterpret_cast<Lane*>(own + sums);
        auto* wide_input = reinterpret_cast<Lane*>(own + sums + of_bias);
        auto* wide_grad = reinterpret_cast<Lane*>(own + sums + of_bias + wide_in);
        const void *from[kRowBlock], *with[kRowBlock];
        const Lane* lanes[kRowBlock];
        for (std::int64_t i = first; i < end; ++i) {
          const std::int64_t g = i / blocks, at = i % blocks * rows_of_block;
          const std::int64_t count = std::min(rows_of_block, depth - at);
          auto* to = static_cast<std::byte*>(weight_grad.data) + (g * depth + at) * columns * size;
          if (begins[g] == begins[g + 1]) {
            std::fill_n(to, count * columns * size, std::byte{0});
            if (!bias_grad.is_absent() && at == 0)
              std::fill_n(static_cast<std::byte*>(bias_grad.data) + g * columns * size, columns * size,
                          std::byte{0});
            continue;
          }
          auto* sum = adds_in_place ? reinterpret_cast<Lane*>(to) : own_sum;
          std::fill_n(sum, count * stride, Lane{0});
          std::fill_n(bias_sum, columns, Lane{0});
          for (const auto [row, n] : pieces(begins[g], begins[g + 1], kRowBlock)) {
            if (stop.is_asked()) return;
            find_rows(input, row, n, at, from);
            find_rows(out_grad, row, n, 0, with);
            products.add_outer(from, with, n, count, columns, sum, stride, wide_input, wide_grad);
            if (bias_grad.is_absent() || at != 0) continue;
            products.read(with, n, columns, lanes, wide_grad);
            for (std::int64_t r = 0; r < n; ++r)
              for (std::int64_t c = 0; c < columns; ++c) bias_sum[c] += lanes[r][c];
          }
          for (std::int64_t d = 0; !adds_in_place && d < count; ++d)
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
