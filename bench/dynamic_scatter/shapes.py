"""Sizes, scans and definitions of the dynamic_scatter benchmarks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

import lidar
import numpy as np

Arrays = tuple[np.ndarray, ...]

TOP = np.array([3.0, 54.0, 54.0])  # upper limits of the grid, z, y, x; the lower ones are lidar.LOW


@dataclass(frozen=True)
class Scale:
    points: int
    voxels: int
    channels: int
    sweeps: int  # number of sweeps of the scan
    voxel: tuple[float, float, float]  # size in metres, z, y, x

    @property
    def name(self) -> str:
        return f"{self.points}x{self.channels} -> {self.voxels}"

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(int(cells) for cells in np.round((TOP - lidar.LOW) / self.voxel))


FINE, COARSE = (0.1, 0.05, 0.05), (0.2, 0.1, 0.1)
SEED = Scale(17176, 13743, 128, 2, FINE)
LARGE = Scale(200_000, 40_000, 64, 8, COARSE)
NARROW = Scale(17563, 13757, 4, 2, FINE)
WIDE = Scale(17563, 13757, 64, 2, FINE)


@cache
def scan(scale: Scale) -> np.ndarray:
    """Points (x, y, z, reflectance) float32 in scan order, with the scale's number of points and voxels.

    Takes the first voxels of the scan, each with its first point, and samples the other points from these
    voxels.
    """
    random = np.random.default_rng(7)
    places = np.concatenate(list(itertools.islice(lidar.sweeps(0), scale.sweeps)))[:, ::-1]
    points = np.column_stack((places, random.random(len(places)))).astype(np.float32)
    voxels = voxels_of(points, scale)
    points, voxels = points[voxels[:, 0] >= 0], voxels[voxels[:, 0] >= 0]
    _, first, voxel_of = np.unique(packed(voxels, scale.grid), return_index=True, return_inverse=True)
    order = np.argsort(first)
    chosen = np.zeros(len(first), dtype=bool)
    chosen[order[: scale.voxels]] = True
    kept = np.zeros(len(points), dtype=bool)
    kept[first[chosen]] = True
    others = np.flatnonzero(chosen[voxel_of] & ~kept)
    kept[random.choice(others, scale.points - scale.voxels, replace=False)] = True
    return points[kept]


def voxels_of(points: np.ndarray, scale: Scale) -> np.ndarray:
    """The voxel (z, y, x) int32 of each point, or (-1, -1, -1), computed in float32."""
    low, size = lidar.LOW.astype(np.float32), np.array(scale.voxel, dtype=np.float32)
    voxels = np.floor((points[:, 2::-1] - low) / size)
    inside = np.all((voxels >= 0) & (voxels < scale.grid), axis=1)
    return np.where(inside[:, None], voxels, -1).astype(np.int32)


def packed(voxels: np.ndarray, grid: tuple[int, ...]) -> np.ndarray:
    """(z, y, x) packed into one int64 that has the same order."""
    z, y, x = voxels.astype(np.int64).T
    return (z * grid[1] + y) * grid[2] + x


class Points:
    """Features and coordinates of a scan, in scan order or shuffled, and the expected results.

    With `ties`, half of the features are 0, as after a ReLU; otherwise no two are equal.
    """

    def __init__(self, scale: Scale, order: str = "scan", ties: bool = False) -> None:
        random = np.random.default_rng(1)
        self.scale, self.order, self.ties = scale, order, ties
        self.points = scan(scale) if order == "scan" else random.permutation(scan(scale))
        self.coors = voxels_of(self.points, scale)
        count = scale.points * scale.channels
        assert count <= 2**24  # the integers that float32 represents exactly
        self.feats = ((random.permutation(count) - count // 2) * np.float32(2**-20)).astype(np.float32)
        self.feats = self.feats.reshape(scale.points, scale.channels)
        if ties:
            np.maximum(self.feats, 0, out=self.feats)
        self.grad_voxel_feats = random.standard_normal((scale.voxels, scale.channels), dtype=np.float32)
        keys = packed(self.coors, scale.grid)
        known, map_, count = np.unique(keys, return_inverse=True, return_counts=True)
        assert len(known) == scale.voxels
        self.voxel_coors = np.stack(np.unravel_index(known, scale.grid), axis=1).astype(np.int32)
        self.map, self.count = map_.astype(np.int32), count.astype(np.int32)
        # The points grouped by voxel, ascending within each; the definitions iterate over them.
        self.sorted = np.argsort(self.map, kind="stable")
        self.starts = np.concatenate(([0], np.cumsum(self.count)[:-1]))

    @property
    def name(self) -> str:
        return f"{self.scale.name}, {self.order}" + (", many ties" if self.ties else "")

    @property
    def index(self) -> Arrays:
        return self.voxel_coors, self.map, self.count

    def reduced(self, reduce_type: str) -> np.ndarray:
        """Reduces the points of each voxel in ascending order; sums in float32."""
        if reduce_type == "max":
            return np.maximum.reduceat(self.feats[self.sorted], self.starts)
        sums = np.zeros((self.scale.voxels, self.scale.channels), dtype=np.float32)
        np.add.at(sums, self.map, self.feats)
        return sums / self.count[:, None].astype(np.float32)

    def forward(self, reduce_type: str) -> Arrays:
        return self.reduced(reduce_type), *self.index

    @property
    def argmax(self) -> np.ndarray:
        """[voxels, channels] int64: the first point with the maximum; N if there is none."""
        equal = self.feats == self.reduced("max")[self.map]
        candidates = np.where(equal, np.arange(self.scale.points)[:, None], self.scale.points)
        return np.minimum.reduceat(candidates[self.sorted], self.starts)

    def backward(self, reduce_type: str) -> np.ndarray:
        if reduce_type == "mean":
            return self.grad_voxel_feats[self.map] / self.count[self.map, None].astype(np.float32)
        grad = np.zeros_like(self.feats)
        np.put_along_axis(grad, self.argmax, self.grad_voxel_feats, axis=0)
        return grad


@dataclass(frozen=True)
class Hard:
    """Hard voxelization of a scan, with limits for the voxels and for the points of a voxel."""

    points: np.ndarray
    scale: Scale
    max_points: int
    max_voxels: int

    @property
    def name(self) -> str:
        return f"{len(self.points)} points, at most {self.max_points} in each of {self.max_voxels} voxels"

    @property
    def voxel_size(self) -> np.ndarray:
        return np.array(self.scale.voxel[::-1], dtype=np.float32)

    @property
    def point_cloud_range(self) -> np.ndarray:
        return np.concatenate((lidar.LOW[::-1], TOP[::-1])).astype(np.float32)

    def results(self) -> Arrays:
        """Returns memory for voxels, coordinates and counts, written once so that its pages are mapped."""
        return (
            np.full((self.max_voxels, self.max_points, self.points.shape[1]), 1, dtype=np.float32),
            np.full((self.max_voxels, 3), 1, dtype=np.int32),
            np.full(self.max_voxels, 1, dtype=np.int32),
        )

    def definition(self) -> Arrays:
        voxels, coors, counts = (np.zeros_like(x) for x in self.results())
        row_of: dict[tuple[int, ...], int] = {}
        for point, cell in zip(self.points, voxels_of(self.points, self.scale).tolist(), strict=True):
            key = tuple(cell)
            if key[0] < 0 or (key not in row_of and len(row_of) == self.max_voxels):
                continue
            row = row_of.setdefault(key, len(row_of))
            coors[row] = cell
            if counts[row] < self.max_points:
                voxels[row, counts[row]] = point
                counts[row] += 1
        return voxels[: len(row_of)], coors[: len(row_of)], counts[: len(row_of)]
