// The plan of the index pairs.
#include "turnout/sparse_conv.h"

#include <algorithm>
#include <vector>

#include "core/call.h"
#include "core/indices.h"
#include "sparse_conv/reference.h"
#include "sparse_conv/signature.h"

namespace turnout {
namespace {

using namespace core;

ScalarValue vector_value(const Dims& dims) { return {dims.data(), dims.count()}; }

// floor(a / b) for b > 0.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0); }

// Defaults filled in; what has another length than spatial_shape stays, for the checks to refuse.
IndicePairsParams resolved(const IndicePairsParams& given) {
  IndicePairsParams p = given;
  const int dims = p.spatial_shape.count();
  const auto fill = [&](Dims& values, std::int64_t value) {
    if (values.count() == 0) values = Dims::filled(dims, value);
  };
  fill(p.stride, 1);
  fill(p.dilation, 1);
  fill(p.output_padding, 0);
  const bool centred = p.mode == ConvMode::submanifold && p.padding.count() == 0;
  fill(p.padding, 0);
  if (centred && p.kernel_size.count() == dims && p.dilation.count() == dims)
    for (int d = 0; d < dims; ++d) p.padding[d] = p.kernel_size[d] / 2 * p.dilation[d];
  return p;
}

}  // namespace

Dims::Dims(const std::int64_t* values, int count) : count_(count) {
  if (count < 0 || count > kMax)
    throw Error(ErrorCode::bad_param,
                concat("Dims: ", std::int64_t{count}, " values, expected at most ", std::int64_t{kMax}));
  std::copy(values, values + count, values_);
}

Dims Dims::filled(int count, std::int64_t value) {
  Dims dims;
  dims.count_ = count;
  std::fill(dims.values_, dims.values_ + count, value);
  return dims;
}

Dims indice_pairs_output_shape(const IndicePairsParams& params) {
  const IndicePairsParams p = resolved(params);
  if (p.mode == ConvMode::submanifold) return p.spatial_shape;
  Dims shape = p.spatial_shape;
  for (int d = 0; d < shape.count(); ++d) {
    const std::int64_t in = p.spatial_shape[d], kernel = p.kernel_size[d];
    if (kernel == -1) {
      shape[d] = 1;
    } else if (p.mode == ConvMode::transposed) {
      shape[d] = (in - 1) * p.stride[d] - 2 * p.padding[d] + kernel + p.output_padding[d];
    } else {
      const std::int64_t reach = in + 2 * p.padding[d] - p.dilation[d] * (kernel - 1) - 1;
      shape[d] = p.stride[d] > 0 ? floor_divide(reach, p.stride[d]) + 1 : 0;
    }
  }
  return shape;
}

void core::check_mode(const Arguments& arguments) {
  const Signature& signature = arguments.signature();
  const auto vector = [&](std::string_view name) { return arguments.scalar(signature.size(name)).values; };
  if (static_cast<ConvMode>(arguments.size(signature.size("mode"))) != ConvMode::submanifold) return;
  const std::int64_t* stride = vector("stride");
  const std::int64_t *in = vector("spatial_shape"), *out = vector("output_shape");
  for (std::int64_t d = 0; d < arguments.size(signature.size("dims")); ++d) {
    if (stride[d] != 1)
      arguments.fail(ErrorCode::bad_param,
                     concat("stride[", d, "] is ", stride[d], ", expected 1 in submanifold mode"));
    if (out[d] != in[d])
      arguments.fail(ErrorCode::bad_param, concat("output_shape[", d, "] is ", out[d], ", expected ", in[d],
                                                  " as spatial_shape in submanifold mode"));
  }
}

void core::check_coordinates(const Arguments& arguments) {
  const Signature& signature = arguments.signature();
  const Slot& indices = arguments.slot(signature.argument("indices"));
  const std::int64_t rows = indices.shape[0], columns = indices.shape[1];
  visit_index(indices.dtype, [&](auto type) {
    const auto* data = static_cast<const typename decltype(type)::type*>(indices.data);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const std::int64_t column = i % columns;
      const std::int64_t limit = column == 0
                                     ? arguments.size(signature.size("batch_size"))
                                     : arguments.scalar(signature.size("spatial_shape")).values[column - 1];
      if (!in_range(data[i], limit))
        arguments.fail(ErrorCode::bad_param, concat("indices[", i / columns, ", ", column, "] is ",
                                                    std::int64_t{data[i]}, ", expected 0 .. ", limit - 1));
    }
  });
}

