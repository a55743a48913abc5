// The parameters and results of an operator in a binding, derived from its Signature.
//
// The order of parameters is the same in every binding: inputs in the Signature's order, scalars, then sizes
// that no input determines. Parameters without a default precede those with one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/signature.h"

namespace turnout::bindings {

// How callers of a binding pass arguments.
enum class Convention : std::uint8_t {
  // Operators write to no argument, and take what their gradients need: torch, exported models.
  functional,
  // Operators write to an argument if a flag is set: see core::written_if().
  in_place,
};

struct Parameter {
  enum class Kind : std::uint8_t {
    tensor,
    scalar,
    size,
    size_flag,    // a flag from which the operator finds a size
    request,      // a flag that asks for an optional result
    unused,       // a tensor that only a gradient needs
    unused_flag,  // likewise
  };

  Kind kind;
  std::string_view name;
  int position;  // in the Signature's list of its kind; for a request, that of the result
  bool has_default;
};

class Schema {
 public:
  explicit Schema(const core::Signature& signature, Convention convention = Convention::functional);

  const core::Signature& signature() const { return signature_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // Positions of the results in the Signature's arguments.
  const std::vector<int>& results() const { return results_; }
  // Whether results keep the content of a given `out`: see core::fill().
  bool has_fill() const { return has_fill_; }
  // Whether the operator has a size that neither the caller nor a result determines.
  bool finds_sizes() const { return finds_sizes_; }

  // The schema as torch writes it: "row_norms(Tensor tokens, float eps=0.) -> Tensor".
  std::string text() const;

 private:
  bool is_determined(int name) const;  // by a shape of a required input
  bool is_extent(int name) const;      // of a result
  bool is_parameter(int scalar) const;

  const core::Signature& signature_;
  const Convention convention_;
  std::vector<Parameter> parameters_;
  std::vector<int> results_;
  bool has_fill_ = false;
  bool finds_sizes_ = false;
};

}  // namespace turnout::bindings
