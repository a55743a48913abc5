// What the operators of this family accept.
#pragma once

#include "core/check.h"
#include "core/signature.h"

namespace turnout::families::mutual_information {

using namespace core;

inline constexpr DTypes kLatticeDTypes = dtypes(DType::f32, DType::f64);

// p, ans and ans_grad are f64 beside f64, else f32.
template <const Signature& kSignature>
void check_lattice_dtypes(const Arguments& arguments);
// Every component is in 0 .. S or 0 .. T. Throws Error naming the first row that is not.
template <const Signature& kSignature>
void check_boundary(const Arguments& arguments);

// Bytes of scratch memory of the plans.
std::size_t mutual_information_forward_scratch(std::int64_t batch, std::int64_t symbols, std::int64_t frames,
                                               int threads);
std::size_t mutual_information_backward_scratch(std::int64_t batch, std::int64_t symbols, std::int64_t frames,
                                                int threads);

inline constexpr ArgumentSpec kPx = in("px", kFloats, "batch, symbols, columns");
inline constexpr ArgumentSpec kPy = in("py", like("px"), "batch, symbols + 1, frames");
inline constexpr ArgumentSpec kBoundary = optional(in("boundary", dtypes(DType::i64), "batch, 4"));
inline constexpr ArgumentSpec kPxGrad = out("px_grad", like("px"), "batch, symbols, columns");
inline constexpr ArgumentSpec kPyGrad = out("py_grad", like("px"), "batch, symbols + 1, frames");
inline constexpr RuleSpec kFewestColumns = at_most("frames", "columns");
inline constexpr RuleSpec kMostColumns = at_most("columns", "frames + 1");
template <const Signature& kSignature>
inline constexpr DataCheck kLatticeCheck = {"p and ans are f64 beside f64, else f32",
                                            &check_lattice_dtypes<kSignature>};
template <const Signature& kSignature>
inline constexpr DataCheck kBoundaryCheck = {"boundary is within 0 .. symbols and 0 .. frames",
                                             &check_boundary<kSignature>};

inline constexpr Signature kMutualInformationForward{
    "mutual_information_forward",
    "batch symbols columns frames",
    {},
    {kPx, kPy, kBoundary, inout("p", kLatticeDTypes, "batch, symbols + 1, frames + 1"),
     out("ans", like("p"), "batch")},
    {kFewestColumns, kMostColumns},
    {kLatticeCheck<kMutualInformationForward>, kBoundaryCheck<kMutualInformationForward>}};

inline constexpr Signature kMutualInformationBackward{
    "mutual_information_backward",
    "batch symbols columns frames",
    {flag("overwrite_ans_grad")},
    {kPx, kPy, kBoundary, in("p", kLatticeDTypes, "batch, symbols + 1, frames + 1"),
     inout("ans_grad", like("p"), "batch"), kPxGrad, kPyGrad},
    {kFewestColumns, kMostColumns},
    {kLatticeCheck<kMutualInformationBackward>, kBoundaryCheck<kMutualInformationBackward>}};

inline constexpr Signature kMutualInformationForwardBackward{
    "mutual_information_forward_backward",
    "batch symbols columns frames",
    {},
    {kPx, kPy, kBoundary, out("ans", kLatticeDTypes, "batch"), kPxGrad, kPyGrad},
    {kFewestColumns, kMostColumns},
    {kLatticeCheck<kMutualInformationForwardBackward>, kBoundaryCheck<kMutualInformationForwardBackward>}};

}  // namespace turnout::families::mutual_information
