"""Boxes of detectors: overlaps of rotated boxes, non-maximum suppression, points in boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from typing import SupportsFloat

    from turnout.typing import Array, BoxZ, Int, IouMode, R, Source

__all__ = [
    "box_iou_rotated",
    "boxes_iou3d",
    "boxes_iou_bev",
    "boxes_overlap_bev",
    "nms",
    "nms3d",
    "nms3d_normal",
    "nms_rotated",
    "points_in_boxes",
]


def boxes_overlap_bev(
    boxes_a: Source[R], boxes_b: Array, aligned: bool = False, *, out: R | None = None
) -> R:
    """The area that two boxes share in bird's-eye view, for all pairs of boxes.

    A box is ``x, y, z, dx, dy, dz, heading``: its centre, its extents, and the angle of dx against the x
    axis, counter-clockwise. z and dz are not read. The overlap is that of OpenPCDet and of mmcv's ``nms3d``:
    corners up to 1 cm outside of a box count as inside. It may therefore exceed the area of a box, and boxes
    that are 5 mm apart share something. A box with NaN shares nothing.

    Numbers are computed in the type of the boxes; results have the same bits for any number of threads and
    any instruction set. Inputs may be read-only and strided; strided ones are copied first.

    Args:
        boxes_a: ``[N, 7]``, float32 or float64.
        boxes_b: ``[M, 7]``, dtype of ``boxes_a``; with ``aligned`` ``[N, 7]``.
        aligned: compare ``boxes_a[i]`` with ``boxes_b[i]``, instead of all pairs.
        out: where to write.

    Returns:
        overlap: ``[N, M]``, or with ``aligned`` ``[N]``; dtype of ``boxes_a``: ``out``, or a new array, a
        torch tensor when ``boxes_a`` is one, else a NumPy array.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: something that is no array.

    Example:
        >>> car = np.array([[0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.3]], np.float32)
        >>> moved = car + np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, np.pi / 2], np.float32)
        >>> print(turnout.boxes_overlap_bev(car, np.concatenate([car, moved])).round(4))
        [[8. 4.]]
    """
    function = _core.boxes_overlap_bev_aligned if aligned else _core.boxes_overlap_bev
    result: R = function(boxes_a, boxes_b, out)
    return result


def boxes_iou_bev(boxes_a: Source[R], boxes_b: Array, aligned: bool = False, *, out: R | None = None) -> R:
    """The intersection over union of two boxes in bird's-eye view, for all pairs of boxes.

    ::

        iou = overlap / max(dx_a * dy_a + dx_b * dy_b - overlap, 1e-8)

    The overlap, the arguments and errors are those of :func:`boxes_overlap_bev`. By its margin of 1 cm an IoU
    may exceed 1.

    Example:
        >>> car = np.array([[0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.0]], np.float32)
        >>> moved = car + np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], np.float32)
        >>> print(turnout.boxes_iou_bev(car, moved, aligned=True).round(4))
        [0.6]
    """
    function = _core.boxes_iou_bev_aligned if aligned else _core.boxes_iou_bev
    result: R = function(boxes_a, boxes_b, out)
    return result


def boxes_iou3d(boxes_a: Source[R], boxes_b: Array, aligned: bool = False, *, out: R | None = None) -> R:
    """The intersection over union of the volumes of two boxes, for all pairs of boxes.

    ::

        shared = overlap * max(0, min(z_a + dz_a/2, z_b + dz_b/2) - max(z_a - dz_a/2, z_b - dz_b/2))
        iou = shared / max(dx_a * dy_a * dz_a + dx_b * dy_b * dz_b - shared, 1e-6)

    z is the centre of a box. The overlap, the arguments and errors are those of :func:`boxes_overlap_bev`. A
    box with NaN in z or dz shares nothing.

    Example:
        >>> car = np.array([[0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.0]], np.float32)
        >>> higher = car + np.array([0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0], np.float32)
        >>> print(turnout.boxes_iou3d(car, higher).round(4))
        [[0.5]]
    """
    function = _core.boxes_iou3d_aligned if aligned else _core.boxes_iou3d
    result: R = function(boxes_a, boxes_b, out)
    return result


def box_iou_rotated(
    boxes_a: Source[R],
    boxes_b: Array,
    mode: IouMode = "iou",
    aligned: bool = False,
    *,
    out: R | None = None,
) -> R:
    """The intersection over union of two rotated boxes of 5 numbers, for all pairs of boxes.

    A box is ``x, y, w, h, angle``, where w is measured along the angle, which is counter-clockwise with y
    upwards. The overlap is that of mmcv's ``box_iou_rotated`` and has no margin. Boxes with an area below
    1e-14 share nothing; overlaps of boxes of about 1 mm are wrong, by the tolerances of the algorithm.

    Args:
        boxes_a: ``[N, 5]``, float32 or float64.
        boxes_b: ``[M, 5]``, dtype of ``boxes_a``; with ``aligned`` ``[N, 5]``.
        mode: ``"iou"`` divides the overlap by the area of both boxes, ``"iof"`` by that of ``boxes_a[i]``.
        aligned: compare ``boxes_a[i]`` with ``boxes_b[i]``, instead of all pairs.
        out: where to write.

    Returns:
        iou: ``[N, M]``, or with ``aligned`` ``[N]``; dtype of ``boxes_a``. NaN for boxes whose area is NaN.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: something that is no array.

    Example:
        >>> square = np.array([[0.0, 0.0, 2.0, 2.0, 0.0]], np.float32)
        >>> turned = np.array([[0.0, 0.0, 2.0, 2.0, np.pi / 4]], np.float32)
        >>> print(turnout.box_iou_rotated(square, turned).round(4))
        [[0.7071]]
        >>> half = np.array([[0.5, 0.0, 1.0, 2.0, 0.0]], np.float32)
        >>> turnout.box_iou_rotated(half, square, "iof").tolist()
        [[1.0]]
    """
    function = _core.box_iou_rotated_aligned if aligned else _core.box_iou_rotated
    result: R = function(boxes_a, boxes_b, mode, out)
    return result


def nms3d(
    boxes: Source[R],
    scores: Array | None,
    threshold: SupportsFloat,
    max_keep: Int | None = None,
    *,
    out: R | None = None,
) -> R:
    """Non-maximum suppression of rotated boxes in bird's-eye view.

    Boxes are visited by descending score, those of equal scores in ascending order, NaN first. A box is kept
    unless the IoU of a box that was kept before and this box exceeds the threshold. The IoU is that of
    :func:`boxes_iou_bev`.

    Args:
        boxes: ``[N, 7]``, float32 or float64.
        scores: ``[N]``, any float dtype; None: boxes are visited in the order in which they are given.
        threshold: a number, which is rounded to float32.
        max_keep: keep this many boxes at most; None: all that are not suppressed.
        out: where to write, int64; its length is ``max_keep``.

    Returns:
        keep: int64, the numbers of the kept boxes in the order of the visits: a part of ``out``, or a new
        array, a torch tensor when ``boxes`` is one, else a NumPy array.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: something that is no array, or no number.

    Example:
        >>> box = np.array([0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.3], np.float32)
        >>> boxes = np.stack([box, box, box])
        >>> boxes[:, 0] = 0.0, 0.5, 9.0
        >>> turnout.nms3d(boxes, np.array([0.3, 0.9, 0.5]), 0.1).tolist()
        [1, 2]
    """
    result: R = _core.nms3d(boxes, scores, threshold, max_keep, out)
    return result


def nms3d_normal(
    boxes: Source[R],
    scores: Array | None,
    threshold: SupportsFloat,
    max_keep: Int | None = None,
    *,
    out: R | None = None,
) -> R:
    """Non-maximum suppression of boxes of 7 numbers in bird's-eye view, without their headings.

    ::

        iou = inter / max(dx_a * dy_a + dx_b * dy_b - inter, 1e-8)

    The IoU of a box with NaN in x, y, dx or dy is 0. Order, arguments, result and errors are those of
    :func:`nms3d`.

    Example:
        >>> boxes = np.zeros((2, 7), np.float32)
        >>> boxes[:, 3:5] = 4.0, 2.0
        >>> boxes[1, 0] = 1.0  # IoU 0.6
        >>> [turnout.nms3d_normal(boxes, None, t).tolist() for t in (0.5, 0.7)]
        [[0], [0, 1]]
    """
    result: R = _core.nms3d_normal(boxes, scores, threshold, max_keep, out)
    return result


def nms_rotated(
    boxes: Source[R],
    scores: Array | None,
    threshold: SupportsFloat,
    max_keep: Int | None = None,
    *,
    out: R | None = None,
) -> R:
    """Non-maximum suppression of rotated boxes of 5 numbers.

    The IoU is that of :func:`box_iou_rotated`, and ``boxes`` are ``[N, 5]``. Order, other arguments, result
    and errors are those of :func:`nms3d`.

    Example:
        >>> boxes = np.zeros((2, 5), np.float32)
        >>> boxes[:, 2:4] = 4.0, 2.0
        >>> boxes[1, 4] = np.pi / 2  # IoU 1/3
        >>> [turnout.nms_rotated(boxes, None, t).tolist() for t in (0.3, 0.4)]
        [[0], [0, 1]]
    """
    result: R = _core.nms_rotated(boxes, scores, threshold, max_keep, out)
    return result


def nms(
    boxes: Source[R],
    scores: Array | None,
    threshold: SupportsFloat,
    offset: Int = 0,
    max_keep: Int | None = None,
    *,
    out: R | None = None,
) -> R:
    """Non-maximum suppression of boxes whose edges are parallel to the axes.

    A box is ``x1, y1, x2, y2``. Its width is ``x2 - x1 + offset``, its height ``y2 - y1 + offset``, and ::

        iou = inter / (area_a + area_b - inter)        # NaN, as of 0 / 0, exceeds no threshold

    Order, other arguments, result and errors are those of :func:`nms3d`.

    Args:
        boxes: ``[N, 4]``, float32 or float64.
        offset: 0, or 1 for boxes in whole pixels.

    Example:
        >>> boxes = np.array([[0, 0, 2, 2], [1, 0, 3, 2], [5, 5, 6, 6]], np.float32)
        >>> turnout.nms(boxes, np.array([0.2, 0.8, 0.5]), 0.3).tolist()  # IoU 1/3
        [1, 2]
    """
    result: R = _core.nms(boxes, scores, threshold, offset, max_keep, out)
    return result


def points_in_boxes(
    points: Source[R],
    boxes: Array,
    z: BoxZ = "center",
    margin: SupportsFloat = 1e-5,
    all: bool = False,
    *,
    out: R | None = None,
) -> R:
    """The box that each point is in, or all boxes that it is in.

    A point is in a box if ::

        |l_x| < dx/2 + margin,  |l_y| < dy/2 + margin,  |z - z of the middle| <= dz/2

    where l is its position in the frame of the box. Borders differ between projects: OpenPCDet has a margin
    of 1e-5 (1e-2 in its function for the CPU), mmcv has 0 and boxes whose z is the bottom. With a margin
    above 0, a box of zeros has a point at the origin. A point with NaN is in no box, and a box with NaN has
    no points.

    Args:
        points: ``[M, 3]`` or ``[B, M, 3]``, float32 or float64.
        boxes: ``[N, 7]`` or ``[B, N, 7]``, dtype of ``points``.
        z: whether the z of a box is its ``"center"`` or its ``"bottom"``.
        margin: a number, which is rounded to float32. Bounds of x and y are sums in float64.
        all: return whether each point is in each box, instead of the first box.
        out: where to write.

    Returns:
        box_of_point: int32, ``[M]`` or ``[B, M]``: the first box that has the point, or -1. With ``all``,
        is_inside: int32, ``[M, N]`` or ``[B, M, N]``: 1 for a point in the box, otherwise 0.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: something that is no array, or no number.

    Example:
        >>> boxes = np.array([[0.0, 0.0, 0.0, 4.0, 2.0, 2.0, 0.0], [1.0, 0.0, 0.0, 4.0, 2.0, 2.0, 0.0]])
        >>> points = np.array([[1.5, 0.5, 0.0], [2.5, 0.5, 0.9], [9.0, 0.0, 0.0]])
        >>> turnout.points_in_boxes(points, boxes).tolist()
        [0, 1, -1]
        >>> turnout.points_in_boxes(points, boxes, all=True).tolist()
        [[1, 1], [0, 1], [0, 0]]
    """
    function = _core.points_in_boxes_all if all else _core.points_in_boxes
    result: R = function(points, boxes, z, margin, out)
    return result
