"""The peers of points: a plain loop in C++, tensor operations, and scipy's k-d tree."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
from harness import Entry

import turnout


@functools.cache
def library() -> ctypes.CDLL:
    folder = Path(tempfile.mkdtemp(prefix="turnout-loops-"))
    path, source = folder / "loops.so", Path(__file__).with_suffix(".cc")
    command = [os.environ.get("CXX", "c++"), "-O3", "-march=native", "-fopenmp-simd", "-ffinite-math-only"]
    command += ["-fno-signed-zeros", "-fno-trapping-math", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([*command, "-std=c++20", str(source), "-o", str(path)], check=True)
    found = ctypes.CDLL(str(path))
    found.loops_sample.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    return found


def sample(xyz: np.ndarray, samples: int) -> Entry:
    idx = np.empty(samples, np.int32)
    arguments = xyz.ctypes.data, len(xyz), samples, idx.ctypes.data
    return Entry("all points, vectors (C++)", lambda: library().loops_sample(*arguments), lambda: idx)


def sample_by_tensors(xyz: np.ndarray, samples: int) -> Entry:
    """torch_cluster's algorithm for the CPU: tensor operations on all points for each sample.

    The axes are separate tensors, so that squares are added in the order of the definition.
    """
    axes, idx = torch.from_numpy(xyz).T.contiguous(), torch.zeros(samples, dtype=torch.int64)

    def run() -> None:
        least = torch.full((len(xyz),), 1e10)
        last = 0
        for i in range(1, samples):
            x, y, z = (axes - axes[:, last : last + 1]).square_()
            torch.minimum(least, x.add_(y).add_(z), out=least)
            idx[i] = last = int(least.argmax())

    return Entry("tensor operations, as torch_cluster", run, lambda: idx.numpy().astype(np.int32), every=8)


def has_tree() -> bool:
    return importlib.util.find_spec("scipy") is not None


def tree_balls(xyz: np.ndarray, queries: np.ndarray, radius: float, nsample: int) -> Entry:
    from scipy.spatial import cKDTree

    found: list[np.ndarray] = []
    workers = turnout.get_num_threads()

    def run() -> None:
        rows = cKDTree(xyz).query_ball_point(queries, radius, return_sorted=True, workers=workers)
        found[:] = [rows]

    def counts() -> np.ndarray:
        return np.array([min(len(rows), nsample) for rows in found[0]], np.int32)

    return Entry("scipy cKDTree.query_ball_point", run, counts, every=4)


def tree_nearest(xyz: np.ndarray, queries: np.ndarray, k: int) -> Entry:
    from scipy.spatial import cKDTree

    found: list[np.ndarray] = []
    workers = turnout.get_num_threads()

    def run() -> None:
        found[:] = cKDTree(xyz).query(queries, k, workers=workers)

    return Entry("scipy cKDTree.query", run, lambda: found[0].astype(np.float32) ** 2, every=4)
