// One call of an operator through a binding: reads the arguments, computes the shapes of results, and runs
// the operator. Every runtime uses it through an adapter:
//
//   bool is_passed(int i)                     whether the caller passes parameter i
//   bool is_given(int i)                      likewise, and not as None
//   Tensor tensor(int i, int argument, bool is_written)      parameter i as an input, or as one in place
//   int64_t integer(int i), double real(int i), bool flag(int i)
//   int64_t choice(int i, const Scalar&)      a value of an enum, which the caller gives by its name
//   vector<int64_t> integers(int i, int64_t length, bool may_be_single)   length -1: unknown
//   vector<double> reals(int i, int64_t length)
//   bool has_out(int r), Tensor out(int r, int argument)     result r, if the caller gives its memory
//   Tensor new_result(int r, int argument, DType, shape, rank)
//   void no_result(int r)                     result r is absent: it belongs to an input that is not given
//   void shorten(int r, Tensor&, int64_t rows), void check_rows(int r)
//   CallerNames names()
//   void run(f, is_last)                      f(caller), where operators run
//   void refuse(text)                         throws Error(bad_param), "function: text"
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <new>
#include <vector>

#include "bindings/schema.h"
#include "core/check.h"
#include "registry.h"
#include "runtime/call.h"

namespace turnout::bindings {

template <class Adapter>
class OperatorCall {
 public:
  OperatorCall(const core::Operator& op, const Schema& schema, Adapter& adapter)
      : op_(op), schema_(schema), signature_(op.for_bindings()), adapter_(adapter) {
    // Only as many as there are: setting up the largest number would take as long as a small call.
    for (int i = 0; i < signature_.arguments.count; ++i) new (tensors() + i) Tensor(nullptr);
    const int scalar_count = signature_.scalars.count + signature_.size_flags.count;
    for (int i = 0; i < scalar_count; ++i) new (scalars() + i) core::ScalarValue();
    for (int name = signature_.scalars.count; name < signature_.names.count; ++name)
      given_[name] = core::kUnknownExtent;
  }
  OperatorCall(const OperatorCall&) = delete;
  OperatorCall& operator=(const OperatorCall&) = delete;

  void run() {
    read_parameters();
    bool is_complete = true;
    for (std::size_t r = 0; r < schema_.results().size(); ++r) {
      const int argument = schema_.results()[r], result = static_cast<int>(r);
      if (is_absent(argument)) {
        adapter_.no_result(result);
      } else if (adapter_.has_out(result)) {
        tensors()[argument] = adapter_.out(result, argument);
      } else {
        is_complete = false;
      }
    }
    if (schema_.has_fill()) choose_fills();
    if (!is_complete || gives_sizes_ || always_finds_sizes()) make_results();
    const auto for_shortened = [&](auto&& f) {
      for (std::size_t r = 0; r < schema_.results().size(); ++r)
        if (const int argument = schema_.results()[r]; signature_.arguments[argument].is_shortened)
          f(static_cast<int>(r), tensors()[argument]);
    };
    for_shortened([&](int r, Tensor&) {
      if (adapter_.has_out(r) && !has_exact_rows(schema_.results()[static_cast<std::size_t>(r)]))
        adapter_.check_rows(r);
    });
    std::int64_t rows = 0;
    adapter_.run(
        [&](const Caller& caller) {
          rows = prepared_ != nullptr ? prepared_->run(caller, tensors(), scalars())
                                      : op_.invoke(caller, tensors(), scalars());
          prepared_.reset();  // its memory may be large: not with an interpreter's lock
        },
        /*is_last=*/true);
    for_shortened([&](int r, Tensor& tensor) { adapter_.shorten(r, tensor, rows); });
  }

 private:
  Tensor* tensors() { return reinterpret_cast<Tensor*>(tensor_memory_); }
  core::ScalarValue* scalars() { return reinterpret_cast<core::ScalarValue*>(scalar_memory_); }

