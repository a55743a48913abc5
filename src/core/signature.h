// What an operator accepts, as data. One constexpr Signature per operator drives its checks and error
// messages, the negative tests, the signature fuzzer, the argument tables of the docs, the log and the
// bindings. It is written as a Draft; core/draft.h explains the grammar.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "core/dtypes.h"
#include "turnout/error.h"

namespace turnout::core {

// Capacities of a Draft, which exists only during compilation, and of the arrays of one call.
inline constexpr int kMaxNames = 32;
inline constexpr int kMaxArguments = 24;
inline constexpr std::int64_t kSizeMax = std::numeric_limits<std::int64_t>::max();

// A non-owning array.
template <class T>
struct View {
  const T* items = nullptr;
  int count = 0;

  constexpr const T& operator[](int i) const { return items[i]; }
  constexpr const T* begin() const { return items; }
  constexpr const T* end() const { return items + count; }
};

// A list of at most N values.
template <class T, int N>
struct List {
  std::array<T, N> items{};
  int count = 0;

  constexpr void push(const T& item) {
    if (count == N) throw "too many entries";  // during compilation, where a throw is an error
    items[static_cast<std::size_t>(count++)] = item;
  }
  constexpr const T& operator[](int i) const { return items[static_cast<std::size_t>(i)]; }
  constexpr const T* begin() const { return items.data(); }
  constexpr const T* end() const { return items.data() + count; }
};

// factor * product of names + add; products saturate.
struct Extent {
  List<std::int8_t, 3> names;
  std::int64_t factor = 1;
  std::int64_t add = 0;
  bool optional = false;
  bool is_folded = false;  // a tensor may spread it over several dimensions
  std::string_view text;
};

enum class Role : std::uint8_t { in, out, inout };

struct Argument {
  std::string_view name;
  Role role = Role::in;
  bool optional = false;
  std::int8_t required_with = -1;  // an optional argument is required if that argument is present,
  std::int8_t required_when = -1;  // or if that scalar has the value `when`
  std::int64_t when = 0;
  DTypes dtypes = 0;
  std::int8_t like = -1;          // also (or only, if dtypes is empty) the dtype of that argument, if present
  bool is_lane = false;           // its dtype is the lane_dtype() of that argument instead
  std::int8_t may_overlap = -1;   // an output that may share memory with that argument
  std::int8_t written_if = -1;    // an inout argument that is only read unless that flag is set
  bool by_pointer = false;        // a C function takes it as a pointer without a descriptor
  bool has_no_default = false;    // an optional input for which callers of a binding pass None
  bool is_shortened = false;      // a result of which a call returns the first rows; the function counts them
  std::string_view request = {};  // an optional result: callers of a binding request it with this flag
  bool is_cpp_only = false;       // an optional input that bindings do not have
  std::int8_t new_dtype = -1;     // of a result that a binding allocates; -1: the first of `dtypes`
  View<Extent> dims = {};
  constexpr bool is_output() const { return role != Role::in; }
  // The dtype of a new result that is not `like` another argument.
  constexpr DType default_dtype() const {
    return static_cast<DType>(new_dtype >= 0 ? new_dtype : std::countr_zero(dtypes));
  }
};

// The dtype in which elements of `dtype` are computed.
constexpr DType lane_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

struct Scalar {
  std::string_view name;
  std::int64_t min = 0;
  std::int64_t max = kSizeMax;
  std::string_view values = {};  // of an enum: the names of min, min + 1, ...
  bool is_vector = false;        // one value per element, each within min .. max
  bool is_flag = false;          // a bool
  bool is_code = false;          // an enum that callers pass as a number, not by name
  bool is_fill = false;          // an enum that bindings choose: the first value if `out` is given
  bool is_real = false;          // a floating-point number within least .. most, or a vector of them
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool has_default = false;
  std::int64_t default_value = 0;  // of each element
  double default_real = 0;
  bool may_be_none = false;  // callers may pass None for the default
  bool is_symbolic = false;  // may be a symbol in a traced call, although no shape has it
  Extent length = {};
};

// What determines a size.
enum class SizeKind : std::uint8_t {
  shapes,                // shapes of inputs or, if no input has it, the caller of a binding
  computed,              // the operator
  either,                // the operator, unless the caller of a binding passes it
  adjusted,              // the operator, from what the caller of a binding passes
  adjusted_or_computed,  // likewise, but the caller may omit it
};

struct Rule {  // left <= right
  Extent left, right;
  std::string_view name;  // used by steps that select rules
};

enum class Check : std::uint8_t {
  handle,          // a C function's handle is not null; without this step, it is checked first
  present,         // required arguments are present
  ranks,           // number of dimensions
  dtypes,          //
  scalars,         // ranges
  shapes,          // extents, and the lengths of vector scalars
  rules,           //
  layout,          // that of a C descriptor is LAYOUT_ARRAY
  contiguous,      // row-major without gaps; empty tensors pass
  large,           // fewer than 2^31 elements
  not_empty,       // at least one element
  any_empty,       // a tensor without elements ends the call: nothing to do
  outputs_empty,   // no output has elements: nothing to do
  workspace_null,  // not null if its size is not 0, even if it is not needed
  workspace,       // at least as large as the plan's scratch memory
  pointers,        // not null, aligned to an element; empty tensors pass
  overlap,         // no output shares memory with another argument, except with Argument::may_overlap
  data,            // the data checks of the signature, which are functions
};

struct Selection {            // an argument, or one dimension of it
  std::int8_t argument = -1;  // in the steps `scalars`, `rules` and `data`: the position of one of these
  std::int8_t dim = -1;
};

struct Step {
  Check check = Check::present;
  ErrorCode code = ErrorCode::bad_param;
  View<Selection> only = {};  // empty: everything, in order
  std::int8_t when = -1;      // if set, the step runs only if that scalar has the value `value`
  std::int64_t value = 0;

