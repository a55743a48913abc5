"""Boxes of detectors, as torch operators: overlaps of rotated boxes, suppression, points in boxes.

Results have no gradient: they are constants, and tensors that require grad are detached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from turnout.torch.messages import own_messages
from turnout.torch.registration import constant
from turnout.torch.tracing import computed_size

if TYPE_CHECKING:
    from turnout.typing import BoxZ, IouMode

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

_overlap_bev = torch.ops.turnout.boxes_overlap_bev.default
_overlap_bev_aligned = torch.ops.turnout.boxes_overlap_bev_aligned.default
_iou_bev = torch.ops.turnout.boxes_iou_bev.default
_iou_bev_aligned = torch.ops.turnout.boxes_iou_bev_aligned.default
_iou3d = torch.ops.turnout.boxes_iou3d.default
_iou3d_aligned = torch.ops.turnout.boxes_iou3d_aligned.default
_rotated = torch.ops.turnout.box_iou_rotated.default
_rotated_aligned = torch.ops.turnout.box_iou_rotated_aligned.default
_nms3d = torch.ops.turnout.nms3d.default
_nms3d_normal = torch.ops.turnout.nms3d_normal.default
_nms_rotated = torch.ops.turnout.nms_rotated.default
_nms = torch.ops.turnout.nms.default
_first_box = torch.ops.turnout.points_in_boxes.default
_all_boxes = torch.ops.turnout.points_in_boxes_all.default

constant("boxes_overlap_bev", "boxes_overlap_bev_aligned", "boxes_iou_bev", "boxes_iou_bev_aligned")
constant("boxes_iou3d", "boxes_iou3d_aligned", "box_iou_rotated", "box_iou_rotated_aligned")


@computed_size("nms")
@computed_size("nms3d")
@computed_size("nms3d_normal")
@computed_size("nms_rotated")
def _max_keep(bound):
    """The room for kept boxes; how many they are depends on values."""
    return bound["boxes"].shape[0] if bound["max_keep"] is None else bound["max_keep"]


@own_messages()
def boxes_overlap_bev(boxes_a: torch.Tensor, boxes_b: torch.Tensor, aligned: bool = False) -> torch.Tensor:
    """The area that two boxes share in bird's-eye view, for all pairs of boxes.

    ``[N, 7]`` and ``[M, 7]`` give ``[N, M]``; with ``aligned``, ``[N, 7]`` and ``[N, 7]`` give ``[N]``. The
    definition is that of :func:`turnout.boxes_overlap_bev`. Tensors may be strided. The result is a constant:
    boxes that require grad are detached.

    Example:
        >>> car = torch.tensor([[0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.3]])
        >>> turned = torch.tensor([[0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.3 + torch.pi / 2]])
        >>> turnout.torch.boxes_overlap_bev(car, torch.cat([car, turned])).round(decimals=3).tolist()
        [[8.0, 4.0]]
    """
    return _overlap_bev_aligned(boxes_a, boxes_b) if aligned else _overlap_bev(boxes_a, boxes_b)


@own_messages()
def boxes_iou_bev(boxes_a: torch.Tensor, boxes_b: torch.Tensor, aligned: bool = False) -> torch.Tensor:
    """The intersection over union of two boxes in bird's-eye view, for all pairs of boxes.

    The definition is that of :func:`turnout.boxes_iou_bev`; otherwise as :func:`boxes_overlap_bev`.

    Example:
        >>> car = torch.tensor([[0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.0]])
        >>> moved = torch.tensor([[1.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.0]], requires_grad=True)
        >>> turnout.torch.boxes_iou_bev(car, moved, aligned=True).round(decimals=3)
        tensor([0.6000])
    """
    return _iou_bev_aligned(boxes_a, boxes_b) if aligned else _iou_bev(boxes_a, boxes_b)


@own_messages()
def boxes_iou3d(boxes_a: torch.Tensor, boxes_b: torch.Tensor, aligned: bool = False) -> torch.Tensor:
    """The intersection over union of the volumes of two boxes, for all pairs of boxes.

    The definition is that of :func:`turnout.boxes_iou3d`; otherwise as :func:`boxes_overlap_bev`.

    Example:
        >>> car = torch.tensor([[0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.0]])
        >>> higher = torch.tensor([[0.0, 0.0, 0.5, 4.0, 2.0, 1.5, 0.0]])
        >>> turnout.torch.boxes_iou3d(car, higher).round(decimals=3)
        tensor([[0.5000]])
    """
    return _iou3d_aligned(boxes_a, boxes_b) if aligned else _iou3d(boxes_a, boxes_b)


@own_messages()
def box_iou_rotated(
    boxes_a: torch.Tensor, boxes_b: torch.Tensor, mode: IouMode = "iou", aligned: bool = False
) -> torch.Tensor:
    """The intersection over union of two rotated boxes of 5 numbers, for all pairs of boxes.

    ``[N, 5]`` and ``[M, 5]`` give ``[N, M]``; with ``aligned``, ``[N, 5]`` and ``[N, 5]`` give ``[N]``. The
    definition is that of :func:`turnout.box_iou_rotated`. Tensors may be strided. The result is a constant:
    boxes that require grad are detached.

    Example:
        >>> square = torch.tensor([[0.0, 0.0, 2.0, 2.0, 0.0]])
        >>> turned = torch.tensor([[0.0, 0.0, 2.0, 2.0, torch.pi / 4]])
        >>> turnout.torch.box_iou_rotated(square, turned)
        tensor([[0.7071]])
    """
    if aligned:
        return _rotated_aligned(boxes_a, boxes_b, mode)
    return _rotated(boxes_a, boxes_b, mode)


@own_messages()
def nms3d(
    boxes: torch.Tensor, scores: torch.Tensor | None, threshold: float, max_keep: int | None = None
) -> torch.Tensor:
    """Non-maximum suppression of rotated boxes in bird's-eye view.

    Returns the numbers of the kept boxes, int64, by descending score, or without scores in ascending order.
    The definition is that of :func:`turnout.nms3d`. ``boxes`` are ``[N, 7]`` and may be strided.

    Example:
        >>> boxes = torch.tensor([[0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.3]]).repeat(3, 1)
        >>> boxes[:, 0] = torch.tensor([0.0, 0.5, 9.0])
        >>> turnout.torch.nms3d(boxes, torch.tensor([0.3, 0.9, 0.5]), 0.1)
        tensor([1, 2])
    """
    return _nms3d(boxes, scores, threshold, max_keep)


@own_messages()
def nms3d_normal(
    boxes: torch.Tensor, scores: torch.Tensor | None, threshold: float, max_keep: int | None = None
) -> torch.Tensor:
    """Non-maximum suppression of boxes of 7 numbers in bird's-eye view, without their headings.

    The definition is that of :func:`turnout.nms3d_normal`; otherwise as :func:`nms3d`.

    Example:
        >>> boxes = torch.zeros(2, 7)
        >>> boxes[:, 3:5] = torch.tensor([4.0, 2.0])
        >>> boxes[1, 0] = 1.0  # IoU 0.6
        >>> [turnout.torch.nms3d_normal(boxes, None, t).tolist() for t in (0.5, 0.7)]
        [[0], [0, 1]]
    """
    return _nms3d_normal(boxes, scores, threshold, max_keep)


@own_messages()
def nms_rotated(
    boxes: torch.Tensor, scores: torch.Tensor | None, threshold: float, max_keep: int | None = None
) -> torch.Tensor:
    """Non-maximum suppression of rotated boxes of 5 numbers.

    The definition is that of :func:`turnout.nms_rotated`; otherwise as :func:`nms3d`.

    Example:
        >>> boxes = torch.tensor([[0.0, 0.0, 4.0, 2.0, 0.0], [0.0, 0.0, 4.0, 2.0, torch.pi / 2]])
        >>> [turnout.torch.nms_rotated(boxes, None, t).tolist() for t in (0.3, 0.4)]  # IoU 1/3
        [[0], [0, 1]]
    """
    return _nms_rotated(boxes, scores, threshold, max_keep)


@own_messages()
def nms(
    boxes: torch.Tensor,
    scores: torch.Tensor | None,
    threshold: float,
    offset: int = 0,
    max_keep: int | None = None,
) -> torch.Tensor:
    """Non-maximum suppression of boxes whose edges are parallel to the axes.

    ``boxes`` are ``[N, 4]``: x1, y1, x2, y2. The definition is that of :func:`turnout.nms`; otherwise as
    :func:`nms3d`.

    Example:
        >>> boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0], [5.0, 5.0, 6.0, 6.0]])
        >>> turnout.torch.nms(boxes, torch.tensor([0.2, 0.8, 0.5]), 0.3)  # IoU 1/3
        tensor([1, 2])
    """
    return _nms(boxes, scores, threshold, offset, max_keep)


@own_messages()
def points_in_boxes(
    points: torch.Tensor,
    boxes: torch.Tensor,
    z: BoxZ = "center",
    margin: float = 1e-5,
    all: bool = False,
) -> torch.Tensor:
    """The box that each point is in, or all boxes that it is in.

    ``points`` are ``[M, 3]`` or ``[B, M, 3]``, ``boxes`` ``[N, 7]`` or ``[B, N, 7]``. Returns int32: the
    first box of each point, or -1; with ``all`` 0 or 1 for each point and box. The definition is that of
    :func:`turnout.points_in_boxes`. Tensors may be strided.

    Example:
        >>> boxes = torch.tensor([[0.0, 0.0, 0.0, 4.0, 2.0, 2.0, 0.0], [1.0, 0.0, 0.0, 4.0, 2.0, 2.0, 0.0]])
        >>> points = torch.tensor([[1.5, 0.5, 0.0], [2.5, 0.5, 0.9], [9.0, 0.0, 0.0]])
        >>> turnout.torch.points_in_boxes(points, boxes).tolist()
        [0, 1, -1]
    """
    return (_all_boxes if all else _first_box)(points, boxes, z, margin)
