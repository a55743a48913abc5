"""The definitions of dynamic scatter and voxelization, and checks against them."""

from __future__ import annotations

import numpy as np

import turnout
from turnout.check.lanes import wide_type

__all__ = ["dynamic_scatter_backward", "dynamic_scatter_forward", "voxelize"]


def voxelize(points, voxel_size, point_cloud_range, *, max_points=-1, max_voxels=-1, return_map=False):
    """The definition of ``turnout.voxelize``."""
    real = wide_type(points.dtype)
    size, ends = (np.asarray(numbers, np.float64).astype(real) for numbers in (voxel_size, point_cloud_range))
    extent = (ends[3:] - ends[:3]) / size
    grid = np.trunc(extent) + (extent - np.trunc(extent) >= 0.5)  # rounded, halves away from zero
    with np.errstate(all="ignore"):
        cell = np.floor((points[:, :3].astype(real) - ends[:3]) / size)
    inside = ((cell >= 0) & (cell < grid)).all(axis=1)  # false for NaN
    coors = np.full((len(points), 3), -1, np.int32)
    coors[inside] = cell[inside, ::-1]
    if max_points == -1 and max_voxels == -1:
        return coors

    kept = {}  # in the order of their first points
    for i in np.flatnonzero(inside):
        zyx = tuple(coors[i].tolist())
        if zyx in kept or len(kept) < max_voxels:
            kept.setdefault(zyx, []).append(i)
    voxels = np.zeros((len(kept), max_points, points.shape[1]), points.dtype)
    num = np.zeros(len(kept), np.int32)
    for v, rows in enumerate(kept.values()):
        num[v] = min(len(rows), max_points)
        voxels[v, : num[v]] = points[rows[: num[v]]]
    results = voxels, np.array(list(kept), np.int32).reshape(-1, 3), num
    if not return_map:
        return results
    map_ = np.full(len(points), -1, np.int32)
    for v, rows in enumerate(kept.values()):
        map_[rows] = v
    return *results, map_


def dynamic_scatter_forward(feats, coors, reduce_type="max"):
    """The definition of ``turnout.dynamic_scatter_forward``."""
    wide = wide_type(feats.dtype)
    points_of = {}
    for i, row in enumerate(coors.tolist()):
        if min(row) >= 0:
            points_of.setdefault(tuple(row), []).append(i)
    voxels = sorted(points_of)
    voxel_feats = np.empty((len(voxels), feats.shape[1]), feats.dtype)
    point2voxel_map = np.full(len(coors), -1, np.int32)
    voxel_points_count = np.empty(len(voxels), np.int32)
    with np.errstate(all="ignore"):
        for v, row in enumerate(voxels):
            point2voxel_map[points_of[row]] = v
            voxel_points_count[v] = len(points_of[row])
            reduced = np.full(feats.shape[1], -np.inf if reduce_type == "max" else 0, wide)
            for i in points_of[row]:
                x = feats[i].astype(wide)
                reduced = np.where(x > reduced, x, reduced) if reduce_type == "max" else reduced + x
            if reduce_type == "mean":
                reduced = reduced / wide(voxel_points_count[v])
            voxel_feats[v] = reduced.astype(feats.dtype)
    voxel_coors = np.array(voxels, coors.dtype).reshape(-1, coors.shape[1])
    return voxel_feats, voxel_coors, point2voxel_map, voxel_points_count


def dynamic_scatter_backward(
    grad_voxel_feats, feats, voxel_feats, point2voxel_map, voxel_points_count, reduce_type="max"
):
    """The definition of ``turnout.dynamic_scatter_backward``."""
    dtype, wide = grad_voxel_feats.dtype, wide_type(grad_voxel_feats.dtype)
    grad_feats = np.zeros((len(point2voxel_map), grad_voxel_feats.shape[1]), dtype)
    given = np.zeros(grad_voxel_feats.shape, np.bool_)  # the gradient of a maximum goes to one point
    with np.errstate(all="ignore"):
        for i, v in enumerate(point2voxel_map):
            if v < 0:
                continue
            grad = grad_voxel_feats[v]
            if reduce_type == "mean":
                grad = (grad.astype(wide) / wide(voxel_points_count[v])).astype(dtype)
            elif reduce_type == "max":
                takes = (feats[i] == voxel_feats[v]) & ~given[v]
                given[v] |= takes
                grad = np.where(takes, grad, dtype.type(0))
            grad_feats[i] = grad
    return grad_feats


def _check_voxelize(rng: np.random.Generator, **limits) -> None:
    arguments = rng.uniform(-1, 5, (60, 4)).astype(np.float32), (0.5, 0.7, 4), (0, 0, -1, 4, 4, 3)
    results = [f(*arguments, **limits) for f in (turnout.voxelize, voxelize)]
    if not limits:
        results = [(coors,) for coors in results]
    actual, expected = results
    for one, wanted in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, wanted)


def _check_voxelize_hard(rng: np.random.Generator) -> None:
    _check_voxelize(rng, max_points=2, max_voxels=20, return_map=True)


def _scattered(rng: np.random.Generator):
    """Arguments of each reduction, with equal features and points in no voxel."""
    for reduce_type in ("max", "mean", "sum"):
        feats = rng.integers(-3, 4, (60, 19)).astype(np.float32)
        yield feats, rng.integers(-1, 3, (60, 3)).astype(np.int32), reduce_type


def _check_dynamic_scatter_forward(rng: np.random.Generator) -> None:
    for arguments in _scattered(rng):
        results = turnout.dynamic_scatter_forward(*arguments)
        for actual, expected in zip(results, dynamic_scatter_forward(*arguments), strict=True):
            np.testing.assert_array_equal(actual, expected)


def _check_dynamic_scatter_backward(rng: np.random.Generator) -> None:
    for feats, coors, reduce_type in _scattered(rng):
        voxel_feats, _, *index = turnout.dynamic_scatter_forward(feats, coors, reduce_type)
        grad = rng.standard_normal(voxel_feats.shape).astype(np.float32)
        arguments = grad, feats, voxel_feats, *index, reduce_type
        actual = turnout.dynamic_scatter_backward(*arguments)
        np.testing.assert_array_equal(actual, dynamic_scatter_backward(*arguments))


CHECKS = {
    "voxelize": _check_voxelize,
    "voxelize_hard": _check_voxelize_hard,
    "dynamic_scatter_forward": _check_dynamic_scatter_forward,
    "dynamic_scatter_backward": _check_dynamic_scatter_backward,
}
