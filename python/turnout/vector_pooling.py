"""Lists of the neighbours of queries, and vector pooling over them (PV-RCNN++)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import SupportsFloat

    from turnout.typing import Array, Int, NeighborRegion, R, Source, VectorPoolMode

__all__ = ["neighbor_lists", "three_nn_of_lists", "vector_pool", "vector_pool_backward"]

_ALL = 2**31 - 1


def neighbor_lists(
    xyz: Source[R],
    counts: Array,
    new_xyz: Array,
    new_counts: Array,
    radius: SupportsFloat,
    nsample: Int = _ALL,
    region: NeighborRegion = "cube",
    *,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """The points in a cube or ball around each query, as lists that follow each other in one array.

    A point of the query's cloud is in the cube if ``|dx|``, ``|dy|`` and ``|dz|`` are at most ``radius``, and
    in the ball if ``d2 = (dx*dx + dy*dy) + dz*dz`` is at most ``radius^2``. The radius is rounded to the type
    of ``xyz``. A point or query with NaN is in no region. Lists are by ascending row.

    Args:
        xyz: ``[N, 3]``, float32 or float64.
        counts: ``[B]``, int32 or int64: the points of each cloud. They sum to N.
        new_xyz: ``[M, 3]``, dtype of ``xyz``: the queries.
        new_counts: ``[B]``, int32 or int64: the queries of each cloud. They sum to M.
        radius: 0 or more.
        nsample: how many points of each query at most, by default all.
        region: ``"cube"`` or ``"ball"``.
        out: where to write: a tuple of rows, int32 or int64, and starts, with None to allocate one.

    Returns:
        rows: ``[entries]``: rows of ``xyz``, by default int32.
        starts: ``[M + 1]``, int64: the list of query q is ``rows[starts[q] : starts[q + 1]]``.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: an argument is not an array.

    Example:
        >>> xyz = np.array([[1, 0, 0], [5, 5, 5], [1, 1, -1]], np.float32)
        >>> one, query = np.array([1]), np.zeros((1, 3), np.float32)
        >>> rows, starts = turnout.neighbor_lists(xyz, np.array([3]), query, one, 1.0)
        >>> rows.tolist(), starts.tolist()
        ([0, 2], [0, 2])
        >>> turnout.neighbor_lists(xyz, np.array([3]), query, one, 1.0, region="ball")[0].tolist()
        [0]
    """
    result: tuple[R, R] = _core.neighbor_lists(xyz, counts, new_xyz, new_counts, radius, nsample, region, out)
    return result


def three_nn_of_lists(
    xyz: Source[R],
    centers: Array,
    rows: Array,
    starts: Array,
    *,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """The three points of each query's list that are nearest to each of the query's centers.

    They are in ascending order of ``d2 = (dx*dx + dy*dy) + dz*dz``, of equals in the order of the list.
    Points whose d2 is infinite or NaN are not found. If one or two are found, copies of the first one replace
    the others; if none is found, dist2 is infinity and idx is -1.

    Args:
        xyz: ``[N, 3]``, float32 or float64.
        centers: ``[M, G, 3]``, dtype of ``xyz``.
        rows: ``[entries]``, int32 or int64: rows of ``xyz``, as from :func:`neighbor_lists`.
        starts: ``[M + 1]``, int32 or int64.
        out: where to write: a tuple of dist2 and of idx, int32 or int64, with None to allocate one.

    Returns:
        dist2: ``[M, G, 3]``, dtype of ``xyz``: the squares of the distances.
        idx: ``[M, G, 3]``, by default int32: rows of ``xyz``.

    Raises:
        ValueError: arguments that do not fit together, a row that does not exist, starts that do not ascend
            from 0 to the number of rows.
        TypeError: an argument is not an array.

    Example:
        >>> xyz = np.zeros((4, 3), np.float32)
        >>> xyz[:, 0] = [0, 1, 2, 5]
        >>> rows, starts = np.array([0, 2, 3]), np.array([0, 3])
        >>> dist2, idx = turnout.three_nn_of_lists(xyz, xyz[None, 3:], rows, starts)
        >>> idx.tolist(), dist2.tolist()
        ([[[3, 2, 0]]], [[[0.0, 9.0, 25.0]]])
    """
    result: tuple[R, R] = _core.three_nn_of_lists(xyz, centers, rows, starts, out)
    return result


def vector_pool(
    xyz: Source[R],
    features: Array,
    new_xyz: Array,
    rows: Array,
    starts: Array,
    radius: SupportsFloat,
    grid: Sequence[int],
    slots: Int,
    mode: VectorPoolMode = "mean",
    nsample: Int = _ALL,
    *,
    out: tuple[R | None, R | None, R | None, R | None] | None = None,
) -> tuple[R, R, R, R]:
    """Pools the features of the neighbours of each query in the cells of a cube around it.

    With ``local = point - query`` and ``grid = X, Y, Z``, a neighbour with ``|local| <= radius`` in each axis
    is in the cell::

        k = floor((local + radius) / (2 * radius / grid)) in each axis, 0 if that is NaN
        cell = (k_x * Y + k_y) * Z + k_z, at most X * Y * Z - 1

    Only the cell is limited: a point at +radius in y is in the next row of cells along x. Other neighbours
    have no cell. Channel i belongs to the slot ``i mod slots``. Neighbours are taken in the order of the list
    until ``nsample`` are; ``"sum"`` adds features and local coordinates, ``"mean"`` divides them by the
    number of neighbours, ``"first"`` assigns those of the first neighbour of each cell and takes no other. Of
    channels of the same slot, it keeps the last one.

    Numbers are computed in the type of ``xyz``; results have the same bits for any number of threads and any
    instruction set.

    Args:
        xyz: ``[N, 3]``, float32 or float64.
        features: ``[N, C]``, dtype of ``xyz``.
        new_xyz: ``[M, 3]``, dtype of ``xyz``: the queries.
        rows: ``[entries]``, int32 or int64: rows of ``xyz``, as from :func:`neighbor_lists`.
        starts: ``[M + 1]``, int32 or int64.
        radius: 0 or more: half of the edge of the cube.
        grid: the numbers of cells in x, y and z, 1 to 1024.
        slots: results of each cell. Usually C, or a divisor of it.
        mode: ``"mean"``, ``"sum"`` or ``"first"``.
        nsample: how many neighbours of each query are taken at most, by default all.
        out: where to write: a tuple of the four results, with None to allocate one.

    Returns:
        pooled: ``[M, X * Y * Z, slots]``, dtype of ``xyz``.
        local_xyz: ``[M, X * Y * Z, 3]``, dtype of ``xyz``: local coordinates, pooled likewise.
        cell_counts: ``[M, X * Y * Z]``, int32: how many neighbours are taken.
        grouped: ``[entries, 3]``, int32: the row, query and cell of each entry, -1 if it is not taken.

    Raises:
        ValueError: arguments that do not fit together, a row that does not exist, starts that do not ascend
            from 0 to the number of rows.
        TypeError: an argument is not an array.

    Example:
        >>> xyz = np.array([[-0.5, 0, 0], [-0.2, 0, 0], [0.5, 0, 0]], np.float32)
        >>> features = np.array([[1], [2], [4]], np.float32)
        >>> query, one = np.zeros((1, 3), np.float32), np.array([1])
        >>> lists = turnout.neighbor_lists(xyz, np.array([3]), query, one, 1.0)
        >>> pooled, local_xyz, cell_counts, grouped = turnout.vector_pool(
        ...     xyz, features, query, *lists, 1.0, (2, 1, 1), 1
        ... )
        >>> pooled.ravel().tolist(), cell_counts.tolist()
        ([1.5, 4.0], [[2, 1]])
    """
    result: tuple[R, R, R, R] = _core.vector_pool(
        xyz, features, new_xyz, rows, starts, radius, grid, slots, mode, nsample, out
    )
    return result


def vector_pool_backward(
    grad_pooled: Source[R],
    cell_counts: Array,
    grouped: Array,
    points: Int,
    channels: Int,
    mode: VectorPoolMode = "mean",
    *,
    out: R | None = None,
) -> R:
    """The gradient of :func:`vector_pool` with respect to ``features``.

    Each entry of ``grouped`` adds ``grad_pooled[query, cell, i mod slots] * share`` to channel i of its row,
    in the order of the entries. The share is ``1 / max(cell_counts[query, cell], 1)`` for ``"mean"``,
    otherwise 1. With ``"first"``, only the last channel of each slot has a gradient.

    Args:
        grad_pooled: ``[M, cells, slots]``, float32 or float64.
        cell_counts: ``[M, cells]``, int32 or int64.
        grouped: ``[entries, 3]``, int32 or int64: the row, query and cell. A negative cell is no cell.
        points: N, the rows of ``features``.
        channels: C, the columns of ``features``.
        mode: ``"mean"``, ``"sum"`` or ``"first"``.
        out: where to write.

    Returns:
        grad_features: ``[N, C]``, dtype of ``grad_pooled``.

    Raises:
        ValueError: arguments that do not fit together, a row, query or cell that does not exist.
        TypeError: an argument is not an array.

    Example:
        >>> grad = np.array([[[2.0], [8.0]]], np.float32)
        >>> grouped = np.array([[0, 0, 0], [1, 0, 0], [2, 0, 1]])
        >>> turnout.vector_pool_backward(grad, np.array([[2, 1]]), grouped, 3, 1).ravel().tolist()
        [1.0, 1.0, 8.0]
    """
    result: R = _core.vector_pool_backward(grad_pooled, cell_counts, grouped, points, channels, mode, out)
    return result
