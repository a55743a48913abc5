"""The scales of dynamic scatter (design document 003) and of the cases that MLU-OPS ships."""

from __future__ import annotations

import numpy as np

import turnout
from turnout import check
from turnout.check.scales.case import Cases, Data

cases = Cases("003")


def _points(points: int, voxels: int, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns features like those after a ReLU, with tied maxima, and coordinates of `voxels` voxels."""
    random = np.random.default_rng(4)
    feats = np.maximum(random.standard_normal((points, channels), dtype=np.float32), 0)
    voxel = np.concatenate((np.arange(voxels), random.integers(0, voxels, points - voxels)))
    random.shuffle(voxel)
    cells = np.sort(random.choice(10 * 400 * 400, voxels, replace=False))[voxel]
    return feats, np.stack(np.unravel_index(cells, (10, 400, 400)), axis=1).astype(np.int32)


def _backward(points: int, voxels: int, channels: int) -> Data:
    feats, coors = _points(points, voxels, channels)
    voxel_feats, _, *index = turnout.dynamic_scatter_forward(feats, coors)
    grad = np.random.default_rng(5).standard_normal(voxel_feats.shape, dtype=np.float32)
    arguments, out = (grad, feats, voxel_feats, *index), np.empty_like(feats)
    return Data(
        f"feats {points} x {channels}, voxel_feats {voxels} x {channels}, max",
        lambda: turnout.dynamic_scatter_backward(*arguments, out=out),
        lambda: check.dynamic_scatter_backward(*arguments),
        {"grad_feats": 0},
        bytes_moved=sum(x.nbytes for x in arguments) + out.nbytes if points > 100 else 0,
    )


def _forward(points: int, voxels: int, channels: int, reduce_type: str) -> Data:
    feats, coors = _points(points, voxels, channels)
    out = turnout.dynamic_scatter_forward(feats, coors, reduce_type)

    def by_torch():
        import torch

        x, rows = torch.from_numpy(feats), torch.from_numpy(out[2]).long()[:, None].expand(-1, channels)
        return lambda: torch.full((voxels, channels), -torch.inf).scatter_reduce_(0, rows, x, "amax").numpy()

    limits = {"voxel_coors": 0.0, "point2voxel_map": 0.0, "voxel_points_count": 0.0}
    return Data(
        f"feats {points} x {channels}, {voxels} voxels, {reduce_type}",
        lambda: turnout.dynamic_scatter_forward(feats, coors, reduce_type, out=out),
        lambda: check.dynamic_scatter_forward(feats, coors, reduce_type),
        {"voxel_feats": 0.0 if reduce_type == "max" else 1e-5, **limits},
        bytes_moved=feats.nbytes + coors.nbytes + sum(x.nbytes for x in out) if points > 100 else 0,
        torch=by_torch if reduce_type == "max" else None,
    )


@cases.add("dynamic_scatter_backward", "network scale")
def _network() -> Data:
    return _backward(17176, 13743, 128)


@cases.add("dynamic_scatter_backward", "shape of MLU-OPS case 1")
def _backward_shipped() -> Data:
    return _backward(34, 34, 5)


@cases.add("dynamic_scatter_forward", "network scale")
def _forward_network() -> Data:
    return _forward(17176, 13743, 128, "max")


@cases.add("dynamic_scatter_forward", "shape of MLU-OPS case 0")
def _forward_mean() -> Data:
    return _forward(6, 4, 6, "mean")


@cases.add("dynamic_scatter_forward", "shape of MLU-OPS case 1")
def _forward_max() -> Data:
    return _forward(5, 5, 2, "max")
