// Arguments of a call from Python, and errors back to it.
#include "doors/python/call.h"

#include <algorithm>
#include <bit>

#include "core/check.h"
#include "runtime/torch_executor.h"

namespace turnout::doors {

using namespace core;

Tensor PythonCall::import(nb::handle object, int position, bool for_writing) {
  const Argument& argument = signature_.arguments[position];
  const std::string_view what[2] = {signature_.op, argument.name};
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::bad_param, concat(what[0], ": ", what[1], why));
  };
  ImportedArray array = import_array(object, what, for_writing);
  if (array.requires_grad && !torch_team_)
    refuse(" requires grad, which only turnout.torch follows; use that, or pass " + text_of(argument.name) +
           ".detach()");
  if (!torch_team_ && array.type.is_torch && has_tangent(object))
    refuse(
        concat(" has a tangent of forward-mode differentiation, which nothing here follows; pass "
               "torch.autograd.forward_ad.unpack_dual(",
               argument.name, ").primal"));
  // torch itself resolves such a tensor before it calls a kernel of ours.
  if (!torch_team_ && array.type.is_torch && is_negated(object))
    refuse(concat(" is a negated view, expected a plain tensor; pass ", argument.name, ".resolve_neg()"));
  if (array.tensor.dtype == kForeign)
    refuse(
        concat(" has dtype ", foreign_dtype_name(object), ", expected ", dtypes_text(signature_, argument)));
  if (for_writing && array.read_only) refuse(" is read-only, expected memory that can be written to");
  seen_[position] = {object, array.type, array.tensor.dtype, std::move(array.keep)};
  return array.tensor;
}

ConstTensor PythonCall::in(nb::handle object) { return import(object, next_argument_++, false); }

std::optional<ConstTensor> PythonCall::optional_in(nb::handle object) {
  if (!object.is_none()) return in(object);
  ++next_argument_;
  return std::nullopt;
}

Tensor PythonCall::out(const Place& where, const std::int64_t* shape, int rank, std::optional<DType> chosen) {
  nb::object& result = results_[where.result];
  if (!where.object.is_none()) {
    result = nb::borrow(where.object);
    return import(where.object, where.argument, true);
  }
  const Argument& argument = signature_.arguments[where.argument];
  const std::string_view what[2] = {signature_.op, argument.name};
  const Seen& like = seen_[std::max<int>(argument.like, 0)];
  const DType dtype =
      chosen.value_or(argument.like < 0 ? static_cast<DType>(std::countr_zero(argument.dtypes)) : like.dtype);
  std::int64_t dims[kMaxRank] = {};
  rank = std::min(rank, kMaxRank);  // what has more is refused by the operator
  for (int d = 0; d < rank; ++d) dims[d] = std::max<std::int64_t>(shape[d], 0);
  NewArray made = new_array(like.object, like.type, dtype, dims, rank, what);
  result = std::move(made.object);
  seen_[where.argument] = {result, like.type, dtype, {}};  // for a result that is like this one
  return made.tensor;
}

void PythonCall::shorten(int result, Tensor& tensor, std::int64_t rows) {
  if (tensor.shape[0] == rows) return;
  tensor.shape[0] = rows;
  PyObject* first = PySequence_GetSlice(results_[result].ptr(), 0, static_cast<Py_ssize_t>(rows));
  if (first == nullptr) nb::raise_python_error();
  results_[result] = nb::steal(first);
}

void PythonCall::no_out() {
  ++next_argument_;
  results_[result_count_++] = nb::none();
}

std::array<nb::handle, kMaxArguments> PythonCall::outs(nb::handle tuple) const {
  std::array<nb::handle, kMaxArguments> entries;
  entries.fill(Py_None);
  if (tuple.is_none()) return entries;
  std::size_t count = 0;
  for (int i = next_argument_; i < signature_.arguments.count; ++i)
    count += signature_.arguments[i].is_output();
  const auto expected = [&] {
    std::string names;
    for (int i = next_argument_; i < signature_.arguments.count; ++i)
      if (signature_.arguments[i].is_output())
        names += concat(names.empty() ? "" : ", ", signature_.arguments[i].name);
    return concat(", expected a tuple of ", names, "; None allocates");
  };
  if (!nb::isinstance<nb::tuple>(tuple))
    throw nb::type_error(
        concat(signature_.op, ": out is of type ", nb::str(tuple.type().attr("__name__")).c_str(), expected())
            .c_str());
  const auto given = nb::borrow<nb::tuple>(tuple);
  if (given.size() != count)
    throw Error(ErrorCode::bad_param,
                concat(signature_.op, ": out has ", std::to_string(given.size()), " entries", expected()));
  for (std::size_t i = 0; i < count; ++i) entries[i] = given[i];
  return entries;
}

nb::object PythonCall::result() const {
  if (result_count_ == 1) return results_[0];
  PyObject* tuple = PyTuple_New(result_count_);
  if (tuple == nullptr) nb::raise_python_error();
  for (int i = 0; i < result_count_; ++i) PyTuple_SetItem(tuple, i, nb::object(results_[i]).release().ptr());
  return nb::steal(tuple);
}

void PythonCall::refuse_type(nb::handle object, const std::string& name, const char* expected) const {
  throw nb::type_error(concat(signature_.op, ": ", name, " is of type ",
                              nb::str(object.type().attr("__name__")).c_str(), ", expected ", expected)
                           .c_str());
}

