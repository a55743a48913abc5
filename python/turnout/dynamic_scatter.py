"""Voxelization of points, and reduction of the features of a voxel's points to one row."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import R2, Array, Int, Numbers, R, ReduceType, Source
else:
    R = TypeVar("R")  # turnout.typing imports NumPy

__all__ = ["VoxelIndex", "dynamic_scatter_backward", "dynamic_scatter_forward", "voxelize"]


@overload
def voxelize(
    points: Source[R], voxel_size: Numbers, point_cloud_range: Numbers, *, out: R | None = None
) -> R: ...
@overload
def voxelize(
    points: Source[R],
    voxel_size: Numbers,
    point_cloud_range: Numbers,
    *,
    max_points: Int,
    max_voxels: Int,
    return_map: Literal[False] = False,
    out: tuple[R | None, R | None, R | None] | None = None,
) -> tuple[R, R, R]: ...
@overload
def voxelize(
    points: Source[R],
    voxel_size: Numbers,
    point_cloud_range: Numbers,
    *,
    max_points: Int,
    max_voxels: Int,
    return_map: Literal[True],
    out: tuple[R | None, R | None, R | None, R | None] | None = None,
) -> tuple[R, R, R, R]: ...
def voxelize(
    points: Source[R],
    voxel_size: Numbers,
    point_cloud_range: Numbers,
    *,
    max_points: Int = -1,
    max_voxels: Int = -1,
    return_map: bool = False,
    out: R | tuple[R | None, ...] | None = None,
) -> R | tuple[R, ...]:
    """Finds the voxel of each point; with two limits, groups the points by voxel.

    ::

        grid[j] = round((point_cloud_range[3 + j] - point_cloud_range[j]) / voxel_size[j])
        cell[j] = floor((points[i, j] - point_cloud_range[j]) / voxel_size[j])          # j = x, y, z
        coors[i] = cell[z], cell[y], cell[x]      # -1, -1, -1 unless all 0 <= cell[j] < grid[j]

    Halves are rounded away from zero. Differences and quotients are rounded one by one, in float64 for
    float64 points and in float32 for all others. A point with a NaN coordinate is in no voxel.

    With ``max_points`` and ``max_voxels``::

        for each point i that is in a voxel:
            v = the voxel's number; a new voxel gets the next one, or is dropped if there are max_voxels
            voxels[v, k] = points[i], the k-th point of v; dropped from max_points on

    Voxels are in the order of their first points; unused elements of ``voxels`` are 0.

    Arrays must be in CPU memory. Inputs may be read-only or strided (strided ones are copied first); ``out``
    must be contiguous. A failing call writes nothing.

    Args:
        points: ``[points, features]``: x, y, z and any other features. float32, float64, float16 or bfloat16.
        voxel_size: three numbers: x, y, z.
        point_cloud_range: six numbers: the lower limits of x, y, z, then the upper limits.
        max_points: the number of points to keep in each voxel, the first ones.
        max_voxels: the number of voxels to keep, the first ones; later voxels are dropped with all their
            points. Give both limits or neither (-1).
        return_map: with limits, return ``point2voxel_map`` as a fourth result.
        out: the array to write ``coors`` to; with limits, a tuple in the order of the results, each with
            ``max_voxels`` rows, or None to allocate one. The results are then views of their first rows.

    Returns:
        coors: ``[points, 3]``, int32: z, y, x.

        With limits, where ``voxels`` is the number of voxels found:

        voxels: ``[voxels, max_points, features]``, dtype of ``points``.
        coors: ``[voxels, 3]``, int32: z, y, x.
        num_points_per_voxel: ``[voxels]``, int32: the number of points kept.
        point2voxel_map: ``[points]``, int32, with ``return_map``: the voxel of each point, even of one that
            is dropped because its voxel is full; -1 for a point outside the range or of a dropped voxel.

        Each is the array from ``out`` or a new one: a torch tensor if ``points`` is one, otherwise a NumPy
        array.

    Raises:
        ValueError: an argument has an invalid shape, dtype or value; the message names the first one.
        TypeError: an argument is not an array, a number or a tuple where one is expected.

    Example:
        >>> points = np.float32([[1.2, 0.3, 0.1], [1.9, 0.4, 0.2], [7.0, 2.5, 0.0], [99.0, 0.0, 0.0]])
        >>> size, area = [2.0, 1.0, 4.0], [0.0, 0.0, -2.0, 8.0, 4.0, 2.0]  # metres
        >>> turnout.voxelize(points, size, area).tolist()  # z, y, x; the last point is outside the area
        [[0, 0, 0], [0, 0, 0], [0, 2, 3], [-1, -1, -1]]
        >>> voxels, coors, counts = turnout.voxelize(points, size, area, max_points=5, max_voxels=100)
        >>> voxels.shape, coors.tolist(), counts.tolist()
        ((2, 5, 3), [[0, 0, 0], [0, 2, 3]], [2, 1])
    """
    if has_limits(max_points, max_voxels, return_map):
        results: tuple[R, ...] = _core.voxelize_hard(
            points, voxel_size, point_cloud_range, max_points, max_voxels, return_map, out
        )
        return results if return_map else results[:3]
    coors: R = _core.voxelize(points, voxel_size, point_cloud_range, out)
    return coors


def has_limits(max_points: Any, max_voxels: Any, return_map: bool) -> bool:
    """Returns whether a call of ``voxelize`` has limits; raises if it has only one."""
    if max_points == -1 and max_voxels == -1:
        if return_map:
            raise ValueError("voxelize: return_map is True, expected max_points and max_voxels with it")
        return False
    try:
        is_legal = max_points >= 0 and max_voxels >= 0
    except TypeError:
        return True  # the operator's error names the one that is not an integer
    if not is_legal:
        raise ValueError(
            f"voxelize: max_points is {max_points} and max_voxels is {max_voxels}, expected two limits of 0 "
            "or more, or -1 for both"
        )
    return True


def dynamic_scatter_forward(
    feats: Source[R],
    coors: Source[R2],
    reduce_type: ReduceType = "max",
    *,
    out: tuple[R | None, R2 | None, R | None, R | None] | None = None,
) -> tuple[R, R2, R, R]:
    """Reduces the features of the points of each voxel to one row.

    ::

        the voxels are the distinct rows of coors without a negative number, ascending
        voxel_coors[v] = the row of voxel v
        point2voxel_map[i] = v if point i is in voxel v, -1 if it is in none
        voxel_points_count[v] = the number of points in v
        voxel_feats[v] = sum, mean or max of feats[i], in ascending i

    The maximum starts at -inf and ignores NaN. 16-bit floats are added and divided in float32 and rounded
    once. Results have the same bits for any number of threads.

    Arrays must be in CPU memory. Inputs may be read-only or strided (strided ones are copied first); ``out``
    must be contiguous. A failing call writes nothing.

    Args:
        feats: ``[points, channels]``, float32, float64, float16 or bfloat16.
        coors: ``[points, dims]``, int32 or int64; 1 to 4 dims, for example batch, z, y, x.
        reduce_type: ``"max"``, ``"mean"`` or ``"sum"``.
        out: a tuple of arrays to write to, in the order of the results, with None to allocate one. Arrays of
            voxels may have more rows than there are voxels: the result is then a view of the first rows, and
            the others are not written.

    Returns:
        voxel_feats: ``[voxels, channels]``, dtype of ``feats``.
        voxel_coors: ``[voxels, dims]``, dtype of ``coors``.
        point2voxel_map: ``[points]``, int32.
        voxel_points_count: ``[voxels]``, int32.

        Each is the array from ``out`` or a new one: a torch tensor if ``feats`` is one (``coors`` for
        ``voxel_coors``), otherwise a NumPy array.

    Raises:
        ValueError: an argument has an invalid shape, dtype or value; the message names the first one.
        TypeError: an argument is not an array, a string or a tuple where one is expected.

    Example:
        >>> feats = np.array([[1.0, 5.0], [3.0, 4.0], [10.0, 0.0]], np.float32)
        >>> coors = np.array([[0, 7], [0, 7], [0, 2]], np.int32)  # the first two points share a voxel
        >>> voxel_feats, voxel_coors, voxel_of, counts = turnout.dynamic_scatter_forward(feats, coors, "mean")
        >>> voxel_coors.tolist(), voxel_feats.tolist()
        ([[0, 2], [0, 7]], [[10.0, 0.0], [2.0, 4.5]])
        >>> voxel_of.tolist(), counts.tolist()
        ([1, 1, 0], [1, 2])
    """
    results: tuple[R, R2, R, R] = _core.dynamic_scatter_forward(feats, coors, reduce_type, out)
    return results


def dynamic_scatter_backward(
    grad_voxel_feats: Source[R],
    feats: Array | None,
    voxel_feats: Array | None,
    point2voxel_map: Array,
    voxel_points_count: Array | None,
    reduce_type: ReduceType = "max",
    *,
    out: R | None = None,
) -> R:
    """The gradient of :func:`dynamic_scatter_forward` with respect to ``feats``.

    ::

        v = point2voxel_map[i]
        grad_feats[i] = grad_voxel_feats[v]                                             # sum
        grad_feats[i] = grad_voxel_feats[v] / voxel_points_count[v]                     # mean
        grad_feats[i, c] = grad_voxel_feats[v, c] if i is the first point of v with
                           feats[i, c] == voxel_feats[v, c], otherwise 0                # max

    A point in no voxel has the gradient 0. -0 equals 0, and NaN equals nothing: if no point is equal, the
    gradient goes to none.

    Args:
        grad_voxel_feats: ``[voxels, channels]``, float32, float64, float16 or bfloat16.
        feats, voxel_feats: those of the forward call; required for max, may be None otherwise.
        point2voxel_map: ``[points]``, int32 or int64: -1 or the number of a voxel; other values are an error.
        voxel_points_count: ``[voxels]``, int32 or int64; required for mean, may be None otherwise.
        reduce_type: that of the forward call.
        out: the array to write to, or None to allocate one.

    Returns:
        grad_feats: ``[points, channels]``, dtype of ``grad_voxel_feats``: ``out`` or a new array.

    Raises:
        ValueError: an argument has an invalid shape, dtype or value; the message names the first one.
        TypeError: an argument is not an array or a string where one is expected.

    Example:
        >>> feats = np.array([[1.0, 5.0], [3.0, 4.0], [10.0, 0.0]], np.float32)
        >>> coors = np.array([[0, 7], [0, 7], [0, 2]], np.int32)
        >>> voxel_feats, _, voxel_of, counts = turnout.dynamic_scatter_forward(feats, coors, "max")
        >>> grad = np.array([[0.5, 0.25], [2.0, 3.0]], np.float32)
        >>> turnout.dynamic_scatter_backward(grad, feats, voxel_feats, voxel_of, counts, "max").tolist()
        [[0.0, 3.0], [2.0, 0.0], [0.5, 0.25]]
    """
    result: R = _core.dynamic_scatter_backward(
        grad_voxel_feats, feats, voxel_feats, point2voxel_map, voxel_points_count, reduce_type, out
    )
    return result


class VoxelIndex(Generic[R]):
    """The voxels of a set of points, found once for many reductions and gradients.

    ::

        index = turnout.VoxelIndex(coors)
        mean = index.reduce(points, "mean")
        most = index.reduce(feats)                      # the same points, with other features
        grad = index.reduce_backward(grad_most, feats, most)

    Definitions are those of :func:`dynamic_scatter_forward` and :func:`dynamic_scatter_backward`. Only the
    constructor reads ``coors``. Several threads may use one index at the same time. It can be pickled.

    Attributes:
        points: the number of points.
        voxels: the number of voxels.
        voxel_coors: ``[voxels, dims]``, ascending.
        point2voxel_map: ``[points]``, int32: the voxel of each point, or -1.
        voxel_points_count: ``[voxels]``, int32.
        first_point: ``[voxels]``, int32: the smallest point number in each voxel, found on first access.

    Example:
        >>> index = turnout.VoxelIndex(np.array([[0, 7], [0, 7], [0, 2]], np.int32))
        >>> index
        VoxelIndex(3 points in 2 voxels)
        >>> index.reduce(np.array([[1.0], [3.0], [10.0]], np.float32), "mean").tolist()
        [[10.0], [2.0]]
        >>> index.first_point.tolist()
        [2, 0]
    """

    def __init__(self, coors: Source[R]) -> None:
        self._index, arrays = _core.voxel_index(coors, False)
        self.voxel_coors, self.point2voxel_map, self.voxel_points_count = arrays
        sized: tuple[Any, Any, Any] = arrays
        self.points, self.voxels = len(sized[1]), len(sized[2])

    @functools.cached_property
    def first_point(self) -> R:
        first_point: R = _core.voxel_index_first_points(self._index)
        return first_point

    def reduce(self, feats: Source[R2], reduce_type: ReduceType = "max", *, out: R2 | None = None) -> R2:
        """Returns ``voxel_feats`` of ``feats``: ``out`` or a new array."""
        return _core.voxel_index_reduce(self._index, feats, reduce_type, out)

    def reduce_backward(
        self,
        grad_voxel_feats: Source[R2],
        feats: Array | None = None,
        voxel_feats: Array | None = None,
        reduce_type: ReduceType = "max",
        *,
        out: R2 | None = None,
    ) -> R2:
        """Returns ``grad_feats``: ``out`` or a new array. Max requires all three arrays."""
        return _core.voxel_index_reduce_backward(
            self._index, grad_voxel_feats, feats, voxel_feats, reduce_type, out
        )

    def __repr__(self) -> str:
        return f"VoxelIndex({self.points} points in {self.voxels} voxels)"
