// What the operators of this family accept.
#pragma once

#include "core/check.h"
#include "core/signature.h"
#include "turnout/sparse_conv.h"

namespace turnout::families::sparse_conv {

using namespace core;

inline constexpr std::int64_t kMaxSpatial = 2147483647;  // so products of two such numbers fit int64

// Submanifold: stride 1, the output shape is that of the input.
void check_mode(const Arguments& arguments, const Positions& at);
// Every batch number and coordinate is in range. Throws Error naming the first row that is not.
void check_coordinates(const Arguments& arguments, const Positions& at);

// Bytes of the plan's first scratch memory, which follow from the shapes alone.
std::size_t indice_pairs_scratch(std::int64_t rows, const IndicePairsParams& params);

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

}  // namespace turnout::families::sparse_conv
