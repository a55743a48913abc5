"""Sizes, sites and the definition of the get_indice_pairs benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import lidar
import numpy as np

PER_FRAME = 62159  # voxels of a LiDAR frame: 248636 in a batch of 4
FRAMES = 8  # distinct frames; simulating one takes seconds, so larger batches repeat them
SPARSE_PER_FRAME = 37275  # voxels after two levels of stride 2: 149100 in a batch of 4

Result = tuple[np.ndarray, np.ndarray, np.ndarray]  # out_indices, indice_pairs, indice_num


@dataclass(frozen=True)
class Scale:
    rows: int
    batch: int
    space: tuple[int, ...]
    subm: bool
    kernel: tuple[int, ...] = (3, 3, 3)
    stride: tuple[int, ...] = (1, 1, 1)
    padding: tuple[int, ...] = (1, 1, 1)

    @property
    def name(self) -> str:
        return f"{'submanifold' if self.subm else 'sparse s2'} {self.rows} sites"

    @property
    def volume(self) -> int:
        return int(np.prod(self.kernel))

    @property
    def pairs_shape(self) -> tuple[int, int, int]:
        return (self.volume, 2, self.rows)

    @property
    def output_space(self) -> tuple[int, ...]:
        if self.subm:
            return self.space
        sizes = zip(self.space, self.kernel, self.stride, self.padding, strict=True)
        return tuple((i + 2 * p - k) // s + 1 for i, k, s, p in sizes)


SUBM = Scale(4 * PER_FRAME, 4, lidar.SPACE, subm=True)
SPARSE = Scale(4 * SPARSE_PER_FRAME, 4, (11, 360, 360), subm=False, stride=(2, 2, 2), padding=(0, 1, 1))


def growing(rows: int, kind: str) -> Scale:
    """ "lidar" adds frames of constant density; "uniform" has four samples of growing density."""
    batch = -(-rows // PER_FRAME) if kind == "lidar" else 4
    return Scale(rows, batch, lidar.SPACE, subm=True)


@cache
def deep_frame(number: int) -> np.ndarray:
    """Returns the sites of a LiDAR frame after two levels of stride 2, in scan order."""
    for sites in range(90_000, 200_000, 20_000):
        once, space = lidar.strided(lidar.frame(number, sites), lidar.SPACE)
        twice, space = lidar.strided(once, space)
        assert space == SPARSE.space
        if len(twice) >= SPARSE_PER_FRAME:
            return twice[:SPARSE_PER_FRAME]
    raise ValueError(f"deep_frame: frame {number} has {len(twice)} sites after two levels, expected more")


def lidar_sites(scale: Scale) -> np.ndarray:
    frames = []
    for number in range(scale.batch):
        sites = lidar.frame(number % FRAMES, PER_FRAME) if scale.subm else deep_frame(number)
        frames.append(np.insert(sites, 0, number, axis=1))
    return np.concatenate(frames)[: scale.rows].astype(np.int32)


def uniform_sites(scale: Scale, random: np.random.Generator) -> np.ndarray:
    full = (scale.batch, *scale.space)
    drawn = np.unique(random.integers(0, np.prod(full), scale.rows + scale.rows // 8))
    chosen = random.permutation(drawn)[: scale.rows]
    return np.stack(np.unravel_index(chosen, full), axis=1).astype(np.int32)


class Sites:
    """Distinct sites of a kind ("lidar", "uniform") in an order ("scan", "shuffled", "sorted")."""

    def __init__(self, scale: Scale, kind: str, order: str, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.scale, self.kind, self.order = scale, kind, order
        sites = lidar_sites(scale) if kind == "lidar" else uniform_sites(scale, random)
        if order == "shuffled":
            sites = random.permutation(sites)
        elif order == "sorted":
            sites = sites[np.lexsort(sites.T[::-1])]
        assert sites.shape == (scale.rows, 1 + len(scale.space))
        self.indices = np.ascontiguousarray(sites)

    @property
    def name(self) -> str:
        return f"{self.scale.name}, {self.kind}, {self.order}"

    @property
    def pairs_bytes(self) -> int:
        return int(np.prod(self.scale.pairs_shape)) * 4

    def definition(self) -> Result:
        return definition(self.indices, self.scale)


def definition(indices: np.ndarray, scale: Scale) -> Result:
    """Applies each kernel offset to all sites at once and finds output rows by searching sorted keys."""
    pad, stride = np.array(scale.padding), np.array(scale.stride)
    full = (scale.batch, *scale.output_space)
    order = np.lexsort(indices.T[::-1])  # searching with sorted keys is many times faster
    sites = indices[order].astype(np.int64)
    keys = []  # per offset: the key of each sorted site's output, or -1
    for offset in np.ndindex(scale.kernel):
        shifted = sites[:, 1:] + pad - np.array(offset)
        outputs = shifted // stride
        valid = np.all((shifted % stride == 0) & (outputs >= 0) & (outputs < scale.output_space), axis=1)
        clipped = np.clip(outputs, 0, np.array(scale.output_space) - 1)
        keys.append(np.where(valid, np.ravel_multi_index((sites[:, 0], *clipped.T), full), -1))
    if scale.subm:
        known, rows, out_indices = np.ravel_multi_index(tuple(sites.T), full), order, indices
    else:
        known = np.unique(np.concatenate([np.unique(key) for key in keys]))
        known = known[known >= 0]
        rows = np.arange(len(known))
        out_indices = np.stack(np.unravel_index(known, full), axis=1).astype(np.int32)
    pairs = np.full(scale.pairs_shape, -1, dtype=np.int32)
    counts = np.zeros(scale.volume, dtype=np.int32)
    output_of = np.empty(scale.rows, dtype=np.int64)  # output row of each input row, or -1
    for k, key in enumerate(keys):
        place = np.minimum(np.searchsorted(known, key), len(known) - 1)
        output_of[order] = np.where(known[place] == key, rows[place], -1)
        inputs = np.flatnonzero(output_of >= 0)
        counts[k] = len(inputs)
        pairs[k, 0, : len(inputs)] = inputs
        pairs[k, 1, : len(inputs)] = output_of[inputs]
    return out_indices, pairs, counts


def flat(result: Result) -> np.ndarray:
    return np.concatenate([np.asarray(part).reshape(-1) for part in result])
