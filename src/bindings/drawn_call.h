// Random calls of an operator: their arguments, and an adapter of OperatorCall that passes them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bindings/call.h"
#include "bindings/random.h"
#include "bindings/schema.h"
#include "core/check.h"
#include "core/example.h"
#include "registry.h"
#include "runtime/caller.h"

namespace turnout::bindings {

inline bool is_floating(DType dtype) { return core::contains(core::kFloats, dtype); }

// Calls f(core::Type<T>{}) with the signed integer type of that many bytes.
template <class F>
void visit_integer(std::int64_t size, const F& f) {
  switch (size) {
    case 1:
      return f(core::Type<std::int8_t>{});
    case 2:
      return f(core::Type<std::int16_t>{});
    case 4:
      return f(core::Type<std::int32_t>{});
    default:
      return f(core::Type<std::int64_t>{});
  }
}

// A tensor that owns its memory.
struct OwnedTensor {
  Tensor tensor = nullptr;
  std::vector<std::uint64_t> memory;

  OwnedTensor() = default;
  OwnedTensor(DType dtype, const std::int64_t* shape, int rank) : tensor(nullptr, dtype, shape, rank) {
    memory.resize(static_cast<std::size_t>(core::Slot(tensor).elements() * size_of(dtype)) / 8 + 1);
    tensor.data = memory.data();
  }
  OwnedTensor(const OwnedTensor& other) : tensor(other.tensor), memory(other.memory) {
    if (!tensor.is_absent()) tensor.data = memory.data();
  }
  OwnedTensor& operator=(OwnedTensor other) {
    memory = std::move(other.memory);
    tensor = other.tensor;
    if (!tensor.is_absent()) tensor.data = memory.data();
    return *this;
  }

  std::int64_t elements() const { return tensor.is_absent() ? 0 : core::Slot(tensor).elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements() * size_of(tensor.dtype)); }
};

// Fills floating-point tensors with multiples of 1/8, whose sums and products are exact in most types, or
// with arbitrary fractions; integers are lowest .. lowest + bound - 1.
void fill(const OwnedTensor& to, Random& random, std::int64_t lowest, std::int64_t bound);

// What a caller passes, drawn at random: values by position in the lists of the Signature.
struct Drawn {
  core::Example values;
  std::vector<OwnedTensor> inputs;  // by argument; outputs are absent
  std::vector<bool> requests;       // by argument
  std::vector<bool> size_flags;     // by position in Signature::size_flags

  Drawn(const core::Operator& op, Random& random);

 private:
  void draw_values(const core::Signature& signature, Random& random);
};

// An adapter of OperatorCall for a drawn call.
class DrawnCall {
 public:
  DrawnCall(const core::Operator& op, const Schema& schema, const Drawn& drawn, Context& context)
      : schema_(schema), signature_(*op.signature), drawn_(drawn), context_(context) {
    results.resize(schema.results().size());
    rooms.resize(schema.results().size());
    gives_results.assign(schema.results().size(), false);
  }

  bool is_passed(int i) const { return is_given(i); }
  bool is_given(int i) const {
    const Parameter& parameter = at(i);
    if (parameter.kind == Parameter::Kind::tensor) return !input(parameter).tensor.is_absent();
    if (parameter.kind != Parameter::Kind::size) return true;
    return signature_.size_kinds[parameter.position - signature_.scalars.count] != core::SizeKind::either;
  }
  Tensor tensor(int i, int, bool) const { return input(at(i)).tensor; }
  std::int64_t integer(int i) const { return drawn_.values.sizes[static_cast<std::size_t>(at(i).position)]; }
  double real(int i) const { return drawn_.values.reals[static_cast<std::size_t>(at(i).position)][0]; }
  bool flag(int i) const {
    const Parameter& parameter = at(i);
    const auto position = static_cast<std::size_t>(parameter.position);
    if (parameter.kind == Parameter::Kind::request) return drawn_.requests[position];
    if (parameter.kind == Parameter::Kind::size_flag) return drawn_.size_flags[position];
    return drawn_.values.sizes[position] != 0;
  }
  std::int64_t choice(int i, const core::Scalar&) const { return integer(i); }
  std::vector<std::int64_t> integers(int i, std::int64_t, bool) const {
    return drawn_.values.vectors[static_cast<std::size_t>(at(i).position)];
  }
  std::vector<double> reals(int i, std::int64_t) const {
    return drawn_.values.reals[static_cast<std::size_t>(at(i).position)];
  }
  bool has_out(int r) const { return gives_results[static_cast<std::size_t>(r)]; }
  Tensor out(int r, int) const { return results[static_cast<std::size_t>(r)].tensor; }
  Tensor new_result(int r, int, DType dtype, const std::int64_t* shape, int rank) {
    OwnedTensor& result = results[static_cast<std::size_t>(r)] = OwnedTensor(dtype, shape, rank);
    std::memset(result.memory.data(), 0x5A, result.memory.size() * 8);
    rooms[static_cast<std::size_t>(r)] = result;
    return result.tensor;
  }
  void no_result(int r, int, DType) { results[static_cast<std::size_t>(r)] = {}; }
  void check_rows(int) const {}
  void shorten(int r, Tensor& tensor, std::int64_t rows) {
    tensor.shape[0] = results[static_cast<std::size_t>(r)].tensor.shape[0] = rows;
  }
  core::CallerNames names() const {
    static constexpr core::Renames kOwnNames;
    return {.op = signature_.op, .renames = kOwnNames};
  }
  template <class Body>
  void run(const Body& body, bool is_last) {
    const core::CallDetails details{.steps = &steps_, .is_last = is_last};
    body(details.caller(context_));
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::bad_param, core::concat(signature_.op, ": ", why));
  }

  std::vector<OwnedTensor> results;
  std::vector<OwnedTensor> rooms;  // the new results before they are shortened
  std::vector<bool> gives_results;

 private:
  const Parameter& at(int i) const { return schema_.parameters()[static_cast<std::size_t>(i)]; }
  const OwnedTensor& input(const Parameter& parameter) const {
    return drawn_.inputs[static_cast<std::size_t>(parameter.position)];
  }

  const Schema& schema_;
  const core::Signature& signature_;
  const Drawn& drawn_;
  Context& context_;
  core::Steps steps_;
};

}  // namespace turnout::bindings
