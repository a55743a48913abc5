"""Voxelization of scans in the workers of a DataLoader: 0, 2 and 4 of them."""

from __future__ import annotations

import warnings
from itertools import islice

import lidar
import numpy as np
import torch
from harness import Comparison, Entry, Summary, compare

import turnout.torch
from turnout.torch import nn

SCANS = 16  # per epoch
SWEEPS = 4  # per scan
VOXEL, RANGE = [0.075, 0.075, 0.2], [-54.0, -54.0, -5.0, 54.0, 54.0, 3.2]


class Scans(torch.utils.data.Dataset):
    """Points as read from a file, and voxels with mean features as a network's input."""

    def __init__(self) -> None:
        frames = [np.concatenate(list(islice(lidar.sweeps(number), SWEEPS))) for number in range(4)]
        self.points = [torch.from_numpy(frame[:, ::-1].astype(np.float32)) for frame in frames]

    def __len__(self) -> int:
        return SCANS

    def __getitem__(self, number: int) -> nn.SparseTensor:
        points = self.points[number % len(self.points)]
        coors = turnout.torch.voxelize(points, VOXEL, RANGE)
        inside = coors[:, 0] >= 0
        index = turnout.torch.VoxelIndex(coors[inside])
        features = index.reduce(points[inside], "mean")
        sites = torch.nn.functional.pad(index.voxel_coors, (1, 0))
        return nn.SparseTensor(features, sites, lidar.SPACE, 1)


def only(items: list[nn.SparseTensor]) -> nn.SparseTensor:
    return items[0]


def epoch(scans: Scans, workers: int, threads: int) -> Entry:
    """`threads` applies to this process; a worker has one thread."""
    loader = torch.utils.data.DataLoader(
        scans, num_workers=workers, collate_fn=only, persistent_workers=workers > 0
    )
    sums = []

    def run() -> None:
        torch.set_num_threads(threads)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about more workers than cores
            sums[:] = [float(x.features.sum(dtype=torch.float64)) for x in loader]

    return Entry(
        f"{workers} workers" if workers else f"no worker, {threads} thread{'s' if threads > 1 else ''}",
        run,
        lambda: np.array(sums),
    )


def run(seconds: float) -> list[Comparison]:
    threads_before = torch.get_num_threads()
    scans, summary = Scans(), Summary()
    points = sum(map(len, scans.points)) // len(scans.points)
    comparison = compare(
        f"voxelization of {SCANS} scans of {points} points by a DataLoader",
        [epoch(scans, *case) for case in ((0, 1), (0, 2), (2, 1), (4, 1))],
        expected=np.array([float(scans[i].features.sum(dtype=torch.float64)) for i in range(SCANS)]),
        seconds=2 * seconds,
    )
    for row in comparison.rows[1:]:
        summary.add(
            "voxelization",
            f"no worker, one thread / {row.name}",
            comparison.rows[0].median_us / row.median_us,
        )
    torch.set_num_threads(threads_before)
    summary.show()
    return [comparison]
