"""The peers of loops.cc, compiled when they are first used."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from harness import Entry

POINTER, INT, FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


@functools.cache
def library() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix="turnout-loops-"))
    path, source = folder / "loops.so", Path(__file__).with_suffix(".cc")
    command = [os.environ.get("CXX", "c++"), "-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run([*command, "-ffp-contract=off", "-std=c++20", str(source), "-o", str(path)], check=True)
    found = ctypes.CDLL(str(path))
    found.loops_iou_bev.argtypes = (POINTER, INT, POINTER, INT, POINTER)
    found.loops_nms3d.argtypes = (POINTER, INT, FLOAT, POINTER)
    found.loops_nms3d.restype = INT
    found.loops_points_in_boxes.argtypes = (POINTER, INT, POINTER, INT, POINTER)
    return found


def iou_bev(a: np.ndarray, b: np.ndarray) -> Entry:
    out = np.empty((len(a), len(b)), np.float32)
    arguments = a.ctypes.data, len(a), b.ctypes.data, len(b), out.ctypes.data
    return Entry("all pairs one by one (C++)", lambda: library().loops_iou_bev(*arguments), lambda: out)


def nms3d(boxes: np.ndarray, scores: np.ndarray, threshold: float) -> Entry:
    kept: list[np.ndarray] = []

    def run() -> None:
        order = np.argsort(-scores, kind="stable")
        given, keep = np.ascontiguousarray(boxes[order]), np.empty(len(boxes), np.int64)
        count = library().loops_nms3d(given.ctypes.data, len(given), threshold, keep.ctypes.data)
        kept[:] = [order[keep[:count]]]

    return Entry("all live pairs one by one (C++)", run, lambda: kept[0], every=4)


def points_in_boxes(points: np.ndarray, boxes: np.ndarray) -> Entry:
    out = np.empty((len(boxes), len(points)), np.int32)
    arguments = boxes.ctypes.data, len(boxes), points.ctypes.data, len(points), out.ctypes.data

    def run() -> None:
        library().loops_points_in_boxes(*arguments)

    return Entry("all pairs one by one (C++)", run, lambda: np.ascontiguousarray(out.T), every=4)
