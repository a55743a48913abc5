// The Python extension module turnout._core: one line per family, and what is about the library as a whole.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "doors/python/call.h"
#include "registry.h"
#include "runtime/call.h"
#include "runtime/output_cache.h"
#include "runtime/stream_copy.h"
#include "runtime/torch_executor.h"
#include "simd/copy.h"
#include "simd/isa.h"
#include "turnout/version.h"

namespace turnout::families {

// Each family's bindings, in its python.cc.
namespace dynamic_scatter {
void bind(nanobind::module_& module);
}
namespace moe_dispatch {
void bind(nanobind::module_& module);
}
namespace moe_re_routing {
void bind(nanobind::module_& module);
}
namespace mutual_information {
void bind(nanobind::module_& module);
}
namespace sparse_conv {
void bind(nanobind::module_& module);
}

}  // namespace turnout::families

namespace turnout::doors {

using namespace core;

namespace {

nb::list signatures() {
  nb::list all;
  for (const Operator& op : operators()) {
    const Signature& signature = *op.signature;
    nb::list scalars, arguments;
    for (const Scalar& scalar : signature.scalars) {
      nb::dict row;
      row["name"] = text_of(scalar.name);
      row["min"] = scalar.min;
      row["max"] = scalar.max;
      row["values"] = text_of(scalar.values);
      row["length"] = scalar.is_vector ? text_of(scalar.length.text) : "";
      scalars.append(row);
    }
    for (const Argument& argument : signature.arguments) {
      static constexpr const char* kRoles[] = {"in", "out", "inout"};
      nb::dict row;
      row["name"] = text_of(argument.name);
      row["role"] = kRoles[static_cast<int>(argument.role)];
      row["optional"] = argument.optional;
      row["dtypes"] = dtypes_text(signature, argument);
      row["dims"] = dims_text(argument);
      arguments.append(row);
    }
    nb::dict entry;
    entry["op"] = text_of(signature.op);
    entry["scalars"] = scalars;
    entry["arguments"] = arguments;
    all.append(entry);
  }
  return all;
}

nb::dict info() {
  nb::list supported;
  for (int i = 0; i < kIsaCount; ++i)
    if (is_supported(static_cast<Isa>(i))) supported.append(name_of(static_cast<Isa>(i)));
  nb::dict entry;
  entry["version"] = TURNOUT_VERSION;
  entry["isa"] = name_of(default_context().isa());
  entry["supported_isas"] = supported;
  entry["threads"] = default_context().threads();
  entry["output_cache_limit"] = output_cache().limit();
  entry["output_cache_idle"] = output_cache().idle_bytes();
  return entry;
}

// An argument of a call that is traced: (dtype, shape), with None for an extent that is not known.
struct Description {
  std::int64_t shape[kMaxRank] = {};
  Slot slot;
};

void read_description(const Signature& signature, const Argument& argument, nb::handle object,
                      Description& description) {
  const auto pair = nb::cast<nb::tuple>(object);
  const std::string dtype = nb::cast<std::string>(pair[0]);
  const auto shape = nb::cast<nb::tuple>(pair[1]);
  int known = 0;
  while (known < kDTypeCount && dtype != name_of(static_cast<DType>(known))) ++known;
  if (known == kDTypeCount)
    throw Error(ErrorCode::bad_param, concat(signature.op, ": ", argument.name, " has dtype ", dtype,
                                             ", expected ", dtypes_text(signature, argument)));
  for (std::size_t d = 0; d < shape.size() && d < kMaxRank; ++d)
    description.shape[d] = shape[d].is_none() ? kUnknownExtent : nb::cast<std::int64_t>(shape[d]);
  description.slot =
      Slot(nullptr, static_cast<DType>(known), description.shape, nullptr, static_cast<int>(shape.size()));
}

// Checks a call of which only dtypes and shapes are known, against the operator's signature. Arguments and
// scalars come by name. What is not named is absent, or has the least value that is allowed; so has a scalar
// that is None, and an element of a vector.
void check_descriptions(const std::string& op, const nb::dict& arguments, const nb::dict& scalars) {
  const auto found = std::find_if(operators().begin(), operators().end(),
                                  [&](const Operator& one) { return one.signature->op == op; });
  if (found == operators().end())
    throw Error(ErrorCode::internal, concat("check_descriptions: there is no operator ", op));
  const Signature& signature = *found->signature;
  Description descriptions[kMaxArguments];
  Slot slots[kMaxArguments];
  for (int i = 0; i < signature.arguments.count; ++i) {
    const nb::str name(text_of(signature.arguments[i].name).c_str());
    if (!arguments.contains(name) || arguments[name].is_none()) continue;
    read_description(signature, signature.arguments[i], arguments[name], descriptions[i]);
    slots[i] = descriptions[i].slot;
  }
  std::vector<std::int64_t> elements[kMaxScalars];
  std::vector<ScalarValue> values;
  for (int i = 0; i < signature.scalars.count; ++i) {
    const Scalar& scalar = signature.scalars[i];
    const nb::str name(text_of(scalar.name).c_str());
    const nb::object given = scalars.contains(name) ? nb::object(scalars[name]) : nb::none();
    const auto value_of = [&](nb::handle object) {
      return object.is_none() ? scalar.min : nb::cast<std::int64_t>(object);
    };
    if (!scalar.is_vector) {
      values.emplace_back(value_of(given));
      continue;
    }
    for (nb::handle element : nb::cast<nb::tuple>(given)) elements[i].push_back(value_of(element));
    values.emplace_back(elements[i].data(), static_cast<std::int64_t>(elements[i].size()));
  }
  Arguments(signature, slots, signature.arguments.count, values.data(), signature.scalars.count)
      .check_descriptions();
}

// The floor of the benchmarks: the bytes of one array to another, past the cache, on all threads.
void copy_bytes(nb::handle to, nb::handle from) {
  static constexpr std::string_view kTo[2] = {"stream_copy", "to"}, kFrom[2] = {"stream_copy", "from"};
  const ImportedArray target = import_array(to, kTo, true), source = import_array(from, kFrom, false);
  for (const auto* array : {&target, &source}) {
    const Slot slot(array->tensor);
    if (slot.rank > kMaxRank || slot.dtype == kForeign || !slot.is_contiguous())
      throw Error(ErrorCode::bad_param,
                  "stream_copy: an array is strided or of another type, expected plain memory");
  }
  const std::int64_t bytes = Slot(target.tensor).elements() * size_of(target.tensor.dtype);
  const std::int64_t source_bytes = Slot(source.tensor).elements() * size_of(source.tensor.dtype);
  if (target.read_only) throw Error(ErrorCode::bad_param, "stream_copy: to is read-only");
  if (bytes != source_bytes)
    throw Error(ErrorCode::bad_param,
                concat("stream_copy: from has ", source_bytes, " bytes, expected ", bytes, " as to"));
  const nb::gil_scoped_release release;
  stream_copy(default_context(), target.tensor.data, source.tensor.data, bytes);
}

void bind_library(nb::module_& module) {
  module.attr("__version__") = TURNOUT_VERSION;
  module.def("signatures", &signatures);
  module.def("info", &info);
  module.def("get_num_threads", [] { return default_context().threads(); });
  module.def("set_num_threads", [](int threads) { default_context().set_threads(threads); });
  module.def("set_log", [](int level) { set_log(level); });
  module.def("output_cache_limit", [] { return output_cache().limit(); });
  module.def("output_cache_idle", [] { return output_cache().idle_bytes(); });
  module.def("set_output_cache_limit", [](std::size_t bytes) {
    const nb::gil_scoped_release release;
    output_cache().set_limit(bytes);
  });
  module.def("use_torch_threads", [](std::uintptr_t parallel_for, std::uintptr_t get_num_threads) {
    use_torch_threads({std::bit_cast<decltype(TorchFunctions::parallel_for)>(parallel_for),
                       std::bit_cast<decltype(TorchFunctions::get_num_threads)>(get_num_threads)});
  });
  module.def("torch_runs", &torch_runs);
  define(module, "stream_copy", &copy_bytes);
  module.def("check_descriptions", &check_descriptions);
}

}  // namespace
}  // namespace turnout::doors

NB_MODULE(_core, module) {
  using namespace turnout;
  using namespace turnout::doors;
  nb::set_leak_warnings(false);  // nothing is printed unasked, not even about arrays alive at exit
  register_errors();
  bind_library(module);
  bind_output_memory(module);
  families::dynamic_scatter::bind(module);
  families::moe_dispatch::bind(module);
  families::moe_re_routing::bind(module);
  families::mutual_information::bind(module);
  families::sparse_conv::bind(module);
}
