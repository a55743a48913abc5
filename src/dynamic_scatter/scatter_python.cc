// Python bindings of the functions that reduce rows by an index.
#include <algorithm>
#include <optional>

#include "bindings/python/call.h"
#include "core/check.h"
#include "core/draft.h"
#include "dynamic_scatter/dynamic_scatter.h"
#include "dynamic_scatter/signature.h"

namespace turnout::families::dynamic_scatter {

using namespace core;
using namespace bindings;

void bind_scatter(nb::module_& module);

namespace {

// What Python's functions have: two scalars more than those of C++, where the result says how many groups
// there are.
inline constexpr ScalarSpec kDim = scalar("dim", -kMaxRank, kMaxRank - 1);
inline constexpr ScalarSpec kDimSize = scalar("dim_size", 0, kMaxPoints);
inline constexpr const Signature& kSumOfPython = signature([] {
  return Draft{
      "scatter_sum",
      "rows channels",
      {kDim, kDimSize},
      {in("src", kNumbers, "rows, channels"), kRowIndex, out("out", like("src"), "dim_size, channels")}};
});
inline constexpr const Signature& kMeanOfPython = signature([] {
  return Draft{
      "scatter_mean",
      "rows channels",
      {kDim, kDimSize},
      {in("src", kFloats, "rows, channels"), kRowIndex, out("out", like("src"), "dim_size, channels")}};
});
inline constexpr const Signature& kMaxOfPython = signature([] {
  return Draft{
      "scatter_max",
      "rows channels",
      {kDim, kDimSize},
      {in("src", kNumbers, "rows, channels"), kRowIndex, out("out", like("src"), "dim_size, channels"),
       out("argmax", kIndices, "dim_size, channels")}};
});

constexpr PythonFunction kSum{"scatter_sum", kSumOfPython};
constexpr PythonFunction kMean{"scatter_mean", kMeanOfPython};
constexpr PythonFunction kMax{"scatter_max", kMaxOfPython};
constexpr PythonFunction kSumBackward{"scatter_sum_backward", kScatterSumBackward, "grad_src=out"};
constexpr PythonFunction kMeanBackward{"scatter_mean_backward", kScatterMeanBackward, "grad_src=out"};
constexpr PythonFunction kMaxBackward{"scatter_max_backward", kScatterMaxBackward, "grad_src=out"};

// [rows, ..] as [rows, channels], where it lies row by row in memory. Operators of torch have [rows,
// channels] alone.
template <class Data>
BasicTensor<Data> as_rows(const BasicTensor<Data>& given, bool use_torch_threads = false) {
  const bool is_rank = given.rank >= 1 && given.rank <= kMaxRank;
  if (use_torch_threads || !is_rank || !Slot(given).is_contiguous())
    return given;  // for the checks to refuse
  std::int64_t channels = 1;
  for (int d = 1; d < given.rank; ++d) channels = extent_product(channels, given.shape[d]);
  return {given.data, given.dtype, {given.shape[0], channels}};
}

// The shape of `src` with this many rows.
ConstTensor with_rows(const ConstTensor& src, std::int64_t rows) {
  ConstTensor result = src;
  result.shape[0] = rows;
  return result;
}

// A result that has all extents of `like` but the first. One that is given says how many rows there are, else
// count() does.
struct Like {
  std::string_view name;
  const ConstTensor& tensor;
};
template <class Count>
Tensor grouped_out(PythonCall& call, const PythonCall::Place& where, std::string_view name, const Like& like,
                   const Count& count, std::optional<DType> dtype = {}) {
  const ConstTensor& wanted = like.tensor;
  if (where.object.is_none()) return as_rows(call.out(where, with_rows(wanted, count()), dtype));
  const Tensor given = call.out(where, with_rows(wanted, 0), dtype);
  if (wanted.rank < 1 || wanted.rank > kMaxRank) return given;  // for the checks to refuse
  if (given.rank != wanted.rank || !std::equal(given.shape + 1, given.shape + given.rank, wanted.shape + 1))
    call.refuse(concat(name, " has shape ", shape_text(given), ", expected that of ", like.name, ", ",
                       shape_text(wanted), ", with any number of rows"));
  return as_rows(given);
}

// dim_size, or as many groups as the index has.
std::int64_t groups_of(const PythonCall& call, const ConstTensor& index, nb::handle dim_size) {
  std::int64_t groups = 0;
  if (dim_size.is_none()) {
    call.prepare([&](const Caller& caller) { groups = scatter_dim_size(index, caller); });
    return groups;
  }
  groups = call.integer(dim_size, "dim_size");
  if (groups < 0 || groups > kMaxPoints)
    call.refuse(concat("dim_size is ", groups, ", expected 0 .. ", kMaxPoints));
  return groups;
}

// A result that is given has as many rows as dim_size says.
void check_groups(const PythonCall& call, std::string_view name, const Tensor& out, nb::handle dim_size) {
  if (dim_size.is_none() || out.rank < 1) return;
  const std::int64_t groups = call.integer(dim_size, "dim_size");
  if (out.shape[0] != groups)
    call.refuse(concat(name, ".shape[0] is ", out.shape[0], ", expected ", groups, " = dim_size"));
}

using Scatter = void (*)(const ConstTensor&, const ConstTensor&, const Tensor&, const Caller&);

nb::object scatter(const PythonFunction& function, Scatter reduce, nb::handle src, nb::handle index,
                   nb::handle dim_size, nb::handle out, bool use_torch_threads) {
  PythonCall call(function, use_torch_threads);
  const ConstTensor from = call.in(src);
  const ConstTensor rows = call.in(index);
  const Tensor to = grouped_out(call, call.place(out), "out", {"src", from},
                                [&] { return groups_of(call, rows, dim_size); });
  check_groups(call, "out", to, dim_size);
  call.run([&](const Caller& caller) { reduce(as_rows(from, use_torch_threads), rows, to, caller); });
  return call.result();
}
nb::object sum(nb::handle src, nb::handle index, nb::handle dim_size, nb::handle out,
               bool use_torch_threads) {
  return scatter(kSum, &scatter_sum, src, index, dim_size, out, use_torch_threads);
}
nb::object mean(nb::handle src, nb::handle index, nb::handle dim_size, nb::handle out,
                bool use_torch_threads) {
  return scatter(kMean, &scatter_mean, src, index, dim_size, out, use_torch_threads);
}

nb::object max(nb::handle src, nb::handle index, nb::handle dim_size, nb::handle out,
               bool use_torch_threads) {
  PythonCall call(kMax, use_torch_threads);
  const ConstTensor from = call.in(src);
  const ConstTensor rows = call.in(index);
  const auto to = call.outs(out);
  const PythonCall::Place places[] = {call.place(to[0]), call.place(to[1])};
  // The first that is given says how many groups there are for the other.
  std::int64_t groups = -1;
  const auto count = [&] { return groups < 0 ? groups_of(call, rows, dim_size) : groups; };
  Tensor values, argmax;
  const auto make_values = [&] {
    values = grouped_out(call, places[0], "out", {"src", from}, count);
    groups = values.shape[0];
  };
  if (!to[0].is_none()) make_values();
  argmax = grouped_out(call, places[1], "argmax", {"src", from}, count, DType::i64);
  groups = argmax.shape[0];
  if (to[0].is_none()) make_values();
  check_groups(call, "out", values, dim_size);
  call.run([&](const Caller& caller) {
    scatter_max(as_rows(from, use_torch_threads), rows, values, argmax, caller);
  });
  return call.result();
}

nb::object scatter_backward(const PythonFunction& function, Scatter spread, nb::handle grad_out,
                            nb::handle index, nb::handle out, bool use_torch_threads) {
  PythonCall call(function, use_torch_threads);
  const ConstTensor grad = call.in(grad_out);
  const ConstTensor rows = call.in(index);
  const Tensor to =
      grouped_out(call, call.place(out), "out", {"grad_out", grad}, [&] { return rows.shape[0]; });
  call.run([&](const Caller& caller) { spread(as_rows(grad, use_torch_threads), rows, to, caller); });
  return call.result();
}
nb::object sum_backward(nb::handle grad_out, nb::handle index, nb::handle out, bool use_torch_threads) {
  return scatter_backward(kSumBackward, &scatter_sum_backward, grad_out, index, out, use_torch_threads);
}
nb::object mean_backward(nb::handle grad_out, nb::handle index, nb::handle out, bool use_torch_threads) {
  return scatter_backward(kMeanBackward, &scatter_mean_backward, grad_out, index, out, use_torch_threads);
}

nb::object max_backward(nb::handle grad_out, nb::handle index, nb::handle argmax, nb::handle out,
                        bool use_torch_threads) {
  PythonCall call(kMaxBackward, use_torch_threads);
  const ConstTensor grad = call.in(grad_out);
  const ConstTensor rows = call.in(index);
  const ConstTensor from = call.in(argmax);
  const Tensor to =
      grouped_out(call, call.place(out), "out", {"grad_out", grad}, [&] { return rows.shape[0]; });
  call.run([&](const Caller& caller) {
    scatter_max_backward(as_rows(grad, use_torch_threads), rows, as_rows(from, use_torch_threads), to,
                         caller);
  });
  return call.result();
}

}  // namespace

void bind_scatter(nb::module_& module) {
  for (const PythonFunction* function : {&kSum, &kMean, &kMax, &kSumBackward, &kMeanBackward, &kMaxBackward})
    list_function(*function);
  define(module, "scatter_sum", &sum);
  define(module, "scatter_mean", &mean);
  define(module, "scatter_max", &max);
  define(module, "scatter_sum_backward", &sum_backward);
  define(module, "scatter_mean_backward", &mean_backward);
  define(module, "scatter_max_backward", &max_backward);
}

}  // namespace turnout::families::dynamic_scatter
