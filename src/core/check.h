// Checks the arguments of one call against its Signature.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "core/names.h"
#include "core/signature.h"
#include "turnout/context.h"
#include "turnout/tensor.h"

namespace turnout::core {

// One argument of one call: the common form of tensors, C descriptors and Python arrays.
struct Slot {
  const void* data = nullptr;
  const std::int64_t* shape = nullptr;
  const std::int64_t* stride = nullptr;
  const char* layout = nullptr;  // the name of the layout in a C descriptor, for the log
  std::int32_t rank = 0;
  DType dtype = DType::f32;
  bool present = false;
  bool is_array = true;  // whether that layout is LAYOUT_ARRAY

  Slot() = default;  // an absent optional argument
  template <class Data>
  Slot(const BasicTensor<Data>& t)  // NOLINT: a tensor is a slot
      : data(t.data),
        shape(t.shape),
        stride(t.stride),
        rank(t.rank),
        dtype(t.dtype),
        present(!t.is_absent()) {}
  Slot(const void* data_, DType dtype_, const std::int64_t* shape_, const std::int64_t* stride_, int rank_,
       const char* layout_ = nullptr)
      : data(data_),
        shape(shape_),
        stride(stride_),
        layout(layout_),
        rank(rank_),
        dtype(dtype_),
        present(true) {}

  std::int64_t elements() const;  // saturates; 0 for a negative extent
  // True if an extent is 0, or if there is no shape. Negative extents fail the check of shapes.
  bool is_empty() const;
  bool is_contiguous() const;
};

struct ScalarValue {
  const std::int64_t* values = nullptr;  // of a vector of integers
  const double* reals = nullptr;         // of a vector of floating-point numbers
  std::int64_t value = 0;                // the single value, or the length of the vector
  double real = 0;                       // the single value, if it is a floating-point number

  ScalarValue() = default;
  template <class T>
  requires(!std::is_floating_point_v<T> && !requires(T t) { t.data(); }) ScalarValue(T v)
      : value(static_cast<std::int64_t>(v)) {}  // NOLINT: integers, bools and enums are scalars
  ScalarValue(double v) : real(v) {}            // NOLINT: so are floating-point numbers
  ScalarValue(std::span<const double> v)        // NOLINT: and vectors of them
      : reals(v.data()), value(static_cast<std::int64_t>(v.size())) {}
  ScalarValue(const double* data, std::int64_t count) : reals(data), value(count) {}
  ScalarValue(const std::int64_t* data, std::int64_t count) : values(data), value(count) {}
};

// Whether the memory ranges of two arguments overlap. Absent and empty arguments have no memory.
bool share_memory(const Slot& a, const Slot& b);

// Memory that the caller lends to a call.
struct Workspace {
  void* data = nullptr;
  std::size_t size = 0;
};

inline constexpr std::int64_t kLargeElements = std::int64_t{1}
                                               << 31;  // Check::large refuses tensors with this many elements

inline constexpr std::int64_t kUnbound = -1;
inline constexpr std::int64_t kAbsent = -2;  // bound, but the optional dimension is absent and counts as 1
// An extent that is unknown while a call is traced. check_metadata() accepts it everywhere.
inline constexpr std::int64_t kUnknownExtent = std::numeric_limits<std::int64_t>::min();

// The arguments of a call. check() runs the signature's steps and binds every size.
class Arguments {
 public:
  // threads, isa: those of the context. Only the size of the scratch memory depends on them.
  Arguments(const Signature& signature, const Slot* slots, int slot_count, const ScalarValue* scalars,
            int scalar_count, const Workspace& workspace = {}, int threads = 1, Isa isa = Isa::best,
            const CallerNames* names = nullptr);

  // Runs the steps in order and throws Error at the first failure. Returns false if there is nothing to do.
  bool check();
  // Runs the steps before Check::handle, if the signature has that step.
  void check_before_handle();
  // Runs the steps that need no memory: presence, ranks, dtypes, scalars, shapes and rules. Outputs may be
  // absent and extents may be kUnknownExtent. For callers that trace a call instead of running it.
  void check_metadata();

  // The same in one pass, for extents that passes_plain_shapes() can decide. Returns false, and binds
  // nothing, if check_metadata() must decide.
  bool passes_plain_metadata();
  // Checks only whether ranks and extents fit together, and binds the sizes. Returns false, and binds
  // nothing, if check_metadata() must decide.
  bool passes_plain_shapes();

  // Sets a size that no shape determines, before the checks. Messages then use its name, not an extent.
  void bind(int name, std::int64_t value) {
    sizes_[name] = value;
    given_ |= std::uint32_t{1} << name;
  }
  // Whether a shape, a scalar or bind() has determined the size.
  bool is_bound(int name) const { return sizes_[name] != kUnbound; }
  // Computes the shape of an output from the bound sizes and returns its rank. An extent that they do not
  // determine is kUnbound.
  int result_shape(int argument, std::int64_t* shape) const;

  const Signature& signature() const { return signature_; }
  // As the caller spells them.
  std::string_view op() const { return names_ == nullptr ? signature_.op : names_->op; }
  std::string_view name(std::string_view own) const { return names_ == nullptr ? own : names_->renames(own); }
  std::string_view name(int argument) const { return name(signature_.arguments[argument].name); }
  const Slot& slot(int argument) const { return slots_[argument]; }
  // A size or scalar by its position, Signature::size("hidden"); an absent dimension is 1.
  std::int64_t size(int name) const { return sizes_[name] == kAbsent ? 1 : sizes_[name]; }
  const ScalarValue& scalar(int i) const { return scalars_[i]; }
  int threads() const { return threads_; }
  Isa isa() const { return isa_; }
  // Where the value of a size or scalar is from: "tokens.shape[0]", or the scalar's name.
  std::string size_text(int name) const { return size_text(name, source_of(name)); }
  // The caller's name of a dtype. A value that is not a DType is shown as a number.
  std::string dtype_text(DType dtype) const;
  // Size of a workspace that holds the plan's scratch memory at any alignment; 0 if the plan needs none.
  std::size_t workspace_bytes() const;