  constexpr bool selects_positions() const {
    return check == Check::scalars || check == Check::rules || check == Check::data;
  }
  // Whether the step checks dimension `dim` of the argument at this position (-1: any dimension), or the
  // scalar, rule or data check at this position.
  constexpr bool looks_at(int position, int dim = -1) const {
    if (only.count == 0) return true;
    for (const Selection& one : only)
      if (one.argument == position && (one.dim < 0 || one.dim == dim)) return true;
    return false;
  }
};

class Arguments;
// Positions in Arguments of the names that a function reads, in the order of its list of names.
using Positions = List<std::int8_t, 12>;

// A check of the data, or of scalars beyond their ranges; throws Error. The arguments have passed all earlier
// steps; in the standard order these are all other checks.
struct DataCheck {
  std::string_view name;
  std::string_view text;  // what it expects, for the docs
  void (*check)(const Arguments& arguments, const Positions& at) = nullptr;
  std::string_view looks_at = {};  // names of arguments, scalars and sizes
  Positions at = {};               // of these names
};

// The bytes of scratch memory that the plan needs with Arguments::threads() and isa(), which is the size of a
// workspace. A query that does not check shapes may pass arguments whose shapes disagree and whose sizes are
// unbound.
struct ScratchBytes {
  std::size_t (*bytes)(const Arguments& arguments, const Positions& at) = nullptr;
  std::string_view looks_at = {};
  Positions at = {};
};

// What an operator accepts. The lists are stored by StoredSignature with their exact lengths.
struct Signature {
  std::string_view op;
  View<std::string_view> names;  // the scalars first, then the sizes that shapes bind
  View<SizeKind> size_kinds;     // of these sizes
  View<Scalar> scalars;
  View<Argument> arguments;
  View<Argument> unused;      // inputs that only the gradient of a binding needs
  View<Scalar> unused_flags;  // likewise
  View<Scalar> size_flags;    // flags of bindings that a computed size depends on
  View<Rule> rules;
  View<DataCheck> data_checks;
  View<Step> order;
  ScratchBytes scratch;  // for C functions with a workspace or a query of its size
  // Whether the order makes no difference if all checks pass: a step binds all sizes, no data check precedes
  // it, and no step checks the workspace.
  bool passes_in_any_order = true;

  // The position of an argument, and of a size or scalar, in Arguments. A misspelt name does not compile.
  consteval int argument(std::string_view name) const {
    for (int i = 0; i < arguments.count; ++i)
      if (arguments[i].name == name) return i;
    throw "no such argument";
  }
  consteval int size(std::string_view name) const { return find_size(name); }
  // The position of a flag for sizes among the scalars that find_sizes() of an operator gets.
  consteval int size_flag(std::string_view name) const { return find_size_flag(name); }
  // The same for a Signature that is a template parameter: clang 14 rejects consteval calls on those. Only
  // for the initialization of constexpr variables.
  constexpr int find_size(std::string_view name) const {
    for (int i = 0; i < names.count; ++i)
      if (names[i] == name) return i;
    throw "no such size";
  }
  constexpr int find_size_flag(std::string_view name) const {
    for (int i = 0; i < size_flags.count; ++i)
      if (size_flags[i].name == name) return scalars.count + i;
    throw "no such flag for sizes";
  }
  constexpr bool has_argument(std::string_view name) const {
    for (const Argument& one : arguments)
      if (one.name == name) return true;
    return false;
  }
  // Whether the argument must be contiguous. If not, any strides are allowed.
  constexpr bool needs_contiguous(int position) const {
    for (const Step& step : order)
      if (step.check == Check::contiguous && step.looks_at(position)) return true;
    return false;
  }
};

// -- text ---------------------------------------------------------------------------------------------------

constexpr std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Calls f for each part of `text` between separators.
template <class F>
constexpr void split(std::string_view text, char separator, F&& f) {
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    f(trimmed(text.substr(0, end)));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
}

}  // namespace turnout::core
