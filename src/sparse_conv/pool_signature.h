// What the pooling operators of this family accept.
#pragma once

#include "sparse_conv/signature.h"

namespace turnout::families::sparse_conv {

// Pooling along pairs. `rows` are those of the input, `out_rows` those of the output.
consteval Draft pool_forward(std::string_view op, std::initializer_list<ScalarSpec> scalars) {
  return Draft{op,
               "rows channels offsets columns out_rows",
               scalars,
               {in("features", kFloats, "rows, channels"), pairs_argument(), counts_argument(),
                out("features_out", like("features"), "out_rows, channels")},
               kPairRules};
}

inline constexpr const Signature& kIndiceMaxPoolForward =
    signature([] { return pool_forward("indice_max_pool_forward", {choice("init", "zero lowest")}); });
inline constexpr const Signature& kIndiceAvgPoolForward =
    signature([] { return pool_forward("indice_avg_pool_forward", {}); });

inline constexpr const Signature& kIndiceAvgPoolBackward = signature([] {
  return Draft{"indice_avg_pool_backward",
               "out_rows channels offsets columns rows",
               {},
               {in("output_grad", kFloats, "out_rows, channels"), pairs_argument(), counts_argument(),
                out("input_grad", like("output_grad"), "rows, channels")},
               kPairRules};
});
inline constexpr const Signature& kIndiceMaxPoolBackward = signature([] {
  return Draft{
      "indice_max_pool_backward",
      "rows channels out_rows offsets columns",
      {},
      {in("features", kFloats, "rows, channels"), in("features_out", like("features"), "out_rows, channels"),
       in("output_grad", like("features"), "out_rows, channels"), pairs_argument(), counts_argument(),
       out("input_grad", like("features"), "rows, channels")},
      kPairRules};
});

// Pooling of whole batch elements. Column 0 of indices is the batch number of a row; the others are not read.
consteval ArgumentSpec batch_argument() { return in("indices", kIndices, "rows, columns"); }
inline constexpr std::initializer_list<RuleSpec> kBatchRules = {
    at_most("1", "columns"), at_most("rows", "2147483647"), at_most("batches", "2147483647")};

consteval Draft global_pool_forward(std::string_view op) {
  return Draft{op,
               "rows channels columns batches",
               {},
               {in("features", kFloats, "rows, channels"), batch_argument(),
                out("features_out", like("features"), "batches, channels")},
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
      kBatchRules};
});
inline constexpr const Signature& kGlobalAvgPoolBackward = signature([] {
  return Draft{"global_avg_pool_backward",
               "batches channels rows columns",
               {},
               {in("output_grad", kFloats, "batches, channels"), batch_argument(),
                out("input_grad", like("output_grad"), "rows, channels")},
               kBatchRules};
});

}  // namespace turnout::families::sparse_conv
