// The Signatures of the pooling operators of this family.
#pragma once

#include "sparse_conv/signature.h"

namespace turnout::families::sparse_conv {

using namespace core::grammar;

// Pooling along pairs.
consteval Draft pool_forward(std::string_view op, std::initializer_list<ScalarSpec> scalars) {
  return Draft{op,
               "num_act_in channels offsets columns num_act_out",
               scalars,
               {in("features", kFloats, "num_act_in, channels"), pairs_argument(), counts_argument(),
                out("features_out", like("features"), "num_act_out, channels")},
               kPairRules};
}

inline constexpr const Signature& kIndiceMaxPoolForward = signature([] {
  return pool_forward("indice_max_pool_forward", {by_default("zero", choice("init", "zero lowest"))});
});
inline constexpr const Signature& kIndiceAvgPoolForward =
    signature([] { return pool_forward("indice_avg_pool_forward", {}); });

inline constexpr const Signature& kIndiceAvgPoolBackward = signature([] {
  return Draft{"indice_avg_pool_backward",
               "num_act_out channels offsets columns num_act_in",
               {},
               {in("output_grad", kFloats, "num_act_out, channels"), pairs_argument(), counts_argument(),
                out("input_grad", like("output_grad"), "num_act_in, channels")},
               kPairRules};
});
inline constexpr const Signature& kIndiceMaxPoolBackward = signature([] {
  return Draft{"indice_max_pool_backward",
               "num_act_in channels num_act_out offsets columns",
               {},
               {in("features", kFloats, "num_act_in, channels"),
                in("features_out", like("features"), "num_act_out, channels"),
                in("output_grad", like("features"), "num_act_out, channels"), pairs_argument(),
                counts_argument(), out("input_grad", like("features"), "num_act_in, channels")},
               kPairRules};
});

// Pooling of whole batch elements. Column 0 of indices is the batch number of a row; the others are not read.
consteval ArgumentSpec batch_argument() { return in("indices", kIndices, "rows, columns"); }
inline constexpr std::initializer_list<RuleSpec> kBatchRules = {
    at_most("1", "columns"), at_most("rows", "2147483647"), at_most("batch_size", "2147483647")};

// For gradients, whose shapes determine the number of batch elements.
inline constexpr std::initializer_list<RuleSpec> kBatchesRules = {
    at_most("1", "columns"), at_most("rows", "2147483647"), at_most("batches", "2147483647")};

consteval Draft global_pool_forward(std::string_view op) {
  return Draft{op,
               "rows channels columns batch_size",
               {},
               {in("features", kFloats, "rows, channels"), batch_argument(),
                out("features_out", like("features"), "batch_size, channels")},
               kBatchRules};
}
inline constexpr const Signature& kGlobalMaxPoolForward =
    signature([] { return global_pool_forward("global_max_pool_forward"); });
inline constexpr const Signature& kGlobalAvgPoolForward =
    signature([] { return global_pool_forward("global_avg_pool_forward"); });

inline constexpr const Signature& kGlobalMaxPoolBackward = signature([] {
  return Draft{
      "global_max_pool_backward",
      "rows channels batches columns",
      {},
      {in("features", kFloats, "rows, channels"), in("features_out", like("features"), "batches, channels"),
       in("output_grad", like("features"), "batches, channels"), batch_argument(),
       out("input_grad", like("features"), "rows, channels")},
      kBatchesRules};
});
inline constexpr const Signature& kGlobalAvgPoolBackward = signature([] {
  return Draft{"global_avg_pool_backward",
               "batches channels rows columns",
               {},
               {in("output_grad", kFloats, "batches, channels"), batch_argument(),
                out("input_grad", like("output_grad"), "rows, channels")},
               kBatchesRules};
});

}  // namespace turnout::families::sparse_conv
