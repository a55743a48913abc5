// Hand-written Python bindings of this family.
#include "bindings/python/call.h"
#include "core/check.h"
#include "sparse_conv/parameters.h"
#include "sparse_conv/signature.h"

namespace turnout::families::sparse_conv {

using namespace core;
using namespace bindings;
namespace {

// Not an operator: it has no tensors.
constexpr PythonFunction kShape{
    "indice_pairs_output_shape", kOutputShape, "output_shape=", {flag("subm"), flag("transpose")}};

nb::object output_shape(nb::handle spatial_shape, nb::handle kernel_size, nb::handle stride,
                        nb::handle padding, nb::handle dilation, nb::handle output_padding, nb::handle subm,
                        nb::handle transpose) {
  PythonCall call(kShape, false);
  SpelledParams given;
  given.subm = call.flag(subm, "subm");
  given.transpose = call.flag(transpose, "transpose");
  const auto read = [&](nb::handle object, std::string_view name, const PythonCall::Length& length) -> Dims {
    const std::vector<std::int64_t> values = call.integers(object, name, length);
    return {values.data(), static_cast<int>(values.size())};
  };
  given.spatial_shape = read(spatial_shape, "spatial_shape", {1, Dims::kMax});
  const std::int64_t rank = given.spatial_shape.count();
  const PythonCall::Length per_axis{rank, rank, "len(spatial_shape)", rank};
  given.kernel_size = read(kernel_size, "kernel_size", per_axis);
  given.stride = read(stride, "stride", per_axis);
  given.padding = read(padding, "padding", per_axis);
  given.dilation = read(dilation, "dilation", per_axis);
  given.output_padding = read(output_padding, "output_padding", per_axis);
  const Dims shape = checked_output_shape(read_spelled(kShape.name, given));
  nb::list extents;
  for (int d = 0; d < shape.count(); ++d) extents.append(shape[d]);
  return nb::tuple(extents);
}

}  // namespace

void bind(nb::module_& module) {
  list_function(kShape);
  define(module, "indice_pairs_output_shape", &output_shape);
}

}  // namespace turnout::families::sparse_conv
