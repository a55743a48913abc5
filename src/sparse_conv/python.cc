// Hand-written Python bindings of this family.
#include "bindings/python/call.h"
#include "core/check.h"
#include "sparse_conv/parameters.h"
#include "sparse_conv/signature.h"

namespace turnout::families::sparse_conv {

using namespace core;
using namespace bindings;
namespace {

Dims to_dims(const std::vector<std::int64_t>& values) {
  return {values.data(), static_cast<int>(values.size())};
}

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
  given.spatial_shape = to_dims(call.vector(spatial_shape, 1, Dims::kMax, ""));
  const auto read = [&](nb::handle object) {
    return to_dims(call.vector(object, given.spatial_shape.count(), "len(spatial_shape)"));
  };
  given.kernel_size = read(kernel_size);
  given.stride = read(stride);
  given.padding = read(padding);
  given.dilation = read(dilation);
  given.output_padding = read(output_padding);
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
