// Arguments of a call from Python, and errors back to it.
#include "core/python.h"

#include "core/check.h"
#include "core/torch_executor.h"

namespace turnout::core {

Tensor PythonCall::import(nb::handle object, bool for_writing) {
  const Argument& argument = signature_.arguments[next_argument_];
  const std::string_view what[2] = {signature_.op, argument.name};
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::bad_param, concat(what[0], ": ", what[1], why));
  };
  ImportedArray array = import_array(object, what, for_writing);
  if (array.requires_grad && !torch_team_)
    refuse(" requires grad, which only turnout.torch follows; use that, or pass " + text_of(argument.name) +
           ".detach()");
  if (array.tensor.dtype == kForeign)
    refuse(
        concat(" has dtype ", foreign_dtype_name(object), ", expected ", dtypes_text(signature_, argument)));
  if (for_writing && array.read_only) refuse(" is read-only, expected memory that can be written to");
  seen_[next_argument_++] = {object, array.type, array.tensor.dtype, std::move(array.keep)};
  return array.tensor;
}

ConstTensor PythonCall::in(nb::handle object) { return import(object, false); }

Tensor PythonCall::out(nb::handle object, std::initializer_list<std::int64_t> shape) {
  if (!object.is_none()) {
    result_ = nb::borrow(object);
    return import(object, true);
  }
  const Argument& argument = signature_.arguments[next_argument_];
  const std::string_view what[2] = {signature_.op, argument.name};
  const Seen& like = seen_[argument.like];
  std::int64_t dims[kMaxRank] = {};
  int rank = 0;
  for (std::int64_t extent : shape) dims[rank++] = std::max<std::int64_t>(extent, 0);
  NewArray made = new_array(like.object, like.type, like.dtype, dims, rank, what);
  ++next_argument_;
  result_ = std::move(made.object);
  return made.tensor;
}

std::int64_t PythonCall::scalar(nb::handle object) {
  const Scalar& scalar = signature_.scalars[next_scalar_++];
  const nb::object number = nb::steal(PyNumber_Index(object.ptr()));
  if (!number.is_valid()) {
    PyErr_Clear();
    throw nb::type_error(concat(signature_.op, ": ", scalar.name, " is of type ",
                                nb::str(object.type().attr("__name__")).c_str(), ", expected an integer")
                             .c_str());
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0)
    throw Error(ErrorCode::bad_param, concat(signature_.op, ": ", scalar.name, " is ",
                                             nb::str(number).c_str(), ", expected an integer of 64 bits"));
  return value;
}

Context& PythonCall::context() const { return torch_team_ ? torch_context() : default_context(); }

std::int64_t extent_product(std::int64_t a, std::int64_t b) {
  std::int64_t product;
  if (a <= 0 || b <= 0) return 0;
  return __builtin_mul_overflow(a, b, &product) ? kSizeMax : product;
}

void register_errors() {
  nb::register_exception_translator([](const std::exception_ptr& pending, void*) {
    try {
      std::rethrow_exception(pending);
    } catch (const Error& error) {
      PyObject* type = PyExc_RuntimeError;
      switch (error.code()) {
        case ErrorCode::bad_param:
          type = PyExc_ValueError;
          break;
        case ErrorCode::not_supported:
          type = PyExc_NotImplementedError;
          break;
        case ErrorCode::alloc_failed:
          type = PyExc_MemoryError;
          break;
        case ErrorCode::internal:
          break;
      }
      PyErr_SetString(type, error.what());
    }
  });
}

}  // namespace turnout::core
