// Defaults and checks of the parameters of index pairs.
#include "sparse_conv/parameters.h"

#include <algorithm>
#include <iterator>

#include "core/dtypes.h"
#include "core/saturate.h"
#include "indices/indices.h"
#include "sparse_conv/index.h"
#include "sparse_conv/signature.h"

namespace turnout {
namespace families::sparse_conv {

using namespace core;
namespace {

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

// Replaces single integers in `given` by one value per dimension.
IndicePairsParams spread(const IndicePairsParams& given) {
  IndicePairsParams p = given;
  for (Dims* values :
       {&p.kernel_size, &p.stride, &p.padding, &p.dilation, &p.output_shape, &p.output_padding})
    if (values->is_each()) *values = Dims::filled(p.spatial_shape.count(), (*values)[0]);
  return p;
}

}  // namespace

IndicePairsParams resolved(const IndicePairsParams& given) {
  IndicePairsParams p = spread(given);
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
  bool in_range = true;  // if not, a check throws for an argument before derived ones are used
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

void check_given(Call& call, const IndicePairsParams& params) {
  const IndicePairsParams given = spread(params);
  const Dims &kernel = given.kernel_size, &beyond = given.output_padding;
  const std::int64_t dims = given.spatial_shape.count();
  if (beyond.count() > 0 && beyond.count() != dims)
    call.refuse(concat(call.name("output_padding"), " has ", std::int64_t{beyond.count()},
                       " elements, expected ", dims, " = ", call.name("indices"), ".shape[1] - 1"));
  for (int d = 0; d < beyond.count(); ++d)
    if (beyond[d] < 0 || beyond[d] > kMaxSpatial)
      call.refuse(concat(call.name("output_padding"), "[", std::int64_t{d}, "] is ", beyond[d],
                         ", expected 0 .. ", kMaxSpatial));
  if (given.mode != ConvMode::submanifold || given.padding.count() > 0) return;
  for (int d = 0; d < kernel.count(); ++d)
    if (kernel[d] % 2 == 0)
      call.refuse(concat(call.name("kernel_size"), "[", std::int64_t{d}, "] is ", kernel[d],
                         ", expected an odd number in submanifold mode when no ", call.name("padding"),
                         " is given"));
}

std::array<ScalarValue, 8> scalars_of(const IndicePairsParams& p) {
  const auto values = [](const Dims& dims) { return ScalarValue(dims.data(), dims.count()); };
  return {p.batch_size,      values(p.spatial_shape), values(p.kernel_size),  values(p.stride),
          values(p.padding), values(p.dilation),      values(p.output_shape), p.mode};
}

std::int64_t kernel_volume(const IndicePairsParams& p) {
  std::int64_t volume = 1;
  for (int d = 0; d < p.kernel_size.count(); ++d) {
    const std::int64_t extent = p.kernel_size[d] == -1 ? p.spatial_shape[d] : p.kernel_size[d];
    if (extent <= 0) return 0;
    volume = saturating_product(volume, extent);
  }
  return volume;
}

IndicePairsParams read_spelled(std::string_view op, const SpelledParams& given) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::bad_param, concat(op, ": ", why));
  };
  if (given.subm && given.transpose) refuse("subm and transpose are both True, expected at most one of them");
  const Dims& kernel = given.kernel_size;
  for (int d = 0; d < kernel.count(); ++d) {
    const auto refuse_kernel = [&](const char* expected) {
      refuse(concat("kernel_size[", std::int64_t{d}, "] is ", kernel[d], ", expected ", expected));
    };
    if (given.subm && (kernel[d] < 1 || kernel[d] % 2 == 0))
      refuse_kernel("an odd number in submanifold mode");
    if (given.transpose && kernel[d] == -1) refuse_kernel("1 or more in transposed mode");
    if (given.output_padding[d] < 0)
      refuse(concat("output_padding[", std::int64_t{d}, "] is ", given.output_padding[d],
                    ", expected 0 or more"));
  }
  return centred_on_sites({.spatial_shape = given.spatial_shape,
                           .kernel_size = kernel,
                           .stride = given.stride,
                           .padding = given.padding,
                           .dilation = given.dilation,
                           .output_padding = given.output_padding,
                           .mode = given.subm        ? ConvMode::submanifold
                                   : given.transpose ? ConvMode::transposed
                                                     : ConvMode::sparse});
}

