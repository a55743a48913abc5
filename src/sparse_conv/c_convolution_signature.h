// The arguments that the C functions of the convolutions accept, and the order of their checks.
#pragma once

#include <algorithm>
#include <span>

#include "core/draft.h"
#include "sparse_conv/convolution.h"
#include "sparse_conv/signature.h"
#include "turnout/mluop/mlu_op.h"

namespace turnout::families::sparse_conv {

using namespace core::grammar;
using core::concat;
using core::kLargeElements;
using core::Slot;
using core::value_name;

// The order of kernel, input channels and output channels in a layout of filters. The value is the position
// of the kernel's first dimension.
enum class Form : std::uint8_t { kernel_first, channels_last, channels_first };

// -- checks -------------------------------------------------------------------------------------------------

inline void refuse_inverse(const Arguments& arguments, const Positions& at) {
  if (arguments.size(at[0]) != 0)
    arguments.fail(ErrorCode::not_supported, concat("inverse is ", arguments.size(at[0]), ", expected 0"));
}

// The counts, which have no descriptor, are checked before large tensors are rejected. If a kernel beyond
// this size makes a tensor too large, its counts are not read, because the caller may not have that many.
inline constexpr std::int64_t kLargestKernel = 4096;  // of mluOpGetIndicePairs

inline std::span<const std::int64_t> counts_of(const Arguments& arguments, int indice_num) {
  const Slot& slot = arguments.slot(indice_num);
  const std::int64_t count = slot.shape[0];
  bool is_large = false;
  for (int i = 0; i < arguments.signature().arguments.count; ++i)
    is_large |= arguments.slot(i).elements() >= kLargeElements;
  if (count <= 0 || (count > kLargestKernel && is_large)) return {};
  return {static_cast<const std::int64_t*>(slot.data), static_cast<std::size_t>(count)};
}

// Whether filters of this rank may have the layout: layouts with a depth have five dimensions, ARRAY four or
// five, the others four.
inline bool fits_layout(std::int64_t layout, int rank) {
  if (layout == MLUOP_LAYOUT_ARRAY) return true;
  return rank == (layout == MLUOP_LAYOUT_NDHWC || layout == MLUOP_LAYOUT_NCDHW ? 5 : 4);
}

inline void check_layout(const Arguments& arguments, const Positions& at) {
  const int rank = arguments.slot(at[0]).rank;
  const std::int64_t layout = arguments.size(at[1]);
  if (!fits_layout(layout, rank))
    arguments.fail(ErrorCode::bad_param, concat("filters has ", std::int64_t{rank}, " dimensions, expected ",
                                                std::int64_t{9 - rank}, " with filters_layout ",
                                                value_name(arguments.signature().scalars[at[1]], layout)));
}

// MLU-OPS checks the signs of the counts before shapes are known to agree. This reads only as many counts as
// both filters and indice_pairs have offsets, and none of a kernel beyond kLargestKernel.
template <Form kForm>
void refuse_negative_counts(const Arguments& arguments, const Positions& at) {
  const Slot &filters = arguments.slot(at[1]), &counts = arguments.slot(at[0]);
  std::int64_t volume = fits_layout(arguments.size(at[2]), filters.rank) ? 1 : 0;
  for (int d = 0; d < filters.rank - 2 && volume <= kLargestKernel; ++d) {
    const std::int64_t extent = filters.shape[d + static_cast<int>(kForm)];
    volume *= std::clamp<std::int64_t>(extent, 0, kLargestKernel + 1);
  }
  if (volume > kLargestKernel) return;
  for (std::int64_t k = 0; k < std::min(counts.shape[0], volume); ++k) {
    const std::int64_t count = static_cast<const std::int64_t*>(counts.data)[k];
    if (count < 0)
      arguments.fail(ErrorCode::bad_param, concat("indice_num[", k, "] is ", count, ", expected 0 or more"));
  }
}

inline void check_same_dtypes(const Arguments& arguments, const Positions& at) {
  const DType first = arguments.slot(at[0]).dtype;
  for (int i = 1; i < at.count; ++i) {
    const DType other = arguments.slot(at[i]).dtype;
    if (other != first)
      arguments.fail(ErrorCode::bad_param, concat(arguments.signature().arguments[at[i]].name, ".dtype is ",
                                                  name_of(other), ", expected ", name_of(first), ", that of ",
                                                  arguments.signature().arguments[at[0]].name));
  }
}

// Checks that counts are within 0 .. the rows of each tensor that `at` names from the second on, since there
// cannot be more distinct pairs.
inline void check_counts(const Arguments& arguments, const Positions& at) {
  std::int64_t k = 0;
  for (const std::int64_t count : counts_of(arguments, at[0])) {
    for (int i = 1; i < at.count; ++i) {
      const std::int64_t rows = arguments.slot(at[i]).shape[0];
      if (count < 0 || count > rows)
        arguments.fail(ErrorCode::bad_param,
                       concat("indice_num[", k, "] is ", count, ", expected 0 .. ", rows, ", the rows of ",
                              arguments.signature().arguments[at[i]].name));
    }
    ++k;
  }
}

inline void check_gradient_of_submanifold(const Arguments& arguments, const Positions& at) {
  if (arguments.size(at[0]) == 0) return;
  const std::int64_t rows = arguments.size(at[1]), out_rows = arguments.size(at[2]);
  if (rows != out_rows)
    arguments.fail(ErrorCode::bad_param, concat("output_grad.shape[0] is ", out_rows,
                                                " with sub_m, expected ", rows, ", the rows of input_grad"));
  const std::int64_t offsets = arguments.slot(at[3]).shape[0];
  if (offsets % 2 == 0)
    arguments.fail(ErrorCode::bad_param,
                   concat("kd * kh * kw is ", offsets, " with sub_m, expected an odd number"));
  const std::span<const std::int64_t> counts = counts_of(arguments, at[3]);
  const auto largest = std::max_element(counts.begin(), counts.end());
  if (largest != counts.end() && *largest > counts[counts.size() / 2])
    arguments.fail(ErrorCode::bad_param,
                   concat("indice_num[", largest - counts.begin(), "] is ", *largest,
                          " with sub_m, expected at most that of the centre, indice_num[", offsets / 2,
                          "] = ", counts[counts.size() / 2]));
}

// -- scratch memory -----------------------------------------------------------------------------------------

// The scratch bytes of the plan for tensors whose shapes agree. `from` has the rows that are read, `to` those
// that are added to or multiplied with, `filters` the dtype of all.
template <template <class> class Plan>
std::size_t plan_bytes(const Arguments& arguments, int indice_pairs, int indice_num, int from, int to) {
  const auto tensor = [&](int i) {
    const Slot& slot = arguments.slot(i);
    return ConstTensor(slot.data, slot.dtype, slot.shape, slot.rank);
  };
  const Slot &read = arguments.slot(from), &added = arguments.slot(to);
  const Pairs pairs = sum_pairs(tensor(indice_pairs), tensor(indice_num), {"", 0, read.shape[0]},
                                {"", 1, added.shape[0]}, false);
  const ConvolutionShape shape{read.dtype, read.shape[1], added.shape[1]};
  return pairs.scratch_bytes() +
         Plan<float>(pairs, shape, arguments.threads(), arguments.isa()).scratch_bytes();
}
inline std::size_t convolution_bytes(const Arguments& arguments, const Positions& at) {
  return plan_bytes<ConvolutionPlan>(arguments, at[0], at[1], at[2], at[3]);
}
inline std::size_t filter_gradient_bytes(const Arguments& arguments, const Positions& at) {
  return plan_bytes<FilterGradientPlan>(arguments, at[0], at[1], at[2], at[3]);
}

// -- signatures ---------------------------------------------------------------------------------------------

inline constexpr auto kBad = ErrorCode::bad_param, kUnsupported = ErrorCode::not_supported;

// The last steps of each list are only for the operator, not for its query.
inline constexpr int kOperatorSteps = 2;
template <std::size_t kCount>
consteval std::span<const StepSpec> of_query(const StepSpec (&steps)[kCount]) {
  return std::span(steps).first(kCount - kOperatorSteps);
}

inline constexpr StepSpec kForwardSteps[] = {
    {Check::present},
    {Check::dtypes},
    {Check::scalars, kBad, "inverse sub_m"},
    {Check::data, kUnsupported, "inverse"},
    {Check::scalars, kUnsupported, "filters_layout"},
    {Check::ranks, kBad, "features indice_pairs features_out"},
    {Check::shapes, kBad, "indice_pairs.2"},
    {Check::rules, kUnsupported, "limit"},
    {Check::ranks, kUnsupported, "filters"},
    {Check::contiguous, kUnsupported},
    {Check::large, kUnsupported},
    {Check::scalars, kBad, "num_act_out"},
    {Check::shapes, kBad, "filters features indice_pairs indice_num features_out"},
    {Check::data, kBad, "indice_num"},
    {Check::any_empty},
    {Check::pointers},
    {Check::workspace}};

// The query has no sub_m.
template <bool kIsQuery>
inline constexpr StepSpec kDataSteps[] = {
    {Check::present},
    {Check::ranks},
    {Check::shapes, kBad, "indice_pairs.1 indice_pairs.2"},
    {Check::rules, kUnsupported, "limit"},
    {Check::dtypes},
    {Check::scalars, kBad, "filters_layout"},
    {Check::contiguous, kUnsupported},
    {Check::scalars, kBad, kIsQuery ? "inverse" : "inverse sub_m"},
    {Check::data, kBad, "negative_count"},
    {Check::data, kUnsupported, "inverse"},
    {Check::data, kBad, "layout"},
    {Check::shapes, kBad, "filters output_grad indice_pairs indice_num input_grad"},
    {Check::data, kBad, kIsQuery ? "indice_num dtypes" : "indice_num sub_m dtypes"},
    {Check::large, kUnsupported},
    {Check::any_empty},
    {Check::pointers},
    {Check::workspace}};

inline constexpr StepSpec kFilterSteps[] = {
    {Check::present},
    {Check::scalars},
    {Check::contiguous, kUnsupported},
    {Check::dtypes},
    {Check::large, kUnsupported},
    {Check::ranks},
    {Check::shapes, kBad, "filters_grad features output_grad indice_pairs indice_num"},
    {Check::rules, kBad, "limit"},
    {Check::any_empty},
    {Check::data, kBad, "indice_num"},
    {Check::pointers},
    {Check::workspace}};

consteval ArgumentSpec c_pairs_argument() {
  return in("indice_pairs", dtypes(DType::i32), "kd * kh * kw, 2, rows");
}
consteval ArgumentSpec c_counts_argument() {
  return by_pointer(in("indice_num", dtypes(DType::i64), "kd * kh * kw"));
}
inline constexpr DTypes kHalfOrFloat = dtypes(DType::f16, DType::f32);
inline constexpr RuleSpec kLimit = {"rows", "1000000", "limit"};
inline constexpr DataCheck kInverse = {"inverse", "inverse is 0", &refuse_inverse, "inverse"};

// By Form.
inline constexpr std::string_view kFilters[] = {"kd, kh, kw, in_channels, out_channels",
                                                "out_channels, kd, kh, kw, in_channels",
                                                "out_channels, in_channels, kd, kh, kw"};
inline constexpr std::string_view kFlatFilters[] = {"kd?, kh, kw, in_channels, out_channels",
                                                    "out_channels, kd?, kh, kw, in_channels",
                                                    "out_channels, in_channels, kd?, kh, kw"};

template <Form kForm>
consteval Draft forward_c(std::string_view op, std::span<const StepSpec> steps) {
  return Draft{
      op,
      "rows kd kh kw in_channels out_channels",
      {scalar("num_act_out", 0), scalar("inverse", 0, 1), scalar("sub_m", 0, 1),
       choice("filters_layout", "NDHWC ARRAY NCDHW", MLUOP_LAYOUT_NDHWC)},
      {in("features", kHalfOrFloat, "rows, in_channels"),
       in("filters", like("features"), kFilters[static_cast<int>(kForm)]), c_pairs_argument(),
       c_counts_argument(), out("features_out", like("features"), "num_act_out, out_channels")},
      {kLimit},
      {kInverse, {"indice_num", "counts are within 0 .. rows", &check_counts, "indice_num features"}},
      steps,
      {&convolution_bytes, "indice_pairs indice_num features features_out"}};
}

template <Form kForm>
consteval Draft backward_data_c(std::string_view op, std::initializer_list<ScalarSpec> scalars,
                                std::initializer_list<DataCheck> checks, std::span<const StepSpec> steps) {
  return Draft{op,
               "out_rows rows kd kh kw in_channels out_channels",
               scalars,
               {in("output_grad", kHalfOrFloat, "out_rows, out_channels"),
                in("filters", kHalfOrFloat, kFlatFilters[static_cast<int>(kForm)]), c_pairs_argument(),
                c_counts_argument(), out("input_grad", kHalfOrFloat, "rows, in_channels")},
               {kLimit},
               checks,
               steps,
               {&convolution_bytes, "indice_pairs indice_num output_grad input_grad"}};
}
inline constexpr ScalarSpec kDataLayout = choice("filters_layout", "NCHW NHWC HWCN NDHWC ARRAY NCDHW");
template <Form kForm>
inline constexpr DataCheck kNegativeCount = {"negative_count", "counts are 0 or more",
                                             &refuse_negative_counts<kForm>,
                                             "indice_num filters filters_layout"};
inline constexpr DataCheck kLayout = {"layout", "filters have as many dimensions as their layout",
                                      &check_layout, "filters filters_layout"};
inline constexpr DataCheck kDataCounts = {"indice_num", "counts are within 0 .. rows and 0 .. out_rows",
                                          &check_counts, "indice_num input_grad output_grad"};
inline constexpr DataCheck kSameDTypes = {"dtypes", "output_grad, filters and input_grad have one dtype",
                                          &check_same_dtypes, "output_grad filters input_grad"};

consteval Draft backward_filter_c(std::string_view op, std::span<const StepSpec> steps) {
  return Draft{
      op,
      "rows out_rows kd kh kw in_channels out_channels",
      {scalar("inverse", 0, 0)},
      {in("features", kHalfOrFloat, "rows, in_channels"),
       in("output_grad", like("features"), "out_rows, out_channels"), c_pairs_argument(), c_counts_argument(),
       out("filters_grad", like("features"), "kd?, kh, kw, in_channels, out_channels")},
      {kLimit},
      {{"indice_num", "counts are within 0 .. rows", &check_counts, "indice_num features"}},
      steps,
      {&filter_gradient_bytes, "indice_pairs indice_num features output_grad"}};
}

template <Form kForm>
struct ForwardQuery {
  static constexpr const Signature& kSignature = signature([] {
    return forward_c<kForm>("mluOpGetIndiceConvolutionForwardWorkspaceSize", of_query(kForwardSteps));
  });
};
template <Form kForm>
struct Forward {
  static constexpr const Signature& kSignature =
      signature([] { return forward_c<kForm>("mluOpIndiceConvolutionForward", kForwardSteps); });
};
template <Form kForm>
struct DataQuery {
  static constexpr const Signature& kSignature = signature([] {
    return backward_data_c<kForm>(
        "mluOpGetIndiceConvolutionBackwardDataWorkspaceSize", {scalar("inverse", 0, 1), kDataLayout},
        {kNegativeCount<kForm>, kInverse, kLayout, kDataCounts, kSameDTypes}, of_query(kDataSteps<true>));
  });
};
template <Form kForm>
struct Data {
  static constexpr const Signature& kSignature = signature([] {
    return backward_data_c<kForm>(
        "mluOpIndiceConvolutionBackwardData", {scalar("inverse", 0, 1), scalar("sub_m", 0, 1), kDataLayout},
        {kNegativeCount<kForm>,
         kInverse,
         kLayout,
         kDataCounts,
         {"sub_m",
          "with sub_m: input_grad has the rows of output_grad, an odd kernel's centre the most pairs",
          &check_gradient_of_submanifold, "sub_m rows out_rows indice_num"},
         kSameDTypes},
        kDataSteps<false>);
  });
};

template <template <Form> class Function>
const Signature& signature_for(Form form) {
  if (form == Form::channels_last) return Function<Form::channels_last>::kSignature;
  if (form == Form::channels_first) return Function<Form::channels_first>::kSignature;
  return Function<Form::kernel_first>::kSignature;
}

}  // namespace turnout::families::sparse_conv
