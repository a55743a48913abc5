// Reductions of consecutive rows, minima of groups, ranks within groups, and pooling into a bird's-eye view.
//
// As in dynamic_scatter.h, sums of 16-bit floats are in f32 and rounded once, integers wrap around, and
// results have the same bits for any thread count. Indices are i32 or i64; an index that is out of range is
// rejected before the first write.
#pragma once

#include <cstdint>

#include "turnout/caller.h"
#include "turnout/export.h"
#include "turnout/tensor.h"

namespace turnout {

enum class SegmentReduce : std::uint8_t { sum, mean, min, max };

// out[s] = the sum, mean, minimum or maximum of the rows indptr[s] .. indptr[s+1]-1 of src
//
// src [rows, channels..], f32, f64, f16, bf16, i32 or i64 (mean: floats only); indptr [segments + 1],
// ascending from 0 or more to at most rows; out [segments, channels..]; arg, optional, i32 or i64, the row of
// a minimum or maximum. A segment without rows is 0. A minimum starts at the greatest finite number and a
// maximum at the lowest, and only a smaller or larger number replaces it: NaN and that infinity are never
// taken. Where nothing is taken, out is 0 and arg is rows; sums and means have no arg, it is rows everywhere.
TURNOUT_API void segment_csr(const ConstTensor& src, const ConstTensor& indptr, const Tensor& out,
                             const Tensor& arg, SegmentReduce reduce = SegmentReduce::sum,
                             const Caller& caller = {});
// out[i] = src[s] for the segment s of row i; 0 for rows in no segment. src [segments, channels..], out
// [rows, channels..]; rows is at least the last element of indptr.
TURNOUT_API void gather_csr(const ConstTensor& src, const ConstTensor& indptr, const Tensor& out,
                            const Caller& caller = {});

// out[i] = the number of rows before row i that are in the same group. groups [rows], each 0 or more, of any
// size; out [rows], i64.
TURNOUT_API void ingroup_indices(const ConstTensor& groups, const Tensor& out, const Caller& caller = {});

// out[b, :, d, h, w] = the sum of the rows of feats whose coords are (h, w, d, b), ascending; 0 without
// rows. feats [rows, channels], floats; coords [rows, 4]; out [batch, channels, depth, height, width].
TURNOUT_API void bev_pool(const ConstTensor& feats, const ConstTensor& coords, const Tensor& out,
                          const Caller& caller = {});
// grad_feats[i] = grad_out[b, :, d, h, w] for the coords of row i.
TURNOUT_API void bev_pool_backward(const ConstTensor& grad_out, const ConstTensor& coords,
                                   const Tensor& grad_feats, const Caller& caller = {});

}  // namespace turnout
