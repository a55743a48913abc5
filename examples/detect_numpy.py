"""The detector of detect.py without PyTorch: voxels, the trained network and rotated NMS, with NumPy alone.

    points = turnout.simulate.lidar_scan(seed=10000).points
    boxes, scores, labels = detect(points, load_weights())

It also computes the average precision and draws the picture. detect.py trains the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import turnout
from turnout.simulate import CLASSES, Scan

WEIGHTS = Path(__file__).with_name("detect_weights.npz")
VOXEL = np.array([0.2, 0.2, 0.2])  # metres, x, y, z
RANGE = np.array([-38.4, -38.4, -3.0, 38.4, 38.4, 1.8])  # lower limits of x, y, z, then upper limits
SPACE = (24, 384, 384)  # voxels in z, y, x
HALF = tuple(n // 2 for n in SPACE)  # after the stride of 2
PLANE = (1, *HALF[1:])  # the cells seen from above
FEATURES = 8  # of a voxel
FLAT = (1, 3, 3)  # the kernel in the plane
# Usual length, width and height of each class. The network says the logarithm of the ratio to them.
SIZES = np.array([[4.3, 1.8, 1.55], [5.5, 1.97, 2.25], [0.62, 0.62, 1.72]], np.float32)
# For each cell: a score of each class; then the middle, relative to the cell's in x and y, the size, and the
# cosine and sine of twice the heading, since a box has no front.
OUTPUTS = len(CLASSES) + 8
MIN_SCORE, MAX_IOU = 0.05, 0.2
UNSEEN = 10_000  # the seed of the first scene for evaluation; training has the seeds from 0
COLORS, TRUE_COLOR = ("#0b5fd0", "#d9480f", "#a3139b"), "#2fb344"  # of the classes, and of true boxes
DRAWN_SCORE = 0.4  # boxes with lower scores are not drawn

Weights = Mapping[str, np.ndarray]


class Found(NamedTuple):
    """Boxes ``[n, 7]`` as in Scan, their scores in descending order, and their classes."""

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray


def load_weights(path: Path = WEIGHTS) -> dict[str, np.ndarray]:
    """The filters and biases by name; the file has them as float16."""
    with np.load(path) as file:
        return {name: file[name].astype(np.float32) for name in file.files}


def voxels_of(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The features of the voxels with points, and their sites (batch number 0, z, y, x)."""
    coors = turnout.voxelize(points, VOXEL, RANGE)
    inside = coors[:, 0] >= 0  # points outside have (-1, -1, -1)
    means, sites, _, counts = turnout.dynamic_scatter_forward(points[inside], coors[inside], "mean")
    middles = RANGE[:3] + (sites[:, ::-1] + 0.5) * VOXEL
    away = middles[:, :2] / np.linalg.norm(middles[:, :2], axis=1, keepdims=True)  # from the sensor
    columns = ((means[:, :3] - middles) / VOXEL, means[:, 2:], np.log(counts) / 2, away)
    return np.column_stack(columns).astype(np.float32), np.insert(sites, 0, 0, axis=1)


