"""The published comparisons of boxes."""

from __future__ import annotations

import numpy as np
import torch
from boxes import loops
from boxes.scenes import BOXES, IOU_TOLERANCE, NMS_BOXES, PAIRED, POINTS, kept_by
from boxes.shapes import candidates, scan, upright
from harness import Entry
from recorded import Case, Programs

import turnout
import turnout.torch

LOOPS = "C++, pair by pair"


def cases() -> list[Case]:
    near, far = f"{NMS_BOXES} boxes, IoU 0.2", f"{NMS_BOXES} boxes, IoU 0.7"
    return [
        Case(
            *("nms3d", "nms3d", near, "f32", LOOPS, "new", lambda: suppression(0.2)),
            serial_peer=True,
        ),
        Case(
            *("nms-2", "nms", near, "f32", "`torchvision.ops.nms`", "new", lambda: upright_suppression(0.2)),
            serial_peer=True,
        ),
        Case(
            *("nms-7", "nms", far, "f32", "`torchvision.ops.nms`", "new", lambda: upright_suppression(0.7)),
            serial_peer=True,
        ),
        Case(
            *(
                "boxes_iou_bev",
                "boxes_iou_bev",
                f"{PAIRED} x {PAIRED} boxes",
                "f32",
                LOOPS,
                "reused",
                overlaps,
            ),
            serial_peer=True,
        ),
        Case(
            *("points_in_boxes", "points_in_boxes, all", f"{POINTS} points, {BOXES} boxes", "f32", LOOPS),
            *("reused", points),
            serial_peer=True,
        ),
    ]


def suppression(threshold: float) -> Programs:
    boxes, scores = candidates(NMS_BOXES)
    ours = kept_by("turnout.nms3d", turnout.nms3d, boxes, scores, threshold)
    return Programs(ours, loops.nms3d(boxes, scores, threshold))


def upright_suppression(threshold: float) -> Programs:
    import torchvision

    boxes, scores = candidates(NMS_BOXES)
    tensors = torch.from_numpy(upright(boxes)), torch.from_numpy(scores)
    return Programs(
        kept_by("turnout.torch.nms", torch.ops.turnout.nms, *tensors, threshold),
        kept_by("torchvision.ops.nms", torchvision.ops.nms, *tensors, threshold),
    )


def overlaps() -> Programs:
    a, b = candidates(PAIRED, seed=1)[0], candidates(PAIRED, seed=1)[0][::-1].copy()
    out = np.empty((PAIRED, PAIRED), np.float32)
    ours = Entry("turnout.boxes_iou_bev", lambda: turnout.boxes_iou_bev(a, b, out=out), lambda: out)
    return Programs(ours, loops.iou_bev(a, b), tolerance=IOU_TOLERANCE)


def points() -> Programs:
    cloud, boxes = scan(POINTS), candidates(BOXES, objects=BOXES)[0]
    out = np.empty((POINTS, BOXES), np.int32)
    arguments = cloud, boxes, "center", 1e-2, True
    ours = Entry("turnout", lambda: turnout.points_in_boxes(*arguments, out=out), lambda: out)
    return Programs(ours, loops.points_in_boxes(cloud, boxes))