  // Whether this call does not have a result: its input is not given, or nobody asks for it.
  bool is_absent(int position) {
    const core::Argument& argument = signature_.arguments[position];
    if (argument.required_with >= 0) return tensors()[argument.required_with].is_absent();
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
          tensors()[position] = adapter_.tensor(i, position, is_written(position));
      } else if (parameter.kind == Parameter::Kind::scalar) {
        if (position != read_flag_) scalars()[position] = read_scalar(i, position);
      } else if (parameter.kind == Parameter::Kind::request) {
        is_requested_[position] = adapter_.is_passed(i) && adapter_.flag(i);
      } else if (parameter.kind == Parameter::Kind::size_flag) {
        scalars()[signature_.scalars.count + position] = adapter_.is_passed(i) && adapter_.flag(i);
      } else if (parameter.kind == Parameter::Kind::size) {
        if (parameter.has_default && !adapter_.is_given(i)) continue;
        given_[position] = adapter_.integer(i);
        gives_sizes_ = true;
        if (is_final(kind_of(position))) check_size(position, given_[position]);
      }
    }
  }

  // Whether this call writes to an input. Reads its flag, once: an object could say something else later.
  bool is_written(int position) {
    const int flag = signature_.arguments[position].written_if;
    if (flag < 0) return false;
    const auto& parameters = schema_.parameters();
    for (std::size_t p = 0; p < parameters.size() && read_flag_ != flag; ++p) {
      if (parameters[p].kind != Parameter::Kind::scalar || parameters[p].position != flag) continue;
      scalars()[flag] = read_scalar(static_cast<int>(p), flag);
      read_flag_ = flag;
    }
    return scalars()[flag].value != 0;
  }

  core::ScalarValue read_scalar(int i, int position) {
    const core::Scalar& scalar = signature_.scalars[position];
    // None is not a value, unless the Signature says so.
    const bool is_given =
        !scalar.has_default || (scalar.may_be_none ? adapter_.is_given(i) : adapter_.is_passed(i));
    if (scalar.is_vector) {
      core::Slot slots[core::kMaxArguments];
      for (int a = 0; a < signature_.arguments.count; ++a) slots[a] = core::Slot(tensors()[a]);
      const std::int64_t length = core::length_of(signature_, scalar, slots);
      if (scalar.is_real) {
        auto& values = reals_.emplace_back(adapter_.reals(i, length));
        return {values.data(), static_cast<std::int64_t>(values.size())};
      }
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
    // Before the function has it as an enum, which may not hold it.
    if (scalar.is_code && (value < scalar.min || value > scalar.max))
      adapter_.refuse(core::concat(scalar.name, " is ", value, ", expected ", core::range_text(scalar)));
    return value;
  }

  // A result that the caller gives keeps what it holds.
  void choose_fills() {
    bool is_given = true;
    for (int argument : schema_.results())
      if (signature_.arguments[argument].role == core::Role::inout)
        is_given &= !tensors()[argument].is_absent();
    for (int i = 0; i < signature_.scalars.count; ++i)
      if (signature_.scalars[i].is_fill) scalars()[i] = signature_.scalars[i].min + (is_given ? 0 : 1);
  }

  void make_results() {
    alignas(core::Slot) std::byte slot_memory[core::kMaxArguments * sizeof(core::Slot)];
    auto* const slots = reinterpret_cast<core::Slot*>(slot_memory);
    bool has_results = false;
    for (int i = 0; i < signature_.arguments.count; ++i) {
      // A result that the caller gives does not determine a size that the operator finds.
      new (slots + i) core::Slot(has_found_size(i) ? core::Slot() : core::Slot(tensors()[i]));
      has_results |= signature_.arguments[i].is_output() && !tensors()[i].is_absent();
    }
    const core::CallerNames names = adapter_.names();
    core::Arguments arguments(signature_, slots, signature_.arguments.count, scalars(),
                              signature_.scalars.count, {}, 1, Isa::best, &names);
    const auto check = [&] {
      if (!arguments.passes_plain_metadata()) core::check_metadata_and_log(arguments);
    };
    bool is_found = true;
    for (int name = signature_.scalars.count; name < signature_.names.count; ++name)
      if (is_final(kind_of(name)) && given_[name] != core::kUnknownExtent) arguments.bind(name, given_[name]);
    check();
    for (int name = signature_.scalars.count; name < signature_.names.count; ++name)
      if (kind_of(name) != core::SizeKind::shapes)
        is_found &= is_final(kind_of(name)) && arguments.is_bound(name);
    if (!is_found) {
      find_sizes(arguments);
      if (has_results) {
        for (int i = 0; i < signature_.arguments.count; ++i) slots[i] = core::Slot(tensors()[i]);
        use_first_rows(arguments, slots);
        check();
      }
    }
    new_results(arguments);
  }

  void find_sizes(core::Arguments& arguments) {
    std::int64_t sizes[core::kMaxNames];
    for (int name = 0; name < signature_.names.count; ++name)
      sizes[name] = name >= signature_.scalars.count && given_[name] != core::kUnknownExtent ? given_[name]
                    : arguments.is_bound(name) ? arguments.size(name)
                                               : core::kUnknownExtent;
    if (op_.compute_sizes != nullptr) {
      op_.compute_sizes(scalars(), sizes);
    } else {
      adapter_.run(
          [&](const Caller& caller) { prepared_ = op_.find_sizes(caller, tensors(), scalars(), sizes); },
          /*is_last=*/false);
    }
    if (bind_found(arguments, sizes) || prepared_ == nullptr) return;
    new_results(arguments);
    adapter_.run([&](const Caller& caller) { prepared_->find_sizes(caller, tensors(), sizes); },
                 /*is_last=*/false);
    bind_found(arguments, sizes);
  }

  core::SizeKind kind_of(int name) const { return signature_.size_kinds[name - signature_.scalars.count]; }
  // Whether a size is what the caller gives, if the caller gives it.
  static bool is_final(core::SizeKind kind) {
    return kind == core::SizeKind::shapes || kind == core::SizeKind::either;
  }
  // Whether the operator has a size that neither the caller nor a result determines.
  bool always_finds_sizes() const {
    for (const core::SizeKind kind : signature_.size_kinds)
      if (!is_final(kind)) return true;
    return false;
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

  // Binds the sizes that the operator has found; returns whether these are all.
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

  // Allocates the results that the caller does not give, if their sizes are known.
  void new_results(const core::Arguments& arguments) {
    for (std::size_t r = 0; r < schema_.results().size(); ++r) {
      const int argument = schema_.results()[r], result = static_cast<int>(r);
      if (!tensors()[argument].is_absent() || is_absent(argument)) continue;
      std::int64_t shape[kMaxRank];
      const int rank = arguments.result_shape(argument, shape);
      if (std::count(shape, shape + rank, core::kUnbound) > 0) continue;
      tensors()[argument] = adapter_.new_result(result, argument, dtype_of_result(argument), shape, rank);
    }
  }

  // Whether a result has a row for each that the operator finds before it writes.
  bool has_exact_rows(int position) const {
    const core::Argument& argument = signature_.arguments[position];
    return argument.is_shortened && kind_of(argument.dims[0].names[0]) == core::SizeKind::computed;
  }

  // Of a result that the caller gives, the call uses as many rows as the operator has found.
  void use_first_rows(const core::Arguments& arguments, core::Slot* slots) {
    for (std::size_t r = 0; r < schema_.results().size(); ++r) {
      const int position = schema_.results()[r], result = static_cast<int>(r);
      const core::Argument& argument = signature_.arguments[position];
      Tensor& tensor = tensors()[position];
      if (!has_exact_rows(position) || tensor.is_absent() || tensor.rank != argument.dims.count) continue;
      const int name = argument.dims[0].names[0];
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
    const DType like = tensors()[argument.like].dtype;
    return argument.is_lane ? core::lane_dtype(like) : like;
  }

  const core::Operator& op_;
  const Schema& schema_;
  const core::Signature& signature_;
  Adapter& adapter_;
  alignas(Tensor) std::byte tensor_memory_[core::kMaxArguments * sizeof(Tensor)];
  alignas(core::ScalarValue) std::byte scalar_memory_[core::kMaxNames * sizeof(core::ScalarValue)];
  std::int64_t given_[core::kMaxNames];  // sizes that the caller gives, or kUnknownExtent
  bool is_requested_[core::kMaxArguments] = {};
  bool gives_sizes_ = false;
  int read_flag_ = -1;  // the scalar that is_written() has read
  std::unique_ptr<core::Prepared> prepared_;
  std::vector<std::vector<std::int64_t>> integers_;
  std::vector<std::vector<double>> reals_;
};

}  // namespace turnout::bindings
