// Imports arrays by NumPy's __array_struct__, DLPack's exchange API or __dlpack__().
#include "bindings/python/import.h"

#include <array>
#include <utility>
#include <vector>

#include "bindings/python/gil.h"
#include "bindings/python/text.h"
#include "bindings/python/torch_threads.h"
#include "core/check.h"
#include "core/dtypes.h"

namespace turnout::bindings {

using namespace core;
namespace {

using What = const std::string_view (&)[2];

template <class... T>
[[noreturn]] void refuse(What what, const T&... words) {
  throw Error(ErrorCode::bad_param, concat(what[0], ": ", what[1], words...));
}

// Never released: modules are not unloaded.
struct Names {
  nb::object array_struct = nb::steal(PyUnicode_InternFromString("__array_struct__"));
  nb::object exchange_api = nb::steal(PyUnicode_InternFromString("__dlpack_c_exchange_api__"));
  nb::object dlpack = nb::steal(PyUnicode_InternFromString("__dlpack__"));
  nb::object requires_grad = nb::steal(PyUnicode_InternFromString("requires_grad"));
  nb::object current_level = nb::steal(PyUnicode_InternFromString("_current_level"));
  nb::object is_neg = nb::steal(PyUnicode_InternFromString("is_neg"));
  nb::object dtype = nb::steal(PyUnicode_InternFromString("dtype"));
  nb::object no_arguments = nb::steal(PyTuple_New(0));
};
const Names* loaded_names = nullptr;
const Names& names() { return *loaded_names; }

// torch's functions and modules, loaded for the first torch tensor.
struct Torch {
  nb::object is_grad_enabled = nb::module_::import_("torch").attr("is_grad_enabled");
  nb::object forward_ad = nb::module_::import_("torch.autograd.forward_ad");
  nb::object unpack_dual = forward_ad.attr("unpack_dual");
  PyObject* globals = PyModule_GetDict(forward_ad.ptr());
};
const Torch* loaded_torch = nullptr;
const Torch& torch() {
  if (loaded_torch == nullptr) {
    const auto* made = new Torch;  // another thread may do the same; either object will do
    loaded_torch = made;
  }
  return *loaded_torch;
}

// The attribute, or an invalid object. Exceptions other than AttributeError propagate.
nb::object attribute(nb::handle object, const nb::object& name) {
  PyObject* found = staying_at_exit([&] { return PyObject_GetAttr(object.ptr(), name.ptr()); });
  if (found == nullptr) expect_pending(PyExc_AttributeError);
  return nb::steal(found);
}

// -- types -------------------------------------------------------------------------------------------------

const dlpack::ExchangeApi* exchange_api_of(nb::handle type) {
  const nb::object capsule = attribute(type, names().exchange_api);
  if (!capsule.is_valid() || !PyCapsule_CheckExact(capsule.ptr())) return nullptr;
  auto* api = static_cast<dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (api == nullptr) PyErr_Clear();
  while (api != nullptr && api->version.major > dlpack::kMajor) api = api->previous;
  return api != nullptr && api->version.major == dlpack::kMajor && api->tensor_from_object ? api : nullptr;
}

// Called once per type. From the first torch tensor on, calls with torch tensors use torch's threads.
bool is_torch_type(nb::handle type) {
  // Does not import torch: unless it is imported, no object is a torch tensor.
  const nb::dict modules = nb::borrow<nb::dict>(PyImport_GetModuleDict());
  if (!modules.contains("torch")) return false;
  const nb::object tensor = attribute(modules["torch"], nb::str("Tensor"));
  if (!tensor.is_valid() || !PyType_Check(tensor.ptr())) return false;
  if (PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type.ptr()),
                       reinterpret_cast<PyTypeObject*>(tensor.ptr())) == 0)
    return false;
  find_torch_threads(modules["torch"]);
  return true;
}

ArrayType examine(nb::handle type) {
  ArrayType found{type.ptr(), Protocol::none, is_torch_type(type), nullptr};
  if (attribute(type, names().array_struct).is_valid()) {
    found.protocol = Protocol::array_struct;
  } else if ((found.api = exchange_api_of(type)) != nullptr) {
    found.protocol = Protocol::exchange_api;
  } else if (attribute(type, names().dlpack).is_valid()) {
    found.protocol = Protocol::capsule;
  }
  return found;
}

// -- dtypes ------------------------------------------------------------------------------------------------

