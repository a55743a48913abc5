// Allocates results. Large ones are in memory of the output cache, to which it returns with the array.
#include "bindings/python/export.h"

#include <array>
#include <cstdlib>
#include <limits>
#include <new>
#include <utility>

#include "bindings/python/gil.h"
#include "core/check.h"
#include "runtime/available_memory.h"
#include "runtime/context.h"
#include "runtime/output_cache.h"

namespace turnout::bindings {

using namespace core;
namespace {

using What = const std::string_view (&)[2];

[[noreturn]] void out_of_memory(What what, std::size_t bytes) {
  throw Error(ErrorCode::alloc_failed, concat(what[0], ": ", what[1], " needs ", std::to_string(bytes),
                                              " bytes, which are not available"));
}

// -- NumPy -------------------------------------------------------------------------------------------------

// Owns the memory of one NumPy array; NumPy sees it through the buffer protocol.
struct OutputMemory {
  explicit OutputMemory(OutputBuffer buffer_) : buffer(buffer_) {}
  OutputMemory(const OutputMemory&) = delete;
  OutputMemory& operator=(const OutputMemory&) = delete;
  ~OutputMemory() {
    const WithoutGil release;  // the cache may unmap an older buffer, which takes milliseconds
    output_cache().give_back(buffer);
  }
  OutputBuffer buffer;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const OutputBuffer& buffer = nb::inst_ptr<OutputMemory>(self)->buffer;
  return PyBuffer_FillInfo(view, self, buffer.data, static_cast<Py_ssize_t>(buffer.capacity), 0, flags);
}

nb::tuple python_shape(const std::int64_t* shape, int rank) {
  PyObject* tuple = PyTuple_New(rank);
  if (tuple == nullptr) nb::raise_python_error();
  for (int d = 0; d < rank; ++d) PyTuple_SetItem(tuple, d, PyLong_FromLongLong(shape[d]));
  return nb::steal<nb::tuple>(tuple);
}

// Imported for the first result, because importing NumPy takes a tenth of a second. Not a function static:
// another thread would wait for it with the GIL, which this import needs.
struct NumPy {
  nb::object empty = nb::module_::import_("numpy").attr("empty");
  nb::object ndarray = nb::module_::import_("numpy").attr("ndarray");
  std::array<nb::object, kDTypeCount> dtypes;
};
NumPy* loaded_numpy = nullptr;
NumPy& numpy() {
  if (loaded_numpy == nullptr) {
    auto* made = new NumPy;  // another thread may do the same; either object will do
    loaded_numpy = made;
  }
  return *loaded_numpy;
}

nb::object make_numpy_dtype(DType dtype, What what) {
  const char* name = library_name(dtype);
  const nb::object make = nb::module_::import_("numpy").attr("dtype");
  const bool is_extension = dtype == DType::bf16 || dtype >= DType::f8_e4m3fn;
  if (!is_extension) return make(name);
  try {
    return make(nb::module_::import_("ml_dtypes").attr(name));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // an interrupt
    throw Error(ErrorCode::not_supported,
                concat(what[0], ": ", what[1], " has dtype ", name,
                       ", which NumPy supports only with the package ml_dtypes; install it, or pass out="));
  }
}

const nb::object& numpy_dtype(DType dtype, What what) {
  nb::object& one = numpy().dtypes[static_cast<std::size_t>(dtype)];
  if (!one.is_valid()) one = make_numpy_dtype(dtype, what);
  return one;
}

NewArray new_numpy(DType dtype, const std::int64_t* shape, int rank, std::size_t bytes, What what) {
  const nb::object& type = numpy_dtype(dtype, what);
  const nb::tuple dims = python_shape(shape, rank);
  if (bytes < kCachedOutputBytes) {
    nb::object object = numpy().empty(dims, type);
    const Tensor tensor = import_array(object, what, true).tensor;
    return {std::move(object), tensor};
  }
  const OutputBuffer buffer = output_cache().take(bytes);
  if (buffer.data == nullptr) out_of_memory(what, bytes);
  const nb::object owner = nb::cast(new OutputMemory(buffer), nb::rv_policy::take_ownership);
  return {numpy().ndarray(dims, type, owner), Tensor(buffer.data, dtype, shape, rank)};
}

// -- torch -------------------------------------------------------------------------------------------------

struct TorchMemory {
  dlpack::ManagedTensorVersioned managed{};
  std::int64_t shape[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};
  OutputBuffer cached;  // if it is empty, the elements follow this header in the same block
};

void release(dlpack::ManagedTensorVersioned* managed) {
  auto* memory = static_cast<TorchMemory*>(managed->context);
  if (memory->cached.data != nullptr) output_cache().give_back(memory->cached);
  std::free(memory);
}

// torch.empty takes three times as long as this for a small tensor.
NewArray new_torch(const dlpack::ExchangeApi& api, const Tensor& wanted, std::size_t bytes, What what) {
  const std::size_t header = padded(sizeof(TorchMemory));
  const bool large = bytes >= kCachedOutputBytes;
  void* block = std::aligned_alloc(kScratchAlignment, header + (large ? 0 : padded(bytes)));
  if (block == nullptr) out_of_memory(what, bytes);
  auto* memory = new (block) TorchMemory;
  if (large) {
    memory->cached = output_cache().take(bytes);
    if (memory->cached.data == nullptr) {
      std::free(block);
      out_of_memory(what, bytes);
    }
  }
  NewArray result{{}, wanted};
  result.tensor.data = large ? memory->cached.data : static_cast<std::byte*>(block) + header;
  std::copy(wanted.shape, wanted.shape + kMaxRank, memory->shape);
  std::copy(wanted.stride, wanted.stride + kMaxRank, memory->stride);
  memory->managed = {{dlpack::kMajor, 0},
                     memory,
                     &release,
                     0,
                     {result.tensor.data,
                      {dlpack::kCpu, 0},
                      wanted.rank,
                      dlpack_type_of(wanted.dtype),
                      memory->shape,
                      memory->stride,
                      0}};
  void* object = nullptr;
  if (api.object_from_managed(&memory->managed, &object) != 0) {
    release(&memory->managed);
    nb::raise_python_error();
  }
  result.object = nb::steal(static_cast<PyObject*>(object));
  return result;
}

}  // namespace

NewArray new_array(nb::handle like, const ArrayType& like_type, DType dtype, const std::int64_t* shape,
                   int rank, What what, std::size_t before) {
  std::size_t bytes = static_cast<std::size_t>(size_of(dtype));
  bool empty = false, overflow = false;
  for (int d = 0; d < rank; ++d) {
    empty |= shape[d] == 0;
    overflow |= __builtin_mul_overflow(bytes, static_cast<std::size_t>(shape[d]), &bytes);
  }
  if (empty) bytes = 0;
  if (!empty && (overflow || bytes > std::numeric_limits<std::size_t>::max() / 4)) {
    throw Error(ErrorCode::alloc_failed, concat(what[0], ": ", what[1], " is larger than the address space"));
  }
  if (before > 0 && !can_provide(before + bytes)) out_of_memory(what, bytes);
  if (!like_type.is_torch) return new_numpy(dtype, shape, rank, bytes, what);
  if (like_type.api != nullptr && like_type.api->object_from_managed != nullptr)
    return new_torch(*like_type.api, Tensor(nullptr, dtype, shape, rank), bytes, what);
  if (!can_provide(bytes)) out_of_memory(what, bytes);
  const nb::object torch_dtype = nb::module_::import_("torch").attr(library_name(dtype));
  nb::object object = like.attr("new_empty")(python_shape(shape, rank), nb::arg("dtype") = torch_dtype);
  const Tensor tensor = import_array(object, what, true).tensor;
  return {std::move(object), tensor};
}

void bind_output_memory(nb::module_& module) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)}, {0, nullptr}};
  nb::class_<OutputMemory>(module, "OutputMemory", nb::type_slots(slots), "Memory of a large result.");
}

}  // namespace turnout::bindings