  // "gates f32[3], ..., capacity 2" for the log. If a C function called the operator, these are the arguments
  // of the C function. A C descriptor's layout follows the shape.
  std::string describe() const;
  [[noreturn]] void fail(ErrorCode code, const std::string& what) const;  // "op: what"

 private:
  // Whether the arguments pass all steps but those of data and workspace, in any order, and all have
  // elements. Returns false if the steps must decide, one by one; they find the same sizes.
  bool passes_all_but_data();
  bool passes_rules_and_lengths() const;
  bool may_be_absent(const Argument& argument) const;
  bool runs(const Step& step) const { return step.when < 0 || scalars_[step.when].value == step.value; }
  bool run(const Step& step);  // returns false if there is nothing to do
  bool binds_extents(const Slot& slot, const Argument& argument);
  void check_argument(const Step& step, int argument);
  void check_absent(const Step& step, const Argument& argument, const void* data) const;
  void check_shape(const Step& step, int argument, int only_dim);
  std::int64_t bind_factor(const Step& step, int argument, int dim, int position, std::int64_t actual);
  template <class Push>
  void push_folded(const Extent& extent, const Push& push) const;
  void check_factors(const Step& step, int argument, const Extent& extent, int position, int spread) const;
  void check_spread(const Step& step, int argument, const Extent& extent, int position, int spread) const;
  // Throws for an extent that disagrees with those of other arguments. The message blames the minority.
  [[noreturn]] void refuse_extent(const Step& step, int argument, int dim, std::int64_t actual,
                                  std::int64_t expected) const;
  [[noreturn]] void refuse_rule(const Step& step, const Rule& rule, std::int64_t left,
                                std::int64_t right) const;
  // An extent of an argument that states the value of a size.
  struct SizeSource {
    int argument, dim, position;  // dim: in the signature; position: in the tensor
    std::int64_t size;
  };
  std::optional<SizeSource> source_in(int argument, int name) const;
  std::optional<SizeSource> source_of(int name) const;  // the source of the bound value
  // The number of tensor dimensions that dimension `dim` of the signature spans.
  int spread_of(int argument, int dim) const;
  std::string place_text(int argument, int position, int spread = 1) const;
  std::string place_text(const SizeSource& source) const {
    return place_text(source.argument, source.position, spread_of(source.argument, source.dim));
  }
  std::string size_text(int name, const std::optional<SizeSource>& said) const;
  // What a caller computes an extent from: "logits.shape[2] - 1". `said` is the source of its only size.
  std::string origin_text(const Extent& extent, const std::optional<SizeSource>& said) const;
  // "10 = logits.shape[2] - 1"; only the value if no name determines it.
  std::string value_text(const Extent& extent, std::int64_t value) const;
  bool is_transposed(int argument, int name, std::int64_t size) const;
  bool is_surely_transposed(int argument, int name, std::int64_t size) const;
  void check_scalar(const Step& step, int i) const;
  void check_vector_lengths(const Step& step) const;
  void check_rules(const Step& step) const;
  void check_workspace(const Step& step) const;
  void check_overlap(const Step& step) const;
  bool is_nothing_to_do(const Step& step) const;
  std::int64_t evaluate(const Extent& extent) const;  // kUnbound if a name has no value yet

  const Signature& signature_;
  const Slot* slots_;
  const ScalarValue* scalars_;
  Workspace workspace_;
  int threads_;
  Isa isa_;
  const CallerNames* names_;
  std::int64_t sizes_[kMaxNames];
  static_assert(kMaxNames <= 32);
  std::uint32_t given_ = 0;  // bits of the sizes that bind() has set
  bool only_metadata_ = false;
};

// "x[1, 0, 2]", for an element by its position in row-major order.
std::string element_text(std::string_view name, const Slot& slot, std::int64_t position);

// How many elements a vector scalar must have by the shapes of the present arguments; kUnbound if they do
// not determine it, or if it exceeds kMaxRank, which the checks reject.
std::int64_t length_of(const Signature& signature, const Scalar& vector, const Slot* slots);

// "[choices?, samples]" and "that of input, or f32", for messages and argument tables.
std::string dims_text(const Argument& argument);
std::string dtypes_text(const Signature& signature, const Argument& argument,
                        const CallerNames* names = nullptr);
std::string shape_text(const Slot& slot);                               // "[2, 3]"
std::string_view value_name(const Scalar& scalar, std::int64_t value);  // the name of an enum value
std::string range_text(const Scalar& scalar);                           // "1 .. 64", "a finite number"
// The position of the first value that is not in the scalar's range, or -1.
std::int64_t first_out_of_range(const Scalar& scalar, const ScalarValue& given);

std::string concat_parts(std::initializer_list<std::string> parts);
inline std::string text_of(std::string_view s) { return std::string(s); }
inline std::string text_of(std::int64_t v) { return std::to_string(v); }
// Shortest decimal that round-trips (std::to_chars). Has its own name because a text_of(double) overload
// would make calls with integers ambiguous.
std::string number_text(float v);
std::string number_text(double v);
// concat("a", 3, "b") == "a3b", for error messages. Only failing calls use it, so it may allocate.
template <class... T>
std::string concat(const T&... parts) {
  return concat_parts({text_of(parts)...});
}

}  // namespace turnout::core
