// The Signatures of the operators of this family.
#pragma once

#include "core/check.h"
#include "core/draft.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

using namespace core::grammar;

inline constexpr std::int64_t kMaxSpatial = 2147483647;  // so products of two such numbers fit int64
inline constexpr std::int64_t kMaxOffsets = 16777216;    // of a kernel; the rules below repeat the number

// Submanifold mode requires stride 1 and the output shape of the input.
void check_mode(const Arguments& arguments, const Positions& at);
// Checks that batch numbers and coordinates are in range. Throws Error naming the first row that is not.
void check_coordinates(const Arguments& arguments, const Positions& at);

// The order of checks when only `indices` is known. IndicePairs::write() checks the results.
inline constexpr StepSpec kIndexOrder[] = {{Check::present, ErrorCode::bad_param, "indices"},
                                           {Check::ranks},
                                           {Check::dtypes},
                                           {Check::scalars},
                                           {Check::shapes},
                                           {Check::rules},
                                           {Check::contiguous},
                                           {Check::pointers},
                                           {Check::data}};
inline constexpr StepSpec kResultOrder[] = {{Check::present},  {Check::ranks},      {Check::dtypes},
                                            {Check::shapes},   {Check::contiguous}, {Check::outputs_empty},
                                            {Check::pointers}, {Check::overlap}};

consteval Draft indice_pairs_signature(std::span<const StepSpec> order) {
  return Draft{
      "get_indice_pairs",
      "rows dims out_rows",
      {scalar("batch_size", 1, kMaxSpatial), vector("spatial_shape", "dims", 1, kMaxSpatial),
       vector("kernel_size", "dims", 1, kMaxSpatial), vector("stride", "dims", 1, kMaxSpatial),
       vector("padding", "dims", 0, kMaxSpatial), vector("dilation", "dims", 1, kMaxSpatial),
       vector("output_shape", "dims", 1, kMaxSpatial), choice("mode", "sparse submanifold transposed")},
      {in("indices", kIndices, "rows, dims + 1"), out("out_indices", like("indices"), "out_rows, dims + 1"),
       out("indice_pairs", dtypes(DType::i32), "volume(kernel_size), 2, rows"),
       out("indice_num", dtypes(DType::i32), "volume(kernel_size)")},
      {at_most("1", "dims"), at_most("dims", "4"), at_most("rows", "2147483647"),
       at_most("volume(kernel_size)", "16777216")},
      {{"mode", "submanifold: stride is 1, output_shape is spatial_shape", &check_mode,
        "mode stride spatial_shape output_shape"},
       {"coordinates", "batch numbers and coordinates are in range", &check_coordinates,
        "indices batch_size spatial_shape"}},
      order};
}
inline constexpr const Signature& kGetIndicePairs =
    signature([] { return indice_pairs_signature(kStandardOrder); });
inline constexpr const Signature& kIndicePairsIndex =
    signature([] { return indice_pairs_signature(kIndexOrder); });
inline constexpr const Signature& kIndicePairsResult =
    signature([] { return indice_pairs_signature(kResultOrder); });

// The arguments of the bindings. The function takes the derived ones: vectors with defaults filled in, an
// output shape, a mode. A kernel size of -1 means the whole extent, so the kernel volume is computed.
inline constexpr const Signature& kIndicePairsCall = signature([] {
  return Draft{"get_indice_pairs",
               "rows dims computed(num_act_out) computed(kernel_volume)",
               {symbolic(scalar("batch_size", 1, kMaxSpatial)),
                symbolic(vector("spatial_shape", "dims", 1, kMaxSpatial)),
                by_default(3, vector("kernel_size", "dims", -1, kMaxSpatial)),
                by_default(1, vector("stride", "dims", 1, kMaxSpatial)),
                by_default(0, vector("padding", "dims", 0, kMaxSpatial)),
                by_default(1, vector("dilation", "dims", 1, kMaxSpatial)),
                by_default(0, vector("output_padding", "dims", 0)), by_default("no", flag("subm")),
                by_default("no", flag("transpose"))},
               {in("indices", kIndices, "rows, dims + 1"),
                out("out_indices", like("indices"), "num_act_out, dims + 1"),
                out("indice_pairs", dtypes(DType::i32), "kernel_volume, 2, rows"),
                out("indice_num", dtypes(DType::i32), "kernel_volume")},
               {at_most("1", "dims"), at_most("dims", "4"), at_most("rows", "2147483647")}};
});

inline constexpr StepSpec kScalarsOnly[] = {{Check::scalars}};
inline constexpr const Signature& kOutputShape = signature([] {
  return Draft{
      "indice_pairs_output_shape",
      "dims",
      {vector("spatial_shape", "dims", 1, kMaxSpatial), vector("kernel_size", "dims", 1, kMaxSpatial),
       vector("stride", "dims", 1, kMaxSpatial), vector("padding", "dims", 0, kMaxSpatial),
       vector("dilation", "dims", 1, kMaxSpatial), vector("output_padding", "dims", 0, kMaxSpatial),
       vector("output_shape", "dims", 1, kMaxSpatial)},
      {},
      {},
      {},
      kScalarsOnly};
});

// Submanifold mode requires as many output rows as input rows.
void check_same_rows(const Arguments& arguments, const Positions& at);

// The pairs argument of every convolution and pooling.
consteval ArgumentSpec pairs_argument() {
  return in("indice_pairs", dtypes(DType::i32), "offsets, 2, columns");
}
consteval ArgumentSpec counts_argument() { return in("indice_num", kIndices, "offsets"); }
inline constexpr std::initializer_list<RuleSpec> kPairRules = {at_most("offsets", "16777216"),
                                                               at_most("num_act_in", "2147483647"),
                                                               at_most("num_act_out", "2147483647")};
