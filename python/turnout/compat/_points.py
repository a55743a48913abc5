"""Sampling and neighbours of points as compiled modules have them: results are written into given tensors.

Elements that the compiled functions leave as they are stay so here, too: callers fill them before. Each
function takes the ``Checks`` of the call and its tensors as pairs of a name and a value, for messages.
"""

from __future__ import annotations

from typing import Any

import torch

from turnout.compat._extension import Checks, widened

F32 = (torch.float32,)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
COUNTS = (torch.int32, torch.int64)
INT = torch.int32
# float32 squares it to the least positive number: only a distance of 0 is below it.
_ONLY_AT_ZERO = 3.8e-23

Named = tuple[str, Any]
_ops = torch.ops.turnout


def write_samples(checks: Checks, xyz: Named, temp: Named, idx: Named, *, matrix: bool = False) -> None:
    """Points [b, n, 3] or distances [b, n, n], temp [b, n], idx int32 [b, m]."""
    points = checks.tensor(*xyz, "b n n" if matrix else "b n 3", *F32)
    distances, out = checks.tensor(*temp, "b n", *F32), checks.tensor(*idx, "b m", INT)
    sample = _ops.furthest_point_sample_by_distances if matrix else _ops.furthest_point_sample
    found, least = sample(points, out.shape[1], distances, True)
    out.copy_(found)
    distances.copy_(least)


def write_stacked_samples(
    checks: Checks, xyz: Named, temp: Named, counts: Named, idx: Named, samples: Named
) -> None:
    """Points [N, 3], temp [N], counts [B], idx int32 [M], samples [B]: rows of the whole tensor."""
    points, distances = checks.tensor(*xyz, "N 3", *F32), checks.tensor(*temp, "N", *F32)
    rows, wanted = checks.tensor(*counts, "B", *COUNTS), checks.tensor(*samples, "B", *COUNTS)
    found, least = _ops.furthest_point_sample_stacked(points, rows, wanted, distances, True)
    checks.size("M", len(found))
    checks.tensor(*idx, "M", INT).copy_(found)
    distances.copy_(least)


def write_balls(
    checks: Checks,
    new_xyz: Named,
    xyz: Named,
    idx: Named,
    radius: float,
    min_radius: float = 0.0,
    *,
    has_centre: bool = False,
    dtypes: tuple[torch.dtype, ...] = F32,
) -> None:
    """Queries [b, m, 3], points [b, n, 3], idx int32 [b, m, nsample]; rows without a point stay.

    If ``has_centre``, a point at the query is found even if the radius is 0.
    """
    queries = checks.tensor(*new_xyz, "b m 3", *dtypes)
    points = checks.tensor(*xyz, "b n 3", queries.dtype)
    out = checks.tensor(*idx, "b m nsample", INT)
    radius = abs(float(radius))
    if has_centre and torch.tensor(radius, dtype=torch.float32).square() == 0:
        radius = _ONLY_AT_ZERO
    arguments = widened(points), widened(queries), radius, out.shape[2], abs(float(min_radius))
    rows, found = _ops.ball_query(*arguments)
    out.copy_(torch.where(found[..., None] > 0, rows, out))


def write_stacked_balls(
    checks: Checks,
    new_xyz: Named,
    new_counts: Named,
    xyz: Named,
    counts: Named,
    idx: Named,
    radius: float,
    *,
    dtypes: tuple[torch.dtype, ...] = F32,
) -> None:
    """Queries [M, 3], counts [B], points [N, 3], counts [B], idx int32 [M, nsample]."""
    queries = checks.tensor(*new_xyz, "M 3", *dtypes)
    of_queries = checks.tensor(*new_counts, "B", *COUNTS)
    points = checks.tensor(*xyz, "N 3", queries.dtype)
    of_points = checks.tensor(*counts, "B", *COUNTS)
    out = checks.tensor(*idx, "M nsample", INT)
    arguments = widened(points), of_points, widened(queries), of_queries, abs(float(radius)), out.shape[1]
    _write_found(out, *_ops.ball_query_stacked(*arguments))


