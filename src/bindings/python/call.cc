// Arguments of a call from Python, and errors back to it.
#include "bindings/python/call.h"

#include <algorithm>
#include <bit>

#include "bindings/python/text.h"
#include "bindings/python/workers.h"
#include "core/check.h"
#include "runtime/record.h"
#include "runtime/strided.h"
#include "runtime/torch_executor.h"

namespace turnout::bindings {

using namespace core;

Tensor PythonCall::import(nb::handle object, int position, bool for_writing) {
  const Argument& argument = signature_.arguments[position];
  const std::string_view what[2] = {op_, name_of(argument)};
  const CallerNames names = caller_names();
  const auto refuse_it = [&](const std::string& why) { refuse(concat(what[1], why)); };
  ImportedArray array = import_array(object, what, for_writing);
  has_torch_ |= array.type.is_torch;
  if (!use_torch_threads_ && array.type.is_torch) {
    if (array.requires_grad && is_grad_enabled())
      refuse_it(concat(" requires grad, which only turnout.torch follows; use that, or pass ", what[1],
                       ".detach()"));
    if (has_tangent(object))
      refuse_it(
          concat(" has a tangent of forward-mode differentiation, which nothing here follows; pass "
                 "torch.autograd.forward_ad.unpack_dual(",
                 what[1], ").primal"));
    // torch itself resolves such a tensor before it calls a kernel of ours.
    if (is_negated(object, what))
      refuse_it(concat(" is a negated view, expected a plain tensor; pass ", what[1], ".resolve_neg()"));
  }
  if (array.tensor.dtype == kForeign)
    refuse_it(concat(" has dtype ", foreign_dtype_name(object, array), ", expected ",
                     dtypes_text(signature_, argument, &names)));
  if (for_writing && array.read_only) refuse_it(" is read-only, expected memory that can be written to");
  if (const Slot slot(array.tensor); slot.rank <= kMaxRank && !slot.is_empty()) {
    const bool is_strided =
        array.odd_strides != nullptr || (signature_.needs_contiguous(position) && !slot.is_contiguous());
    if (is_strided || !is_aligned(array.tensor.data, array.tensor.dtype)) {
      if (for_writing)
        refuse_it(concat(is_strided ? " is strided" : ".data is not aligned to its element size",
                         ", expected contiguous row-major memory for shape ", shape_text(slot),
                         ": it is written in place, and not by way of a copy"));
      copy(array, argument.name);
    }
  }
  seen_[position] = {object, array.type, array.tensor.dtype, std::move(array.keep)};
  return array.tensor;
}

void PythonCall::copy(ImportedArray& array, std::string_view name) {
  Tensor& tensor = array.tensor;
  const std::int64_t size = size_of(tensor.dtype), bytes = Slot(tensor).elements() * size;
  const auto refuse_it = [&](ErrorCode code, const std::string& why) {
    throw Error(code, concat(op_, ": ", renames_(name), why));
  };
  std::int64_t stride[kMaxRank], reach = 0;
  for (int d = 0; d < tensor.rank; ++d) {
    stride[d] = 0;
    if (tensor.shape[d] == 1) continue;  // whose stride may be anything
    std::int64_t step = array.odd_strides == nullptr ? tensor.stride[d] : array.odd_strides[d];
    std::int64_t length = 0;
    const bool overflows = (array.odd_strides == nullptr && __builtin_mul_overflow(step, size, &step)) ||
                           __builtin_mul_overflow(step, tensor.shape[d], &length) ||
                           (length < 0 ? __builtin_sub_overflow(reach, length, &reach)
                                       : __builtin_add_overflow(reach, length, &reach));
    if (overflows)
      refuse_it(ErrorCode::bad_param,
                concat(".strides[", std::int64_t{d}, "] reaches beyond the address space"));
    stride[d] = step;
  }
  Context& where = context();
  try {
    copies_.emplace_back(where, static_cast<std::size_t>(bytes));
  } catch (const Error&) {
    refuse_it(ErrorCode::alloc_failed,
              concat(" is strided, and ", bytes, " bytes for a copy of it are not available"));
  }
  void* plain = copies_.back().take<std::byte>(bytes);
  run_without_gil([&] { copy_strided(where, tensor.data, tensor.shape, stride, tensor.rank, size, plain); });
  tensor = Tensor(plain, tensor.dtype, tensor.shape, tensor.rank);
  copied_ += concat(copied_.empty() ? "copied " : " ", renames_(name));
}

ConstTensor PythonCall::in(nb::handle object) { return import(object, next_argument_++, false); }

ConstTensor PythonCall::optional_in(nb::handle object) {
  if (!object.is_none()) return in(object);
  ++next_argument_;
  return nullptr;
}

const PythonCall::Seen& PythonCall::library_of(const Argument& argument) const {
  const Seen& like = seen_[std::max<int>(argument.like, 0)];
  if (like.object.is_valid()) return like;
  for (int i = 0; i < signature_.arguments.count; ++i)
    if (seen_[i].object.is_valid()) return seen_[i];
  return like;
}

Tensor PythonCall::out(const Place& where, const std::int64_t* shape, int rank, std::optional<DType> chosen) {
  nb::object& result = results_[where.result];
  if (!where.object.is_none()) {
    result = nb::borrow(where.object);
    return import(where.object, where.argument, true);
  }
  const Argument& argument = signature_.arguments[where.argument];
  const std::string_view name = name_of(argument);
  const std::string_view what[2] = {op_, name == "out" ? "the result" : name};
  const Seen& like = library_of(argument);
  const DType dtype =
      chosen.value_or(argument.like < 0  ? static_cast<DType>(std::countr_zero(argument.dtypes))
                      : argument.is_lane ? lane_dtype(like.dtype)
                                         : like.dtype);
  std::int64_t dims[kMaxRank] = {};
  rank = std::min(rank, kMaxRank);  // what has more is refused by the operator
  for (int d = 0; d < rank; ++d) dims[d] = std::max<std::int64_t>(shape[d], 0);
  NewArray made = new_array(like.object, like.type, dtype, dims, rank, what, new_bytes_);
  new_bytes_ += static_cast<std::size_t>(Slot(made.tensor).elements() * size_of(dtype));
  result = std::move(made.object);
  seen_[where.argument] = {result, like.type, dtype, {}};  // for a result that is like this one
  return made.tensor;
}

void PythonCall::kind(nb::handle object, DType dtype) {
  seen_[next_argument_++] = {object, array_type_of(object), dtype, {}};
}

nb::object PythonCall::first_rows(int result, std::int64_t rows) const {
  const nb::object& whole = results_[result];
  PyObject* first =
      staying_at_exit([&] { return PySequence_GetSlice(whole.ptr(), 0, static_cast<Py_ssize_t>(rows)); });
  if (first == nullptr) {
    const std::string message = take_message();
    refuse(concat("out has an array of type ", type_text(whole),
                  " whose first rows cannot be taken: ", message));
  }
  return nb::steal(first);
}

void PythonCall::check_rows(int result) const { first_rows(result, 0); }

void PythonCall::shorten(int result, Tensor& tensor, std::int64_t rows) {
  if (tensor.shape[0] == rows) return;
  tensor.shape[0] = rows;
  results_[result] = first_rows(result, rows);
}

Tensor PythonCall::no_out() {
  ++next_argument_;
  results_[result_count_++] = nb::none();
  return nullptr;
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
    throw nb::type_error(concat(op_, ": out is of type ", type_text(tuple), expected()).c_str());
  const auto given = nb::borrow<nb::tuple>(tuple);
  if (given.size() != count)
    refuse(concat("out has ", static_cast<std::int64_t>(given.size()), " entries", expected()));
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

void PythonCall::check(const Signature& signature, std::initializer_list<Slot> slots,
                       std::initializer_list<ScalarValue> scalars) const {
  const CallerNames names = caller_names();
  Arguments arguments(signature, slots.begin(), static_cast<int>(slots.size()), scalars.begin(),
                      static_cast<int>(scalars.size()), {}, 1, Isa::best, &names);
  try {
    arguments.check();
  } catch (const Error& error) {
    if (recorded() != Recorded::none) CallFolder(arguments, op_, context().isa()).end(error.what());
    throw;
  }
}

void PythonCall::refuse(const std::string& why) const {
  throw Error(ErrorCode::bad_param, concat(op_, ": ", why));
}

void PythonCall::refuse_type(nb::handle object, std::string_view name, std::string_view expected) const {
  throw nb::type_error(
      concat(op_, ": ", name, " is of type ", type_text(object), ", expected ", expected).c_str());
}

std::int64_t PythonCall::integer(nb::handle object, std::string_view name) const {
  const nb::object number = nb::steal(staying_at_exit([&] { return PyNumber_Index(object.ptr()); }));
  if (!number.is_valid()) {
    expect_pending(PyExc_TypeError);
    refuse_type(object, name, "an integer");
  }
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0) refuse(concat(name, " is ", integer_text(number), ", expected an integer of 64 bits"));
  return value;
}

double PythonCall::number(nb::handle object, std::string_view name) const {
  const double value = PyFloat_AsDouble(object.ptr());
  if (PyErr_Occurred() == nullptr) return value;
  if (PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    refuse_type(object, name, "a number");
  }
  refuse(concat(name, " is not to be had as a number: ", take_message()));
}

std::int64_t PythonCall::scalar(nb::handle object) {
  return integer(object, signature_.scalars[next_scalar_++].name);
}

std::vector<std::int64_t> PythonCall::integers(nb::handle object, std::string_view name,
                                               const Length& length) const {
  // The value of an element; its place in the sequence, or -1: messages have the name alone.
  const auto one = [&](nb::handle entry, Py_ssize_t place) -> std::int64_t {
    if (PyLong_CheckExact(entry.ptr())) {
      int overflow = 0;
      const long long value = PyLong_AsLongLongAndOverflow(entry.ptr(), &overflow);
      if (overflow == 0) return value;
    }
    const std::string where = place < 0 ? text_of(name) : concat(name, "[", std::int64_t{place}, "]");
    if (PyBool_Check(entry.ptr())) refuse_type(entry, where, "an integer");  // a flag in the wrong place
    return integer(entry, where);
  };
  const auto refuse_count = [&](const std::string& count) {
    refuse(concat(name, " has ", count, " elements, expected ",
                  length.least == length.most ? concat(length.most, " = ", length.origin)
                  : length.origin.empty()     ? concat(length.least, " .. ", length.most)
                                              : text_of(length.origin)));
  };
  Py_ssize_t count = -1;
  if (PySequence_Check(object.ptr())) {
    count = staying_at_exit([&] { return PySequence_Size(object.ptr()); });
    if (count < 0 && PyErr_ExceptionMatches(PyExc_OverflowError)) {
      PyErr_Clear();
      refuse_count("too many");
    }
    // An array without dimensions looks like a sequence until it is asked for its length.
    if (count < 0) expect_pending(PyExc_TypeError);
  }
  if (count < 0) {
    if (length.single < 0) refuse_type(object, name, "a sequence of integers");
    if (PyBool_Check(object.ptr()) || !PyIndex_Check(object.ptr()))
      refuse_type(object, name, "an integer or a sequence of them");
    return std::vector<std::int64_t>(static_cast<std::size_t>(length.single), one(object, -1));
  }
  if (count < length.least || count > length.most) refuse_count(concat(std::int64_t{count}));
  std::vector<std::int64_t> values;
  values.reserve(static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    const nb::object entry = nb::steal(staying_at_exit([&] { return PySequence_GetItem(object.ptr(), i); }));
    if (!entry.is_valid()) nb::raise_python_error();
    values.push_back(one(entry, i));
  }
  return values;
}

std::vector<std::int64_t> PythonCall::vector(nb::handle object, std::int64_t least, std::int64_t most,
                                             std::string_view origin) {
  const Scalar& scalar = signature_.scalars[next_scalar_++];
  return integers(object, scalar.name, {least, most, origin});
}

std::vector<std::int64_t> PythonCall::vector(nb::handle object, std::int64_t length,
                                             std::string_view origin) {
  const Scalar& scalar = signature_.scalars[next_scalar_++];
  return vector(object, length, origin, scalar.name);
}

std::vector<std::int64_t> PythonCall::vector(nb::handle object, std::int64_t length, std::string_view origin,
                                             std::string_view name) const {
  return integers(object, name, {length, length, origin, length});
}

std::vector<double> PythonCall::numbers(nb::handle object) {
  const Argument& argument = signature_.arguments[next_argument_++];
  return numbers(object, name_of(argument), argument.dims[0].factor);
}

std::vector<double> PythonCall::numbers(nb::handle object, std::string_view name, std::int64_t length) const {
  // Tensors of torch have elements but are no sequences; sets have them in no order.
  const bool is_ordered =
      PySequence_Check(object.ptr()) != 0 || array_type_of(object).protocol != Protocol::none;
  const nb::object entries =
      nb::steal(is_ordered ? staying_at_exit([&] { return PyObject_GetIter(object.ptr()); }) : nullptr);
  if (!entries.is_valid()) {
    if (is_ordered) take_message();
    refuse_type(object, name, concat("a sequence of ", length, " numbers"));
  }
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(length));
  // Reads at most one element too many: a sequence may be endless.
  std::int64_t count = 0;
  for (; count <= length; ++count) {
    const nb::object entry = nb::steal(staying_at_exit([&] { return PyIter_Next(entries.ptr()); }));
    if (!entry.is_valid()) break;
    if (count == length) continue;
    values.push_back(staying_at_exit([&] { return PyFloat_AsDouble(entry.ptr()); }));
    if (PyErr_Occurred() == nullptr) continue;
    const std::string where = concat(name, "[", count, "]");
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      refuse_type(entry, where, "a number");
    }
    refuse(concat(where, " is not to be had as a number: ", take_message()));
  }
  if (PyErr_Occurred() != nullptr) refuse(concat(name, " does not give its elements: ", take_message()));
  if (count == length) return values;
  const Py_ssize_t all = count < length ? static_cast<Py_ssize_t>(count) : PyObject_Size(object.ptr());
  if (all < 0) take_message();
  refuse(concat(name, " has ", all < 0 ? concat("more than ", length) : concat(std::int64_t{all}),
                " elements, expected ", length));
}

