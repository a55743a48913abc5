"""Turnout, called with NumPy arrays and with torch tensors."""

from __future__ import annotations

import numpy as np
import torch
from dynamic_scatter.shapes import Arrays, Hard, Points
from harness import Entry

import turnout
import turnout.torch

REUSED = "turnout, out= reused"


def memory(shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    """Returns an array of ones, so that its pages are mapped, that starts 16 bytes after a cache line.

    NumPy's large arrays start there. Smaller ones start anywhere, so the times of two runs would differ.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.ones(size + 128, np.uint8)
    start = 16 - raw.ctypes.data % 64 + 64
    array = raw[start : start + size].view(dtype).reshape(shape)
    array[...] = 1
    return array


def memory_for(points: Points) -> Arrays:
    scale = points.scale
    return memory((scale.voxels, scale.channels)), *(memory(x.shape, x.dtype) for x in points.index)


def forward(points: Points, reduce_type: str, name: str = REUSED) -> Entry:
    out = memory_for(points)
    return Entry(
        name,
        lambda: turnout.dynamic_scatter_forward(points.feats, points.coors, reduce_type, out=out),
        lambda: out,
    )


def forward_fresh(points: Points, reduce_type: str) -> Entry:
    kept: list[np.ndarray] = []

    def run() -> None:
        kept[:] = turnout.dynamic_scatter_forward(points.feats, points.coors, reduce_type)

    return Entry("turnout, new results", run, lambda: tuple(kept))


def forward_op(points: Points, reduce_type: str) -> Entry:
    feats, coors = torch.from_numpy(points.feats), torch.from_numpy(points.coors)
    op = torch.ops.turnout.dynamic_scatter_forward
    kept: list[torch.Tensor] = []

    def run() -> None:
        kept[:] = op(feats, coors, reduce_type)

    return Entry("torch.ops.turnout, new results", run, lambda: tuple(x.numpy() for x in kept))


def backward(points: Points, reduce_type: str, name: str = REUSED) -> Entry:
    arguments = points.grad_voxel_feats, points.feats, points.reduced(reduce_type), points.map, points.count
    out = memory(points.feats.shape)
    return Entry(
        name, lambda: turnout.dynamic_scatter_backward(*arguments, reduce_type, out=out), lambda: out
    )


def backward_fresh(points: Points, reduce_type: str) -> Entry:
    """Makes a new result, which Turnout allocates at the start of a cache line."""
    arguments = points.grad_voxel_feats, points.feats, points.reduced(reduce_type), points.map, points.count
    kept: list[np.ndarray] = []

    def run() -> None:
        kept[:] = [turnout.dynamic_scatter_backward(*arguments, reduce_type)]

    return Entry("turnout, new result", run, lambda: kept[0])


def index(points: Points) -> Entry:
    """Makes new results. Turnout takes their memory from its output cache, NumPy from malloc."""
    kept: list[turnout.VoxelIndex] = []

    def run() -> None:
        kept[:] = [turnout.VoxelIndex(points.coors)]

    def result() -> Arrays:
        return kept[0].voxel_coors, kept[0].point2voxel_map, kept[0].voxel_points_count

    return Entry("turnout, VoxelIndex", run, result)


def reduce(points: Points, reduce_type: str) -> Entry:
    known = turnout.VoxelIndex(points.coors)
    out = memory((points.scale.voxels, points.scale.channels))
    return Entry(
        "turnout, reduce with a ready VoxelIndex",
        lambda: known.reduce(points.feats, reduce_type, out=out),
        lambda: out,
    )


def training(points: Points) -> Entry:
    """Runs dynamic_scatter forward and backward with autograd, with new tensors in each call."""
    coors, feats = torch.from_numpy(points.coors), torch.from_numpy(points.feats).requires_grad_()
    grad = torch.from_numpy(points.grad_voxel_feats)
    kept: list[torch.Tensor] = []

    def run() -> None:
        voxel_feats, _ = turnout.torch.dynamic_scatter(feats, coors, "max")
        kept[:] = torch.autograd.grad(voxel_feats, feats, grad)

    return Entry("turnout.torch, dynamic_scatter and autograd", run, lambda: kept[0].numpy())


def hard(job: Hard) -> Entry:
    out, limits = job.results(), {"max_points": job.max_points, "max_voxels": job.max_voxels}
    kept: list[np.ndarray] = []

    def run() -> None:
        kept[:] = turnout.voxelize(job.points, job.voxel_size, job.point_cloud_range, **limits, out=out)

    return Entry(REUSED, run, lambda: tuple(kept))


def dynamic(job: Hard) -> Entry:
    out = memory((len(job.points), 3), np.int32)
    return Entry(
        "turnout, coordinates alone",
        lambda: turnout.voxelize(job.points, job.voxel_size, job.point_cloud_range, out=out),
    )