std::int64_t PythonCall::integer(nb::handle object, const std::string& name) const {
  const nb::object number = nb::steal(PyNumber_Index(object.ptr()));
  if (!number.is_valid()) {
    PyErr_Clear();
    refuse_type(object, name, "an integer");
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0)
    throw Error(ErrorCode::bad_param, concat(signature_.op, ": ", name, " is ", nb::str(number).c_str(),
                                             ", expected an integer of 64 bits"));
  return value;
}

std::int64_t PythonCall::scalar(nb::handle object) {
  return integer(object, text_of(signature_.scalars[next_scalar_++].name));
}

std::vector<std::int64_t> PythonCall::integers(nb::handle object, std::string_view name,
                                               std::optional<std::int64_t> length,
                                               std::string_view length_name) const {
  const std::string whole(name);
  const auto one = [&](nb::handle entry, const std::string& where) {
    if (PyBool_Check(entry.ptr())) refuse_type(entry, where, "an integer");  // a flag in the wrong place
    return integer(entry, where);
  };
  // An array without dimensions looks like a sequence until it is asked for its length.
  const Py_ssize_t count = PySequence_Check(object.ptr()) ? PySequence_Size(object.ptr()) : -1;
  if (count < 0) {
    PyErr_Clear();
    if (!length) refuse_type(object, whole, "a sequence of integers");
    if (PyBool_Check(object.ptr()) || !PyIndex_Check(object.ptr()))
      refuse_type(object, whole, "an integer or a sequence of them");
    return std::vector<std::int64_t>(static_cast<std::size_t>(*length), one(object, whole));
  }
  if (length && count != *length)
    throw Error(ErrorCode::bad_param, concat(signature_.op, ": ", name, " has ", std::int64_t{count},
                                             " elements, expected ", length_name, " = ", *length));
  std::vector<std::int64_t> values;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const nb::object entry = nb::steal(PySequence_GetItem(object.ptr(), i));
    if (!entry.is_valid()) nb::raise_python_error();
    values.push_back(one(entry, concat(name, "[", std::int64_t{i}, "]")));
  }
  return values;
}

std::vector<std::int64_t> PythonCall::vector(nb::handle object, std::optional<std::int64_t> length) {
  const Scalar& scalar = signature_.scalars[next_scalar_++];
  return integers(object, scalar.name, length, scalar.length.text);
}

std::vector<std::int64_t> PythonCall::vector(nb::handle object, std::int64_t length, std::string_view name,
                                             std::string_view length_name) const {
  return integers(object, name, length, length_name);
}

std::vector<double> PythonCall::numbers(nb::handle object) {
  const Argument& argument = signature_.arguments[next_argument_++];
  const std::int64_t length = argument.dims[0].factor;
  // Tensors of torch have elements but are no sequences; sets have them in no order.
  const bool is_ordered =
      PySequence_Check(object.ptr()) != 0 || array_type_of(object).protocol != Protocol::none;
  const nb::object entries = nb::steal(is_ordered ? PySequence_Tuple(object.ptr()) : nullptr);
  if (!entries.is_valid()) {
    PyErr_Clear();
    refuse_type(object, text_of(argument.name), concat("a sequence of ", length, " numbers").c_str());
  }
  const auto given = nb::borrow<nb::tuple>(entries);
  const auto count = static_cast<std::int64_t>(given.size());
  if (count != length)
    throw Error(ErrorCode::bad_param,
                concat(signature_.op, ": ", argument.name, " has ", count, " elements, expected ", length));
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const nb::object entry = given[static_cast<std::size_t>(i)];
    values.push_back(PyFloat_AsDouble(entry.ptr()));
    if (PyErr_Occurred() == nullptr) continue;
    PyErr_Clear();
    refuse_type(entry, concat(argument.name, "[", i, "]"), "a number");
  }
  return values;
}

bool PythonCall::flag(nb::handle object, std::string_view name) const {
  // NumPy's own bool is no integer; its type is called bool, or bool_ before NumPy 2.
  const bool is_bool =
      std::string_view(nb::str(object.type().attr("__name__")).c_str()).substr(0, 4) == "bool";
  if (is_bool) return PyObject_IsTrue(object.ptr()) == 1;
  if (!PyIndex_Check(object.ptr())) refuse_type(object, text_of(name), "True or False");
  const std::int64_t value = integer(object, text_of(name));
  if (value != 0 && value != 1)
    throw Error(ErrorCode::bad_param,
                concat(signature_.op, ": ", name, " is ", value, ", expected True or False"));
  return value == 1;
}

std::int64_t PythonCall::choice_value(nb::handle object) {
  const std::int64_t value = scalar(object);
  const Scalar& choice = signature_.scalars[next_scalar_ - 1];
  if (value < choice.min || value > choice.max)
    throw Error(ErrorCode::bad_param,
                concat(signature_.op, ": ", choice.name, " is ", value, ", expected one of 0 .. ", choice.max,
                       " (", choice.values, ")"));
  return value;
}

std::int64_t PythonCall::named_value(nb::handle object) {
  const Scalar& choice = signature_.scalars[next_scalar_++];
  std::int64_t value = 0, found = -1;
  std::string expected = "one of";
  const bool is_text = PyUnicode_Check(object.ptr()) != 0;
  split(choice.values, ' ', [&](std::string_view name) {
    if (is_text && PyUnicode_CompareWithASCIIString(object.ptr(), text_of(name).c_str()) == 0) found = value;
    expected += concat(value++ == 0 ? " '" : ", '", name, "'");
  });
  if (!is_text) refuse_type(object, text_of(choice.name), expected.c_str());
  if (found < 0)
    throw Error(ErrorCode::bad_param, concat(signature_.op, ": ", choice.name, " is ",
                                             nb::repr(object).c_str(), ", expected ", expected));
  return found;
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

}  // namespace turnout::doors