bool PythonCall::flag(nb::handle object, std::string_view name) const {
  if (PyBool_Check(object.ptr())) return object.is(Py_True);
  // NumPy's own bool is no integer; its type is called bool, or bool_ before NumPy 2.
  if (type_text(object).substr(0, 4) == "bool") {
    const int is_true = staying_at_exit([&] { return PyObject_IsTrue(object.ptr()); });
    if (is_true < 0) nb::raise_python_error();
    return is_true == 1;
  }
  if (!PyIndex_Check(object.ptr())) refuse_type(object, name, "True or False");
  const std::int64_t value = integer(object, name);
  if (value != 0 && value != 1) refuse(concat(name, " is ", value, ", expected True or False"));
  return value == 1;
}

std::int64_t PythonCall::choice_value(nb::handle object) {
  const std::int64_t value = scalar(object);
  const Scalar& choice = signature_.scalars[next_scalar_ - 1];
  if (value < choice.min || value > choice.max)
    refuse(
        concat(choice.name, " is ", value, ", expected one of 0 .. ", choice.max, " (", choice.values, ")"));
  return value;
}

std::int64_t PythonCall::named_value(nb::handle object, const Scalar& choice) const {
  const bool is_text = PyUnicode_Check(object.ptr()) != 0;
  std::int64_t count = 0, found = -1;
  split(choice.values, ' ', [&](std::string_view name) {
    if (is_text && PyUnicode_CompareWithASCIIString(object.ptr(), text_of(name).c_str()) == 0) found = count;
    ++count;
  });
  if (found >= 0) return found;
  std::string expected;
  split(choice.values, ' ',
        [&](std::string_view name) { expected += concat(expected.empty() ? "one of '" : ", '", name, "'"); });
  if (!is_text) refuse_type(object, choice.name, expected);
  refuse(concat(choice.name, " is ", repr_of(object), ", expected ", expected));
}

Context& PythonCall::context() const {
  choose_threads_of_process();
  return use_torch_threads_ || has_torch_ ? torch_context() : default_context();
}

namespace {

void set_error(const Error& error) {
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

}  // namespace

void register_errors() {
  nb::register_exception_translator([](const std::exception_ptr& pending, void*) {
    try {
      std::rethrow_exception(pending);
    } catch (const Error& error) {
      set_error(error);
    }
  });
}

PyObject* raise_pending(const std::exception_ptr& pending) {
  try {
    std::rethrow_exception(pending);
  } catch (const Error& error) {
    set_error(error);
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(error.type() == nb::exception_type::type_error ? PyExc_TypeError : PyExc_RuntimeError,
                    error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

}  // namespace turnout::bindings
