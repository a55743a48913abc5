"""``rotate_iou_gpu_eval``, with which KITTI and ONCE are evaluated; the original needs CUDA."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import turnout


def rotate_iou_gpu_eval(
    boxes: NDArray[np.floating],
    query_boxes: NDArray[np.floating],
    criterion: int = -1,
    device_id: int = 0,
) -> NDArray[np.float32]:
    """The overlap of boxes ``[N, 5]`` with boxes ``[K, 5]``: x, y, two sizes and a clockwise angle.

    Args:
        boxes, query_boxes: of any floating-point type.
        criterion: what the area of the intersection is divided by. -1: the union; 0: the query box; 1: the
            box; any other number: nothing.
        device_id: ignored.

    Returns:
        ``[N, K]`` float32.
    """
    del device_id
    found = [_counter_clockwise("boxes", boxes), _counter_clockwise("query_boxes", query_boxes)]
    first, second = found
    if not len(first) or not len(second):
        return np.zeros((len(first), len(second)), np.float32)
    if criterion == -1:
        return turnout.box_iou_rotated(first, second)
    if criterion == 0:
        return np.ascontiguousarray(turnout.box_iou_rotated(second, first, mode="iof").T)
    parts = turnout.box_iou_rotated(first, second, mode="iof")
    return parts if criterion == 1 else parts * (first[:, 2] * first[:, 3])[:, None]


def _counter_clockwise(name: str, boxes: NDArray[np.floating]) -> NDArray[np.float32]:
    turned = np.array(boxes, np.float32)
    if turned.ndim != 2 or turned.shape[1] != 5:
        raise ValueError(f"rotate_iou_gpu_eval: {name} has shape {list(turned.shape)}, expected [boxes, 5]")
    turned[:, 4] *= -1
    return turned
