"""Bird's-eye view pooling and ranks, as compiled modules of OpenPCDet and of mmdetection3d's projects."""

from __future__ import annotations

import operator
from typing import SupportsIndex

import torch
from torch import Tensor

from turnout.compat._extension import Checks
from turnout.torch.messages import own_messages

__all__ = ["bev_pool_backward", "bev_pool_forward", "ingroup_forward"]

_INT = torch.int32
_ops = torch.ops.turnout


class _Intervals:
    """Ranges of rows, each of which belongs to the cell of its first row."""

    def __init__(
        self, function: str, geom: Tensor, lengths: Tensor, starts: Tensor, limits: dict[str, int]
    ) -> None:
        lengths, starts, rows = lengths.long(), starts.long(), len(geom)
        bad = ((lengths < 1) | (starts < 0) | (starts + lengths > rows)).nonzero()
        if len(bad):
            at = int(bad[0])
            raise IndexError(
                f"{function}: interval {at} has {int(lengths[at])} rows from row {int(starts[at])} on, "
                f"expected 1 or more of the {rows} rows"
            )
        places = geom[starts].long()  # h, w, d, b
        extents = torch.tensor([limits[name] for name in "hwdb"])
        outside = ((places < 0) | (places >= extents)).nonzero()
        if len(outside):
            at, column = outside[0].tolist()
            raise IndexError(
                f"{function}: geom_feats[{int(starts[at])}, {column}] is {int(places[at, column])}, "
                f"expected 0 .. {int(extents[column]) - 1}, below {'hwdb'[column]}"
            )
        h, w, d, b = places.unbind(1)
        self.cells = ((b * limits["d"] + d) * limits["h"] + h) * limits["w"] + w
        # Both packages sort the rows by these numbers, so that no cell has two intervals.
        ranks = ((h * limits["w"] + w) * limits["d"] + d) * limits["b"] + b
        self.is_sorted = bool((ranks.diff() > 0).all())
        ends = lengths.cumsum(0)
        self.indptr = torch.cat([ends.new_zeros(1), ends])
        # The rows of all intervals, one after the other; None means that those are all rows as they are.
        self.order = None
        if not torch.equal(starts, self.indptr[:-1]) or int(self.indptr[-1]) != rows:
            first = torch.repeat_interleave(starts - self.indptr[:-1], lengths)
            self.order = first + torch.arange(len(first))


def _extents(function: str, **sizes: SupportsIndex) -> dict[str, int]:
    """OpenPCDet passes tensors without dimensions."""
    found = {}
    for name, value in sizes.items():
        try:
            found[name] = operator.index(value)
        except TypeError:
            raise TypeError(
                f"{function}: {name} is of type {type(value).__name__}, expected an integer"
            ) from None
        if found[name] < 0:
            raise ValueError(f"{function}: {name} is {found[name]}, expected 0 or more")
    return found


def bev_pool_forward(
    x: Tensor, geom_feats: Tensor, interval_lengths: Tensor, interval_starts: Tensor, b: SupportsIndex,
    d: SupportsIndex, h: SupportsIndex, w: SupportsIndex,
) -> Tensor:  # fmt: skip
    name = "bev_pool_forward"
    limits = _extents(name, b=b, d=d, h=h, w=w)
    checks = Checks(name)
    feats = checks.tensor("x", x, "n c", torch.float32)
    geom = checks.tensor("geom_feats", geom_feats, "n 4", _INT)
    lengths = checks.tensor("interval_lengths", interval_lengths, "intervals", _INT)
    starts = checks.tensor("interval_starts", interval_starts, "intervals", _INT)
    intervals = _Intervals(name, geom, lengths, starts, limits)
    out = feats.new_zeros((*limits.values(), feats.shape[1]))
    if not len(lengths):
        return out
    rows = feats if intervals.order is None else feats[intervals.order]
    sums = _ops.segment_csr(rows, intervals.indptr)[0]
    cells = intervals.cells
    if not intervals.is_sorted:  # the last of several intervals of a cell remains
        cells, number = torch.unique(cells, return_inverse=True)
        sums = sums[_ops.scatter_max(torch.arange(1, len(number) + 1), number, len(cells), True)[1]]
    out.view(-1, feats.shape[1])[cells] = sums
    return out


def bev_pool_backward(
    out_grad: Tensor, geom_feats: Tensor, interval_lengths: Tensor, interval_starts: Tensor,
    b: SupportsIndex, d: SupportsIndex, h: SupportsIndex, w: SupportsIndex,
) -> Tensor:  # fmt: skip
    name = "bev_pool_backward"
    limits = _extents(name, b=b, d=d, h=h, w=w)
    checks = Checks(name, **limits)
    grad = checks.tensor("out_grad", out_grad, "b d h w c", torch.float32)
    geom = checks.tensor("geom_feats", geom_feats, "n 4", _INT)
    lengths = checks.tensor("interval_lengths", interval_lengths, "intervals", _INT)
    starts = checks.tensor("interval_starts", interval_starts, "intervals", _INT)
    intervals = _Intervals(name, geom, lengths, starts, limits)
    rows, channels = len(geom), grad.shape[4]
    if not len(lengths):
        return grad.new_zeros((rows, channels))
    of_intervals = grad.reshape(-1, channels)[intervals.cells]
    in_order = _ops.gather_csr(of_intervals, intervals.indptr)
    if intervals.order is None:
        return in_order
    return grad.new_zeros((rows, channels)).index_copy_(0, intervals.order, in_order)


@own_messages("forward", groups="group_inds")
def ingroup_forward(group_inds: Tensor, out_inds: Tensor) -> None:
    checks = Checks("forward")
    groups = checks.tensor("group_inds", group_inds, "n", torch.int64)
    out = checks.tensor("out_inds", out_inds, "n", torch.int64)
    out.copy_(_ops.ingroup_indices(groups))
