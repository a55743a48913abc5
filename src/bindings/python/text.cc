// Converts Python objects to text. Each step may run code of the object's class, and may fail.
#include "bindings/python/text.h"

#include <string_view>

#include "bindings/python/gil.h"
#include "core/check.h"

namespace turnout::bindings {

using namespace core;
namespace {

constexpr std::size_t kMostBytes = 200;

// The first line of a str, as UTF-8 of at most kMostBytes; "?" with an exception pending for other objects.
std::string first_line(PyObject* text) {
  const nb::object bytes =
      nb::steal(text == nullptr ? nullptr : PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace"));
  const char* begin = bytes.is_valid() ? PyBytes_AsString(bytes.ptr()) : nullptr;
  if (begin == nullptr) return "?";
  const std::string_view whole(begin);
  std::string_view line = whole.substr(0, whole.find('\n'));
  if (line.size() <= kMostBytes) return std::string(line);
  std::size_t end = kMostBytes;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;  // not within a character
  return concat(line.substr(0, end), "...");
}

// Steals a reference to the text. nullptr with a pending exception gives "?".
std::string take_text(PyObject* text) {
  const nb::object owned = nb::steal(text);
  std::string line = first_line(text);
  if (PyErr_Occurred() != nullptr) expect_pending(PyExc_Exception);
  return line;
}

}  // namespace

std::string str_of(nb::handle object) {
  return take_text(staying_at_exit([&] { return PyObject_Str(object.ptr()); }));
}

std::string repr_of(nb::handle object) {
  return take_text(staying_at_exit([&] { return PyObject_Repr(object.ptr()); }));
}

std::string type_text(nb::handle object) {
  const nb::object name = nb::steal(PyObject_GetAttrString(object.type().ptr(), "__name__"));
  return name.is_valid() ? str_of(name) : take_text(nullptr);
}

std::string integer_text(nb::handle integer) {
  const nb::object bits = nb::steal(PyObject_CallMethod(integer.ptr(), "bit_length", nullptr));
  if (!bits.is_valid()) return take_text(nullptr);
  constexpr long kReadable = 128;
  const long count = PyLong_AsLong(bits.ptr());
  return count <= kReadable ? str_of(integer) : concat("an integer of ", std::int64_t{count}, " bits");
}

void expect_pending(PyObject* type) {
  if (PyErr_ExceptionMatches(type) == 0) nb::raise_python_error();
  PyErr_Clear();
}

std::string take_message() {
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) nb::raise_python_error();
  const nb::python_error error;  // takes the exception
  std::string message = str_of(error.value());
  return message.empty() ? type_text(error.value()) : message;
}

}  // namespace turnout::bindings
