"""NumPy: unique voxels with numpy.unique of packed keys, and hard voxelization with one sort."""

from __future__ import annotations

import numpy as np
from dynamic_scatter.shapes import Arrays, Hard, Points, packed
from harness import Entry


def unique(points: Points) -> Entry:
    """Includes the time of packing and unpacking the keys."""
    grid = points.scale.grid
    kept: list[np.ndarray] = []

    def run() -> None:
        keys = packed(points.coors, grid)
        known, map_, count = np.unique(keys, return_inverse=True, return_counts=True)
        voxel_coors = np.empty((len(known), 3), dtype=np.int32)
        rest, voxel_coors[:, 2] = np.divmod(known, grid[2])
        voxel_coors[:, 0], voxel_coors[:, 1] = np.divmod(rest, grid[1])
        kept[:] = voxel_coors, map_, count

    return Entry("numpy, packed, unique, unpacked", run, lambda: as_int32(kept))


def unique_of_keys(points: Points) -> Entry:
    """Times numpy.unique alone, without packing and unpacking the keys."""
    grid, keys = points.scale.grid, packed(points.coors, points.scale.grid)
    kept: list[np.ndarray] = []

    def run() -> None:
        kept[:] = np.unique(keys, return_inverse=True, return_counts=True)

    def result() -> Arrays:
        return as_int32([np.stack(np.unravel_index(kept[0], grid), axis=1), *kept[1:]])

    return Entry("numpy, unique of ready keys alone", run, result)


def as_int32(arrays: list[np.ndarray]) -> Arrays:
    """NumPy's int64 results as int32; the conversion is not timed."""
    return tuple(x.astype(np.int32) for x in arrays)


def hard(job: Hard) -> Entry:
    """Sorts int64 that hold a key and a point's number, because NumPy sorts int64 with SIMD.

    Computes coordinates column by column and moves a point as one element of a structured type, because
    the direct formulation takes three times as long.
    """
    points, out = job.points, job.results()
    voxels, coors, counts = out
    n, grid = len(points), job.scale.grid[::-1]
    low, size = job.point_cloud_range[:3], job.voxel_size
    bits = n.bit_length()
    whole = f"V{points[0].nbytes}"
    sources, slots = points.view(whole).ravel(), voxels.view(whole).ravel()
    appears = np.zeros(n, dtype=np.int64)
    found = [0]

    def run() -> None:
        keys, valid = np.zeros(n, dtype=np.int64), np.ones(n, dtype=bool)
        for d in (2, 1, 0):
            cells = points[:, d] - low[d]
            cells /= size[d]
            np.floor(cells, out=cells)
            valid &= (cells >= 0) & (cells < grid[d])
            keys *= grid[d]
            keys += cells.astype(np.int64)
        inside = np.flatnonzero(valid)
        both = (keys[inside] << bits) | inside
        both.sort()
        keys, order = both >> bits, both & ((1 << bits) - 1)
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        lengths = np.diff(starts, append=len(keys))
        # Voxels are numbered in order of their first points.
        first = order[starts]
        appears[:] = 0
        appears[first] = 1
        number = (np.cumsum(appears) - 1)[first]
        rank, row = np.arange(len(keys)) - np.repeat(starts, lengths), np.repeat(number, lengths)
        stored = (rank < job.max_points) & (row < job.max_voxels)
        for result in out:
            result[:] = 0
        slots[(row * job.max_points + rank)[stored]] = sources[order[stored]]
        known = number < job.max_voxels
        number, cells = number[known], keys[starts[known]]
        counts[number] = np.minimum(lengths[known], job.max_points)
        rest, x = np.divmod(cells, grid[0])
        z, y = np.divmod(rest, grid[1])
        coors[number] = np.column_stack((z, y, x))
        found[0] = len(number)

    return Entry("numpy, one sort", run, lambda: tuple(x[: found[0]] for x in out))
