// Looks up functions of torch's stable C interface in the library that torch has loaded.
#include "bindings/python/torch_threads.h"

#include <dlfcn.h>
#include <nanobind/stl/string.h>

#include <bit>
#include <string>

#include "runtime/torch_executor.h"

namespace turnout::bindings {

void find_torch_threads(nb::handle torch) {
  std::string file;
  if (!nb::try_cast(nb::getattr(torch, "__file__", nb::none()), file)) return;
  const std::string path = file.substr(0, file.rfind('/') + 1) + "lib/libtorch_cpu.so";
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return;
  void* const parallel_for = dlsym(library, "torch_parallel_for");
  void* const get_num_threads = dlsym(library, "torch_get_num_threads");
  if (parallel_for == nullptr || get_num_threads == nullptr) return;
  core::use_torch_threads({std::bit_cast<decltype(core::TorchFunctions::parallel_for)>(parallel_for),
                           std::bit_cast<decltype(core::TorchFunctions::get_num_threads)>(get_num_threads)});
}

}  // namespace turnout::bindings
