// What the operators on segments, ranks and bird's-eye views accept.
#pragma once

#include "dynamic_scatter/signature.h"

namespace turnout::families::dynamic_scatter {

inline constexpr ScalarSpec kSegmentReduce = by_default("sum", choice("reduce", "sum mean min max"));

inline constexpr const Signature& kSegmentCsr = signature([] {
  return Draft{
      "segment_csr",
      "rows channels segments",
      {kSegmentReduce},
      {in("src", kNumbers, "rows, channels..?"), in("indptr", kIndices, "segments + 1"),
       out("out", like("src"), "segments, channels..?"),
       on_request("return_arg", by_default(DType::i64, out("arg", kIndices, "segments, channels..?")))},
      {kMostRows}};
});
inline constexpr const Signature& kGatherCsr = signature([] {
  return Draft{"gather_csr",
               "segments channels computed(rows?)",
               {},
               {in("src", kNumbers, "segments, channels..?"), in("indptr", kIndices, "segments + 1"),
                out("out", like("src"), "rows, channels..?")},
               {kMostRows}};
});

inline constexpr const Signature& kIngroupIndices = signature([] {
  return Draft{"ingroup_indices",
               "rows",
               {},
               {in("groups", kIndices, "rows"), out("out", dtypes(DType::i64), "rows")},
               {kMostRows}};
});

inline constexpr const Signature& kBevPool = signature([] {
  return Draft{"bev_pool",
               "rows channels batch depth height width",
               {},
               {in("feats", kFloats, "rows, channels"), in("coords", kIndices, "rows, 4"),
                out("out", like("feats"), "batch, channels, depth, height, width")},
               {kMostRows}};
});
inline constexpr const Signature& kBevPoolBackward = signature([] {
  return Draft{"bev_pool_backward",
               "batch channels depth height width rows",
               {},
               {in("grad_out", kFloats, "batch, channels, depth, height, width"),
                in("coords", kIndices, "rows, 4"), out("grad_feats", like("grad_out"), "rows, channels")},
               {kMostRows}};
});

}  // namespace turnout::families::dynamic_scatter
