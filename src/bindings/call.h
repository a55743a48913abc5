// One call of an operator through a binding: reads the arguments, computes the shapes of results, and runs
// the operator. Every runtime uses it through an adapter:
//
//   bool is_passed(int i)                     whether the caller passes parameter i
//   bool is_given(int i)                      likewise, and not as None
//   Tensor tensor(int i, int argument)        parameter i as an input
//   int64_t integer(int i), double real(int i), bool flag(int i)
//   int64_t choice(int i, const Scalar&)      a value of an enum, which the caller gives by its name
//   vector<int64_t> integers(int i, int64_t length, bool may_be_single)   one for all elements; length -1: unknown
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
    for (int i = 0; i < signature_.scalars.count; ++i) new (scalars() + i) core::ScalarValue();
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
        has_outs_ = true;
      } else {
        is_complete = false;
      }
    }
    if (schema_.has_fill()) choose_fills();
    if (op_.find_sizes != nullptr || !results_have_given_sizes() || (!is_complete && !make_plain_results()))
      make_results();
    const auto for_shortened = [&](auto&& f) {
      for (std::size_t r = 0; r < schema_.results().size(); ++r)
        if (const int argument = schema_.results()[r]; signature_.arguments[argument].is_shortened)
          f(static_cast<int>(r), tensors()[argument]);
    };
    for_shortened([&](int r, Tensor&) { adapter_.check_rows(r); });
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

  core::Slot* describe_tensors() {
    auto* slots = reinterpret_cast<core::Slot*>(slot_memory_);
    for (int i = 0; i < signature_.arguments.count; ++i) new (slots + i) core::Slot(tensors()[i]);
    return slots;
  }

  // Whether each size that the caller gives is that of the results that have it. If not, or if that is not
  // plain to see, the checks of make_results() decide.
  bool results_have_given_sizes() {
    if (!gives_sizes_) return true;
    for (int name = signature_.scalars.count; name < signature_.names.count; ++name) {
      if (given_[name] == core::kUnknownExtent) continue;
      bool is_found = false;
      for (int argument : schema_.results()) {
        const core::View<core::Extent>& dims = signature_.arguments[argument].dims;
        const Tensor& result = tensors()[argument];
        for (int d = 0; d < dims.count; ++d) {
          if (std::count(dims[d].names.begin(), dims[d].names.end(), name) == 0) continue;
          if (result.is_absent() && !is_absent(argument)) {
            is_found = true;  // it will be made with this size
            continue;
          }
          if (!is_plain(dims[d]) || result.rank != dims.count || result.shape[d] != given_[name])
            return false;
          is_found = true;
        }
      }
      if (!is_found) return false;
    }
    return true;
  }

  static bool is_plain(const core::Extent& extent) {
    return extent.names.count == 1 && extent.factor == 1 && extent.add == 0 && !extent.optional &&
           !extent.is_folded;
  }

  // Small results whose extents are given, or those of an input: their shapes need no checks, which the
  // operator makes next and which take a tenth of the time of a small call. False: nothing is made.
  bool make_plain_results() {
    constexpr std::int64_t kMostElements = 1 << 16;  // beyond, wrong sizes are refused before memory is taken
    std::int64_t shapes[core::kMaxArguments][kMaxRank];
    for (int argument : schema_.results()) {
      if (!tensors()[argument].is_absent() || is_absent(argument)) continue;
      const core::View<core::Extent>& dims = signature_.arguments[argument].dims;
      std::int64_t elements = 1;
      for (int d = 0; d < dims.count; ++d) {
        const std::int64_t extent = is_plain(dims[d]) ? plain_size(dims[d].names[0]) : core::kUnbound;
        if (extent < 0 || extent > kMostElements || (elements *= extent) > kMostElements) return false;
        shapes[argument][d] = extent;
      }
    }
    for (std::size_t r = 0; r < schema_.results().size(); ++r) {
      const int argument = schema_.results()[r], result = static_cast<int>(r);
      if (!tensors()[argument].is_absent() || is_absent(argument)) continue;
      tensors()[argument] = adapter_.new_result(result, argument, dtype_of_result(argument), shapes[argument],
                                                signature_.arguments[argument].dims.count);
    }
    return true;
  }

  // A size that the caller gives or that is an extent of the first input that has it; or kUnbound.
  std::int64_t plain_size(int name) {
    if (name < signature_.scalars.count) return core::kUnbound;
    if (given_[name] != core::kUnknownExtent) return given_[name];
    for (int i = 0; i < signature_.arguments.count; ++i) {
      const core::Argument& argument = signature_.arguments[i];
      const Tensor& tensor = tensors()[i];
      if (argument.is_output() || tensor.is_absent()) continue;
      for (int d = 0; d < argument.dims.count; ++d) {
        const core::List<std::int8_t, 3>& names = argument.dims[d].names;
        if (std::count(names.begin(), names.end(), name) == 0) continue;
        const bool is_known = is_plain(argument.dims[d]) && tensor.rank == argument.dims.count;
        return is_known ? tensor.shape[d] : core::kUnbound;
      }
    }
    return core::kUnbound;
  }

  // Whether this call does not have a result: it belongs to an input that is not given, or nobody asks for it.
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
        if (!may_be_absent || adapter_.is_given(i)) tensors()[position] = adapter_.tensor(i, position);
      } else if (parameter.kind == Parameter::Kind::scalar) {
        scalars()[position] = read_scalar(i, position);
      } else if (parameter.kind == Parameter::Kind::request) {
        is_requested_[position] = adapter_.is_given(i) && adapter_.flag(i);
      } else if (parameter.kind == Parameter::Kind::size) {
        if (parameter.has_default && !adapter_.is_given(i)) continue;
        given_[position] = adapter_.integer(i);
        gives_sizes_ = true;
        const bool may_be_negative = op_.find_sizes != nullptr;  // which checks it
        if (given_[position] < 0 && !may_be_negative)
          adapter_.refuse(core::concat(parameter.name, " is ", given_[position], ", expected 0 or more"));
      }
    }
  }

  core::ScalarValue read_scalar(int i, int position) {
    const core::Scalar& scalar = signature_.scalars[position];
    // None is not a value, unless the Signature says so.
    const bool is_given =
        !scalar.has_default || (scalar.may_be_none ? adapter_.is_given(i) : adapter_.is_passed(i));
    if (scalar.is_vector) {
      const std::int64_t length = core::length_of(signature_, scalar, describe_tensors());
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
    return adapter_.integer(i);
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
    core::Slot* const slots = describe_tensors();
    const core::CallerNames names = adapter_.names();
    core::Arguments arguments(signature_, slots, signature_.arguments.count, scalars(),
                              signature_.scalars.count, {}, 1, Isa::best, &names);
    const int first = signature_.scalars.count;
    for (int name = first; name < signature_.names.count; ++name) {
      const core::SizeKind kind = signature_.size_kinds[name - first];
      const bool is_given = kind != core::SizeKind::computed && given_[name] != core::kUnknownExtent;
      if (is_given && op_.find_sizes == nullptr) arguments.bind(name, given_[name]);
    }
    if (op_.find_sizes == nullptr) {
      core::check_metadata_and_log(arguments);
    } else {
      // A result that the caller gives does not determine a size that only the operator finds.
      for (int argument : schema_.results())
        if (has_computed_size(argument)) slots[argument] = core::Slot();
      core::check_metadata_and_log(arguments);
      std::int64_t sizes[core::kMaxNames];
      for (int name = 0; name < signature_.names.count; ++name)
        sizes[name] = name >= first && given_[name] != core::kUnknownExtent ? given_[name]
                      : arguments.is_bound(name)                            ? arguments.size(name)
                                                                            : core::kUnknownExtent;
      adapter_.run(
          [&](const Caller& caller) { prepared_ = op_.find_sizes(caller, tensors(), scalars(), sizes); },
          /*is_last=*/false);
      if (!bind_found(arguments, sizes) && prepared_ != nullptr) {
        new_results(arguments);
        adapter_.run([&](const Caller& caller) { prepared_->find_sizes(caller, tensors(), sizes); },
                     /*is_last=*/false);
        bind_found(arguments, sizes);
      }
      for (int argument : schema_.results()) slots[argument] = core::Slot(tensors()[argument]);
      use_first_rows(arguments, slots);
      if (has_outs_) core::check_metadata_and_log(arguments);  // once more, of results that the caller gives
    }
    new_results(arguments);
  }

  bool has_computed_size(int argument) const {
    for (const core::Extent& extent : signature_.arguments[argument].dims)
      for (const std::int8_t name : extent.names)
        if (name >= signature_.scalars.count &&
            signature_.size_kinds[name - signature_.scalars.count] == core::SizeKind::computed)
          return true;
    return false;
  }

  // Binds the sizes that the operator has found; returns whether these are all.
  bool bind_found(core::Arguments& arguments, const std::int64_t* sizes) {
    bool is_complete = true;
    const int first = signature_.scalars.count;
    for (int name = first; name < signature_.names.count; ++name) {
      if (signature_.size_kinds[name - first] == core::SizeKind::shapes) continue;
      if (sizes[name] == core::kUnknownExtent) {
        is_complete = false;
      } else {
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

  // Of a result that the caller gives, the call uses as many rows as the operator has found.
  void use_first_rows(const core::Arguments& arguments, core::Slot* slots) {
    for (std::size_t r = 0; r < schema_.results().size(); ++r) {
      const int position = schema_.results()[r], result = static_cast<int>(r);
      const core::Argument& argument = signature_.arguments[position];
      Tensor& tensor = tensors()[position];
      if (!argument.is_shortened || tensor.is_absent() || tensor.rank != argument.dims.count) continue;
      const int name = argument.dims[0].names[0];
      const core::SizeKind kind = signature_.size_kinds[name - signature_.scalars.count];
      if (kind == core::SizeKind::adjusted) continue;
      if (tensor.shape[0] < arguments.size(name))
        adapter_.refuse(core::concat(argument.name, ".shape[0] is ", tensor.shape[0], ", expected ",
                                     arguments.size(name), " or more: the ", signature_.names[name],
                                     " that this call finds"));
      adapter_.check_rows(result);
      adapter_.shorten(result, tensor, arguments.size(name));
      slots[position] = core::Slot(tensor);
    }
  }

  DType dtype_of_result(int position) {
    const core::Argument& argument = signature_.arguments[position];
    if (argument.like < 0) return static_cast<DType>(std::countr_zero(argument.dtypes));
    const DType like = tensors()[argument.like].dtype;
    return argument.is_lane ? core::lane_dtype(like) : like;
  }

  const core::Operator& op_;
  const Schema& schema_;
  const core::Signature& signature_;
  Adapter& adapter_;
  alignas(Tensor) std::byte tensor_memory_[core::kMaxArguments * sizeof(Tensor)];
  alignas(core::Slot) std::byte slot_memory_[core::kMaxArguments * sizeof(core::Slot)];
  alignas(core::ScalarValue) std::byte scalar_memory_[core::kMaxNames * sizeof(core::ScalarValue)];
  std::int64_t given_[core::kMaxNames];  // sizes that the caller gives, or kUnknownExtent
  bool is_requested_[core::kMaxArguments] = {};
  bool gives_sizes_ = false;
  bool has_outs_ = false;  // the caller gives memory for a result
  std::unique_ptr<core::Prepared> prepared_;
  std::vector<std::vector<std::int64_t>> integers_;
  std::vector<std::vector<double>> reals_;
};

}  // namespace turnout::bindings
