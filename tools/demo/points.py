"""The demo's lines about LiDAR scans: voxels, sparse convolution, reductions."""

from __future__ import annotations

from functools import cache

import numpy as np

import turnout
import turnout.check
from demo.job import Job
from turnout.simulate import lidar_scan

# Metres: lower limits of x, y, z, then upper limits. SPACE is the number of voxels in z, y, x.
VOXEL, RANGE, SPACE = (0.075, 0.075, 0.2), (-54, -54, -5, 54, 54, 3.2), (41, 1440, 1440)
SCANS = 4


@cache
def cloud(seed: int = 0) -> np.ndarray:
    """The points of a simulated scan: x, y, z, reflectance."""
    return lidar_scan(seed).points


def sites_of(scans: int) -> np.ndarray:
    """The voxels (batch, z, y, x) of the first scans, in scan order."""
    sites = []
    for number in range(scans):
        coors = turnout.voxelize(cloud(number), VOXEL, RANGE)
        coors = coors[coors[:, 0] >= 0]
        _, first = np.unique(coors, axis=0, return_index=True)
        sites.append(np.insert(coors[np.sort(first)], 0, number, axis=1))
    return np.concatenate(sites)


def indice_pairs(subm: bool) -> Job:
    batch, space, stride = SCANS, np.array(SPACE), 1 if subm else 2
    indices = sites_of(batch)
    out_space = (space - 1) // stride + 1
    options = {"kernel_size": 3, "stride": stride, "padding": 1, "subm": subm}

    def definition() -> tuple[np.ndarray, ...]:
        """The definition, one kernel offset at a time; a dictionary maps each output site to its row."""
        full = (batch, *out_space)
        keys = []
        for offset in np.ndindex(3, 3, 3):
            shifted = indices[:, 1:] + 1 - np.array(offset)
            valid = np.all((shifted >= 0) & (shifted % stride == 0) & (shifted // stride < out_space), axis=1)
            outputs = np.where(valid[:, None], shifted // stride, 0)
            keys.append(np.where(valid, np.ravel_multi_index((indices[:, 0], *outputs.T), full), -1))
        active = np.ravel_multi_index(indices.T, full) if subm else np.unique(keys)
        active = active[active >= 0]
        row_of = {key: row for row, key in enumerate(active.tolist())}
        pairs = np.full((27, 2, len(indices)), -1, dtype=np.int32)
        counts = np.zeros(27, dtype=np.int32)
        for k in range(27):
            found = [(i, row_of[key]) for i, key in enumerate(keys[k].tolist()) if key in row_of]
            counts[k] = len(found)
            pairs[k, :, : len(found)] = np.array(found).T
        return np.stack(np.unravel_index(active, full), axis=1).astype(np.int32), pairs, counts

    out = tuple(x.copy() for x in turnout.get_indice_pairs(indices, batch, space, **options))
    return Job(
        "get_indice_pairs, " + ("submanifold" if subm else "stride 2"),
        f"{len(indices):,} sites of {batch} scans, 27 offsets",
        lambda: turnout.get_indice_pairs(indices, batch, space, **options, out=out),
        definition,
        indices.nbytes + sum(x.nbytes for x in out),
    )


def convolution(channels: int) -> Job:
    """A submanifold convolution along the pairs of one scan."""
    sites = sites_of(1)
    _, pairs, num = turnout.get_indice_pairs(sites, 1, SPACE, subm=True)
    random = np.random.default_rng(0)
    features = random.standard_normal((len(sites), channels), dtype=np.float32)
    filters = random.standard_normal((27, channels, channels), dtype=np.float32) / channels
    out = np.empty_like(features)

    def plain() -> np.ndarray:
        """One product per kernel offset, of the rows that have it."""
        result = np.zeros_like(features)
        for k, count in enumerate(num):
            result[pairs[k, 1, :count]] += features[pairs[k, 0, :count]] @ filters[k]
        return result

    return Job(
        "indice_convolution_forward",
        f"{len(sites):,} sites, {channels} channels, {num.sum():,} pairs",
        lambda: turnout.indice_convolution_forward(features, filters, pairs, num, len(sites), out=out),
        plain,
        2 * features.nbytes + filters.nbytes + 8 * int(num.sum()),
        tolerance=1e-5,
    )


def voxelize() -> Job:
    points = cloud()
    out = np.empty((len(points), 3), dtype=np.int32)
    return Job(
        "voxelize",
        f"{len(points):,} points",
        lambda: turnout.voxelize(points, VOXEL, RANGE, out=out),
        lambda: turnout.check.voxelize(points, VOXEL, RANGE),
        points.nbytes + out.nbytes,
    )


def dynamic_scatter(backward: bool) -> Job:
    """The maximum over the points of each voxel, as in the last layer of a voxel feature encoder."""
    count, channels = len(cloud()), 64
    coors = turnout.voxelize(cloud(), VOXEL, RANGE)
    random = np.random.default_rng(0)
    # As after a ReLU, half of the values are 0: in many voxels several points have the maximum.
    feats = np.maximum(random.standard_normal((count, channels), dtype=np.float32), 0)
    out = turnout.dynamic_scatter_forward(feats, coors)
    voxel_feats, _, *index = out
    scale = f"{count:,} points x {channels}, {len(voxel_feats):,} voxels"
    if not backward:
        return Job(
            "dynamic_scatter_forward, max",
            scale,
            lambda: turnout.dynamic_scatter_forward(feats, coors, out=out),
            lambda: turnout.check.dynamic_scatter_forward(feats, coors),
            feats.nbytes + coors.nbytes + sum(x.nbytes for x in out),
        )
    grad = random.standard_normal(voxel_feats.shape, dtype=np.float32)
    arguments = grad, feats, voxel_feats, *index
    grad_feats = np.empty_like(feats)
    return Job(
        "dynamic_scatter_backward, max",
        scale,
        lambda: turnout.dynamic_scatter_backward(*arguments, out=grad_feats),
        lambda: turnout.check.dynamic_scatter_backward(*arguments),
        sum(x.nbytes for x in arguments) + grad_feats.nbytes,
    )


def scatter_sum() -> Job:
    """Sums the rows of each group, as graph networks and set encoders do."""
    rows, channels, groups = 100_000, 64, 10_000
    random = np.random.default_rng(0)
    src = random.standard_normal((rows, channels), dtype=np.float32)
    index = random.integers(0, groups, rows)
    out = np.empty((groups, channels), dtype=np.float32)

    def plain() -> np.ndarray:
        result = np.zeros((groups, channels), dtype=np.float32)
        np.add.at(result, index, src)
        return result

    return Job(
        "scatter_sum",
        f"{rows:,} rows x {channels}, {groups:,} groups",
        lambda: turnout.scatter_sum(src, index, 0, groups, out=out),
        plain,
        src.nbytes + index.nbytes + out.nbytes,
        tolerance=1e-5,
    )
