// One call from Python: turns objects into tensors, runs the operator without the GIL, returns the results.
//
//   nb::object scale(nb::handle x, nb::handle factor, nb::handle y, bool use_torch_threads) {
//     PythonCall call(kScaleFunction, use_torch_threads);          // arguments in the order of its signature
//     const ConstTensor from = call.in(x);
//     const std::int64_t by = call.scalar(factor);
//     const Tensor to = call.out(y, {from.shape[0] * by});  // None: a new array, like the signature says
//     call.run([&](const Caller& caller) { scale(from, to, {by}, caller); });
//     return call.result();
//   }
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bindings/bounded_array.h"
#include "bindings/python/export.h"
#include "bindings/python/function.h"
#include "bindings/python/gil.h"
#include "bindings/python/import.h"
#include "bindings/python/signals.h"
#include "core/check.h"
#include "core/signature.h"
#include "runtime/caller.h"
#include "runtime/context.h"

namespace turnout::bindings {

class PythonCall {
 public:
  // use_torch_threads: the call is from turnout.torch, which handles gradients itself. It uses torch's
  // threads, as does any call with a torch tensor.
  PythonCall(const PythonFunction& function, bool use_torch_threads)
      : PythonCall(function.signature, function.name, function.renames, use_torch_threads) {}
  PythonCall(const core::Signature& signature, bool use_torch_threads)
      : PythonCall(signature, signature.op, kOwnNames, use_torch_threads) {}
  PythonCall(const core::Signature& signature, std::string_view name, const core::Renames& renames,
             bool use_torch_threads)
      : signature_(signature),
        op_(name),
        renames_(renames),
        use_torch_threads_(use_torch_threads),
        results_(signature_.arguments.count),
        seen_(signature_.arguments.count) {}

  // Strided inputs are copied.
  ConstTensor in(nb::handle object);
  ConstTensor optional_in(nb::handle object);  // None: absent
  // An input that an earlier call has read: results are arrays of its library.
  void kind(nb::handle object, DType dtype);
  // A scalar that is an enum, given as one of the names that the signature has for its values.
  template <class Enum>
  Enum named_choice(nb::handle object, std::string_view name) {
    const auto* scalar = std::find_if(signature_.scalars.begin(), signature_.scalars.end(),
                                      [&](const core::Scalar& one) { return one.name == name; });
    return static_cast<Enum>(named_value(object, *scalar));
  }
  // How many elements a vector has. `origin` says where the number is from, or which one is expected. One
  // integer stands for `single` elements; -1: it must be a sequence.
  struct Length {
    std::int64_t least, most;
    std::string_view origin = {};
    std::int64_t single = -1;
  };
  std::vector<std::int64_t> integers(nb::handle object, std::string_view name, const Length& length) const;
  bool flag(nb::handle object, std::string_view name) const;  // True or False, also as 1 or 0
  std::int64_t integer(nb::handle object, std::string_view name) const;
  double number(nb::handle object, std::string_view name) const;  // any real number

  // A result. None allocates an array of this shape, by the library of the argument whose dtype it shares, or
  // of the first argument. Negative extents count as 0; the operator's checks refuse them later.
  Tensor out(nb::handle object, std::initializer_list<std::int64_t> shape) {
    return out(place(object), shape.begin(), static_cast<int>(shape.size()));
  }
  Tensor out(nb::handle object, const ConstTensor& same_shape) {
    return out(place(object), same_shape.shape, same_shape.rank);
  }
  // Returns only the first rows of a result to the caller; `tensor` is what out() returned for it. If the
  // number of rows is known only after the call, check_rows() refuses arrays that cannot be sliced before it.
  void check_rows(int result) const;
  void shorten(int result, Tensor& tensor, std::int64_t rows);

  // Checks these arguments against a signature; error messages use the caller's names.
  void check(const core::Signature& signature, std::initializer_list<core::Slot> slots,
             std::initializer_list<core::ScalarValue> scalars = {}) const;
  [[noreturn]] void refuse(const std::string& why) const;  // "function: why"

