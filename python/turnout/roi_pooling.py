"""Pooling of the points in boxes, the regions of interest (RoIs) of two-stage detectors."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import Array, BoxZ, Int, Ints, PoolMethod, R, Source

__all__ = ["roiaware_points", "roiaware_pool3d", "roiaware_pool3d_backward", "roipoint_pool3d"]


def cells_of(out_size: Any) -> Any:
    """Three numbers of cells: one integer is that of all directions."""
    try:
        return [operator.index(out_size)] * 3
    except TypeError:
        return out_size


def _reshaped(array: Any, cells: Any) -> Any:
    """[rois, X * Y * Z, channels] as [rois, X, Y, Z, channels]."""
    return array.reshape((array.shape[0], *(int(n) for n in cells), array.shape[2]))


def _is_contiguous(array: Any) -> bool:
    return bool(array.is_contiguous() if hasattr(array, "is_contiguous") else array.flags.c_contiguous)


def _flattened(function: str, name: str, array: Any, cells: Any) -> Any:
    """An array ``[N, X, Y, Z, C]`` as ``[N, X * Y * Z, C]``."""
    shape: Any = getattr(array, "shape", ())
    if len(shape) != 5:
        return array  # has one dimension for all cells, or is refused by the operator
    try:
        expected = [int(n) for n in cells]
    except (TypeError, ValueError):
        return array  # the operator refuses `cells`
    if len(expected) != 3:
        return array
    for k, n in enumerate(expected):
        if n > 0 and shape[k + 1] != n:  # others are refused by the operator
            found = f"{name}.shape[{k + 1}] is {shape[k + 1]}"
            raise ValueError(f"{function}: {found}, expected {n}, out_size[{k}]")
    return array.reshape((shape[0], shape[1] * shape[2] * shape[3], shape[4]))


def roiaware_pool3d(
    rois: Array,
    points: Array,
    features: Source[R],
    out_size: Ints,
    max_points: Int = 127,
    pool_method: PoolMethod = "max",
    z: BoxZ = "center",
    margin: float = 1e-5,
    *,
    out: R | None = None,
) -> R:
    """Divides each box into cells and pools the features of the points of each cell.

    ::

        i_x = floor((l_x + dx / 2) / (dx / X)), i_y likewise; i_z = floor((z - bottom) / (dz / Z))
        max: the largest number of the points of a cell; avg: their sum, in ascending order, / their number

    l is the position of a point in the directions of the box. Which points are in a box, ``z`` and ``margin``
    are as in :func:`points_in_boxes`: the defaults are OpenPCDet's rule, and ``z="bottom"``, ``margin=0`` is
    mmcv's. Indices are clamped to the cells. A cell has the first ``max_points`` of its points; a list of
    OpenPCDet of length 128 holds 127. Cells without points are 0. NaN and -inf are never the largest; where
    nothing else is there, the result is 0.

    Args:
        rois: ``[N, 7]``, float32 or float64: x, y, z, dx, dy, dz, heading.
        points: ``[n, 3]``, dtype of ``rois``.
        features: ``[n, C]``, float32, float64, float16 or bfloat16.
        out_size: X, Y, Z, or one integer for all three.
        max_points: the most points of a cell.
        pool_method: ``"max"`` or ``"avg"``.
        z: whether z is the ``"center"`` of a box or its ``"bottom"``.
        margin: by how much boxes are wider in x and y; rounded to float32.
        out: the array to write to.

    Returns:
        ``out`` or a new array ``[N, X, Y, Z, C]`` with the dtype of ``features``, a torch tensor if
        ``features`` is one, otherwise a NumPy array.

    Example:
        >>> roi = np.array([[0, 0, 0, 4, 2, 2, 0]], np.float32)
        >>> points = np.array([[-1, 0, 0], [-1.5, 0.5, 0.9], [1, 0, -1]], np.float32)
        >>> features = np.array([[1.0], [3.0], [5.0]], np.float32)
        >>> turnout.roiaware_pool3d(roi, points, features, [2, 1, 1]).ravel().tolist()
        [3.0, 5.0]
        >>> turnout.roiaware_pool3d(roi, points, features, [2, 1, 1], pool_method="avg").ravel().tolist()
        [2.0, 5.0]
    """
    cells = cells_of(out_size)
    given = _flattened("roiaware_pool3d", "out", out, cells)
    if given is not out and not _is_contiguous(out):
        raise ValueError("roiaware_pool3d: out is strided, expected a contiguous array")
    pooled = _core.roiaware_pool3d(rois, points, features, cells, max_points, pool_method, z, margin, given)
    result: R = _reshaped(pooled, cells) if out is None else out
    return result


def roiaware_pool3d_backward(
    grad_pooled: Source[R],
    rois: Array,
    points: Array,
    features: Array | None,
    out_size: Ints,
    max_points: Int = 127,
    pool_method: PoolMethod = "max",
    z: BoxZ = "center",
    margin: float = 1e-5,
    *,
    out: R | None = None,
) -> R:
    """The gradient of :func:`roiaware_pool3d` with respect to ``features``.

    With ``"max"``, the gradient of a result goes to the first point that has the maximum. With ``"avg"``,
    which does not need ``features``, each point of a cell gets the gradient times 1 / number of points.
    Sums are in the order of boxes and cells, in float64 for float64 and in float32 otherwise, rounded once.
    Results have the same bits for any number of threads.

    Example:
        >>> roi = np.array([[0, 0, 0, 4, 2, 2, 0]], np.float32)
        >>> points = np.array([[-1, 0, 0], [-1.5, 0.5, 0.9], [1, 0, -1]], np.float32)
        >>> features = np.array([[1.0], [3.0], [5.0]], np.float32)
        >>> grad = np.array([1, 10], np.float32).reshape(1, 2, 1, 1, 1)
        >>> turnout.roiaware_pool3d_backward(grad, roi, points, features, [2, 1, 1]).ravel().tolist()
        [0.0, 1.0, 10.0]
    """
    cells = cells_of(out_size)
    grad = _flattened("roiaware_pool3d_backward", "grad_pooled", grad_pooled, cells)
    arguments = (rois, points, features, cells, max_points, pool_method, z, margin, out)
    result: R = _core.roiaware_pool3d_backward(grad, *arguments)
    return result


def roiaware_points(
    rois: Source[R],
    points: Array,
    out_size: Ints,
    max_points: Int = 127,
    z: BoxZ = "center",
    margin: float = 1e-5,
    *,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """The points that :func:`roiaware_pool3d` pools, as pairs of a cell and a point in ascending order.

    Arguments are those of :func:`roiaware_pool3d`; ``out`` is a tuple of both results.

    Returns:
        cell_of: ``[pairs]``, int64: ``roi * X * Y * Z + (i_x * Y + i_y) * Z + i_z``.
        point_of: ``[pairs]``, int64: the number of the point.

    Example:
        >>> roi = np.array([[0, 0, 0, 4, 2, 2, 0]], np.float32)
        >>> points = np.array([[-1, 0, 0], [1, 0, -1], [-1.5, 0.5, 0.9]], np.float32)
        >>> cell_of, point_of = turnout.roiaware_points(roi, points, [2, 1, 1])
        >>> cell_of.tolist(), point_of.tolist()
        ([0, 0, 1], [0, 2, 1])
    """
    result: tuple[R, R] = _core.roiaware_points(rois, points, cells_of(out_size), max_points, z, margin, out)
    return result


def roipoint_pool3d(
    points: Source[R],
    features: Array,
    boxes: Array,
    samples: Int,
    z: BoxZ = "center",
    margin: float = 1e-5,
    *,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """The first points in each box, with their features.

    ::

        pooled[b, m, s] = points[b, k], features[b, k]

    where k is the s-th point in box m. If a box has n < ``samples`` points, row s is row s mod n. If it has
    none, its rows are 0 and ``empty`` is 1. Which points are in a box, ``z`` and ``margin`` are as in
    :func:`points_in_boxes`.

    Args:
        points: ``[B, N, 3]``, float32 or float64.
        features: ``[B, N, C]``, dtype of ``points``.
        boxes: ``[B, M, 7]``, dtype of ``points``: x, y, z, dx, dy, dz, heading.
        samples: the number of rows of each box.
        z: whether z is the ``"center"`` of a box or its ``"bottom"``.
        margin: by how much boxes are wider in x and y; rounded to float32.
        out: a tuple of the arrays to write to, with None to allocate one.

    Returns:
        pooled: ``[B, M, samples, 3 + C]``, dtype of ``points``.
        empty: ``[B, M]``, int32.

    Example:
        >>> points = np.array([[[9, 9, 9], [0.5, 0, 0], [-0.5, 0, 0]]], np.float32)
        >>> features = np.array([[[1], [2], [3]]], np.float32)
        >>> boxes = np.array([[[0, 0, 0, 2, 2, 2, 0]]], np.float32)
        >>> pooled, empty = turnout.roipoint_pool3d(points, features, boxes, 3)
        >>> pooled[0, 0].tolist(), empty.tolist()
        ([[0.5, 0.0, 0.0, 2.0], [-0.5, 0.0, 0.0, 3.0], [0.5, 0.0, 0.0, 2.0]], [[0]])
    """
    result: tuple[R, R] = _core.roipoint_pool3d(points, features, boxes, samples, z, margin, out)
    return result
