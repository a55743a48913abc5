// Python bindings of this family.
#include "bindings/python/call.h"
#include "core/check.h"
#include "sparse_conv/parameters.h"
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

}  // namespace

void bind(nb::module_& module) {
  list_function(kPairs);
  list_function(kShape);
  define(module, "get_indice_pairs", &indice_pairs);
  define(module, "indice_pairs_output_shape", &output_shape);
}

}  // namespace turnout::families::sparse_conv