struct IndicePairs::State {
  Context& context;
  ConstTensor indices;
  IndicePairsParams params;
  reference::Pairs pairs;
};

IndicePairs::IndicePairs(Context& context, const ConstTensor& indices, const IndicePairsParams& params) {
  IndicePairsParams p = resolved(params);
  if (p.output_shape.count() == 0) p.output_shape = indice_pairs_output_shape(p);
  for (int d = 0; d < p.kernel_size.count(); ++d)
    if (p.kernel_size[d] == -1) p.kernel_size[d] = p.spatial_shape[d];
  Call call(context, kIndicePairsIndex, {indices, Slot(), Slot(), Slot()},
            {p.batch_size, vector_value(p.spatial_shape), vector_value(p.kernel_size), vector_value(p.stride),
             vector_value(p.padding), vector_value(p.dilation), vector_value(p.output_shape), p.mode});
  std::vector<reference::Site> sites;
  visit_index(indices.dtype, [&](auto type) {
    const auto* data = static_cast<const typename decltype(type)::type*>(indices.data);
    for (std::int64_t i = 0; i < indices.shape[0]; ++i)
      sites.emplace_back(data + i * indices.shape[1], data + (i + 1) * indices.shape[1]);
  });
  state_ = new State{context, indices, p, reference::indice_pairs(sites, p)};
}

IndicePairs::~IndicePairs() { delete state_; }

std::int64_t IndicePairs::num_act_out() const {
  return static_cast<std::int64_t>(state_->pairs.outputs.size());
}
std::int64_t IndicePairs::kernel_volume() const { return static_cast<std::int64_t>(state_->pairs.in.size()); }
const Dims& IndicePairs::output_shape() const { return state_->params.output_shape; }

void IndicePairs::write(const Tensor& out_indices, const Tensor& indice_pairs,
                        const Tensor& indice_num) const {
  const IndicePairsParams& p = state_->params;
  Call call(state_->context, kIndicePairsResult, {state_->indices, out_indices, indice_pairs, indice_num},
            {p.batch_size, vector_value(p.spatial_shape), vector_value(p.kernel_size), vector_value(p.stride),
             vector_value(p.padding), vector_value(p.dilation), vector_value(p.output_shape), p.mode});
  call.check([&] {
    if (out_indices.shape[0] < num_act_out())
      throw Error(ErrorCode::bad_param,
                  concat("get_indice_pairs: out_indices.shape[0] is ", out_indices.shape[0],
                         ", expected num_act_out = ", num_act_out(), " or more"));
  });
  if (call.nothing_to_do()) return;
  const std::int64_t rows = indice_pairs.shape[2], columns = out_indices.shape[1];
  auto* pairs = static_cast<std::int32_t*>(indice_pairs.data);
  std::fill_n(pairs, kernel_volume() * 2 * rows, -1);
  for (std::int64_t k = 0; k < kernel_volume(); ++k) {
    const auto& in = state_->pairs.in[static_cast<std::size_t>(k)];
    const auto& out = state_->pairs.out[static_cast<std::size_t>(k)];
    std::copy(in.begin(), in.end(), pairs + 2 * k * rows);
    std::copy(out.begin(), out.end(), pairs + (2 * k + 1) * rows);
    static_cast<std::int32_t*>(indice_num.data)[k] = static_cast<std::int32_t>(in.size());
  }
  visit_index(out_indices.dtype, [&](auto type) {
    using Index = typename decltype(type)::type;
    auto* out = static_cast<Index*>(out_indices.data);
    std::fill_n(out, out_indices.shape[0] * columns, Index{-1});
    for (const auto& site : state_->pairs.outputs)
      for (std::int64_t value : site) *out++ = static_cast<Index>(value);
  });
}

std::int64_t get_indice_pairs(Context& context, const ConstTensor& indices, const Tensor& out_indices,
                              const Tensor& indice_pairs, const Tensor& indice_num,
                              const IndicePairsParams& params) {
  IndicePairsParams p = resolved(params);
  if (p.output_shape.count() == 0) p.output_shape = indice_pairs_output_shape(p);
  Call(context, kGetIndicePairs, {indices, out_indices, indice_pairs, indice_num},
       {p.batch_size, vector_value(p.spatial_shape), vector_value(p.kernel_size), vector_value(p.stride),
        vector_value(p.padding), vector_value(p.dilation), vector_value(p.output_shape), p.mode});
  const IndicePairs pairs(context, indices, params);
  pairs.write(out_indices, indice_pairs, indice_num);
  return pairs.num_act_out();
}

}  // namespace turnout
