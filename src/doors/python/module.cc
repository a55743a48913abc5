// The Python extension module turnout._core: one line per family, and what is about the library as a whole.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <bit>

#include "doors/python/call.h"
#include "doors/python/listing.h"
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
  module.def("functions", &functions);
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
}

}  // namespace
}  // namespace turnout::doors

NB_MODULE(_core, module) {
  using namespace turnout;
  using namespace turnout::doors;
  nb::set_leak_warnings(false);  // nothing is printed unasked, not even about arrays alive at exit
  load_import();
  register_errors();
  bind_library(module);
  bind_output_memory(module);
  families::dynamic_scatter::bind(module);
  families::moe_dispatch::bind(module);
  families::moe_re_routing::bind(module);
  families::mutual_information::bind(module);
  families::sparse_conv::bind(module);
}
