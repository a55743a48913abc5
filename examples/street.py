"""A simulated street with parked cars, seen by a turning laser scanner: the data of the other examples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

import turnout.torch
from turnout.torch import nn

SENSOR_HEIGHT = 1.73  # metres; the sensor is at x = y = z = 0
LEAST = 10  # points that a car needs to be among the cars of a scan; those behind others have none

VOXEL = [0.1, 0.1, 0.2]  # metres, x, y, z
RANGE = [-51.2, -51.2, -5.0, 51.2, 51.2, 3.2]  # lower limits of x, y, z, then upper limits
SPACE = (41, 1024, 1024)  # voxels in z, y, x
FEATURES = 5  # of a voxel


class Scan(NamedTuple):
    points: np.ndarray  # [points, 4] f32: x, y, z, reflectance, in the order of the scan
    is_car: np.ndarray  # [points] bool: whether the point is on a car
    cars: (
        np.ndarray
    )  # [cars, 6] f32, of cars with enough points: middle x, y, z, length in x, width in y, height


class Batch(NamedTuple):
    voxels: nn.SparseTensor
    is_car: torch.Tensor  # [rows] bool: whether any point of the voxel is on a car
    scans: list[Scan]


def scan(count: int, random: np.random.Generator, degrees: float = 90, beams: int = 64) -> Scan:
    """A street along x between two walls, seen within an angle around x, as `count` points."""
    ahead_only = degrees < 180
    azimuth = np.radians(np.linspace(-degrees / 2, degrees / 2, max(8, 2 * count // beams)))[:, None]
    elevation = np.radians(np.linspace(2 if ahead_only else 8, -24.8, beams))[None, :]
    rays = np.stack(
        (
            np.cos(azimuth) * np.cos(elevation),
            np.sin(azimuth) * np.cos(elevation),
            np.broadcast_to(np.sin(elevation), (len(azimuth), beams)),
        ),
        axis=-1,
    ).reshape(-1, 3)

    walls = [((35 if ahead_only else 0, side * 16, 4), (160, 2, 8)) for side in (-1, 1)]
    cars = [
        ((x, side * random.uniform(3, 9), 0.75), (random.uniform(4, 5), random.uniform(1.7, 1.9), 1.5))
        for side in (-1, 1)
        for x in range(8 if ahead_only else -55, 60, 7)
    ]
    rays[rays == 0] = 1e-9  # avoids a division by zero
    distance = np.where(rays[:, 2] < 0, -SENSOR_HEIGHT / rays[:, 2], np.inf)  # to the ground
    box_of = np.full(len(rays), -1)  # the box that each ray meets first, the walls before the cars
    for number, (middle, size) in enumerate(walls + cars):
        middle = np.array(middle) - (0, 0, SENSOR_HEIGHT)
        sides = [(middle + sign * np.array(size) / 2) / rays for sign in (-1, 1)]
        enter, leave = np.minimum(*sides).max(axis=1), np.maximum(*sides).min(axis=1)
        hit = (enter > 0) & (enter < leave) & (enter < distance)
        distance[hit], box_of[hit] = enter[hit], number

    seen = np.flatnonzero(distance < 69)
    if len(seen) < count:
        raise SystemExit(f"the beams meet {len(seen)} surfaces, fewer than {count} points")
    seen = np.sort(random.choice(seen, count, replace=False))
    is_car = box_of[seen] >= len(walls)
    places = rays[seen] * distance[seen, None] + random.normal(0, 0.02, (count, 3))
    reflectance = random.uniform(0, 0.6, count) + 0.2 * is_car
    hits = np.bincount(box_of[seen] + 1, minlength=1 + len(walls) + len(cars))[1 + len(walls) :]
    boxes = np.array([(*middle[:2], middle[2] - SENSOR_HEIGHT, *size) for middle, size in cars])[
        hits >= LEAST
    ]
    points = np.column_stack((places, reflectance))
    return Scan(points.astype(np.float32), is_car, boxes.astype(np.float32))


def voxels_of(scan: Scan, limit: int, random: np.random.Generator) -> tuple[torch.Tensor, ...]:
    """Sites (z, y, x) of at most `limit` voxels, their features, and whether they are on a car."""
    points, is_car = torch.from_numpy(scan.points), torch.from_numpy(scan.is_car)
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
    """Scans of the full circle with at most `voxels` voxels each."""
    made = [scan(4 * voxels, random, degrees=360, beams=256) for _ in range(scans)]
    parts = [voxels_of(one, voxels, random) for one in made]
    sites = [
        torch.nn.functional.pad(sites, (1, 0), value=number) for number, (sites, _, _) in enumerate(parts)
    ]
    features, is_car = (torch.cat([part[i] for part in parts]) for i in (1, 2))
    return Batch(nn.SparseTensor(features, torch.cat(sites), SPACE, scans), is_car, made)