constexpr dlpack::DataType kDlpackTypes[kDTypeCount] = {
    {dlpack::kFloat, 32, 1},       {dlpack::kFloat, 64, 1},       {dlpack::kFloat, 16, 1},
    {dlpack::kBfloat, 16, 1},      {dlpack::kInt, 8, 1},          {dlpack::kUInt, 8, 1},
    {dlpack::kInt, 16, 1},         {dlpack::kUInt, 16, 1},        {dlpack::kInt, 32, 1},
    {dlpack::kUInt, 32, 1},        {dlpack::kInt, 64, 1},         {dlpack::kUInt, 64, 1},
    {dlpack::kBool, 8, 1},         {dlpack::kFloat8E4m3fn, 8, 1}, {dlpack::kFloat8E5m2, 8, 1},
    {dlpack::kFloat8E8m0fnu, 8, 1}};

DType dtype_of(const dlpack::DataType& type) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const dlpack::DataType& known = kDlpackTypes[i];
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return static_cast<DType>(i);
  }
  return kForeign;
}

// The name that an array's own library has for its dtype: "complex64", also for torch.complex64.
std::string dtype_name(nb::handle array) {
  const nb::object dtype = attribute(array, names().dtype);
  if (!dtype.is_valid()) return "unknown";
  const nb::object name = attribute(dtype, nb::str("name"));  // of NumPy; str() of other libraries will do
  const std::string text = str_of(name.is_valid() ? name : dtype);
  constexpr std::string_view kTorch = "torch.";
  return text.starts_with(kTorch) ? text.substr(kTorch.size()) : text;
}

// Types of the package ml_dtypes: NumPy sees bytes of kind 'V' (or 'f'), only the dtype's name tells them
// apart. Asking for a name takes a microsecond, so answers are kept by dtype object, which NumPy has one of
// per type.
DType extension_dtype(nb::handle array) {
  static auto& known = *new std::vector<std::pair<nb::object, DType>>;
  constexpr std::size_t kMostKnown = 16;
  const nb::object dtype = attribute(array, names().dtype);
  if (!dtype.is_valid()) return kForeign;
  for (const auto& [object, type] : known)
    if (object.is(dtype)) return type;
  static constexpr std::pair<std::string_view, DType> kExtensions[] = {{"bfloat16", DType::bf16},
                                                                       {"float8_e4m3fn", DType::f8_e4m3fn},
                                                                       {"float8_e5m2", DType::f8_e5m2},
                                                                       {"float8_e8m0fnu", DType::f8_e8m0}};
  const std::string name = dtype_name(array);
  DType found = kForeign;
  for (const auto& [extension, type] : kExtensions)
    if (name == extension) found = type;
  if (known.size() < kMostKnown) known.emplace_back(dtype, found);
  return found;
}

DType numpy_dtype(nb::handle array, char kind, int size) {
  const auto named = [&] {
    const DType dtype = extension_dtype(array);
    return dtype != kForeign && size_of(dtype) == size ? dtype : kForeign;
  };
  switch (kind) {
    case 'f':
      if (size == 1) return named();
      return size == 4 ? DType::f32 : size == 8 ? DType::f64 : size == 2 ? DType::f16 : kForeign;
    case 'i':
      if (size == 1) return DType::i8;
      return size == 4 ? DType::i32 : size == 8 ? DType::i64 : size == 2 ? DType::i16 : kForeign;
    case 'u':
      if (size == 1) return DType::u8;
      return size == 4 ? DType::u32 : size == 8 ? DType::u64 : size == 2 ? DType::u16 : kForeign;
    case 'b':
      return size == 1 ? DType::boolean : kForeign;
    case 'V':
      return named();
    default:
      return kForeign;
  }
}

// -- protocols ---------------------------------------------------------------------------------------------

// What an __array_struct__ capsule points to.
struct ArrayInterface {
  int two;
  int rank;
  char kind;
  int item_size;
  int flags;
  Py_intptr_t* shape;
  Py_intptr_t* strides;  // in bytes
  void* data;
  PyObject* descr;
};
constexpr int kNativeByteOrder = 0x200;
constexpr int kWriteable = 0x400;

void read_array_struct(nb::handle object, What what, ImportedArray& array) {
  array.keep = attribute(object, names().array_struct);
  const auto* from = array.keep.is_valid() && PyCapsule_CheckExact(array.keep.ptr())
                         ? static_cast<ArrayInterface*>(PyCapsule_GetPointer(array.keep.ptr(), nullptr))
                         : nullptr;
  const bool is_whole = from != nullptr && from->two == 2 && from->rank >= 0 && from->item_size >= 0 &&
                        (from->rank == 0 || (from->shape != nullptr && from->strides != nullptr));
  if (!is_whole) {
    PyErr_Clear();
    refuse(what, ".__array_struct__ does not follow NumPy's protocol");
  }
  Tensor& to = array.tensor;
  to.data = from->data;
  to.rank = from->rank;
  to.dtype = numpy_dtype(object, from->kind, from->item_size);
  array.read_only = (from->flags & kWriteable) == 0;
  if ((from->flags & kNativeByteOrder) == 0 && from->item_size > 1)
    refuse(what, " has a foreign byte order, expected this machine's; pass ", what[1], ".astype(", what[1],
           ".dtype.newbyteorder('='))");
  for (int d = 0; d < std::min(from->rank, kMaxRank); ++d) {
    to.shape[d] = from->shape[d];
    to.stride[d] = from->item_size == 0 ? 0 : from->strides[d] / from->item_size;
    if (from->shape[d] > 1 && from->strides[d] != to.stride[d] * from->item_size)
      array.odd_strides = from->strides;
  }
}

