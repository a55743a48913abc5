"""Vector pooling of ``pointnet2_stack_cuda``, for PV-RCNN++.

Lists and entries are in the order of the queries; the compiled functions write them in any order.
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor

from turnout.compat._extension import Checks
from turnout.compat._grouping import index_errors

_F32, _INT, _COUNTS = torch.float32, torch.int32, (torch.int32, torch.int64)
# The compiled function keeps at most this many neighbours of a query.
_MOST_NEIGHBORS = 1000
_ALL = 2**31 - 1
_ops = torch.ops.turnout


def _region(neighbor_type: int) -> str:
    return "ball" if operator.index(neighbor_type) == 1 else "cube"


def _limit(nsample: int, most: int) -> int:
    nsample = operator.index(nsample)
    return min(nsample, most) if nsample > 0 else most


def query_stacked_local_neighbor_idxs(
    support_xyz: Tensor,
    xyz_batch_cnt: Tensor,
    new_xyz: Tensor,
    new_xyz_batch_cnt: Tensor,
    stack_neighbor_idxs: Tensor,
    start_len: Tensor,
    cumsum: Tensor,
    avg_length_of_neighbor_idxs: int,
    max_neighbour_distance: float,
    nsample: int,
    neighbor_type: int,
) -> int:
    name = "query_stacked_local_neighbor_idxs_wrapper_stack"
    checks = Checks(name)
    points = checks.tensor("support_xyz", support_xyz, "N 3", _F32)
    counts = checks.tensor("xyz_batch_cnt", xyz_batch_cnt, "B", *_COUNTS)
    queries = checks.tensor("new_xyz", new_xyz, "M 3", _F32)
    query_counts = checks.tensor("new_xyz_batch_cnt", new_xyz_batch_cnt, "B", *_COUNTS)
    to, where = (
        checks.tensor("stack_neighbor_idxs", stack_neighbor_idxs, "room", _INT),
        checks.tensor("start_len", start_len, "M 2", _INT),
    )
    end = checks.tensor("cumsum", cumsum, "1", _INT)
    room = operator.index(avg_length_of_neighbor_idxs) * len(queries)
    if len(to) < room:
        raise ValueError(f"{name}: stack_neighbor_idxs has shape [{len(to)}], expected at least [{room}]")
    if (first := int(end[0])) < 0:
        raise ValueError(f"{name}: cumsum[0] is {first}, expected 0 or more")
    limit, region = _limit(nsample, _MOST_NEIGHBORS), _region(neighbor_type)
    with index_errors(
        name, counts="xyz_batch_cnt", new_counts="new_xyz_batch_cnt", xyz="support_xyz",
        radius="max_neighbour_distance",
    ):  # fmt: skip
        arguments = points, counts, queries, query_counts, float(max_neighbour_distance)
        rows, starts = _ops.neighbor_lists(*arguments, limit, region)
    kept = max(min(len(rows), room - first), 0)
    to[first : first + kept] = rows[:kept]
    where[:, 0] = first + starts[:-1]
    where[:, 1] = starts.diff()
    end += len(rows)
    return 0


def query_three_nn_of_lists(
    support_xyz: Tensor,
    new_xyz: Tensor,
    new_xyz_grid_centers: Tensor,
    new_xyz_grid_idxs: Tensor,
    new_xyz_grid_dist2: Tensor,
    stack_neighbor_idxs: Tensor,
    start_len: Tensor,
    M: int,  # noqa: N803
    num_total_grids: int,
) -> int:
    name = "query_three_nn_by_stacked_local_idxs_wrapper_stack"
    checks = Checks(name, M=M, num_total_grids=num_total_grids)
    points = checks.tensor("support_xyz", support_xyz, "N 3", _F32)
    checks.tensor("new_xyz", new_xyz, "M 3", _F32)
    centers = checks.tensor("new_xyz_grid_centers", new_xyz_grid_centers, "M num_total_grids 3", _F32)
    idx = checks.tensor("new_xyz_grid_idxs", new_xyz_grid_idxs, "M num_total_grids 3", _INT)
    dist2 = checks.tensor("new_xyz_grid_dist2", new_xyz_grid_dist2, "M num_total_grids 3", _F32)
    stack = checks.tensor("stack_neighbor_idxs", stack_neighbor_idxs, "entries", *_COUNTS)
    where = checks.tensor("start_len", start_len, "M 2", *_COUNTS).long()
    squares, found = _ops.three_nn_of_lists(points, centers, *_listed(name, stack, where, len(points)))
    dist2.copy_(squares)
    idx.copy_(found)
    return 0


def _listed(name: str, stack: Tensor, where: Tensor, points: int) -> tuple[Tensor, Tensor]:
    """The lists in the order of the queries, whatever the order in the stack is."""
    outside = (where < 0).any(1) | (where.sum(1) > len(stack))
    if outside.any():
        query = int(outside.nonzero()[0])
        raise IndexError(
            f"{name}: start_len[{query}] is {where[query].tolist()}, expected a range of the {len(stack)} "
            "elements of stack_neighbor_idxs"
        )
    lengths = where[:, 1]
    starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    at = torch.arange(int(starts[-1])) + (where[:, 0] - starts[:-1]).repeat_interleave(lengths)
    rows = stack[at]
    if (outside := (rows < 0) | (rows >= points)).any():
        place = int(at[outside.nonzero()[0]])
        raise IndexError(
            f"{name}: stack_neighbor_idxs[{place}] is {int(stack[place])}, expected 0 .. {points - 1}"
        )
    return rows, starts


def vector_pool(
    support_xyz: Tensor,
    xyz_batch_cnt: Tensor,
    support_features: Tensor,
    new_xyz: Tensor,
    new_xyz_batch_cnt: Tensor,
    new_features: Tensor,
    new_local_xyz: Tensor,
    point_cnt_of_grid: Tensor,
    grouped_idxs: Tensor,
    num_grid_x: int,
    num_grid_y: int,
    num_grid_z: int,
    max_neighbour_distance: float,
    use_xyz: int,
    num_max_sum_points: int,
    nsample: int,
    neighbor_type: int,
    pooling_type: int,
) -> int:
    """Adds to ``new_features``, ``new_local_xyz`` and ``point_cnt_of_grid``: callers fill them with zeros."""
    name = "vector_pool_wrapper"
    grid = [operator.index(one) for one in (num_grid_x, num_grid_y, num_grid_z)]
    checks = Checks(name, G=grid[0] * grid[1] * grid[2])
    points = checks.tensor("support_xyz", support_xyz, "N 3", _F32)
    counts = checks.tensor("xyz_batch_cnt", xyz_batch_cnt, "B", *_COUNTS)
    features = checks.tensor("support_features", support_features, "N C", _F32)
    queries = checks.tensor("new_xyz", new_xyz, "M 3", _F32)
    query_counts = checks.tensor("new_xyz_batch_cnt", new_xyz_batch_cnt, "B", *_COUNTS)
    pooled = checks.tensor("new_features", new_features, "M C_out", _F32)
    cell_counts = checks.tensor("point_cnt_of_grid", point_cnt_of_grid, "M G", *_COUNTS)
    cells = cell_counts.shape[1]
    checks.size("3G", 3 * cells)
    local = checks.tensor("new_local_xyz", new_local_xyz, "M 3G", _F32)
    entries = checks.tensor("grouped_idxs", grouped_idxs, "room 3", *_COUNTS)
    if pooled.shape[1] % cells != 0:
        raise ValueError(
            f"{name}: new_features.shape[1] is {pooled.shape[1]}, expected a multiple of {cells}"
        )
    room, kind = operator.index(num_max_sum_points), operator.index(pooling_type)
    if len(entries) < room:
        raise ValueError(f"{name}: grouped_idxs has {len(entries)} rows, expected at least {room}")
    if kind not in (0, 1):
        return 0
    radius, slots, limit = float(max_neighbour_distance), pooled.shape[1] // cells, _limit(nsample, _ALL)
    with index_errors(
        name, counts="xyz_batch_cnt", new_counts="new_xyz_batch_cnt", xyz="support_xyz",
        radius="max_neighbour_distance",
    ):  # fmt: skip
        near = points, counts, queries, query_counts, radius
        lists = _ops.neighbor_lists(*near, _ALL if kind == 1 else limit, _region(neighbor_type))
        results = _ops.vector_pool(
            points, features, queries, *lists, radius, grid, slots, "first" if kind == 1 else "sum", limit
        )
    sums, locals_, taken, grouped = results
    # Cells without points, which are most of them, stay as they are.
    at, width = taken.nonzero(as_tuple=True), min(slots, features.shape[1])

    def update(to: Tensor, values: Tensor) -> None:
        to[at] = to[at] + values[at] if kind == 0 else values[at]

    update(pooled.view(-1, cells, slots)[..., :width], sums[..., :width])
    if use_xyz:
        update(local.view(-1, cells, 3), locals_)
    cell_counts += taken
    grouped = grouped[grouped[:, 2] >= 0]
    kept = min(len(grouped), max(room, 0))
    entries[:kept] = grouped[:kept]
    return len(grouped)


def vector_pool_grad(
    grad_new_features: Tensor,
    point_cnt_of_grid: Tensor,
    grouped_idxs: Tensor,
    grad_support_features: Tensor,
) -> int:
    name = "vector_pool_grad_wrapper"
    checks = Checks(name)
    grad = checks.tensor("grad_new_features", grad_new_features, "M C_out", _F32)
    cell_counts = checks.tensor("point_cnt_of_grid", point_cnt_of_grid, "M G", *_COUNTS)
    grouped = checks.tensor("grouped_idxs", grouped_idxs, "entries 3", *_COUNTS)
    to = checks.tensor("grad_support_features", grad_support_features, "N C", _F32)
    cells = cell_counts.shape[1]
    if cells == 0 or grad.shape[1] % cells != 0:
        raise ValueError(
            f"{name}: grad_new_features.shape[1] is {grad.shape[1]}, expected a multiple of the {cells} "
            "columns of point_cnt_of_grid"
        )
    if (negative := grouped[:, 2] < 0).any():
        at = int(negative.nonzero()[0])
        raise IndexError(f"{name}: grouped_idxs[{at}, 2] is {int(grouped[at, 2])}, expected 0 .. {cells - 1}")
    with index_errors(name, indices="grouped_idxs", grouped="grouped_idxs"):
        arguments = grad.reshape(len(grad), cells, -1), cell_counts, grouped, *to.shape
        to += _ops.vector_pool_backward(*arguments, "mean")
    return 1
