// One call of an operator through a binding: reads the arguments, computes the shapes of the results and runs
// the operator. Every runtime provides an adapter:
//
//   bool is_passed(int i)                     whether the caller passes parameter i
//   bool is_given(int i)                      whether it passes a value other than None
//   Tensor tensor(int i, int argument, bool is_written)      an input that may be written in place
//   int64_t integer(int i), double real(int i), bool flag(int i)
//   int64_t choice(int i, const Scalar&)      an enum value that the caller passes by name
//   vector<int64_t> integers(int i, int64_t length, bool may_be_single)   length -1: unknown
//   vector<double> reals(int i, int64_t length)
//   bool has_out(int r), Tensor out(int r, int argument)     result r, if the caller passes memory for it
//   Tensor new_result(int r, int argument, DType, shape, rank)
//   void no_result(int r, int argument, DType)     this call does not have result r
//   void shorten(int r, Tensor&, int64_t rows), void check_rows(int r)
//   CallerNames names()
//   void run(f, is_last)                      calls f(caller) on the runtime's threads
//   void refuse(text)                         throws Error(bad_param), "function: text"
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <new>
#include <vector>

#include "bindings/bounded_array.h"
#include "bindings/schema.h"
#include "core/check.h"
#include "registry.h"
#include "runtime/call.h"

namespace turnout::bindings {

template <class Adapter>
class OperatorCall {
 public:
  OperatorCall(const core::Operator& op, const Schema& schema, Adapter& adapter)
      : op_(op),
        schema_(schema),
        signature_(op.for_bindings()),
        adapter_(adapter),
        tensors_(signature_.arguments.count, nullptr),
        scalars_(signature_.scalars.count + signature_.size_flags.count),
        given_(signature_.names.count, core::kUnknownExtent) {}
  OperatorCall(const OperatorCall&) = delete;
  OperatorCall& operator=(const OperatorCall&) = delete;

  void run() {
    read_parameters();
    bool is_complete = true;
    for (std::size_t r = 0; r < schema_.results().size(); ++r) {
      const int argument = schema_.results()[r], result = static_cast<int>(r);
      if (is_absent(argument)) {
        const std::int8_t like = signature_.arguments[argument].like;
        adapter_.no_result(result, argument,
                           like < 0 ? signature_.arguments[argument].default_dtype() : tensors_[like].dtype);
      } else if (adapter_.has_out(result)) {
        tensors_[argument] = adapter_.out(result, argument);
      } else {
        is_complete = false;
      }
    }
    if (schema_.has_fill()) choose_fills();
    if (!is_complete || gives_sizes_ || schema_.finds_sizes()) make_results();
    const auto for_shortened = [&](auto&& f) {
      for (std::size_t r = 0; r < schema_.results().size(); ++r)
        if (const int argument = schema_.results()[r]; signature_.arguments[argument].is_shortened)
          f(static_cast<int>(r), tensors_[argument]);
    };
    for_shortened([&](int r, Tensor&) {
      if (adapter_.has_out(r) && !has_exact_rows(schema_.results()[static_cast<std::size_t>(r)]))
        adapter_.check_rows(r);
    });
    std::int64_t rows = 0;
    adapter_.run(
        [&](const Caller& caller) {
          rows = prepared_ != nullptr ? prepared_->run(caller, tensors_.data(), scalars_.data())
                                      : op_.invoke(caller, tensors_.data(), scalars_.data());
          prepared_.reset();  // frees large memory without the interpreter's lock
        },
        /*is_last=*/true);
    for_shortened([&](int r, Tensor& tensor) { adapter_.shorten(r, tensor, rows); });
  }

 private:
  // Whether this call lacks a result, because its input is absent or the caller does not request it.
  bool is_absent(int position) {
    const core::Argument& argument = signature_.arguments[position];
    if (argument.required_with >= 0) return tensors_[argument.required_with].is_absent();
    return !argument.request.empty() && !is_requested_[position];
  }