def write_voxel_query(
    checks: Checks,
    new_xyz: Named,
    xyz: Named,
    new_coords: Named,
    point_indices: Named,
    idx: Named,
    radius: float,
    ranges: tuple[int, int, int],
) -> None:
    """Queries [M, 3], points [N, 3], coordinates [M, 4], rows [B, Z, Y, X], idx int32 [M, nsample]."""
    queries, points = checks.tensor(*new_xyz, "M 3", *F32), checks.tensor(*xyz, "N 3", *F32)
    coords = checks.tensor(*new_coords, "M 4", *COUNTS)
    grid = checks.tensor(*point_indices, "B Z Y X", *COUNTS)
    out = checks.tensor(*idx, "M nsample", INT)
    try:
        found = _ops.voxel_query(points, queries, coords, grid, abs(float(radius)), *ranges, out.shape[1])
    except ValueError as error:
        if "_indices[" in str(error) or "_coords[" in str(error):
            raise IndexError(*error.args) from None
        raise
    _write_found(out, *found)


def _write_found(out: torch.Tensor, rows: torch.Tensor, found: torch.Tensor) -> None:
    """A query without a point has -1 in its first element, and keeps the others."""
    if out.shape[1] == 0:
        return
    kept = out.clone()
    kept[:, 0] = -1
    out.copy_(torch.where(found[:, None] > 0, rows, kept))


def _columns(points: Named) -> str:
    """The columns of rows that :func:`_triples` takes: those of the tensor if it has more than three."""
    is_wide = isinstance(points[1], torch.Tensor) and points[1].dim() == 3 and points[1].shape[2] > 3
    return "columns" if is_wide else "3"


def _triples(rows: torch.Tensor) -> torch.Tensor:
    """Rows [b, n, columns] as points [b, n, 3]: the first 3 b n numbers of the whole tensor.

    mmcv's kernel reads them so, whatever the number of columns is, and networks were trained with it.
    """
    return rows.reshape(-1)[: 3 * rows.shape[0] * rows.shape[1]].view(*rows.shape[:2], 3)


def write_three_nn(
    checks: Checks,
    unknown: Named,
    known: Named,
    dist2: Named,
    idx: Named,
    *,
    dtypes: tuple[torch.dtype, ...] = F32,
    takes_wide_rows: bool = False,
) -> None:
    """Points [b, n, 3] and [b, m, 3], dist2 and idx int32 [b, n, 3]; rows of mmcv may be longer."""
    columns = _columns(unknown) if takes_wide_rows else "3"
    queries = _triples(checks.tensor(*unknown, f"b n {columns}", *dtypes))
    points = _triples(checks.tensor(*known, f"b m {columns}", queries.dtype))
    distances = checks.tensor(*dist2, "b n 3", queries.dtype)
    out = checks.tensor(*idx, "b n 3", INT)
    squares, rows = _ops.three_nn(widened(queries), widened(points))
    distances.copy_(squares)
    out.copy_(rows)


def write_stacked_three_nn(
    checks: Checks, unknown: Named, of_unknown: Named, known: Named, of_known: Named, dist2: Named, idx: Named
) -> None:
    """Points [N, 3], counts [B], points [M, 3], counts [B], dist2 and idx int32 [N, 3]."""
    queries, points = checks.tensor(*unknown, "N 3", *F32), checks.tensor(*known, "M 3", *F32)
    counts = checks.tensor(*of_unknown, "B", *COUNTS), checks.tensor(*of_known, "B", *COUNTS)
    distances, out = checks.tensor(*dist2, "N 3", *F32), checks.tensor(*idx, "N 3", INT)
    squares, rows = _ops.three_nn_stacked(queries, counts[0], points, counts[1])
    distances.copy_(squares)
    out.copy_(rows)


def write_nearest(checks: Checks, xyz: Named, new_xyz: Named, idx: Named, dist2: Named) -> None:
    """Points [b, n, 3 or more], queries [b, m, 3 or more], idx int32 and dist2 float32 [b, m, nsample]."""
    columns = _columns(xyz)
    points = _triples(checks.tensor(*xyz, f"b n {columns}", *FLOATS))
    queries = _triples(checks.tensor(*new_xyz, f"b m {columns}", points.dtype))
    out, distances = checks.tensor(*idx, "b m nsample", INT), checks.tensor(*dist2, "b m nsample", *F32)
    rows, squares = _ops.knn(widened(points), widened(queries), out.shape[2])
    out.copy_(rows)
    distances.copy_(squares)
