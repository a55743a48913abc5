// One call from Python: objects become tensors, the operator runs without the GIL, the result goes back.
//
//   nb::object scale(nb::handle x, nb::handle factor, nb::handle y, bool torch_team) {
//     PythonCall call(kScale, torch_team);                  // arguments in the order of the signature
//     const ConstTensor from = call.in(x);
//     const std::int64_t by = call.scalar(factor);
//     const Tensor to = call.out(y, {from.shape[0] * by});  // None: a new array, like the signature says
//     call.run([&](Context& context) { turnout::scale(context, from, to, {by}); });
//     return call.result();
//   }
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "core/signature.h"
#include "doors/python/export.h"
#include "doors/python/gil.h"
#include "doors/python/import.h"
#include "turnout/context.h"

namespace turnout::doors {

using namespace core;

class PythonCall {
 public:
  // torch_team: the call comes from turnout.torch, which uses torch's threads and looks after gradients
  // itself. The first `known_scalars` of the signature come from an object, and not from the caller.
  PythonCall(const Signature& signature, bool torch_team, int known_scalars = 0)
      : signature_(signature), torch_team_(torch_team), next_scalar_(known_scalars) {}

  ConstTensor in(nb::handle object);
  std::optional<ConstTensor> optional_in(nb::handle object);  // None: absent
  std::int64_t scalar(nb::handle object);
  // A scalar that is an enum. Refused here when out of range: the enum's type could not carry it further.
  template <class Enum>
  Enum choice(nb::handle object) {
    return static_cast<Enum>(choice_value(object));
  }
  // The same, given as one of the names that the signature has for its values.
  template <class Enum>
  Enum named_choice(nb::handle object) {
    return static_cast<Enum>(named_value(object));
  }

  // A vector scalar: a sequence of integers. With a length, the sequence has it, and one integer stands for
  // that many.
  std::vector<std::int64_t> vector(nb::handle object, std::optional<std::int64_t> length = {});
  // The same for a value that the signature does not have; `length_name` is what sentences call its length.
  std::vector<std::int64_t> vector(nb::handle object, std::int64_t length, std::string_view name,
                                   std::string_view length_name) const;
  bool flag(nb::handle object, std::string_view name) const;               // True or False, also as 1 or 0
  std::int64_t integer(nb::handle object, const std::string& name) const;  // that the signature does not have

  // An argument that is a vector of fixed length: a sequence of numbers, or an array of any dtype.
  std::vector<double> numbers(nb::handle object);

  // An argument that the operator writes to only sometimes, and that is no result. One that it only reads may
  // be read-only.
  Tensor inout(nb::handle object, bool is_written) { return import(object, next_argument_++, is_written); }

  // None makes a new array of this shape; negative extents count as 0, for the operator's check to complain.
  // Its kind is that of the argument whose dtype it has, or of the first one.
  Tensor out(nb::handle object, std::initializer_list<std::int64_t> shape) {
    return out(place(object), shape);
  }
  // Of this dtype when it is made here, where the signature leaves a choice.
  Tensor out(nb::handle object, std::initializer_list<std::int64_t> shape, DType dtype) {
    return out(place(object), shape.begin(), static_cast<int>(shape.size()), dtype);
  }
  Tensor out(nb::handle object, const ConstTensor& same_shape) {
    return out(place(object), same_shape.shape, same_shape.rank);
  }
  // A result whose shape is known later than those of the ones after it: its place first, then out().
  struct Place {
    nb::handle object;
    int argument, result;
  };
  Place place(nb::handle object) { return {object, next_argument_++, result_count_++}; }
  Tensor out(const Place& where, std::initializer_list<std::int64_t> shape) {
    return out(where, shape.begin(), static_cast<int>(shape.size()));
  }
  // Of a result with more rows the caller gets the first ones; `tensor` is what out() gave for it.
  void shorten(int result, Tensor& tensor, std::int64_t rows);
  // An optional result that this call does not have: None.
  void no_out();
  // out= of an operator with several results, one by one: a tuple in their order, or None for all. The
  // results are the outputs among the arguments that are left.
  std::array<nb::handle, kMaxArguments> outs(nb::handle tuple) const;

  // An operator that says first how large its results are runs twice, with out() in between.
  template <class Body>
  void run(const Body& body) const {
    Context& where = context();
    const WithoutGil release;
    body(where);
  }

  nb::object result() const;  // what out() gave; several as a tuple

 private:
  struct Seen {
    nb::handle object;
    ArrayType type;
    DType dtype = DType::f32;
    nb::object keep;
  };

  Context& context() const;
  Tensor import(nb::handle object, int position, bool for_writing);
  std::vector<std::int64_t> integers(nb::handle object, std::string_view name,
                                     std::optional<std::int64_t> length, std::string_view length_name) const;
  [[noreturn]] void refuse_type(nb::handle object, const std::string& name, const char* expected) const;
  std::int64_t choice_value(nb::handle object);
  std::int64_t named_value(nb::handle object);
  Tensor out(const Place& where, const std::int64_t* shape, int rank, std::optional<DType> chosen = {});

  const Signature& signature_;
  const bool torch_team_;
  int next_argument_ = 0;
  int next_scalar_;
  Seen seen_[kMaxArguments];
  nb::object results_[kMaxArguments];
  int result_count_ = 0;
};

// Adds a function whose arguments come by position, the names being the business of python/turnout. None
// reaches it like any other object, so that it is our sentence that says what was expected.
template <class Result, class... Arguments>
void define(nb::module_& module, const char* name, Result (*function)(Arguments...)) {
  module.def(
      name,
      [function](Arguments... arguments) -> Result {
        return staying_at_exit([&]() -> Result { return function(std::forward<Arguments>(arguments)...); });
      },
      (static_cast<void>(sizeof(Arguments)), nb::arg().none())...);
}

// rows * columns for a shape; saturates, and a negative product is 0.
std::int64_t extent_product(std::int64_t a, std::int64_t b);

// turnout::Error becomes ValueError, NotImplementedError, MemoryError or RuntimeError, with the same
// sentence.
void register_errors();

}  // namespace turnout::doors
