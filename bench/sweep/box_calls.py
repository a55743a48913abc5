"""The calls of boxes; peers are compiled loops over all pairs, and torch."""

from __future__ import annotations

import numpy as np
from boxes import loops
from boxes.shapes import candidates, scan, upright
from sweep.point import Data, case

import turnout

BOXES = (1, 4, 16, 64, 256, 1024, 2048)


def one_thread(entry):
    def run():
        entry.run()
        return entry.result()

    return run


@case("f32", most=1 << 20, a=BOXES, b=BOXES, tolerance=1e-3)
def boxes_iou_bev(data: Data, a: int, b: int):
    first, _ = candidates(a, seed=1)
    second, _ = candidates(b, seed=2)
    out = np.zeros((a, b), np.float32)
    return lambda: turnout.boxes_iou_bev(first, second, out=out), {
        "compiled loop": one_thread(loops.iou_bev(first, second))
    }


@case("f32", boxes=BOXES)
def nms3d(data: Data, boxes: int):
    found, scores = candidates(boxes)
    return lambda: turnout.nms3d(found, scores, 0.1), {
        "argsort, compiled loop": one_thread(loops.nms3d(found, scores, 0.1))
    }


@case("f32", boxes=BOXES)
def nms(data: Data, boxes: int):
    found, scores = candidates(boxes)
    flat = upright(found)

    def by_numpy():
        """Suppresses row by row, each against all boxes that are left."""
        left, kept = np.argsort(-scores, kind="stable"), []
        area = (flat[:, 2] - flat[:, 0]) * (flat[:, 3] - flat[:, 1])
        while len(left):
            first, others = left[0], left[1:]
            kept.append(first)
            low, high = (
                np.maximum(flat[first, :2], flat[others, :2]),
                np.minimum(flat[first, 2:], flat[others, 2:]),
            )
            both = np.prod(np.clip(high - low, 0, None), 1)
            left = others[both <= 0.5 * (area[first] + area[others] - both)]
        return np.array(kept)

    return lambda: turnout.nms(flat, scores, 0.5), {"a loop in NumPy": by_numpy}


@case("f32", most=1 << 22, points=(1, 16, 256, 4096, 65536), boxes=BOXES)
def points_in_boxes(data: Data, points: int, boxes: int):
    cloud, (found, _) = scan(points), candidates(boxes)
    out = np.zeros((points, boxes), np.int32)
    return lambda: turnout.points_in_boxes(cloud, found, margin=1e-2, all=True, out=out), {
        "compiled loop": one_thread(loops.points_in_boxes(cloud, found))
    }
