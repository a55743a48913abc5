"""Boxes, scores and points of the benchmarks: what a detector has before suppression, and a scan."""

from __future__ import annotations

import numpy as np


def candidates(count: int, objects: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Boxes of 7 numbers that a head finds around some objects on 150 x 90 m, and their scores."""
    random = np.random.default_rng(seed)
    at = random.uniform([-75, -45], [75, 45], (objects, 2))
    headings = random.uniform(-np.pi, np.pi, objects)
    of = random.integers(0, objects, count)
    boxes = np.empty((count, 7), np.float32)
    boxes[:, :2] = at[of] + random.normal(0, 0.8, (count, 2))
    boxes[:, 2] = random.normal(-1, 0.2, count)
    boxes[:, 3:6] = random.uniform([3.5, 1.6, 1.4], [4.8, 2.0, 1.8], (count, 3))
    boxes[:, 6] = headings[of] + random.normal(0, 0.15, count)
    return boxes, random.random(count, dtype=np.float32)


def without_height(boxes: np.ndarray) -> np.ndarray:
    """x, y, w, h, angle."""
    return np.ascontiguousarray(boxes[:, [0, 1, 3, 4, 6]])


def upright(boxes: np.ndarray) -> np.ndarray:
    """x1, y1, x2, y2, without the headings."""
    half = boxes[:, 3:5] / 2
    return np.hstack([boxes[:, :2] - half, boxes[:, :2] + half])


def scan(points: int, seed: int = 0) -> np.ndarray:
    """Points whose density falls with the distance from the sensor, as in a scan."""
    random = np.random.default_rng(seed)
    angle, distance = random.uniform(-np.pi, np.pi, points), random.exponential(20, points)
    xyz = np.stack([distance * np.cos(angle), distance * np.sin(angle), random.normal(-1, 0.8, points)], 1)
    return xyz.astype(np.float32)
