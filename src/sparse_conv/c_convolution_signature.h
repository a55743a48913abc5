// What the C functions of the convolutions accept, and in which order they look at it.
#pragma once

#include <span>

#include "core/draft.h"
#include "simd/isa.h"
#include "sparse_conv/convolution.h"
#include "sparse_conv/signature.h"
#include "turnout/mluop/mlu_op.h"

namespace turnout::families::sparse_conv {

using namespace core;

// Where a layout has the kernel, the input channels and the output channels of filters. Only the number of
// dimensions says whether the kernel has a depth.
enum class Form : std::uint8_t { kernel_first, channels_last, channels_first };

// -- checks -------------------------------------------------------------------------------------------------

inline void refuse_inverse(const Arguments& arguments, const Positions& at) {
  if (arguments.size(at[0]) != 0)
    arguments.fail(ErrorCode::not_supported, concat("inverse is ", arguments.size(at[0]), ", expected 0"));
}

inline const std::int64_t* counts_of(const Arguments& arguments, int indice_num) {
  return static_cast<const std::int64_t*>(arguments.slot(indice_num).data);
}

// Counts are within 0 .. the rows of each tensor that `at` names from the second on: that many different
// pairs there can be.
inline void check_counts(const Arguments& arguments, const Positions& at) {
  const std::int64_t* counts = counts_of(arguments, at[0]);
  for (std::int64_t k = 0; k < arguments.slot(at[0]).shape[0]; ++k) {
    for (int i = 1; i < at.count; ++i) {
      const std::int64_t rows = arguments.slot(at[i]).shape[0];
      if (counts[k] < 0 || counts[k] > rows)
        arguments.fail(ErrorCode::bad_param,
                       concat("indice_num[", k, "] is ", counts[k], ", expected 0 .. ", rows,
                              ", the rows of ", arguments.signature().arguments[at[i]].name));
    }
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
  const std::int64_t *counts = counts_of(arguments, at[3]), centre = counts[offsets / 2];
  for (std::int64_t k = 0; k < offsets; ++k)
    if (counts[k] > centre)
      arguments.fail(ErrorCode::bad_param, concat("indice_num[", k, "] is ", counts[k],
                                                  " with sub_m, expected at most that of the centre, "
                                                  "indice_num[",
                                                  offsets / 2, "] = ", centre));
}

// -- scratch memory -----------------------------------------------------------------------------------------

// What the plan takes for tensors whose shapes agree. `from` has rows that are read, `to` those that are
// added to or multiplied with, `filters` the dtype of all.
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
  return pairs.scratch_bytes() + Plan<float>(pairs, shape, arguments.threads(), best_isa()).scratch_bytes();
}
inline std::size_t convolution_bytes(const Arguments& arguments, const Positions& at) {
  return plan_bytes<ConvolutionPlan>(arguments, at[0], at[1], at[2], at[3]);
}
inline std::size_t filter_gradient_bytes(const Arguments& arguments, const Positions& at) {
  return plan_bytes<FilterGradientPlan>(arguments, at[0], at[1], at[2], at[3]);
}

// -- signatures ---------------------------------------------------------------------------------------------

inline constexpr auto kBad = ErrorCode::bad_param, kUnsupported = ErrorCode::not_supported;

// Of each list the last steps are for the operator alone.
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

inline constexpr StepSpec kDataQuerySteps[] = {
    {Check::present},
    {Check::ranks},
    {Check::shapes, kBad, "indice_pairs.1 indice_pairs.2"},
    {Check::rules, kUnsupported, "limit"},
    {Check::dtypes},
    {Check::scalars},
    {Check::data, kUnsupported, "inverse"},
    {Check::shapes, kBad, "filters output_grad indice_pairs indice_num input_grad"},
    {Check::contiguous, kUnsupported},
    {Check::large, kUnsupported},
    {Check::data, kBad, "indice_num"},
    {Check::any_empty}};

inline constexpr StepSpec kDataSteps[] = {
    {Check::present},
    {Check::ranks},
    {Check::shapes, kBad, "indice_pairs.1 indice_pairs.2"},
    {Check::rules, kUnsupported, "limit"},
    {Check::dtypes},
    {Check::scalars},
    {Check::data, kUnsupported, "inverse"},
    {Check::shapes, kBad, "filters output_grad indice_pairs indice_num input_grad"},
    {Check::contiguous, kUnsupported},
    {Check::large, kUnsupported},
    {Check::data, kBad, "indice_num sub_m"},
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
                in("filters", like("output_grad"), kFlatFilters[static_cast<int>(kForm)]), c_pairs_argument(),
                c_counts_argument(), out("input_grad", like("output_grad"), "rows, in_channels")},
               {kLimit},
               checks,
               steps,
               {&convolution_bytes, "indice_pairs indice_num output_grad input_grad"}};
}
inline constexpr ScalarSpec kDataLayout = choice("filters_layout", "NCHW NHWC HWCN NDHWC ARRAY NCDHW");
inline constexpr DataCheck kDataCounts = {"indice_num", "counts are within 0 .. rows and 0 .. out_rows",
                                          &check_counts, "indice_num input_grad output_grad"};

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
    return backward_data_c<kForm>("mluOpGetIndiceConvolutionBackwardDataWorkspaceSize",
                                  {scalar("inverse", 0, 1), kDataLayout}, {kInverse, kDataCounts},
                                  kDataQuerySteps);
  });
};
template <Form kForm>
struct Data {
  static constexpr const Signature& kSignature = signature([] {
    return backward_data_c<kForm>(
        "mluOpIndiceConvolutionBackwardData", {scalar("inverse", 0, 1), scalar("sub_m", 0, 1), kDataLayout},
        {kInverse,
         kDataCounts,
         {"sub_m",
          "with sub_m: as many rows come out as go in, the centre of an odd kernel has the most pairs",
          &check_gradient_of_submanifold, "sub_m rows out_rows indice_num"}},
        kDataSteps);
  });
};

template <template <Form> class Function>
const Signature& signature_for(Form form) {
  if (form == Form::channels_last) return Function<Form::channels_last>::kSignature;
  if (form == Form::channels_first) return Function<Form::channels_first>::kSignature;
  return Function<Form::kernel_first>::kSignature;
}

}  // namespace turnout::families::sparse_conv
