// The memory of Python arrays, whoever made them, as tensors.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "bindings/python/dlpack.h"
#include "turnout/tensor.h"

namespace turnout::bindings {

namespace nb = nanobind;

// How objects of a Python type hand out their memory.
enum class Protocol : std::uint8_t {
  none,          // no array
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
  Tensor tensor;                            // dtype is kForeign when Turnout has no such type
  core::dlpack::DataType dlpack_type = {};  // as the producer says it, where it came by DLPack
  ArrayType type;
  bool read_only = false;
  bool requires_grad = false;
  // Strides in bytes, nullptr when those of `tensor` say it all: NumPy's need not be multiples of an element.
  const Py_intptr_t* odd_strides = nullptr;
  nb::object keep;  // must live as long as the tensor is used
};

// Throws turnout::Error about `what` ("moe_dispatch_forward: gates"), or TypeError for what is no array. The
// tensor has no negative extent, and no more bytes than an int64 can count.
ImportedArray import_array(nb::handle object, const std::string_view (&what)[2], bool for_writing);

// Whether torch records gradients now.
bool is_grad_enabled();

// Whether a torch tensor stands for the negative of what its memory holds. Throws turnout::Error about `what`
// if the method of a subclass fails.
bool is_negated(nb::handle tensor, const std::string_view (&what)[2]);

// Whether forward-mode differentiation follows a torch tensor.
bool has_tangent(nb::handle tensor);

// The name of a dtype that Turnout does not have.
std::string foreign_dtype_name(nb::handle object, const ImportedArray& array);

core::dlpack::DataType dlpack_type_of(DType dtype);
// The name of a dtype in NumPy and its extension package ml_dtypes, and in torch.
const char* library_name(DType dtype);

// Makes the Python objects that imports need; called when the module loads. They are not function statics:
// code that runs Python must not wait for the lock of a static while another thread holds it and waits for
// the GIL.
void load_import();

}  // namespace turnout::bindings