std::int64_t checked_kernel_volume(std::string_view op, const IndicePairsParams& p) {
  const std::int64_t volume = kernel_volume(p);
  if (volume <= kMaxOffsets) return volume;
  std::string kernel;
  for (int d = 0; d < p.kernel_size.count(); ++d) kernel += concat(d == 0 ? "[" : ", ", p.kernel_size[d]);
  throw Error(ErrorCode::bad_param, concat(op, ": kernel_size is ", kernel, "], expected at most ",
                                           kMaxOffsets, " offsets in all"));
}

Dims checked_output_shape(const IndicePairsParams& params) {
  const IndicePairsParams p = resolved(params);
  const auto value = [](const Dims& dims) { return ScalarValue(dims.data(), dims.count()); };
  const Dims shape = indice_pairs_output_shape(params);
  const ScalarValue scalars[] = {
      value(p.spatial_shape), value(p.kernel_size),    value(p.stride), value(params.padding),
      value(p.dilation),      value(p.output_padding), value(shape)};
  Arguments(kOutputShape, nullptr, 0, scalars, static_cast<int>(std::size(scalars))).check();
  return shape;
}

void check_mode(const Arguments& arguments, const Positions& at) {
  if (static_cast<ConvMode>(arguments.size(at[0])) != ConvMode::submanifold) return;
  const std::int64_t* stride = arguments.scalar(at[1]).values;
  const std::int64_t* in = arguments.scalar(at[2]).values;
  const std::int64_t* out = arguments.scalar(at[3]).values;
  for (std::int64_t d = 0; d < arguments.scalar(at[2]).value; ++d) {
    if (stride[d] != 1)
      arguments.fail(ErrorCode::bad_param, concat(arguments.name("stride"), "[", d, "] is ", stride[d],
                                                  ", expected 1 in submanifold mode"));
    if (out[d] != in[d])
      arguments.fail(ErrorCode::bad_param,
                     concat(arguments.name("output_shape"), "[", d, "] is ", out[d], ", expected ", in[d],
                            " as ", arguments.name("spatial_shape"), " in submanifold mode"));
  }
}

void check_coordinates(const Arguments& arguments, const Positions& at) {
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
        arguments.fail(ErrorCode::bad_param,
                       concat(arguments.name(at[0]), "[", i / columns, ", ", i % columns, "] is ",
                              std::int64_t{data[i]}, ", expected 0 .. ", limit - 1));
    }
  });
}

}  // namespace families::sparse_conv

namespace {

void check_count(int count) {
  if (count < 0 || count > Dims::kMax)
    throw Error(ErrorCode::bad_param, core::concat("Dims: ", std::int64_t{count},
                                                   " values, expected at most ", std::int64_t{Dims::kMax}));
}

}  // namespace

Dims::Dims(const std::int64_t* values, int count) : count_(count) {
  check_count(count);
  std::copy(values, values + count, values_);
}

Dims::Dims(std::initializer_list<Size> values) : count_(static_cast<int>(values.size())) {
  check_count(count_);
  std::transform(values.begin(), values.end(), values_, [](Size size) { return size.value; });
}

Dims Dims::filled(int count, std::int64_t value) {
  check_count(count);
  Dims dims;
  dims.count_ = count;
  std::fill(dims.values_, dims.values_ + count, value);
  return dims;
}

IndicePairsParams centred_on_sites(const IndicePairsParams& params) {
  IndicePairsParams p = params;
  if (p.mode == ConvMode::submanifold) p.padding = {};
  return p;
}

Dims indice_pairs_output_shape(const IndicePairsParams& params) {
  IndicePairsParams p = params;
  p.output_shape = {};
  return families::sparse_conv::resolved(p).output_shape;
}

}  // namespace turnout