  void read_parameters() {
    const auto& parameters = schema_.parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const Parameter& parameter = parameters[p];
      const int i = static_cast<int>(p), position = parameter.position;
      if (parameter.kind == Parameter::Kind::tensor) {
        const bool may_be_absent = signature_.arguments[position].optional;
        if (!may_be_absent || adapter_.is_given(i))
          tensors_[position] = adapter_.tensor(i, position, is_written(position));
      } else if (parameter.kind == Parameter::Kind::scalar) {
        if (position != read_flag_) scalars_[position] = read_scalar(i, position);
      } else if (parameter.kind == Parameter::Kind::request) {
        is_requested_[position] = adapter_.is_passed(i) && adapter_.flag(i);
      } else if (parameter.kind == Parameter::Kind::size_flag) {
        scalars_[signature_.scalars.count + position] = adapter_.is_passed(i) && adapter_.flag(i);
      } else if (parameter.kind == Parameter::Kind::size) {
        if (parameter.has_default && !adapter_.is_given(i)) continue;
        given_[position] = adapter_.integer(i);
        gives_sizes_ = true;
        if (is_final(kind_of(position))) check_size(position, given_[position]);
      }
    }
  }

  // Whether this call writes to an input. Reads the flag only once, because an object may change its answer.
  bool is_written(int position) {
    const std::int8_t flag = signature_.arguments[position].written_if;
    if (flag < 0) return false;
    const auto& parameters = schema_.parameters();
    for (std::size_t p = 0; p < parameters.size() && read_flag_ != flag; ++p) {
      if (parameters[p].kind != Parameter::Kind::scalar || parameters[p].position != flag) continue;
      scalars_[flag] = read_scalar(static_cast<int>(p), flag);
      read_flag_ = flag;
    }
    return scalars_[flag].value != 0;
  }

  core::ScalarValue read_scalar(int i, int position) {
    const core::Scalar& scalar = signature_.scalars[position];
    // None is not a value, unless the Signature says so.
    const bool is_given =
        !scalar.has_default || (scalar.may_be_none ? adapter_.is_given(i) : adapter_.is_passed(i));
    if (scalar.is_vector) {
      BoundedArray<core::Slot, core::kMaxArguments> slots(signature_.arguments.count);
      for (int a = 0; a < signature_.arguments.count; ++a) slots[a] = core::Slot(tensors_[a]);
      const std::int64_t length = core::length_of(signature_, scalar, slots.data());
      if (scalar.is_real) {
        auto& values = reals_.emplace_back(adapter_.reals(i, length));
        return {values.data(), static_cast<std::int64_t>(values.size())};
      }
      integers_.reserve(static_cast<std::size_t>(signature_.scalars.count));
      if (!is_given) {
        const auto count = static_cast<std::size_t>(length < 0 ? 1 : length);
        integers_.emplace_back(count, scalar.default_value);
      } else {
        integers_.push_back(adapter_.integers(i, length, scalar.has_default));
      }
      auto& values = integers_.back();
      return {values.data(), static_cast<std::int64_t>(values.size())};
    }
    if (scalar.is_real) return is_given ? adapter_.real(i) : scalar.default_real;
    if (!is_given) return scalar.default_value;
    if (scalar.is_flag) return adapter_.flag(i);
    if (!scalar.values.empty() && !scalar.is_code) return adapter_.choice(i, scalar);
    const std::int64_t value = adapter_.integer(i);
    // Checked before the conversion to an enum, which may not be able to hold the value.
    if (scalar.is_code && (value < scalar.min || value > scalar.max))
      adapter_.refuse(core::concat(scalar.name, " is ", value, ", expected ", core::range_text(scalar)));
    return value;
  }

