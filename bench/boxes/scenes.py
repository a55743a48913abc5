"""The comparisons of boxes: suppression, overlaps and points in boxes, with peers for the CPU."""

from __future__ import annotations

import importlib.util

import numpy as np
import torch
from boxes import loops, mmcv_peer
from boxes.shapes import candidates, scan, upright, without_height
from harness import Comparison, Entry, Summary, compare, median

import turnout
import turnout.torch

NMS_BOXES, PAIRED, POINTS, BOXES = 4096, 500, 200_000, 100
IOU_TOLERANCE = 1e-4


def run(seconds: float) -> list[Comparison]:
    torch.set_num_threads(turnout.get_num_threads())
    summary = Summary()
    done = []
    for threshold in (0.01, 0.2, 0.7):
        done.append(suppression(threshold, seconds, summary))
        done.append(rotated_suppression(threshold, seconds, summary))
        done.append(upright_suppression(threshold, seconds, summary))
    done += [overlaps(seconds, summary), rotated_overlaps(seconds, summary)]
    done += [points(seconds, summary), points_bottom(seconds, summary)]
    summary.show()
    return done


def kept_by(name: str, function, *arguments, every: int = 1) -> Entry:
    """A program that returns the numbers of the kept boxes."""
    kept: list[object] = []

    def run_once() -> None:
        kept[:] = [function(*arguments)]

    return Entry(name, run_once, lambda: np.asarray(kept[0]), every)


def ratios(summary: Summary, comparison: Comparison) -> Comparison:
    first = comparison.rows[0]
    for row in comparison.rows[1:]:
        summary.add(comparison.title, f"{row.name} / {first.name}", row.median_us / first.median_us)
    return comparison


def suppression(threshold: float, seconds: float, summary: Summary) -> Comparison:
    boxes, scores = candidates(NMS_BOXES)
    entries = [
        kept_by("turnout.nms3d", turnout.nms3d, boxes, scores, threshold),
        loops.nms3d(boxes, scores, threshold),
    ]
    expected = turnout.nms3d(boxes, scores, threshold)
    title = f"nms3d, {NMS_BOXES} boxes, threshold {threshold}, {len(expected)} kept"
    return ratios(summary, compare(title, entries, expected=expected, seconds=seconds))


def rotated_suppression(threshold: float, seconds: float, summary: Summary) -> Comparison:
    boxes, scores = candidates(NMS_BOXES)
    flat = without_height(boxes)
    expected = turnout.nms_rotated(flat, scores, threshold)
    entries = [kept_by("turnout.nms_rotated", turnout.nms_rotated, flat, scores, threshold)]
    if (mmcv := mmcv_peer.find()) is not None:
        order = torch.from_numpy(np.argsort(-scores, kind="stable").copy())
        given = torch.from_numpy(flat), torch.from_numpy(scores), order, torch.from_numpy(flat)[order]
        entries.append(
            kept_by("mmcv nms_rotated", mmcv.nms_rotated, *given, torch.zeros(0), threshold, 0, every=8)
        )
    title = f"nms_rotated, {NMS_BOXES} boxes, threshold {threshold}, {len(expected)} kept"
    return ratios(summary, compare(title, entries, expected=expected, seconds=seconds, least=2))


def upright_suppression(threshold: float, seconds: float, summary: Summary) -> Comparison:
    boxes, scores = candidates(NMS_BOXES)
    corners = upright(boxes)
    tensors = torch.from_numpy(corners), torch.from_numpy(scores)
    entries = [
        kept_by("turnout.nms", turnout.nms, corners, scores, threshold),
        kept_by("turnout.torch.nms", torch.ops.turnout.nms, *tensors, threshold),
    ]
    if importlib.util.find_spec("torchvision") is not None:
        import torchvision

        entries.append(kept_by("torchvision.ops.nms", torchvision.ops.nms, *tensors, threshold))
    if (mmcv := mmcv_peer.find()) is not None:
        entries.append(kept_by("mmcv nms", mmcv.nms, *tensors, threshold, 0))
    expected = turnout.nms(corners, scores, threshold)
    title = f"nms, {NMS_BOXES} boxes, threshold {threshold}, {len(expected)} kept"
    return ratios(summary, compare(title, entries, expected=expected, seconds=seconds))


