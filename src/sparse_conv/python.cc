// Python bindings of this family.
#include "bindings/python/call.h"
#include "core/check.h"
#include "sparse_conv/parameters.h"
#include "sparse_conv/pool_signature.h"
#include "sparse_conv/signature.h"
#include "sparse_conv/sparse_conv.h"

namespace turnout::families::sparse_conv {

using namespace core;
using namespace bindings;
namespace {

// What describes a convolution beside its input, as it comes from Python.
struct Geometry {
  nb::handle spatial_shape, kernel_size, stride, padding, dilation, output_padding, subm, transpose;
};

Dims to_dims(const std::vector<std::int64_t>& values) {
  return {values.data(), static_cast<int>(values.size())};
}

constexpr PythonFunction kPairs{
    "get_indice_pairs",
    kGetIndicePairs,
    "output_shape= mode=",
    {vector("output_padding", "dims", 0, kMaxSpatial), flag("subm"), flag("transpose")}};
constexpr PythonFunction kShape{
    "indice_pairs_output_shape", kOutputShape, "output_shape=", {flag("subm"), flag("transpose")}};

// The scalars from spatial_shape on; those but spatial_shape may be one integer for all dimensions. `dims`:
// how many `indices` has, if it is there and says so.
IndicePairsParams read(PythonCall& call, const Geometry& from, std::optional<std::int64_t> dims) {
  IndicePairsParams p;
  const bool is_subm = call.flag(from.subm, "subm"), is_transposed = call.flag(from.transpose, "transpose");
  if (is_subm && is_transposed) call.refuse("subm and transpose are both True, expected one of them at most");
  if (is_subm) p.mode = ConvMode::submanifold;
  if (is_transposed) p.mode = ConvMode::transposed;

  const std::vector<std::int64_t> shape =
      call.vector(from.spatial_shape, dims.value_or(1), dims.value_or(Dims::kMax), "indices.shape[1] - 1");
  const auto length = static_cast<std::int64_t>(shape.size());
  constexpr std::string_view origin = "len(spatial_shape)";
  p.spatial_shape = to_dims(shape);
  p.kernel_size = to_dims(call.vector(from.kernel_size, length, origin));
  p.stride = to_dims(call.vector(from.stride, length, origin));
  p.padding = to_dims(call.vector(from.padding, length, origin));
  p.dilation = to_dims(call.vector(from.dilation, length, origin));
  p.output_padding = to_dims(call.vector(from.output_padding, length, origin, "output_padding"));
  for (int d = 0; d < p.kernel_size.count(); ++d) {
    const auto refuse_kernel = [&](const char* expected) {
      call.refuse(
          concat("kernel_size[", std::int64_t{d}, "] is ", p.kernel_size[d], ", expected ", expected));
    };
    if (is_subm && (p.kernel_size[d] < 1 || p.kernel_size[d] % 2 == 0))
      refuse_kernel("an odd number in submanifold mode");
    if (is_transposed && p.kernel_size[d] == -1) refuse_kernel("1 or more in transposed mode");
    if (p.output_padding[d] < 0)
      call.refuse(
          concat("output_padding[", std::int64_t{d}, "] is ", p.output_padding[d], ", expected 0 or more"));
  }
  return centred_on_sites(p);
}

nb::object indice_pairs(nb::handle indices, nb::handle batch_size, nb::handle spatial_shape,
                        nb::handle kernel_size, nb::handle stride, nb::handle padding, nb::handle dilation,
                        nb::handle output_padding, nb::handle subm, nb::handle transpose, nb::handle out,
                        bool use_torch_threads) {
  PythonCall call(kPairs, use_torch_threads);
  const ConstTensor sites = call.in(indices);
  std::optional<std::int64_t> dims;
  if (sites.rank == 2) {
    dims = sites.shape[1] - 1;
    if (*dims < 1 || *dims > Dims::kMax)
      call.refuse(concat("indices.shape[1] is ", sites.shape[1], ", expected 2 .. ",
                         std::int64_t{Dims::kMax + 1}, ": a batch number and coordinates"));
  }
  const std::int64_t batches = call.scalar(batch_size);
  IndicePairsParams params = read(
      call, {spatial_shape, kernel_size, stride, padding, dilation, output_padding, subm, transpose}, dims);
  params.batch_size = batches;
  const auto to = call.outs(out);

  // The large result before the work: what memory cannot hold is refused at once.
  const std::int64_t volume = kernel_volume(params);
  if (volume > kMaxOffsets) {
    std::string kernel;
    for (int d = 0; d < params.kernel_size.count(); ++d)
      kernel += concat(d == 0 ? "[" : ", ", params.kernel_size[d]);
    call.refuse(concat("kernel_size is ", kernel, "], expected at most ", kMaxOffsets, " offsets in all"));
  }
  const auto out_place = call.place(to[0]);
  const Tensor pairs = call.out(to[1], {volume, 2, sites.shape[0]});
  const Tensor num = call.out(to[2], {volume});

  std::optional<SitePairs> index;
  call.prepare([&](const Caller& caller) { index.emplace(sites, params, caller); });
  const Tensor out_indices = call.out(out_place, {index->num_act_out(), sites.shape[1]});
  call.run([&](const Caller& caller) {
    index->write(out_indices, pairs, num, caller);
    index.reset();  // its memory is large, and nobody should wait for it with the GIL
  });
  return call.result();
}

nb::object output_shape(nb::handle spatial_shape, nb::handle kernel_size, nb::handle stride,
                        nb::handle padding, nb::handle dilation, nb::handle output_padding, nb::handle subm,
                        nb::handle transpose) {
  PythonCall call(kShape, false);
  const Dims shape = checked_output_shape(read(
      call, {spatial_shape, kernel_size, stride, padding, dilation, output_padding, subm, transpose}, {}));
  nb::list extents;
  for (int d = 0; d < shape.count(); ++d) extents.append(shape[d]);
  return nb::tuple(extents);
}

constexpr PythonFunction kConvolution{
    "indice_convolution_forward", kIndiceConvolutionForward, "features_out=out", {scalar("num_act_out", 0)}};
constexpr PythonFunction kConvolutionData{"indice_convolution_backward_data",
                                          kIndiceConvolutionBackwardData,
                                          "input_grad=out",
                                          {scalar("num_act_in", 0)}};
constexpr PythonFunction kConvolutionFilter{"indice_convolution_backward_filter",
                                            kIndiceConvolutionBackwardFilter, "filters_grad=out"};
constexpr PythonFunction kConvolutionIndex{"indice_convolution_index", kIndiceConvolutionIndex, "index=out"};
constexpr PythonFunction kMaxPool{
    "indice_max_pool_forward", kIndiceMaxPoolForward, "features_out=out", {scalar("num_act_out", 0)}};
constexpr PythonFunction kMaxPoolBackward{"indice_max_pool_backward", kIndiceMaxPoolBackward,
                                          "input_grad=out"};
constexpr PythonFunction kAvgPool{
    "indice_avg_pool_forward", kIndiceAvgPoolForward, "features_out=out", {scalar("num_act_out", 0)}};
constexpr PythonFunction kAvgPoolBackward{
    "indice_avg_pool_backward", kIndiceAvgPoolBackward, "input_grad=out", {scalar("num_act_in", 0)}};

constexpr PythonFunction kGlobalMaxPool{
    "global_max_pool_forward", kGlobalMaxPoolForward, "features_out=out", {scalar("batch_size", 0)}};
constexpr PythonFunction kGlobalMaxPoolBackwardFunction{"global_max_pool_backward", kGlobalMaxPoolBackward,
                                                        "input_grad=out"};
constexpr PythonFunction kGlobalAvgPool{
    "global_avg_pool_forward", kGlobalAvgPoolForward, "features_out=out", {scalar("batch_size", 0)}};
constexpr PythonFunction kGlobalAvgPoolBackwardFunction{"global_avg_pool_backward", kGlobalAvgPoolBackward,
                                                        "input_grad=out"};

// Filters [k.., in, out] as [offsets, in, out], whatever their strides; other ranks stay, to be refused.
ConstTensor with_one_offset_dimension(const PythonCall& call, const ConstTensor& given) {
  if (given.rank <= 3 || given.rank > kMaxRank) return given;
  ConstTensor filters = given;
  const int last = given.rank - 3;  // of the offsets
  std::int64_t offsets = 1;
  for (int d = last; d >= 0; --d) {
    if (d < last && given.shape[d] != 1 && offsets > 0 &&
        given.stride[d] != extent_product(given.stride[last], offsets))
      call.refuse(concat("filters.stride(", std::int64_t{d}, ") is ", given.stride[d],
                         ", expected kernel dimensions that lie behind each other"));
    offsets = extent_product(offsets, given.shape[d]);
  }
  filters.rank = 3;
  filters.shape[0] = offsets;
  filters.stride[0] = given.stride[last];
  for (int d = 1; d < 3; ++d) {
    filters.shape[d] = given.shape[last + d];
    filters.stride[d] = given.stride[last + d];
  }
  return filters;
}

// A number of rows that the caller states, and `result` has.
std::int64_t read_rows(const PythonCall& call, nb::handle object, const char* name) {
  const std::int64_t rows = call.integer(object, name);
  if (rows < 0) call.refuse(concat(name, " is ", rows, ", expected 0 or more"));
  return rows;
}
void check_rows(const PythonCall& call, const Tensor& result, std::int64_t rows, const char* name) {
  if (result.rank > 0 && result.shape[0] != rows)
    call.refuse(concat("out.shape[0] is ", result.shape[0], ", expected ", rows, " = ", name));
}

IndiceConvolutionParams read_params(const PythonCall& call, nb::handle inverse, nb::handle subm) {
  return {.inverse = call.flag(inverse, "inverse"), .subm = call.flag(subm, "subm")};
}

nb::object convolution_forward(nb::handle features, nb::handle filters, nb::handle indice_pairs_,
                               nb::handle indice_num, nb::handle num_act_out, nb::handle bias,
                               nb::handle inverse, nb::handle subm, nb::handle index, nb::handle out,
                               bool use_torch_threads) {
  PythonCall call(kConvolution, use_torch_threads);
  const ConstTensor x = call.in(features);
  const ConstTensor w = with_one_offset_dimension(call, call.in(filters));
  const ConstTensor pairs = call.in(indice_pairs_), num = call.in(indice_num);
  const ConstTensor b = call.optional_in(bias), kept = call.optional_in(index);
  const std::int64_t rows = read_rows(call, num_act_out, "num_act_out");
  const IndiceConvolutionParams params = read_params(call, inverse, subm);
  const Tensor y = call.out(out, {rows, w.shape[2]});
  check_rows(call, y, rows, "num_act_out");
  call.run([&](const Caller& caller) {
    indice_convolution_forward(x, w, pairs, num, b, kept, y, params, caller);
  });
  return call.result();
}

nb::object convolution_backward_data(nb::handle output_grad, nb::handle filters, nb::handle indice_pairs_,
                                     nb::handle indice_num, nb::handle num_act_in, nb::handle inverse,
                                     nb::handle subm, nb::handle index, nb::handle out,
                                     bool use_torch_threads) {
  PythonCall call(kConvolutionData, use_torch_threads);
  const ConstTensor dy = call.in(output_grad);
  const ConstTensor w = with_one_offset_dimension(call, call.in(filters));
  const ConstTensor pairs = call.in(indice_pairs_), num = call.in(indice_num);
  const ConstTensor kept = call.optional_in(index);
  const std::int64_t rows = read_rows(call, num_act_in, "num_act_in");
  const IndiceConvolutionParams params = read_params(call, inverse, subm);
  const Tensor dx = call.out(out, {rows, w.shape[1]});
  check_rows(call, dx, rows, "num_act_in");
  call.run([&](const Caller& caller) {
    indice_convolution_backward_data(dy, w, pairs, num, kept, dx, params, caller);
  });
  return call.result();
}

nb::object convolution_backward_filter(nb::handle features, nb::handle output_grad, nb::handle indice_pairs_,
                                       nb::handle indice_num, nb::handle inverse, nb::handle subm,
                                       nb::handle out, bool use_torch_threads) {
  PythonCall call(kConvolutionFilter, use_torch_threads);
  const ConstTensor x = call.in(features), dy = call.in(output_grad);
  const ConstTensor pairs = call.in(indice_pairs_), num = call.in(indice_num);
  const IndiceConvolutionParams params = read_params(call, inverse, subm);
  const Tensor dw = call.out(out, {num.shape[0], x.shape[1], dy.shape[1]});
  call.run([&](const Caller& caller) {
    indice_convolution_backward_filter(x, dy, pairs, num, dw, params, caller);
  });
  return call.result();
}

nb::object index_of_pairs(nb::handle indice_pairs_, nb::handle indice_num, nb::handle rows,
                          nb::handle out_rows, nb::handle inverse, nb::handle subm, nb::handle out,
                          bool use_torch_threads) {
  PythonCall call(kConvolutionIndex, use_torch_threads);
  const ConstTensor pairs = call.in(indice_pairs_), num = call.in(indice_num);
  const IndiceConvolutionIndexParams params{.rows = call.scalar(rows),
                                            .out_rows = call.scalar(out_rows),
                                            .inverse = call.flag(inverse, "inverse"),
                                            .subm = call.flag(subm, "subm")};
  std::int64_t size = 0;
  call.prepare(
      [&](const Caller& caller) { size = indice_convolution_index_size(pairs, num, params, caller); });
  const Tensor index = call.out(out, {size});
  call.run([&](const Caller& caller) { indice_convolution_index(pairs, num, index, params, caller); });
  return call.result();
}

// Tensors along which a pooling goes: pairs and counts, or indices.
struct Along {
  ConstTensor tensors[2];

