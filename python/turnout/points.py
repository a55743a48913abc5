"""Points of clouds: samples that cover them, points within a radius, nearest points."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from turnout import _core

if TYPE_CHECKING:
    from typing import SupportsFloat

    from turnout.typing import Array, Int, R, Source

__all__ = [
    "ball_query",
    "ball_query_stacked",
    "furthest_point_sample",
    "furthest_point_sample_by_distances",
    "furthest_point_sample_stacked",
    "knn",
    "three_nn",
    "three_nn_stacked",
    "voxel_query",
]


def furthest_point_sample(
    xyz: Source[R], samples: Int, initial: Array | None = None, *, out: R | None = None
) -> R:
    """Samples of a cloud that cover it: each next one is the point that is furthest from those before.

    The first sample is point 0. Of points at the same distance, the one with the lowest row is chosen::

        distances[k] = min(distances[k], d2(k, last sample))
        next = the first k with the largest distances[k], or 0 if none exceeds -1

    where ``d2 = (dx*dx + dy*dy) + dz*dz`` and NaN does not count in the minimum. A point with NaN therefore
    keeps its distance, is the second sample and all further ones. More samples than points repeat a point at
    the distance 0.

    Numbers are computed in the type of ``xyz``; results have the same bits for any number of threads and any
    instruction set. Inputs may be read-only and strided; strided ones are copied first.

    Args:
        xyz: ``[N, 3]`` or ``[B, N, 3]``, float32 or float64.
        samples: how many of each cloud. A cloud without points has none.
        initial: ``[N]`` or ``[B, N]``, dtype of ``xyz``: the squares of the distances before the first
            sample, by default 1e10. A point whose distance is NaN is not sampled, unless it is point 0.
        out: where to write, int32 or int64.

    Returns:
        idx: ``[samples]`` or ``[B, samples]``: rows of the cloud. ``out``, or a new int32 array, a torch
        tensor when ``xyz`` is one, else a NumPy array.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: an argument is not an array.

    Example:
        >>> xyz = np.zeros((5, 3), np.float32)
        >>> xyz[:, 0] = [0, 1, 2, 3, 10]
        >>> turnout.furthest_point_sample(xyz, 4).tolist()
        [0, 4, 3, 1]
    """
    result: tuple[R, R] = _core.furthest_point_sample(
        xyz, samples, initial, False, None if out is None else (out,)
    )
    return result[0]


def furthest_point_sample_stacked(
    xyz: Source[R],
    counts: Array,
    sample_counts: Array,
    initial: Array | None = None,
    *,
    out: R | None = None,
) -> R:
    """Samples of clouds that follow each other in the rows of one array.

    The definition is that of :func:`furthest_point_sample`. Samples are rows of ``xyz``.

    Args:
        xyz: ``[N, 3]``, float32 or float64.
        counts: ``[B]``, int32 or int64: the rows of each cloud. They sum to N.
        sample_counts: ``[B]``, int32 or int64: the samples of each cloud.
        initial: ``[N]``, as for :func:`furthest_point_sample`.
        out: where to write, int32 or int64.

    Returns:
        idx: ``[sum of sample_counts]``, by default int32.

    Example:
        >>> xyz = np.zeros((6, 3), np.float32)
        >>> xyz[:, 0] = [0, 1, 2, 50, 54, 52]
        >>> turnout.furthest_point_sample_stacked(xyz, np.array([3, 3]), np.array([2, 2])).tolist()
        [0, 2, 3, 4]
    """
    result: tuple[R, R] = _core.furthest_point_sample_stacked(
        xyz, counts, sample_counts, initial, False, None if out is None else (out,)
    )
    return result[0]


def furthest_point_sample_by_distances(
    matrix: Source[R], samples: Int, initial: Array | None = None, *, out: R | None = None
) -> R:
    """Furthest point sampling by a matrix of distances, as between features.

    ``matrix[i, k]`` replaces the square of the distance of points i and k in the definition of
    :func:`furthest_point_sample`.

    Args:
        matrix: ``[N, N]`` or ``[B, N, N]``, float32 or float64.
        samples: how many of each cloud.
        initial: ``[N]`` or ``[B, N]``, as for :func:`furthest_point_sample`.
        out: where to write, int32 or int64.

    Returns:
        idx: ``[samples]`` or ``[B, samples]``, by default int32.

    Example:
        >>> matrix = np.array([[0, 1, 4], [1, 0, 1], [4, 1, 0]], np.float32)
        >>> turnout.furthest_point_sample_by_distances(matrix, 3).tolist()
        [0, 2, 1]
    """
    result: tuple[R, R] = _core.furthest_point_sample_by_distances(
        matrix, samples, initial, False, None if out is None else (out,)
    )
    return result[0]


def ball_query(
    xyz: Source[R],
    new_xyz: Array,
    radius: SupportsFloat,
    nsample: Int,
    min_radius: SupportsFloat = 0.0,
    *,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """The first points within a radius of each query, by ascending row.

    A point is found if::

        d2 < radius^2 and (d2 >= min_radius^2 or d2 == 0)

    where ``d2 = (dx*dx + dy*dy) + dz*dz``. Radii are rounded to the type of ``xyz`` and then squared. A point
    or query with NaN is in no ball. If fewer than ``nsample`` points are found, the first one fills the rest
    of the row; if none is found, 0 does.

    Numbers are computed in the type of ``xyz``; results have the same bits for any number of threads and any
    instruction set. Inputs may be read-only and strided; strided ones are copied first.

    Args:
        xyz: ``[N, 3]`` or ``[B, N, 3]``, float32 or float64.
        new_xyz: ``[M, 3]`` or ``[B, M, 3]``, dtype of ``xyz``: the queries.
        radius: 0 or more.
        nsample: how many points of each query at most.
        min_radius: 0 or more.
        out: where to write: a tuple of idx, int32 or int64, and found, int32, with None to allocate one.

    Returns:
        idx: ``[M, nsample]`` or ``[B, M, nsample]``: rows of the cloud, by default int32.
        found: ``[M]`` or ``[B, M]``, int32: how many points are found, at most ``nsample``.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: an argument is not an array.

    Example:
        >>> xyz = np.zeros((4, 3), np.float32)
        >>> xyz[:, 0] = [0, 1, 2, 3]
        >>> idx, found = turnout.ball_query(xyz, xyz[1:3] + np.float32(0.1), 1.2, 4)
        >>> idx.tolist(), found.tolist()
        ([[0, 1, 2, 0], [1, 2, 3, 1]], [3, 3])
    """
    result: tuple[R, R] = _core.ball_query(xyz, new_xyz, radius, nsample, min_radius, out)
    return result


def ball_query_stacked(
    xyz: Source[R],
    counts: Array,
    new_xyz: Array,
    new_counts: Array,
    radius: SupportsFloat,
    nsample: Int,
    min_radius: SupportsFloat = 0.0,
    *,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """The first points within a radius of each query, of clouds that follow each other in one array.

    The definition is that of :func:`ball_query`. Rows in ``idx`` begin with 0 in each cloud.

    Args:
        xyz: ``[N, 3]``, float32 or float64.
        counts: ``[B]``, int32 or int64: the points of each cloud. They sum to N.
        new_xyz: ``[M, 3]``, dtype of ``xyz``: the queries.
        new_counts: ``[B]``, int32 or int64: the queries of each cloud. They sum to M.
        radius: 0 or more.
        nsample: how many points of each query at most.
        min_radius: 0 or more.
        out: where to write: a tuple of idx, int32 or int64, and found, int32, with None to allocate one.

    Returns:
        idx: ``[M, nsample]``, by default int32.
        found: ``[M]``, int32.

    Example:
        >>> xyz = np.zeros((4, 3), np.float32)
        >>> xyz[:, 0] = [0, 1, 50, 51]
        >>> two, one = np.array([2, 2]), np.array([1, 1])
        >>> idx, found = turnout.ball_query_stacked(xyz, two, xyz[1:3], one, 0.5, 2)
        >>> idx.tolist(), found.tolist()
        ([[1, 1], [0, 0]], [1, 1])
    """
    result: tuple[R, R] = _core.ball_query_stacked(
        xyz, counts, new_xyz, new_counts, radius, nsample, min_radius, out
    )
    return result


def ranges_of(ranges: Any) -> list[int]:
    """The ranges of a voxel query in z, y and x."""
    try:
        found = [operator.index(one) for one in ranges]
    except TypeError:
        raise TypeError(f"voxel_query: ranges is {ranges!r}, expected three integers") from None
    if len(found) != 3:
        raise ValueError(f"voxel_query: ranges has {len(found)} elements, expected 3: z, y and x")
    for k, one in enumerate(found):
        if not 0 <= one <= 2**31 - 1:
            raise ValueError(f"voxel_query: ranges[{k}] is {one}, expected 0 .. {2**31 - 1}")
    return found


def voxel_query(
    xyz: Source[R],
    new_xyz: Array,
    new_coords: Array,
    point_indices: Array,
    radius: SupportsFloat,
    nsample: Int,
    ranges: tuple[Int, Int, Int],
    *,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """The first points within a radius of each query, among those of the voxels around it.

    A voxel has at most one point. The voxels of a query are those from ``new_coords - ranges`` to
    ``new_coords + ranges``, as far as they are in the grid, in ascending order of z, y, x. A point is found
    if ``d2 <= radius^2``; otherwise as :func:`ball_query`.

    Args:
        xyz: ``[N, 3]``, float32 or float64.
        new_xyz: ``[M, 3]``, dtype of ``xyz``: the queries.
        new_coords: ``[M, 4]``, int32 or int64: the batch element, z, y, x of each query. z, y, x may be
            outside of the grid.
        point_indices: ``[B, Z, Y, X]``, int32 or int64: the row of a voxel's point, negative if it has none.
        radius: 0 or more.
        nsample: how many points of each query at most.
        ranges: voxels in z, y and x, 0 or more.
        out: where to write: a tuple of idx, int32 or int64, and found, int32, with None to allocate one.

    Returns:
        idx: ``[M, nsample]``: rows of ``xyz``, by default int32.
        found: ``[M]``, int32.

    Raises:
        ValueError: arguments that do not fit together, a batch element or a row that does not exist.
        TypeError: an argument is not an array.

    Example:
        >>> xyz = np.array([[0.5, 0.5, 0.5], [1.5, 0.5, 0.5], [4.5, 0.5, 0.5]], np.float32)
        >>> grid = np.array([[[[0, 1, -1, -1, 2]]]], np.int32)
        >>> at = np.array([[0, 0, 0, 1]])
        >>> idx, found = turnout.voxel_query(xyz, xyz[1:2], at, grid, 2.0, 3, (0, 0, 2))
        >>> idx.tolist(), found.tolist()
        ([[0, 1, 0]], [2])
    """
    z_range, y_range, x_range = ranges_of(ranges)
    result: tuple[R, R] = _core.voxel_query(
        xyz, new_xyz, new_coords, point_indices, radius, z_range, y_range, x_range, nsample, out
    )
    return result


def three_nn(
    unknown: Source[R], known: Array, *, out: tuple[R | None, R | None] | None = None
) -> tuple[R, R]:
    """The three points of ``known`` that are nearest to each point of ``unknown``.

    They are in ascending order of ``d2 = (dx*dx + dy*dy) + dz*dz``, of equals by row. Points whose d2 is
    infinite or NaN are not found; for each that is missing, dist2 is infinity and idx is 0.

    Args:
        unknown: ``[M, 3]`` or ``[B, M, 3]``, float32 or float64.
        known: ``[N, 3]`` or ``[B, N, 3]``, dtype of ``unknown``. At least one point.
        out: where to write: a tuple of dist2 and of idx, int32 or int64, with None to allocate one.

    Returns:
        dist2: ``[M, 3]`` or ``[B, M, 3]``, dtype of ``unknown``: the squares of the distances.
        idx: the same shape, by default int32: rows of ``known``.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: an argument is not an array.

    Example:
        >>> known = np.zeros((4, 3), np.float32)
        >>> known[:, 0] = [0, 1, 2, 5]
        >>> dist2, idx = turnout.three_nn(known[3:] - np.float32(1), known)
        >>> idx.tolist(), dist2.tolist()
        ([[3, 2, 1]], [[3.0, 6.0, 11.0]])
    """
    result: tuple[R, R] = _core.three_nn(unknown, known, out)
    return result


def three_nn_stacked(
    unknown: Source[R],
    unknown_counts: Array,
    known: Array,
    known_counts: Array,
    *,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """The three nearest points in clouds that follow each other in the rows of one array.

    The definition is that of :func:`three_nn`. Rows in ``idx`` are those of ``known``; for each point that is
    missing, idx is the first row of the cloud.

    Args:
        unknown: ``[M, 3]``, float32 or float64.
        unknown_counts: ``[B]``, int32 or int64: the rows of ``unknown`` of each cloud. They sum to M.
        known: ``[N, 3]``, dtype of ``unknown``.
        known_counts: ``[B]``, int32 or int64. They sum to N. A cloud with queries has at least one point.
        out: where to write: a tuple of dist2 and of idx, int32 or int64, with None to allocate one.

    Returns:
        dist2: ``[M, 3]``, dtype of ``unknown``.
        idx: ``[M, 3]``, by default int32.

    Example:
        >>> known = np.zeros((5, 3), np.float32)
        >>> known[:, 0] = [0, 1, 50, 51, 53]
        >>> one, at = np.array([0, 1]), np.array([2, 3])
        >>> dist2, idx = turnout.three_nn_stacked(known[2:3], one, known, at)
        >>> idx.tolist(), dist2.tolist()
        ([[2, 3, 4]], [[0.0, 1.0, 9.0]])
    """
    result: tuple[R, R] = _core.three_nn_stacked(unknown, unknown_counts, known, known_counts, out)
    return result


def knn(
    xyz: Source[R], new_xyz: Array, k: Int, *, out: tuple[R | None, R | None] | None = None
) -> tuple[R, R]:
    """The k points of a cloud that are nearest to each query.

    They are in ascending order of ``d2 = (dx*dx + dy*dy) + dz*dz``, of equals by row. Only points with
    ``d2 < 1e10`` are found; for each that is missing, dist2 is 1e10 and idx is 0.

    Args:
        xyz: ``[N, 3]`` or ``[B, N, 3]``, float32 or float64.
        new_xyz: ``[M, 3]`` or ``[B, M, 3]``, dtype of ``xyz``: the queries.
        k: how many points of each query.
        out: where to write: a tuple of idx, int32 or int64, and dist2, with None to allocate one.

    Returns:
        idx: ``[M, k]`` or ``[B, M, k]``, by default int32: rows of the cloud.
        dist2: the same shape, dtype of ``xyz``: the squares of the distances.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: an argument is not an array.

    Example:
        >>> xyz = np.zeros((4, 3), np.float32)
        >>> xyz[:, 0] = [0, 1, 2, 5]
        >>> idx, dist2 = turnout.knn(xyz, xyz[2:], 2)
        >>> idx.tolist(), dist2.tolist()
        ([[2, 1], [3, 2]], [[0.0, 1.0], [0.0, 9.0]])
    """
    result: tuple[R, R] = _core.knn(xyz, new_xyz, k, out)
    return result