def overlaps(seconds: float, summary: Summary) -> Comparison:
    a, b = candidates(PAIRED, seed=1)[0], candidates(PAIRED, seed=1)[0][::-1].copy()
    out = np.empty((PAIRED, PAIRED), np.float32)
    entries = [
        Entry("turnout.boxes_iou_bev", lambda: turnout.boxes_iou_bev(a, b, out=out), lambda: out),
        loops.iou_bev(a, b),
    ]
    expected = turnout.boxes_iou_bev(a, b)
    title = f"boxes_iou_bev, {PAIRED} x {PAIRED}, {(expected > 0).mean():.1%} overlap"
    compared = compare(title, entries, expected=expected, tolerance=IOU_TOLERANCE, seconds=seconds)
    return ratios(summary, compared)


def rotated_overlaps(seconds: float, summary: Summary) -> Comparison:
    a = without_height(candidates(PAIRED, seed=1)[0])
    b = a[::-1].copy()
    out = np.empty((PAIRED, PAIRED), np.float32)
    entries = [Entry("turnout.box_iou_rotated", lambda: turnout.box_iou_rotated(a, b, out=out), lambda: out)]
    if (mmcv := mmcv_peer.find()) is not None:
        first, second, to = torch.from_numpy(a), torch.from_numpy(b), torch.zeros(PAIRED * PAIRED)
        entries.append(
            Entry(
                "mmcv box_iou_rotated",
                lambda: mmcv.box_iou_rotated(first, second, to, 0, False),
                lambda: to.reshape(PAIRED, PAIRED).numpy(),
                every=4,
            )
        )
    expected = turnout.box_iou_rotated(a, b)
    title = f"box_iou_rotated, {PAIRED} x {PAIRED}, {(expected > 0).mean():.1%} overlap"
    compared = compare(title, entries, expected=expected, tolerance=IOU_TOLERANCE, seconds=seconds, least=2)
    return ratios(summary, compared)


def points(seconds: float, summary: Summary) -> Comparison:
    """OpenPCDet's function for the CPU has a margin of 1 cm, and a number for each point and box."""
    cloud, boxes = scan(POINTS), candidates(BOXES, objects=BOXES)[0]
    out = np.empty((POINTS, BOXES), np.int32)
    arguments = cloud, boxes, "center", 1e-2, True
    first = np.empty(POINTS, np.int32)
    entries = [
        Entry("turnout, all=True", lambda: turnout.points_in_boxes(*arguments, out=out), lambda: out),
        loops.points_in_boxes(cloud, boxes),
    ]
    expected = turnout.points_in_boxes(*arguments)
    title = f"points_in_boxes, {POINTS} points, {BOXES} boxes, {expected.any(1).mean():.1%} inside"
    compared = ratios(summary, compare(title, entries, expected=expected, seconds=seconds))
    alone = compare(
        f"{title}, the first box",
        [Entry("turnout", lambda: turnout.points_in_boxes(*arguments[:4], out=first))],
        seconds=seconds / 2,
    )
    loop = median(compared, "all pairs")
    summary.add(title, "all pairs / turnout, the first box", loop / median(alone, "turnout"))
    return compared


def points_bottom(seconds: float, summary: Summary) -> Comparison:
    cloud, boxes = scan(POINTS), candidates(BOXES, objects=BOXES)[0]
    out = np.empty((POINTS, BOXES), np.int32)
    arguments = cloud, boxes, "bottom", 0.0, True
    entries = [Entry("turnout, all=True", lambda: turnout.points_in_boxes(*arguments, out=out), lambda: out)]
    if (mmcv := mmcv_peer.find()) is not None:
        to = torch.zeros(BOXES, POINTS, dtype=torch.int32)
        given = torch.from_numpy(boxes), torch.from_numpy(cloud), to
        entries.append(
            Entry(
                "mmcv points_in_boxes_cpu",
                lambda: mmcv.points_in_boxes_cpu_forward(*given),
                lambda: to.numpy().T.copy(),
                every=4,
            )
        )
    expected = turnout.points_in_boxes(*arguments)
    title = f"points_in_boxes, mmcv's rule, {POINTS} points, {BOXES} boxes"
    return ratios(summary, compare(title, entries, expected=expected, seconds=seconds, least=2))
