// What the operators of this family accept.
#pragma once

#include "core/check.h"
#include "core/draft.h"

namespace turnout::families::rnnt_loss {

using namespace core::grammar;

// The plans check the values of symbols, ranges and boundaries and keep what they have read, because another
// thread may change the caller's memory during a call.
inline constexpr ArgumentSpec kSymbols = in("symbols", kIndices, "batch, num_symbols");
inline constexpr ArgumentSpec kRanges = in("ranges", dtypes(DType::i64), "batch, frames, rows");
inline constexpr ArgumentSpec kBoundary = optional(in("boundary", dtypes(DType::i64), "batch, 4"));
inline constexpr ArgumentSpec kNanAt = out("nan_at", dtypes(DType::i64), "batch");
inline constexpr ScalarSpec kTermination = scalar("termination_symbol", 0);
inline constexpr ScalarSpec kHat = by_default("no", flag("use_hat_loss"));
// A symbol takes a frame, so px has no column after the last frame.
inline constexpr ScalarSpec kModified = for_sizes(flag("modified"));
// The gradient overwrites the logits.
inline constexpr ScalarSpec kOverwrites = unused(flag("overwrite_logits"));
inline constexpr RuleSpec kTerminationIsAClass = at_most("termination_symbol + 1", "classes");
inline constexpr RuleSpec kFewestColumns = at_most("frames", "columns");
inline constexpr RuleSpec kMostColumns = at_most("columns", "frames + 1");
inline constexpr RuleSpec kFewestRows = at_most("1", "rows");
inline constexpr RuleSpec kMostRows = at_most("rows", "num_symbols + 1");

// The steps, whose dtype follows from that of `logits`.
consteval ArgumentSpec px(std::string_view logits) {
  return out("px", lane_of(logits), "batch, num_symbols, columns");
}
consteval ArgumentSpec py(std::string_view logits) {
  return out("py", lane_of(logits), "batch, num_symbols + 1, frames");
}
consteval ArgumentSpec px_grad(std::string_view logits) {
  return in("px_grad", lane_of(logits), "batch, num_symbols, columns");
}
consteval ArgumentSpec py_grad(std::string_view logits) {
  return in("py_grad", lane_of(logits), "batch, num_symbols + 1, frames");
}

inline constexpr const Signature& kRnntLogprobsJointForward = signature([] {
  return Draft{
      "rnnt_logprobs_joint_forward",
      "batch frames num_symbols classes computed(columns)",
      {kTermination, kModified, kOverwrites},
      {in("logits", kFloats, "batch, frames, num_symbols + 1, classes"), kSymbols, kBoundary, px("logits"),
       py("logits"), out("normalizer", lane_of("logits"), "batch, frames, num_symbols + 1"), kNanAt},
      {kTerminationIsAClass, kFewestColumns, kMostColumns}};
});

inline constexpr const Signature& kRnntLogprobsJointBackward = signature([] {
  return Draft{
      "rnnt_logprobs_joint_backward",
      "batch frames num_symbols classes columns",
      {kTermination},
      {in("logits", kFloats, "batch, frames, num_symbols + 1, classes"), kSymbols, kBoundary,
       in("normalizer", lane_of("logits"), "batch, frames, num_symbols + 1"), px_grad("logits"),
       py_grad("logits"),
       may_overlap("logits", out("logits_grad", like("logits"), "batch, frames, num_symbols + 1, classes"))},
      {kTerminationIsAClass, kFewestColumns, kMostColumns}};
});

inline constexpr const Signature& kRnntLogprobsPrunedForward = signature([] {
  return Draft{
      "rnnt_logprobs_pruned_forward",
      "batch frames rows classes num_symbols computed(columns)",
      {kTermination, kHat, kModified, kOverwrites},
      {in("logits", kFloats, "batch, frames, rows, classes"), kSymbols, kRanges, kBoundary, px("logits"),
       py("logits"), out("normalizer", lane_of("logits"), "batch, frames, rows"), kNanAt},
      {kTerminationIsAClass, kFewestColumns, kMostColumns, kFewestRows, kMostRows}};
});

inline constexpr const Signature& kRnntLogprobsPrunedBackward = signature([] {
  return Draft{
      "rnnt_logprobs_pruned_backward",
      "batch frames rows classes num_symbols columns",
      {kTermination, kHat},
      {in("logits", kFloats, "batch, frames, rows, classes"), kSymbols, kRanges, kBoundary,
       in("normalizer", lane_of("logits"), "batch, frames, rows"), px_grad("logits"), py_grad("logits"),
       may_overlap("logits", out("logits_grad", like("logits"), "batch, frames, rows, classes"))},
      {kTerminationIsAClass, kFewestColumns, kMostColumns, kFewestRows, kMostRows}};
});

inline constexpr ScalarSpec kActivation = choice("activation", "none tanh relu");
inline constexpr ArgumentSpec kJoinerLm = in("lm", like("am"), "batch, num_symbols + 1, width");
inline constexpr ArgumentSpec kWeight = in("weight", like("am"), "classes, width");
inline constexpr ArgumentSpec kBias = optional(in("bias", like("am"), "classes"));

inline constexpr const Signature& kRnntLogprobsFusedForward = signature([] {
  return Draft{
      "rnnt_logprobs_fused_forward",
      "batch frames width num_symbols classes rows computed(columns)",
      {kActivation, kTermination, kHat, kModified},
      {in("am", kFloats, "batch, frames, width"), kJoinerLm, kWeight, kBias, kSymbols, kRanges, kBoundary,
       px("am"), py("am"), out("normalizer", lane_of("am"), "batch, frames, rows"), kNanAt},
      {kTerminationIsAClass, kFewestColumns, kMostColumns, kFewestRows, kMostRows}};
});

inline constexpr const Signature& kRnntLogprobsFusedBackward = signature([] {
  return Draft{"rnnt_logprobs_fused_backward",
               "batch frames width num_symbols classes rows columns",
               {kActivation, kTermination, kHat},
               {in("am", kFloats, "batch, frames, width"), kJoinerLm, kWeight, kBias, kSymbols, kRanges,
                kBoundary, in("normalizer", lane_of("am"), "batch, frames, rows"), px_grad("am"),
                py_grad("am"), out("am_grad", like("am"), "batch, frames, width"),
                out("lm_grad", like("am"), "batch, num_symbols + 1, width"),
                out("weight_grad", like("am"), "classes, width"),
                required_with("bias", out("bias_grad", like("am"), "classes"))},
               {kTerminationIsAClass, kFewestColumns, kMostColumns, kFewestRows, kMostRows}};
});

inline constexpr const Signature& kRnntLogprobsSimpleForward = signature([] {
  return Draft{"rnnt_logprobs_simple_forward",
               "batch num_symbols classes frames computed(columns)",
               {kTermination, kModified},
               {in("lm", kFloats, "batch, num_symbols + 1, classes"),
                in("am", like("lm"), "batch, frames, classes"), kSymbols, kBoundary, px("lm"), py("lm"),
                out("normalizer", lane_of("lm"), "batch, num_symbols + 1, frames"), kNanAt},
               {kTerminationIsAClass, kFewestColumns, kMostColumns}};
});

inline constexpr const Signature& kRnntLogprobsSimpleBackward = signature([] {
  return Draft{
      "rnnt_logprobs_simple_backward",
      "batch num_symbols classes frames columns",
      {kTermination},
      {in("lm", kFloats, "batch, num_symbols + 1, classes"), in("am", like("lm"), "batch, frames, classes"),
       kSymbols, kBoundary, in("normalizer", lane_of("lm"), "batch, num_symbols + 1, frames"), px_grad("lm"),
       py_grad("lm"), out("lm_grad", like("lm"), "batch, num_symbols + 1, classes"),
       out("am_grad", like("lm"), "batch, frames, classes")},
      {kTerminationIsAClass, kFewestColumns, kMostColumns}};
});

inline constexpr ArgumentSpec kTakenSymbols =
    in("px_grad", dtypes(DType::f32, DType::f64), "batch, num_symbols, columns");
inline constexpr ArgumentSpec kTakenBlanks = in("py_grad", like("px_grad"), "batch, num_symbols + 1, frames");
inline constexpr ArgumentSpec kEnds = in("boundary", dtypes(DType::i64), "batch, 4");

inline constexpr ScalarSpec kScore = by_default("flow", choice("score", "flow steps"));

inline constexpr const Signature& kRnntPruneWidth = signature([] {
  return Draft{"rnnt_prune_width",
               "batch num_symbols columns frames",
               {scalar("s_range", std::numeric_limits<std::int64_t>::min()), kScore},
               {kTakenSymbols, kTakenBlanks, kEnds, out("width", dtypes(DType::i64), "1")},
               {kFewestColumns, kMostColumns}};
});

inline constexpr const Signature& kRnntPruneRanges = signature([] {
  return Draft{
      "rnnt_prune_ranges",
      "batch num_symbols columns frames adjusted(s_range)",
      {kScore},
      {kTakenSymbols, kTakenBlanks, kEnds, out("ranges", dtypes(DType::i64), "batch, frames, s_range")},
      {kFewestColumns, kMostColumns, at_most("1", "s_range"), at_most("s_range", "num_symbols + 1")}};
});

inline constexpr const Signature& kRnntPruningForward = signature([] {
  return Draft{"rnnt_pruning_forward",
               "batch num_symbols width frames rows",
               {},
               {in("lm", kFloats, "batch, num_symbols + 1, width"), kRanges,
                out("pruned", like("lm"), "batch, frames, rows, width")},
               {kFewestRows, kMostRows}};
});

inline constexpr const Signature& kRnntPruningBackward = signature([] {
  return Draft{"rnnt_pruning_backward",
               "batch frames rows width symbols",
               {},
               {in("pruned_grad", kFloats, "batch, frames, rows, width"), kRanges,
                out("lm_grad", like("pruned_grad"), "batch, symbols + 1, width")},
               {kFewestRows, at_most("rows", "symbols + 1")}};
});

inline constexpr const Signature& kRnntAlign = signature([] {
  return Draft{
      "rnnt_align",
      "batch num_symbols columns frames",
      {},
      {in("px", kFloats, "batch, num_symbols, columns"),
       in("py", like("px"), "batch, num_symbols + 1, frames"), kBoundary,
       out("symbol_frames", dtypes(DType::i64), "batch, num_symbols"), out("score", lane_of("px"), "batch")},
      {kFewestColumns, kMostColumns}};
});

}  // namespace turnout::families::rnnt_loss