  // Runs the operator without the GIL.
  template <class Body>
  void run(const Body& body) const {
    run_step(body, /*is_last=*/true);
  }
  // Runs an operator before that, if the sizes of results depend on the data. run() logs one line for both.
  template <class Body>
  void prepare(const Body& body) const {
    run_step(body, /*is_last=*/false);
  }
  // Continues a call that another one has prepared.
  void continue_after(const PythonCall& prepared) { steps_ = prepared.steps_; }

  nb::object result() const;  // the results of out(); several as a tuple

 protected:
  struct Place {
    nb::handle object;
    int argument, result;
  };
  // The argument at this position; positions may be read in any order.
  Tensor import(nb::handle object, int position, bool for_writing);
  Tensor out(const Place& where, const std::int64_t* shape, int rank, std::optional<DType> chosen = {});
  std::vector<double> numbers(nb::handle object, std::string_view name, std::int64_t length) const;
  std::int64_t named_value(nb::handle object, const core::Scalar& choice) const;
  [[noreturn]] void refuse_type(nb::handle object, std::string_view name, std::string_view expected) const;
  core::CallerNames caller_names() const {
    return {.op = op_, .renames = renames_, .note = copied_, .dtype_name = &library_name};
  }
  template <class Body>
  void run_step(const Body& body, bool is_last) const {
    Context& where = context();
    run_without_gil([&] {
      const core::CallerNames names = caller_names();
      const core::CallDetails details{.names = &names, .steps = &steps_, .is_last = is_last};
      body(details.caller(where));
    });
  }

  nb::object& result_at(int result) { return results_[result]; }
  int result_count_ = 0;

 private:
  struct Seen {
    nb::handle object;
    ArrayType type;
    DType dtype = DType::f32;
    nb::object keep;
  };

  Context& context() const;
  std::string_view name_of(const core::Argument& argument) const { return renames_(argument.name); }
  void copy(ImportedArray& array, std::string_view name);
  // The argument whose library allocates a new result: the one whose dtype it has, or the first that is
  // given.
  const Seen& library_of(const core::Argument& argument) const;
  nb::object first_rows(int result, std::int64_t rows) const;
  Place place(nb::handle object) { return {object, next_argument_++, result_count_++}; }

  static constexpr core::Renames kOwnNames = {};
  const core::Signature& signature_;
  const std::string_view op_;
  const core::Renames& renames_;
  const bool use_torch_threads_;
  bool has_torch_ = false;  // an argument is a torch tensor
  int next_argument_ = 0;
  BoundedArray<nb::object, core::kMaxArguments> results_;
  BoundedArray<Seen, core::kMaxArguments> seen_;
  std::size_t new_bytes_ = 0;          // of allocated results, whose pages may not be in use yet
  std::vector<core::Scratch> copies_;  // of strided inputs
  std::string copied_;                 // their names, for the log: "copied points coors"
  mutable core::Steps steps_;          // run by prepare()
};

// Adds a function with positional arguments, which python/turnout names. Arguments accept None, so that a
// missing array gets our error message rather than nanobind's.
template <class Result, class... Arguments>
void define(nb::module_& module, const char* name, Result (*function)(Arguments...)) {
  module.def(
      name,
      [function](Arguments... arguments) -> Result {
        return staying_at_exit([&]() -> Result { return function(std::forward<Arguments>(arguments)...); });
      },
      (static_cast<void>(sizeof(Arguments)), nb::arg().none())...);
}

// turnout::Error becomes ValueError, NotImplementedError, MemoryError or RuntimeError, with the same
// message.
void register_errors();
// Returns f(), or nullptr with Python's exception set.
PyObject* raise_pending(const std::exception_ptr& pending);
template <class F>
PyObject* raising_errors(const F& f) {
  try {
    return f();
  } catch (const std::exception&) {
    return raise_pending(std::current_exception());
  }
}

}  // namespace turnout::bindings
