// The Python extension module turnout._core: the families' bindings and functions of the whole library.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <bit>

#include "bindings/python/call.h"
#include "bindings/python/example.h"
#include "bindings/python/invoke.h"
#include "bindings/python/listing.h"
#include "bindings/python/operators.h"
#include "bindings/python/torch_threads.h"
#include "bindings/python/traced.h"
#include "bindings/python/workers.h"
#include "core/check.h"
#include "core/draft.h"
#include "runtime/call.h"
#include "runtime/output_cache.h"
#include "runtime/parallel.h"
#include "runtime/stream_copy.h"
#include "runtime/torch_executor.h"
#include "simd/copy.h"
#include "simd/fma_peak.h"
#include "simd/isa.h"
#include "turnout/version.h"

// The bindings of families that have a python.cc.
#define TURNOUT_FAMILY(family)          \
  namespace turnout::families::family { \
  void bind(nanobind::module_& module); \
  }
#include "families_with_bindings.inc"
#undef TURNOUT_FAMILY

namespace turnout::bindings {

using namespace core;

namespace {

// Unused bytes of scratch memory in Python's contexts.
std::size_t idle_scratch() {
  std::size_t bytes = default_context().state().arenas.idle_bytes();
  if (&torch_context() != &default_context()) bytes += torch_context().state().arenas.idle_bytes();
  return bytes;
}

nb::dict info() {
  choose_threads_of_process();
  nb::list supported;
  for (int i = 0; i < kIsaCount; ++i)
    if (is_supported(static_cast<Isa>(i))) supported.append(name_of(static_cast<Isa>(i)));
  nb::dict entry;
  entry["version"] = TURNOUT_VERSION;
  entry["isa"] = name_of(default_context().isa());
  entry["isa_note"] = isa_note();
  entry["supported_isas"] = supported;
  entry["threads"] = default_context().threads();
  entry["output_cache_limit"] = output_cache().limit();
  entry["output_cache_idle"] = output_cache().idle_bytes();
  entry["scratch_idle"] = idle_scratch();
  return entry;
}

// Signatures of functions without tensors.
constexpr const Signature& kSetNumThreads = signature([] {
  return Draft{"set_num_threads", "", {scalar("threads", 0, kMaxThreads)}, {}};
});
constexpr const Signature& kSetLog = signature([] {
  return Draft{"set_log", "", {scalar("level", 0, kSkippedLevel)}, {}};
});
constexpr const Signature& kOutputCache = signature([] {
  return Draft{"output_cache", "", {scalar("limit", 0)}, {}};
});

std::int64_t only_scalar(const Signature& signature, nb::handle object) {
  const ScalarValue value = PythonCall(signature, false).integer(object, signature.scalars[0].name);
  Arguments(signature, nullptr, 0, &value, 1).check();
  return value.value;
}

void set_num_threads(nb::handle threads) {
  default_context().set_threads(static_cast<int>(only_scalar(kSetNumThreads, threads)));
  threads_are_chosen();
}

void set_log_level(nb::handle level) { set_log(static_cast<int>(only_scalar(kSetLog, level))); }

void set_output_cache_limit(nb::handle limit) {
  const auto bytes = static_cast<std::size_t>(only_scalar(kOutputCache, limit));
  const WithoutGil release;
  output_cache().set_limit(bytes);
}

void trim() {
  const WithoutGil release;
  default_context().trim();
  torch_context().trim();
  output_cache().trim();
}

// Copies one array to another on all threads, past the cache: the benchmarks' lower bound.
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
  run_without_gil([&] { stream_copy(default_context(), target.tensor.data, source.tensor.data, bytes); });
}

void bind_library(nb::module_& module) {
  module.attr("__version__") = TURNOUT_VERSION;
  module.def("signatures", &signatures);
  module.def("functions", &functions);
  module.def("info", &info);
  module.def("get_num_threads", [] {
    choose_threads_of_process();
    return default_context().threads();
  });
  define(module, "set_num_threads", &set_num_threads);
  define(module, "set_log", &set_log_level);
  module.def("output_cache_limit", [] { return output_cache().limit(); });
  module.def("output_cache_idle", [] { return output_cache().idle_bytes(); });
  define(module, "set_output_cache_limit", &set_output_cache_limit);
  define(module, "trim", &trim);
  module.def("find_torch_threads", &find_torch_threads);
  // For tests, which replace torch's functions.
  module.def("use_torch_threads", [](std::uintptr_t parallel_for, std::uintptr_t get_num_threads) {
    use_torch_threads({std::bit_cast<decltype(TorchFunctions::parallel_for)>(parallel_for),
                       std::bit_cast<decltype(TorchFunctions::get_num_threads)>(get_num_threads)});
  });
  module.def("torch_runs", &torch_runs);
  define(module, "stream_copy", &copy_bytes);
  // The lower bound of matrix products: floating-point operations per second of this thread.
  module.def("fma_peak", [] {
    const WithoutGil release;
    return fma_peak(default_context().isa());
  });
  module.def("invoke", &invoke);
  module.def("check_metadata", &check_metadata);
  module.def("schemas", &schemas);
  module.def("example", &example);
  module.def("defined_operators", &defined_operators);
  module.def("check_definition", &check_definition);
}

}  // namespace
}  // namespace turnout::bindings

NB_MODULE(_core, module) {
  using namespace turnout;
  using namespace turnout::bindings;
  nb::set_leak_warnings(false);  // the library prints nothing, not even about arrays alive at exit
  load_import();
  watch_forks();
  watch_main_thread();
  register_errors();
  bind_library(module);
  bind_output_memory(module);
#define TURNOUT_FAMILY(family) families::family::bind(module);
#include "families_with_bindings.inc"
#undef TURNOUT_FAMILY
  bind_operators(module);
}