  // A result that the caller passes keeps its content.
  void choose_fills() {
    bool is_given = true;
    for (int argument : schema_.results())
      if (signature_.arguments[argument].role == core::Role::inout)
        is_given &= !tensors_[argument].is_absent();
    for (int i = 0; i < signature_.scalars.count; ++i)
      if (signature_.scalars[i].is_fill) scalars_[i] = signature_.scalars[i].min + (is_given ? 0 : 1);
  }

  void make_results() {
    BoundedArray<core::Slot, core::kMaxArguments> slots(signature_.arguments.count);
    bool has_results = false;
    for (int i = 0; i < signature_.arguments.count; ++i) {
      if (tensors_[i].is_absent()) continue;
      has_results |= signature_.arguments[i].is_output();
      // A result that the caller passes does not determine a size that the operator finds.
      if (!has_found_size(i)) slots[i] = core::Slot(tensors_[i]);
    }
    const core::CallerNames names = adapter_.names();
    core::Arguments arguments(signature_, slots.data(), signature_.arguments.count, scalars_.data(),
                              signature_.scalars.count, {}, 1, Isa::best, &names);
    for (int name = signature_.scalars.count; name < signature_.names.count; ++name)
      if (is_final(kind_of(name)) && given_[name] != core::kUnknownExtent) arguments.bind(name, given_[name]);
    // The operator repeats all checks. Matching shapes are enough to allocate small results.
    if (op_.has_own_sizes() || !arguments.passes_plain_shapes()) check(arguments);
    bool is_found = true;
    for (int name = signature_.scalars.count; name < signature_.names.count; ++name)
      if (kind_of(name) != core::SizeKind::shapes)
        is_found &= is_final(kind_of(name)) && arguments.is_bound(name);
    if (!is_found) {
      find_sizes(arguments);
      if (has_results) {
        for (int i = 0; i < signature_.arguments.count; ++i) slots[i] = core::Slot(tensors_[i]);
        use_first_rows(arguments, slots.data());
        check(arguments);
      }
    }
    new_results(arguments);
  }
  void check(core::Arguments& arguments) {
    is_checked_ = true;
    if (!arguments.passes_plain_metadata()) core::check_metadata_and_log(arguments);
  }

  void find_sizes(core::Arguments& arguments) {
    std::int64_t sizes[core::kMaxNames];
    for (int name = 0; name < signature_.names.count; ++name)
      sizes[name] = name >= signature_.scalars.count && given_[name] != core::kUnknownExtent ? given_[name]
                    : arguments.is_bound(name) ? arguments.size(name)
                                               : core::kUnknownExtent;
    if (op_.compute_sizes != nullptr) {
      op_.compute_sizes(scalars_.data(), sizes);
    } else {
      adapter_.run(
          [&](const Caller& caller) {
            prepared_ = op_.find_sizes(caller, tensors_.data(), scalars_.data(), sizes);
          },
          /*is_last=*/false);
    }
    if (bind_found(arguments, sizes) || prepared_ == nullptr) return;
    new_results(arguments);
    adapter_.run([&](const Caller& caller) { prepared_->find_sizes(caller, tensors_.data(), sizes); },
                 /*is_last=*/false);
    bind_found(arguments, sizes);
  }

  core::SizeKind kind_of(int name) const { return signature_.size_kinds[name - signature_.scalars.count]; }
  // Whether a size that the caller passes is used unchanged.
  static bool is_final(core::SizeKind kind) {
    return kind == core::SizeKind::shapes || kind == core::SizeKind::either;
  }
  bool has_found_size(int argument) const {
    if (!signature_.arguments[argument].is_output()) return false;
    for (const core::Extent& extent : signature_.arguments[argument].dims)
      for (const std::int8_t name : extent.names)
        if (name >= signature_.scalars.count && !is_final(kind_of(name))) return true;
    return false;
  }
  void check_size(int name, std::int64_t size) {
    if (size < 0) adapter_.refuse(core::concat(signature_.names[name], " is ", size, ", expected 0 or more"));
  }

