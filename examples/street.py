"""Simulated LiDAR scans of streets as batches of voxels, the data of the other examples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

import turnout.torch
from turnout.simulate import CLASSES, Scan, lidar_scan
from turnout.torch import nn

VOXEL = [0.1, 0.1, 0.2]  # metres, x, y, z
RANGE = [-51.2, -51.2, -5.0, 51.2, 51.2, 3.2]  # lower limits of x, y, z, then upper limits
SPACE = (41, 1024, 1024)  # voxels in z, y, x
FEATURES = 5  # per voxel
VEHICLES = [CLASSES.index("car"), CLASSES.index("van")]


class Batch(NamedTuple):
    voxels: nn.SparseTensor
    is_car: torch.Tensor  # [rows] bool: whether any point of the voxel is on a vehicle
    scans: list[Scan]


def cars_of(scan: Scan) -> np.ndarray:
    """Returns the boxes of the vehicles, [cars, 7] float32."""
    return scan.boxes[np.isin(scan.labels, VEHICLES)]


def is_on_car(scan: Scan) -> np.ndarray:
    """Returns whether each point is on a vehicle, [points] bool."""
    return np.isin(scan.instance, np.flatnonzero(np.isin(scan.labels, VEHICLES)))


def voxels_of(scan: Scan, limit: int, random: np.random.Generator) -> tuple[torch.Tensor, ...]:
    """Returns the sites (z, y, x) of at most `limit` voxels, their features, and which are on a vehicle."""
    points, is_car = torch.from_numpy(scan.points), torch.from_numpy(is_on_car(scan))
    coors = turnout.torch.voxelize(points, VOXEL, RANGE)
    inside = coors[:, 0] >= 0  # points outside have (-1, -1, -1)
    index = turnout.torch.VoxelIndex(coors[inside])
    means = index.reduce(points[inside], "mean") / points.new_tensor([50, 50, 2, 1])
    crowded = index.voxel_points_count.log()[:, None]
    on_car = index.reduce(is_car[inside, None].float(), "max")[:, 0] > 0
    rows = torch.arange(index.voxels)
    if index.voxels > limit:
        rows = torch.from_numpy(np.sort(random.choice(index.voxels, limit, replace=False)))
    return index.voxel_coors[rows], torch.cat((means, crowded), dim=1)[rows], on_car[rows]


def batch_of(scans: int, voxels: int, random: np.random.Generator) -> Batch:
    """Simulates scans of different streets with at most `voxels` voxels each."""
    # Use coarser scans for fewer voxels, so that few are dropped.
    beams, azimuths = (64, min(max(voxels // 20, 128), 2048)) if voxels <= 40_000 else (128, 2048)
    seeds = random.integers(2**32, size=scans).tolist()
    made = [lidar_scan(seed, beams=beams, azimuths=azimuths) for seed in seeds]
    parts = [voxels_of(one, voxels, random) for one in made]
    sites = [
        torch.nn.functional.pad(sites, (1, 0), value=number) for number, (sites, _, _) in enumerate(parts)
    ]
    features, is_car = (torch.cat([part[i] for part in parts]) for i in (1, 2))
    return Batch(nn.SparseTensor(features, torch.cat(sites), SPACE, scans), is_car, made)
