"""RoI pooling as compiled modules call it: into given tensors, with lists of points of fixed lengths.

Only what the compiled functions write is written: argmax is -1 first, and then cells with points are visited.
"""

from __future__ import annotations

import torch
from torch import Tensor

from turnout.compat._extension import Checks, widened

_INT = (torch.int32,)
_ops = torch.ops.turnout


def _method(function: str, pool_method: int) -> str:
    if pool_method not in (0, 1):
        raise ValueError(f"{function}: pool_method is {pool_method}, expected 0 for max or 1 for avg")
    return "avg" if pool_method else "max"


class _Rows:
    """A tensor [N, X, Y, Z, K] as rows [N * X * Y * Z, K], also if it is not contiguous."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self.rows = tensor.reshape(-1, tensor.shape[-1])

    def write_back(self) -> None:
        if self.rows.data_ptr() != self._tensor.data_ptr():
            self._tensor.copy_(self.rows.reshape(self._tensor.shape))


def _add_to_lists(lists: Tensor, cell_of: Tensor, point_of: Tensor) -> tuple[Tensor, Tensor]:
    """Appends points to the lists of their cells; returns all pairs of a cell and a point, by cell.

    A list has the number of its points first. It takes no more points than it has room for.
    """
    room = lists.shape[1] - 1
    before = lists[:, 0].long()
    _, counts = torch.unique_consecutive(cell_of, return_counts=True)
    starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    place = before[cell_of] + torch.arange(len(cell_of)) - starts
    is_kept = place < room
    cell_of, point_of, place = cell_of[is_kept], point_of[is_kept], place[is_kept]
    lists[cell_of, place + 1] = point_of.to(lists.dtype)
    changed, added = torch.unique_consecutive(cell_of, return_counts=True)
    lists[changed, 0] += added.to(lists.dtype)
    return pairs_of(lists) if before.any() else (cell_of, point_of)


def pairs_of(lists: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs of a cell and a point of lists [cells, 1 + room]."""
    cells = lists[:, 0].nonzero()[:, 0]
    chosen = lists[cells]
    is_listed = torch.arange(lists.shape[1] - 1) < chosen[:, :1]
    row, place = is_listed.nonzero(as_tuple=True)
    return cells[row], chosen[row, place + 1].long()


def write_roiaware(
    function: str, z: str, margin: float, dtypes: tuple[torch.dtype, ...], rois: Tensor, pts: Tensor,
    pts_feature: Tensor, argmax: Tensor, pts_idx_of_voxels: Tensor, pooled_features: Tensor,
    pool_method: int,
) -> None:  # fmt: skip
    method = _method(function, pool_method)
    checks = Checks(function)
    rois = checks.tensor("rois", rois, "N 7", *dtypes)
    points = checks.tensor("pts", pts, "n 3", rois.dtype)
    features = checks.tensor("pts_feature", pts_feature, "n C", *dtypes)
    largest = checks.tensor("argmax", argmax, "N X Y Z C", *_INT)
    lists = _Rows(checks.tensor("pts_idx_of_voxels", pts_idx_of_voxels, "N X Y Z P", *_INT))
    pooled = checks.tensor("pooled_features", pooled_features, "N X Y Z C", features.dtype)
    size = list(pooled.shape[1:4])
    if method == "max":
        largest.fill_(-1)
    if 0 in (len(rois), len(points), *size, lists.rows.shape[1]):
        return
    room = lists.rows.shape[1] - 1
    cell_of, point_of = _ops.roiaware_points(widened(rois), widened(points), size, room, z, margin)
    cell_of, point_of = _add_to_lists(lists.rows, cell_of, point_of)
    lists.write_back()
    cells, number = torch.unique_consecutive(cell_of, return_inverse=True)
    if not len(cells):
        return
    results = _Rows(pooled)
    rows = features[point_of]
    if method == "avg":
        results.rows[cells] = _ops.scatter_mean(rows, number, len(cells))
    else:
        # scatter_max does not take the lowest finite number. That of a narrower type is above it in float64.
        has_lowest = (features == torch.finfo(features.dtype).min).any()
        values, first = _ops.scatter_max(rows.double() if has_lowest else rows, number, len(cells), True)
        is_taken = first < len(rows)
        winners = _Rows(largest)
        points_of = torch.cat([point_of, point_of.new_full((1,), -1)])
        winners.rows[cells] = points_of[first].int()
        winners.write_back()
        results.rows[cells] = torch.where(is_taken, values.to(rows.dtype), results.rows[cells])
    results.write_back()