// For operators with a kept index, which has at least one element.
inline constexpr std::initializer_list<RuleSpec> kIndexedPairRules = {
    at_most("offsets", "16777216"), at_most("num_act_in", "2147483647"), at_most("num_act_out", "2147483647"),
    at_most("1", "words")};

// The standard order, except that filters may have any strides.
inline constexpr StepSpec kConvolutionOrder[] = {
    {Check::present},
    {Check::ranks},
    {Check::dtypes},
    {Check::scalars},
    {Check::shapes},
    {Check::rules},
    {Check::contiguous, ErrorCode::bad_param, "features indice_pairs indice_num bias index features_out"},
    {Check::outputs_empty},
    {Check::pointers},
    {Check::overlap},
    {Check::data}};
inline constexpr StepSpec kConvolutionDataOrder[] = {
    {Check::present},
    {Check::ranks},
    {Check::dtypes},
    {Check::scalars},
    {Check::shapes},
    {Check::rules},
    {Check::contiguous, ErrorCode::bad_param, "output_grad indice_pairs indice_num index input_grad"},
    {Check::outputs_empty},
    {Check::pointers},
    {Check::overlap},
    {Check::data}};

// Checks that the kernel dimensions of filters [k.., in, out] form one dimension of offsets, with any stride.
void check_filter_strides(const Arguments& arguments, const Positions& at);
inline constexpr DataCheck kFilterStrides = {"strides", "the kernel dimensions of filters are contiguous",
                                             &check_filter_strides, "filters"};
// A kept index of the opposite direction, for the gradient.
inline constexpr ArgumentSpec kIndexOfGradient = unused(in("grad_index", dtypes(DType::i64), "words"));

inline constexpr const Signature& kIndiceConvolutionForward = signature([] {
  return Draft{"indice_convolution_forward",
               "num_act_in in_channels offsets out_channels columns words num_act_out",
               {by_default("no", flag("inverse")), by_default("no", flag("subm"))},
               {in("features", kFloats, "num_act_in, in_channels"),
                in("filters", like("features"), "offsets.., in_channels, out_channels"), pairs_argument(),
                counts_argument(), optional(in("bias", like("features"), "out_channels")),
                optional(in("index", dtypes(DType::i64), "words")), kIndexOfGradient,
                out("features_out", like("features"), "num_act_out, out_channels")},
               kIndexedPairRules,
               {{"rows", "subm: features_out has the rows of features", &check_same_rows,
                 "subm num_act_in num_act_out"},
                kFilterStrides},
               kConvolutionOrder};
});

inline constexpr const Signature& kIndiceConvolutionBackwardData = signature([] {
  return Draft{"indice_convolution_backward_data",
               "num_act_out out_channels offsets in_channels columns words num_act_in",
               {by_default("no", flag("inverse")), by_default("no", flag("subm"))},
               {in("output_grad", kFloats, "num_act_out, out_channels"),
                in("filters", like("output_grad"), "offsets.., in_channels, out_channels"), pairs_argument(),
                counts_argument(), optional(in("index", dtypes(DType::i64), "words")), kIndexOfGradient,
                out("input_grad", like("output_grad"), "num_act_in, in_channels")},
               kIndexedPairRules,
               {{"rows", "subm: input_grad has the rows of output_grad", &check_same_rows,
                 "subm num_act_in num_act_out"},
                kFilterStrides},
               kConvolutionDataOrder};
});

inline constexpr const Signature& kIndiceConvolutionBackwardFilter = signature([] {
  return Draft{
      "indice_convolution_backward_filter",
      "num_act_in in_channels num_act_out out_channels offsets columns",
      {by_default("no", flag("inverse")), by_default("no", flag("subm"))},
      {in("features", kFloats, "num_act_in, in_channels"),
       in("output_grad", like("features"), "num_act_out, out_channels"), pairs_argument(), counts_argument(),
       out("filters_grad", like("features"), "offsets.., in_channels, out_channels")},
      kPairRules,
      {{"rows", "subm: output_grad has the rows of features", &check_same_rows,
        "subm num_act_in num_act_out"}}};
});

// The order of checks before the index exists.
inline constexpr StepSpec kIndexSizeOrder[] = {
    {Check::present, ErrorCode::bad_param, "indice_pairs indice_num"},
    {Check::ranks},
    {Check::dtypes},
    {Check::scalars},
    {Check::shapes},
    {Check::rules},
    {Check::contiguous},
    {Check::pointers},
    {Check::data}};

// The standard order, except that an index without elements is not skipped: its size depends on the pairs.
inline constexpr StepSpec kIndexOfPairsOrder[] = {
    {Check::present}, {Check::ranks},      {Check::dtypes},   {Check::scalars}, {Check::shapes},
    {Check::rules},   {Check::contiguous}, {Check::pointers}, {Check::overlap}, {Check::data}};

consteval Draft convolution_index_signature(std::span<const StepSpec> order) {
  return Draft{"indice_convolution_index",
               "offsets columns computed(words)",
               {symbolic(scalar("rows", 0, kMaxSpatial)), symbolic(scalar("out_rows", 0, kMaxSpatial)),
                by_default("no", flag("inverse")), by_default("no", flag("subm"))},
               {pairs_argument(), counts_argument(), out("index", dtypes(DType::i64), "words")},
               {at_most("offsets", "16777216")},
               {{"rows", "subm: out_rows is rows", &check_same_rows, "subm rows out_rows"}},
               order};
}
inline constexpr const Signature& kIndiceConvolutionIndex =
    signature([] { return convolution_index_signature(kIndexOfPairsOrder); });
inline constexpr const Signature& kIndiceConvolutionIndexSize =
    signature([] { return convolution_index_signature(kIndexSizeOrder); });

}  // namespace turnout::families::sparse_conv