def forward(weights: Weights, x: np.ndarray, sites: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cells (0, 0, y, x) with points in them, and the outputs of the network for each."""

    def layer(name: str, x: np.ndarray, pairs: Sequence[np.ndarray], rows: int, **how: bool) -> np.ndarray:
        filters, bias = weights[name + ".filters"], weights[name + ".bias"]
        out = turnout.indice_convolution_forward(x, filters, *pairs, rows, bias=bias, **how)
        return np.maximum(out, 0, out=out)

    def same(sites: np.ndarray, space: Sequence[int], kernel: Sequence[int], dilation: int = 1) -> list:
        return turnout.get_indice_pairs(sites, 1, space, kernel, dilation=dilation, subm=True)[1:]

    x = layer("stem", x, same(sites, SPACE, (3, 3, 3)), len(sites), subm=True)
    sites, *pairs = turnout.get_indice_pairs(sites, 1, SPACE, kernel_size=3, stride=2, padding=1)
    x = layer("down", x, pairs, len(sites))
    x = layer("body", x, same(sites, HALF, (3, 3, 3)), len(sites), subm=True)
    cells, *pairs = turnout.get_indice_pairs(sites, 1, HALF, kernel_size=(HALF[0], 1, 1))
    x = layer("flatten", x, pairs, len(cells))
    near = same(cells, PLANE, FLAT)
    x = layer("near", x, near, len(cells), subm=True)

    coarse, *pairs = turnout.get_indice_pairs(cells, 1, PLANE, FLAT, stride=(1, 2, 2), padding=(0, 1, 1))
    plane = (1, PLANE[1] // 2, PLANE[2] // 2)
    y = layer("wide", x, pairs, len(coarse))
    y = layer("far", y, same(coarse, plane, FLAT), len(coarse), subm=True)
    y = layer("farther", y, same(coarse, plane, FLAT, dilation=2), len(coarse), subm=True)
    x = x + layer("back", y, pairs, len(cells), inverse=True)
    x = layer("merge", x, near, len(cells), subm=True)
    x = np.maximum(x @ weights["hidden.filters"] + weights["hidden.bias"], 0)
    return cells, x @ weights["head.filters"] + weights["head.bias"]


def middles_of(cells: np.ndarray) -> np.ndarray:
    """x and y of the voxels in the middle of the cells (batch, 0, y, x)."""
    return (RANGE[:2] + (2 * cells[:, :1:-1] + 0.5) * VOXEL[:2]).astype(np.float32)


def boxes_of(cells: np.ndarray, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The boxes that the last 8 outputs mean."""
    xy, z, size, cosine, sine = np.split(outputs[:, -8:], [2, 3, 6, 7], axis=1)
    heading = np.arctan2(sine, cosine) / 2
    return np.hstack((middles_of(cells) + xy, z, SIZES[labels] * np.exp(size), heading))


def numbers_of(cells: np.ndarray, boxes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The last 8 outputs that mean these boxes; the inverse of boxes_of."""
    heading = 2 * boxes[:, 6:]
    size = np.log(boxes[:, 3:6] / SIZES[labels])
    xy = boxes[:, :2] - middles_of(cells)
    return np.hstack((xy, boxes[:, 2:3], size, np.cos(heading), np.sin(heading)))


def detect(points: np.ndarray, weights: Weights) -> Found:
    """The boxes in a scan: those of all cells, without those that overlap one with a higher score."""
    cells, outputs = forward(weights, *voxels_of(points))
    logits = outputs[:, : len(CLASSES)]
    labels, scores = logits.argmax(axis=1), 1 / (1 + np.exp(-logits.max(axis=1)))
    rows = np.flatnonzero(scores > MIN_SCORE)
    cells, outputs, labels, scores = cells[rows], outputs[rows], labels[rows], scores[rows]
    boxes = boxes_of(cells, outputs, labels)
    kept = turnout.nms3d(boxes, scores, MAX_IOU)
    kept = kept[is_inside(boxes[kept])]
    return Found(boxes[kept], scores[kept], labels[kept])


def is_inside(boxes: np.ndarray) -> np.ndarray:
    """Whether the middle of each box is in the range of the detector."""
    return (np.abs(boxes[:, :2]) < RANGE[3]).all(axis=1)


def truth_of(scan: Scan) -> tuple[np.ndarray, np.ndarray]:
    """The true boxes whose middles are in the range of the detector, and their classes."""
    inside = is_inside(scan.boxes)
    return scan.boxes[inside], scan.labels[inside]


def average_precision(
    found: Sequence[Found],
    scans: Sequence[Scan],
    label: int,
    least: float = 0.5,
    iou_of: Callable[[np.ndarray, np.ndarray], np.ndarray] = turnout.boxes_iou_bev,
) -> float:
    """The area under the curve of precision over recall of one class, over all scans.

    By descending score, each box takes the true box of its class that it overlaps most among those that are
    left. It is right if their IoU is at least `least`.
    """
    scores, right, count = [], [], 0
    for one, scan in zip(found, scans, strict=True):
        boxes, labels = truth_of(scan)
        boxes, mine = boxes[labels == label], one.labels == label
        count += len(boxes)
        iou = iou_of(one.boxes[mine], boxes)
        for row in iou:
            best = int(row.argmax()) if len(row) else -1
            right.append(best >= 0 and row[best] >= least)
            if right[-1]:
                iou[:, best] = -1
        scores.append(one.scores[mine])
    hits = np.array(right, bool)[np.argsort(-np.concatenate(scores), kind="stable")]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    # The precision at a recall is the best one at this recall or a higher one.
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    return float(precision[hits].sum() / max(count, 1))


def draw(path: Path, scan: Scan, found: Found, sideways: float = 19.2) -> None:
    """Draws the scan from above with true and found boxes, and `sideways` metres on either side."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle

    ahead = RANGE[3]
    figure = plt.figure(figsize=(16, 16 * sideways / ahead), dpi=100, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-ahead, ahead), ylim=(-sideways, sideways))
    axes.set_axis_off()
    # High points are darker than the ground. An SVG has the points as one image.
    points = scan.points[np.argsort(scan.points[:, 2])]
    shade = np.interp(points[:, 2], (-1.9, -1.2, 1.5), (0.84, 0.6, 0.35))
    axes.scatter(*points[:, :2].T, s=1.5, c=shade, cmap="gray", vmin=0, vmax=1, linewidths=0, rasterized=True)

    def outline(box: np.ndarray, **style: object) -> None:
        x, y, _, length, width, _, heading = box
        place, angle = (x - length / 2, y - width / 2), np.degrees(heading)
        axes.add_patch(Rectangle(place, length, width, angle=angle, rotation_point="center", **style))

    filled = {"facecolor": TRUE_COLOR, "alpha": 0.35, "linewidth": 0}
    boxes, _ = truth_of(scan)
    boxes = boxes[np.abs(boxes[:, 1]) < sideways]
    for box in boxes:
        outline(box, **filled)
    drawn = np.flatnonzero((found.scores >= DRAWN_SCORE) & (np.abs(found.boxes[:, 1]) < sideways))
    for row in drawn:
        outline(found.boxes[row], fill=False, edgecolor=COLORS[found.labels[row]], linewidth=2.5)

    handles = [Patch(label="true box", **filled)]
    handles += [
        Line2D([], [], color=color, linewidth=3, label=f"found {name}")
        for name, color in zip(CLASSES, COLORS, strict=True)
    ]
    axes.legend(handles=handles, loc="lower center", ncols=4, fontsize=20, framealpha=0.95, edgecolor="none")
    frame = {"facecolor": "white", "edgecolor": "none", "alpha": 0.95, "pad": 6}
    text = f"{len(scan.points):,} points → {len(drawn)} boxes found, {len(boxes)} true boxes"
    axes.text(0.012, 0.965, text, fontsize=22, transform=axes.transAxes, va="top", bbox=frame)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
