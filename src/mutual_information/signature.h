// What the operators of this family accept.
#pragma once

#include "core/check.h"
#include "core/draft.h"

namespace turnout::families::mutual_information {

using namespace core::grammar;

inline constexpr ArgumentSpec kPx = in("px", kFloats, "batch, symbols, columns");
inline constexpr ArgumentSpec kPy = in("py", like("px"), "batch, symbols + 1, frames");
// The operators check its elements while they copy them.
inline constexpr ArgumentSpec kBoundary = optional(in("boundary", dtypes(DType::i64), "batch, 4"));
inline constexpr ArgumentSpec kPxGrad = out("px_grad", like("px"), "batch, symbols, columns");
inline constexpr ArgumentSpec kPyGrad = out("py_grad", like("px"), "batch, symbols + 1, frames");
inline constexpr RuleSpec kFewestColumns = at_most("frames", "columns");
inline constexpr RuleSpec kMostColumns = at_most("columns", "frames + 1");

inline constexpr const Signature& kMutualInformationForward = signature([] {
  return Draft{"mutual_information_forward",
               "batch symbols columns frames",
               {fill("outside", "keep minus_infinity")},
               {kPx, kPy, kBoundary, inout("p", lane_of("px"), "batch, symbols + 1, frames + 1"),
                out("ans", lane_of("px"), "batch")},
               {kFewestColumns, kMostColumns}};
});

inline constexpr const Signature& kMutualInformationBackward = signature([] {
  return Draft{"mutual_information_backward",
               "batch symbols columns frames",
               {by_default("no", flag("overwrite_ans_grad"))},
               {kPx, kPy, kBoundary, in("p", lane_of("px"), "batch, symbols + 1, frames + 1"),
                written_if("overwrite_ans_grad", inout("ans_grad", like("p"), "batch")), kPxGrad, kPyGrad},
               {kFewestColumns, kMostColumns}};
});

inline constexpr const Signature& kMutualInformationForwardBackward = signature([] {
  return Draft{"mutual_information_forward_backward",
               "batch symbols columns frames",
               {},
               {kPx, kPy, kBoundary, out("ans", lane_of("px"), "batch"), kPxGrad, kPyGrad},
               {kFewestColumns, kMostColumns}};
});

}  // namespace turnout::families::mutual_information