def add_roiaware_grad(
    function: str, dtypes: tuple[torch.dtype, ...], pts_idx_of_voxels: Tensor, argmax: Tensor,
    grad_out: Tensor, grad_in: Tensor, pool_method: int,
) -> None:  # fmt: skip
    method = _method(function, pool_method)
    checks = Checks(function)
    grad = checks.tensor("grad_out", grad_out, "N X Y Z C", *dtypes)
    lists = checks.tensor("pts_idx_of_voxels", pts_idx_of_voxels, "N X Y Z P", *_INT)
    winner = checks.tensor("argmax", argmax, "N X Y Z C", *_INT)
    to = checks.tensor("grad_in", grad_in, "n C", grad.dtype)
    rows, channels = to.shape
    if method == "avg":
        cell_of, point_of = pairs_of(lists.reshape(-1, lists.shape[-1]))
        _refuse_points(function, "pts_idx_of_voxels", point_of, rows)
        lane = torch.promote_types(grad.dtype, torch.float32)
        share = 1 / lists.reshape(-1, lists.shape[-1])[cell_of, :1].to(lane)
        parts = grad.reshape(-1, channels)[cell_of].to(lane) * share
        to += _ops.scatter_sum(parts, point_of, rows).to(to.dtype)
        return
    winner = winner.reshape(-1, channels)
    cell, channel = (winner >= 0).nonzero(as_tuple=True)
    point_of = winner[cell, channel].long()
    _refuse_points(function, "argmax", point_of, rows)
    parts = grad.reshape(-1, channels)[cell, channel]
    sums = _ops.scatter_sum(parts.unsqueeze(1), point_of * channels + channel, rows * channels)
    to += sums.reshape(rows, channels)


def _refuse_points(function: str, name: str, points: Tensor, rows: int) -> None:
    is_outside = (points < 0) | (points >= rows)
    if is_outside.any():
        value = points[is_outside][0].item()
        raise IndexError(f"{function}: {name} has the point {value}, expected 0 .. {rows - 1}")


def write_roipoint(
    function: str, z: str, margin: float, dtypes: tuple[torch.dtype, ...], xyz: Tensor, boxes3d: Tensor,
    pts_feature: Tensor, pooled_features: Tensor, pooled_empty_flag: Tensor,
) -> None:  # fmt: skip
    checks = Checks(function)
    points = checks.tensor("xyz", xyz, "B N 3", *dtypes)
    boxes = checks.tensor("boxes3d", boxes3d, "B M 7", points.dtype)
    features = checks.tensor("pts_feature", pts_feature, "B N C", points.dtype)
    checks = Checks(function, B=points.shape[0], M=boxes.shape[1], **{"C+3": features.shape[2] + 3})
    pooled = checks.tensor("pooled_features", pooled_features, "B M S C+3", points.dtype)
    empty = checks.tensor("pooled_empty_flag", pooled_empty_flag, "B M", *_INT)
    tensors = widened(points), widened(features), widened(boxes)
    rows, is_empty = _ops.roipoint_pool3d(*tensors, pooled.shape[2], z, margin)
    is_written = (empty == 0) & (is_empty == 0)  # a flag that is set skips the box
    pooled[is_written] = rows[is_written].to(pooled.dtype)
    empty[is_empty != 0] = 1
