// Python arrays of any library as tensors.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "bindings/python/dlpack.h"
#include "turnout/tensor.h"

namespace turnout::bindings {

namespace nb = nanobind;

// How objects of a Python type export their memory.
enum class Protocol : std::uint8_t {
  none,          // not an array
  array_struct,  // NumPy, and types with its protocol
  exchange_api,  // DLPack by function pointers: 0.1 us a tensor
  capsule,       // DLPack by __dlpack__()
};

struct ArrayType {
  PyObject* type = nullptr;
  Protocol protocol = Protocol::none;
  bool is_torch = false;
  const core::dlpack::ExchangeApi* api = nullptr;
};
ArrayType array_type_of(nb::handle object);

struct ImportedArray {
  Tensor tensor;                            // dtype is kForeign if Turnout has no such type
  core::dlpack::DataType dlpack_type = {};  // of the producer, if it was imported by DLPack
  ArrayType type;
  bool read_only = false;
  bool requires_grad = false;
  // Strides in bytes if they are not multiples of an element, which NumPy allows; otherwise nullptr.
  const Py_intptr_t* odd_strides = nullptr;
  nb::object keep;  // must live as long as the tensor is used
};

// Throws turnout::Error about `what` ("moe_dispatch_forward: gates"), or TypeError if the object is not an
// array. The tensor has no negative extent, and its bytes fit in an int64.
ImportedArray import_array(nb::handle object, const std::string_view (&what)[2], bool for_writing);

// Whether torch records gradients now.
bool is_grad_enabled();

// Whether a torch tensor is a lazily negated view. Throws turnout::Error about `what` if the method of a
// subclass fails.
bool is_negated(nb::handle tensor, const std::string_view (&what)[2]);

// Whether a torch tensor has a tangent of forward-mode differentiation.
bool has_tangent(nb::handle tensor);

// The name of a dtype that Turnout does not have.
std::string foreign_dtype_name(nb::handle object, const ImportedArray& array);

core::dlpack::DataType dlpack_type_of(DType dtype);
// The name of a dtype in NumPy and its extension package ml_dtypes, and in torch.
const char* library_name(DType dtype);

// Creates the Python objects that imports need, when the module loads. They are not function statics: a
// thread that holds the GIL must not wait for the lock of a static whose holder waits for the GIL.
void load_import();

}  // namespace turnout::bindings