  // Binds the sizes that the operator has found. Returns whether all are known.
  bool bind_found(core::Arguments& arguments, const std::int64_t* sizes) {
    bool is_complete = true;
    for (int name = signature_.scalars.count; name < signature_.names.count; ++name) {
      if (kind_of(name) == core::SizeKind::shapes) continue;
      if (sizes[name] == core::kUnknownExtent) {
        is_complete = false;
      } else {
        check_size(name, sizes[name]);
        arguments.bind(name, sizes[name]);
      }
    }
    return is_complete;
  }

  // Allocates the results that the caller does not pass, if their sizes are known.
  void new_results(core::Arguments& arguments) {
    for (std::size_t r = 0; r < schema_.results().size(); ++r) {
      const int argument = schema_.results()[r], result = static_cast<int>(r);
      if (!tensors_[argument].is_absent() || is_absent(argument)) continue;
      std::int64_t shape[kMaxRank];
      const int rank = arguments.result_shape(argument, shape);
      if (!is_checked_ && !is_small(shape, rank)) check(arguments);
      if (std::count(shape, shape + rank, core::kUnbound) > 0) continue;
      tensors_[argument] = adapter_.new_result(result, argument, dtype_of_result(argument), shape, rank);
    }
  }

  // Whether a result is small enough to be allocated for a call that may still be refused.
  static bool is_small(const std::int64_t* shape, int rank) {
    constexpr std::int64_t kMostElements = 1 << 16;
    std::int64_t elements = 1;
    for (int d = 0; d < rank; ++d)
      if (shape[d] < 0 || shape[d] > kMostElements || (elements *= shape[d]) > kMostElements) return false;
    return true;
  }

  // Whether the operator finds the number of rows of a result before it writes.
  bool has_exact_rows(int position) const {
    const core::Argument& argument = signature_.arguments[position];
    return argument.is_shortened && kind_of(argument.dims[0].names[0]) == core::SizeKind::computed;
  }

  // Shortens results that the caller passes to the number of rows that the operator has found.
  void use_first_rows(const core::Arguments& arguments, core::Slot* slots) {
    for (std::size_t r = 0; r < schema_.results().size(); ++r) {
      const int position = schema_.results()[r], result = static_cast<int>(r);
      const core::Argument& argument = signature_.arguments[position];
      Tensor& tensor = tensors_[position];
      if (!has_exact_rows(position) || tensor.is_absent() || tensor.rank != argument.dims.count) continue;
      const std::int8_t name = argument.dims[0].names[0];
      if (tensor.shape[0] < arguments.size(name))
        adapter_.refuse(core::concat(argument.name, ".shape[0] is ", tensor.shape[0], ", expected ",
                                     arguments.size(name), " or more: the number of ",
                                     signature_.names[name]));
      adapter_.shorten(result, tensor, arguments.size(name));
      slots[position] = core::Slot(tensor);
    }
  }

  DType dtype_of_result(int position) {
    const core::Argument& argument = signature_.arguments[position];
    if (argument.like < 0) return argument.default_dtype();
    const DType like = tensors_[argument.like].dtype;
    return argument.is_lane ? core::lane_dtype(like) : like;
  }

  const core::Operator& op_;
  const Schema& schema_;
  const core::Signature& signature_;
  Adapter& adapter_;
  BoundedArray<Tensor, core::kMaxArguments> tensors_;
  BoundedArray<core::ScalarValue, core::kMaxNames> scalars_;
  BoundedArray<std::int64_t, core::kMaxNames>
      given_;  // by name: sizes that the caller gives, or kUnknownExtent
  bool is_requested_[core::kMaxArguments] = {};
  bool gives_sizes_ = false;
  bool is_checked_ = false;     // make_results() has checked the metadata
  std::int8_t read_flag_ = -1;  // the scalar that is_written() has read
  std::unique_ptr<core::Prepared> prepared_;
  std::vector<std::vector<std::int64_t>> integers_;
  std::vector<std::vector<double>> reals_;
};

}  // namespace turnout::bindings