[[noreturn]] void refuse_device(What what, const std::string& device) {
  refuse(what, " is on ", device, ", expected CPU memory");
}

void read_dlpack(nb::handle object, const dlpack::DLTensor& from, What what, ImportedArray& array) {
  if (from.device.type != dlpack::kCpu && from.device.type != dlpack::kCudaHost &&
      from.device.type != dlpack::kRocmHost) {
    if (array.type.is_torch) refuse_device(what, "device " + str_of(object.attr("device")));
    refuse_device(what, concat("a device of DLPack type ", std::int64_t{from.device.type}));
  }
  if (from.ndim < 0 || (from.ndim > 0 && from.shape == nullptr))
    refuse(what, " has ", std::int64_t{from.ndim}, " dimensions",
           from.ndim < 0 ? ", expected 0 or more" : " and no shape");
  // A null pointer stays null: it is legal for an array without elements.
  auto* data = static_cast<std::byte*>(from.data);
  Tensor tensor(data == nullptr ? nullptr : data + from.byte_offset, dtype_of(from.dtype), from.shape,
                from.ndim);
  if (from.strides != nullptr)
    for (int d = 0; d < std::min(from.ndim, kMaxRank); ++d) tensor.stride[d] = from.strides[d];
  array.tensor = tensor;
  array.dlpack_type = from.dtype;
}

// Throws the reason why torch does not export a tensor; torch's message is about DLPack and ends in a
// backtrace. Returns if the reason is a dtype that Turnout does not have.
void explain_torch(nb::handle object, const std::string& message, What what, ImportedArray& array) {
  if (str_of(object.attr("device").attr("type")) != "cpu")
    refuse_device(what, "device " + str_of(object.attr("device")));
  const std::string layout = str_of(object.attr("layout")), dtype = str_of(object.attr("dtype"));
  if (layout != "torch.strided") refuse(what, " has layout ", layout, ", expected torch.strided");
  for (int i = 0; i < kDTypeCount; ++i)
    if (dtype == concat("torch.", library_name(static_cast<DType>(i))))
      refuse(what, " does not give access to its memory: ", message);
  array.tensor = Tensor(nullptr, kForeign, {});
}

void read_exchange(nb::handle object, What what, ImportedArray& array) {
  dlpack::DLTensor tensor;
  if (array.type.api->tensor_from_object(object.ptr(), &tensor) == 0)
    return read_dlpack(object, tensor, what, array);
  const std::string message = take_message();
  if (!array.type.is_torch) refuse(what, " does not give access to its memory: ", message);
  explain_torch(object, message, what, array);
}

void read_capsule(nb::handle object, What what, ImportedArray& array) {
  const nb::object export_ = attribute(object, names().dlpack);
  if (!export_.is_valid()) refuse(what, " does not give access to its memory: it has no __dlpack__");
  nb::dict versioned;
  versioned["max_version"] = nb::make_tuple(dlpack::kMajor, 0);
  PyObject* capsule = staying_at_exit(
      [&] { return PyObject_Call(export_.ptr(), names().no_arguments.ptr(), versioned.ptr()); });
  if (capsule == nullptr && PyErr_ExceptionMatches(PyExc_TypeError)) {  // a producer before DLPack 1.0
    PyErr_Clear();
    capsule = staying_at_exit([&] { return PyObject_CallNoArgs(export_.ptr()); });
  }
  if (capsule == nullptr) {
    const std::string message = take_message();
    if (!array.type.is_torch) refuse(what, " does not give access to its memory: ", message);
    return explain_torch(object, message, what, array);
  }
  // The capsule keeps its name, so that its destructor releases the memory after the call.
  array.keep = nb::steal(capsule);
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const auto* managed =
        static_cast<dlpack::ManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->version.major != dlpack::kMajor)
      refuse(what, " uses DLPack version ", std::int64_t{managed->version.major}, ", expected 1");
    array.read_only = (managed->flags & dlpack::kReadOnly) != 0;
    read_dlpack(object, managed->tensor, what, array);
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    read_dlpack(object,
                static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"))->tensor, what,
                array);
  } else {
    refuse(what, ".__dlpack__() returned something other than a DLPack capsule");
  }
}