  Along(PythonCall& call, std::initializer_list<nb::handle> objects) {
    int i = 0;
    for (nb::handle object : objects) tensors[i++] = call.in(object);
  }
  const ConstTensor& operator[](int i) const { return tensors[i]; }
};

// A pooling of one tensor. `rows` is what the caller calls the rows of the result. read(call) reads further
// scalars; run(caller, from, along, result) is the operator.
template <class Read, class Run>
nb::object pool(const PythonFunction& function, nb::handle from, std::initializer_list<nb::handle> objects,
                nb::handle rows, const char* rows_name, nb::handle out, bool use_torch_threads,
                const Read& read_more, const Run& run) {
  PythonCall call(function, use_torch_threads);
  const ConstTensor x = call.in(from);
  const Along along(call, objects);
  const std::int64_t count = read_rows(call, rows, rows_name);
  read_more(call);
  const Tensor y = call.out(out, {count, x.shape[1]});
  check_rows(call, y, count, rows_name);
  call.run([&](const Caller& caller) { run(caller, x, along, y); });
  return call.result();
}
constexpr auto kNoMore = [](PythonCall&) {};

// The gradient of a maximum.
template <class Run>
nb::object max_gradient(const PythonFunction& function, nb::handle features, nb::handle features_out,
                        nb::handle output_grad, std::initializer_list<nb::handle> objects, nb::handle out,
                        bool use_torch_threads, const Run& run) {
  PythonCall call(function, use_torch_threads);
  const ConstTensor x = call.in(features), y = call.in(features_out), dy = call.in(output_grad);
  const Along along(call, objects);
  const Tensor dx = call.out(out, {x.shape[0], x.shape[1]});
  call.run([&](const Caller& caller) { run(caller, x, y, dy, along, dx); });
  return call.result();
}

nb::object max_pool_forward(nb::handle features, nb::handle indice_pairs_, nb::handle indice_num,
                            nb::handle num_act_out, nb::handle init, nb::handle out, bool use_torch_threads) {
  PoolInit start{};
  return pool(
      kMaxPool, features, {indice_pairs_, indice_num}, num_act_out, "num_act_out", out, use_torch_threads,
      [&](PythonCall& call) { start = call.named_choice<PoolInit>(init); },
      [&](const Caller& caller, const ConstTensor& x, const Along& along, const Tensor& y) {
        indice_max_pool_forward(x, along[0], along[1], y, start, caller);
      });
}

nb::object max_pool_backward(nb::handle features, nb::handle features_out, nb::handle output_grad,
                             nb::handle indice_pairs_, nb::handle indice_num, nb::handle out,
                             bool use_torch_threads) {
  return max_gradient(kMaxPoolBackward, features, features_out, output_grad, {indice_pairs_, indice_num}, out,
                      use_torch_threads,
                      [](const Caller& caller, const ConstTensor& x, const ConstTensor& y,
                         const ConstTensor& dy, const Along& along, const Tensor& dx) {
                        indice_max_pool_backward(x, y, dy, along[0], along[1], dx, caller);
                      });
}

nb::object avg_pool_forward(nb::handle features, nb::handle indice_pairs_, nb::handle indice_num,
                            nb::handle num_act_out, nb::handle out, bool use_torch_threads) {
  return pool(kAvgPool, features, {indice_pairs_, indice_num}, num_act_out, "num_act_out", out,
              use_torch_threads, kNoMore,
              [](const Caller& caller, const ConstTensor& x, const Along& along, const Tensor& y) {
                indice_avg_pool_forward(x, along[0], along[1], y, caller);
              });
}

nb::object avg_pool_backward(nb::handle output_grad, nb::handle indice_pairs_, nb::handle indice_num,
                             nb::handle num_act_in, nb::handle out, bool use_torch_threads) {
  return pool(kAvgPoolBackward, output_grad, {indice_pairs_, indice_num}, num_act_in, "num_act_in", out,
              use_torch_threads, kNoMore,
              [](const Caller& caller, const ConstTensor& dy, const Along& along, const Tensor& dx) {
                indice_avg_pool_backward(dy, along[0], along[1], dx, caller);
              });
}

nb::object global_max_forward(nb::handle features, nb::handle indices, nb::handle batch_size, nb::handle out,
                              bool use_torch_threads) {
  return pool(kGlobalMaxPool, features, {indices}, batch_size, "batch_size", out, use_torch_threads, kNoMore,
              [](const Caller& caller, const ConstTensor& x, const Along& along, const Tensor& y) {
                global_max_pool_forward(x, along[0], y, caller);
              });
}

nb::object global_max_backward(nb::handle features, nb::handle features_out, nb::handle output_grad,
                               nb::handle indices, nb::handle out, bool use_torch_threads) {
  return max_gradient(
      kGlobalMaxPoolBackwardFunction, features, features_out, output_grad, {indices}, out, use_torch_threads,
      [](const Caller& caller, const ConstTensor& x, const ConstTensor& y, const ConstTensor& dy,
         const Along& along, const Tensor& dx) { global_max_pool_backward(x, y, dy, along[0], dx, caller); });
}

nb::object global_avg_forward(nb::handle features, nb::handle indices, nb::handle batch_size, nb::handle out,
                              bool use_torch_threads) {
  return pool(kGlobalAvgPool, features, {indices}, batch_size, "batch_size", out, use_torch_threads, kNoMore,
              [](const Caller& caller, const ConstTensor& x, const Along& along, const Tensor& y) {
                global_avg_pool_forward(x, along[0], y, caller);
              });
}

nb::object global_avg_backward(nb::handle output_grad, nb::handle indices, nb::handle out,
                               bool use_torch_threads) {
  PythonCall call(kGlobalAvgPoolBackwardFunction, use_torch_threads);
  const ConstTensor dy = call.in(output_grad), sites = call.in(indices);
  const Tensor dx = call.out(out, {sites.shape[0], dy.shape[1]});
  call.run([&](const Caller& caller) { global_avg_pool_backward(dy, sites, dx, caller); });
  return call.result();
}

}  // namespace

void bind(nb::module_& module) {
  for (const PythonFunction* function :
       {&kPairs, &kShape, &kConvolution, &kConvolutionData, &kConvolutionFilter, &kConvolutionIndex,
        &kMaxPool, &kMaxPoolBackward, &kAvgPool, &kAvgPoolBackward, &kGlobalMaxPool,
        &kGlobalMaxPoolBackwardFunction, &kGlobalAvgPool, &kGlobalAvgPoolBackwardFunction})
    list_function(*function);
  define(module, "get_indice_pairs", &indice_pairs);
  define(module, "indice_pairs_output_shape", &output_shape);
  define(module, "indice_convolution_forward", &convolution_forward);
  define(module, "indice_convolution_backward_data", &convolution_backward_data);
  define(module, "indice_convolution_backward_filter", &convolution_backward_filter);
  define(module, "indice_convolution_index", &index_of_pairs);
  define(module, "indice_max_pool_forward", &max_pool_forward);
  define(module, "indice_max_pool_backward", &max_pool_backward);
  define(module, "indice_avg_pool_forward", &avg_pool_forward);
  define(module, "indice_avg_pool_backward", &avg_pool_backward);
  define(module, "global_max_pool_forward", &global_max_forward);
  define(module, "global_max_pool_backward", &global_max_backward);
  define(module, "global_avg_pool_forward", &global_avg_forward);
  define(module, "global_avg_pool_backward", &global_avg_backward);
}

}  // namespace turnout::families::sparse_conv