// Refuses extents that no array can have.
void check_extents(nb::handle object, What what, const ImportedArray& array) {
  const Tensor& tensor = array.tensor;
  if (tensor.rank > kMaxRank || tensor.dtype == kForeign) return;  // refused later
  std::int64_t bytes = size_of(tensor.dtype);
  bool is_empty = false, overflows = false;
  for (int d = 0; d < tensor.rank; ++d) {
    const std::int64_t extent = tensor.shape[d];
    if (extent < 0) refuse(what, ".shape[", std::int64_t{d}, "] is ", extent, ", expected 0 or more");
    is_empty |= extent == 0;
    overflows |= __builtin_mul_overflow(bytes, extent, &bytes);
  }
  if (overflows && !is_empty) refuse(what, " is larger than the address space");
  if (tensor.data != nullptr || is_empty) return;
  if (array.type.is_torch)
    refuse(what, " is a ", type_text(object), " without memory, expected one with values");
  refuse(what, ".data is null, expected memory");
}

}  // namespace

ArrayType array_type_of(nb::handle object) {
  // The table keeps its types alive. Programs have few array types; those that do not fit are examined in
  // every call.
  constexpr std::size_t kMostTypes = 16;
  static auto& known = *new std::vector<ArrayType>;
  const nb::handle type = object.type();
  for (const ArrayType& one : known)
    if (one.type == type.ptr()) return one;
  const ArrayType found = examine(type);
  if (found.protocol != Protocol::none && known.size() < kMostTypes) {
    type.inc_ref();
    known.push_back(found);
  }
  return found;
}

ImportedArray import_array(nb::handle object, What what, bool for_writing) {
  ImportedArray array;
  array.type = array_type_of(object);
  if (array.type.is_torch) array.requires_grad = attribute(object, names().requires_grad).is(Py_True);
  switch (array.type.protocol) {
    case Protocol::array_struct:
      read_array_struct(object, what, array);
      break;
    case Protocol::exchange_api:
      // A borrowed DLTensor does not say whether it may be written to; torch's always may.
      if (for_writing && !array.type.is_torch) {
        read_capsule(object, what, array);
      } else {
        read_exchange(object, what, array);
      }
      break;
    case Protocol::capsule:
      // Torch before 2.10: __dlpack__() refuses a tensor that requires grad, which the caller decides.
      read_capsule(array.requires_grad ? object.attr("detach")() : nb::borrow(object), what, array);
      break;
    case Protocol::none:
      throw nb::type_error(concat(what[0], ": ", what[1], " is of type ", type_text(object),
                                  ", expected an array of NumPy or one with __dlpack__")
                               .c_str());
  }
  check_extents(object, what, array);
  return array;
}

bool is_grad_enabled() { return torch().is_grad_enabled().is(Py_True); }

bool is_negated(nb::handle tensor, What what) {
  const nb::object answer = nb::steal(staying_at_exit(
      [&] { return PyObject_CallMethodObjArgs(tensor.ptr(), names().is_neg.ptr(), nullptr); }));
  if (!answer.is_valid()) refuse(what, ".is_neg() failed: ", take_message());
  return answer.is(Py_True);
}

bool has_tangent(nb::handle tensor) {
  // Usually there is no level, and so there are no tangents. This runs for every tensor of every call;
  // reading an attribute of the module instead would take 0.05 us.
  PyObject* level = PyDict_GetItem(torch().globals, names().current_level.ptr());
  if (level == nullptr || !PyLong_Check(level) || PyLong_AsLong(level) < 0) return false;
  return !torch().unpack_dual(tensor).attr("tangent").is_none();
}

std::string foreign_dtype_name(nb::handle object, const ImportedArray& array) {
  const dlpack::DataType& type = array.dlpack_type;
  if (array.type.is_torch || type.lanes == 0) return dtype_name(object);
  return concat("of DLPack code ", std::int64_t{type.code}, " with ", std::int64_t{type.bits}, " bits and ",
                std::int64_t{type.lanes}, " lanes");
}

dlpack::DataType dlpack_type_of(DType dtype) { return kDlpackTypes[static_cast<int>(dtype)]; }

const char* library_name(DType dtype) {
  static constexpr const char* kNames[kDTypeCount] = {
      "float32", "float64", "float16", "bfloat16", "int8", "uint8",         "int16",       "uint16",
      "int32",   "uint32",  "int64",   "uint64",   "bool", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"};
  return kNames[static_cast<int>(dtype)];
}

void load_import() { loaded_names = new Names; }

}  // namespace turnout::bindings
