"""Simulated LiDAR frames of a street (ground, cars, facades, foliage), as points and voxels in scan order.

docs/numbers.md records times on these frames, and named scales need frames with a given number of voxels from
several sweeps. Do not change this generator; change turnout.simulate, which the demo and the examples use.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

SPACE = (41, 1440, 1440)  # z, y, x; voxels of 0.2 x 0.075 x 0.075 m, x and y within 54 m, z from -5 m
VOXEL = np.array([0.2, 0.075, 0.075])
LOW = np.array([-5.0, -54.0, -54.0])
BEAMS, AZIMUTHS = 64, 800
HEIGHT = 1.84  # of the sensor above the ground, in metres
ADVANCE = 0.9  # metres between sweeps


class Boxes:
    """Upright boxes on the ground: centre, half sizes, height, heading, roughness of the surface."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, ...]] = []

    def add(
        self, x: float, y: float, size: tuple[float, float, float], heading: float, scatter: float
    ) -> None:
        """Adds a box unless it would be within 3 m of the sensor."""
        if np.hypot(x, y) > 3.0 + np.hypot(size[0], size[1]) / 2:
            self.rows.append((x, y, size[0] / 2, size[1] / 2, size[2], heading, scatter))


def street(random: np.random.Generator) -> Boxes:
    """Cars along and across a street, facades on both sides, with poles, people and trees."""
    boxes = Boxes()
    for side in (-1, 1):
        x = -70.0
        while x < 70:
            length = random.uniform(10, 35)
            y = side * random.uniform(13, 26)
            boxes.add(x + length / 2, y + side * 6, (length, 12, random.uniform(6, 20)), 0.0, 0.02)
            x += length + random.choice([0.0, 2.0, 12.0])
    for _ in range(random.integers(25, 45)):
        size = (random.uniform(3.8, 5.2), random.uniform(1.7, 2.1), random.uniform(1.4, 2.2))
        lane = random.choice([-9, -6, -2.5, 2.5, 6, 9])
        boxes.add(random.uniform(-50, 50), lane, size, random.normal(0, 0.08), 0.02)
    for _ in range(12):
        side = random.choice([-1, 1])
        boxes.add(random.uniform(-50, 50), side * random.uniform(8, 12), (0.3, 0.3, 7), 0.0, 0.01)
        boxes.add(random.uniform(-30, 30), side * random.uniform(4, 12), (0.5, 0.6, 1.75), 0.5, 0.05)
        boxes.add(random.uniform(-50, 50), side * random.uniform(9, 13), (3.5, 3.5, 6), 0.3, 0.5)
    return boxes


def sweep(boxes: Boxes, sensor: np.ndarray, slope: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Returns the points (z, y, x) of one sweep, azimuth by azimuth: the nearest surface on each ray."""
    azimuth = np.linspace(-np.pi, np.pi, AZIMUTHS, endpoint=False) + random.uniform(0, 2 * np.pi / AZIMUTHS)
    elevation = np.radians(np.linspace(2.0, -24.8, BEAMS))
    flat = np.cos(elevation)[None, :]
    dx, dy = np.cos(azimuth)[:, None] * flat, np.sin(azimuth)[:, None] * flat
    dz = np.broadcast_to(np.sin(elevation)[None, :], dx.shape)

    fall = dz - slope[0] * dx - slope[1] * dy
    with np.errstate(divide="ignore"):
        distance = np.where(fall < 0, -HEIGHT / np.minimum(fall, -1e-9), np.inf)
    scatter = np.full(distance.shape, 0.02)
    for x, y, half_x, half_y, height, heading, rough in boxes.rows:
        x, y = x - sensor[0], y - sensor[1]
        away, reach = np.hypot(x, y), np.hypot(half_x, half_y)
        turn = (azimuth - np.arctan2(y, x) + np.pi) % (2 * np.pi) - np.pi
        rays = np.flatnonzero(np.abs(turn) <= (np.arcsin(reach / away) if away > reach else np.pi))
        cos, sin = np.cos(heading), np.sin(heading)
        near = np.zeros((len(rays), BEAMS))
        far = np.full((len(rays), BEAMS), np.inf)
        directions = (cos * dx[rays] + sin * dy[rays], cos * dy[rays] - sin * dx[rays], dz[rays])
        middles = (cos * x + sin * y, cos * y - sin * x, height / 2 - HEIGHT)
        for direction, middle, half in zip(directions, middles, (half_x, half_y, height / 2), strict=True):
            direction = np.where(np.abs(direction) < 1e-9, 1e-9, direction)
            one, two = (middle - half) / direction, (middle + half) / direction
            near = np.maximum(near, np.minimum(one, two))
            far = np.minimum(far, np.maximum(one, two))
        hit = (near < far) & (near < distance[rays])
        distance[rays] = np.where(hit, near, distance[rays])
        scatter[rays] = np.where(hit, rough, scatter[rays])

    echo = random.random(distance.shape) > 0.08 + distance / 400  # distant surfaces return fewer echoes
    echo &= distance < 90
    distance = np.where(echo, distance, 0) + random.normal(0, 1, distance.shape) * scatter
    points = np.stack((dz * distance, dy * distance + sensor[1], dx * distance + sensor[0]), axis=-1)
    return points[echo]


def sweeps(number: int) -> Iterator[np.ndarray]:
    """Yields the sweeps of frame `number`, with the sensor moving along the street."""
    random = np.random.default_rng([17, number])
    boxes, slope = street(random), random.normal(0, 0.008, 2)
    for count in range(40):
        yield sweep(boxes, np.array([-ADVANCE * count, 0.0]), slope, random)


@cache
def frame(number: int, sites: int) -> np.ndarray:
    """Returns the first `sites` voxels (z, y, x) int32 of frame `number`, from as many sweeps as needed."""
    points = np.empty((0, 3))
    for more in sweeps(number):
        points = np.concatenate((points, more))
        voxels = np.floor((points - LOW) / VOXEL).astype(np.int64)
        voxels = voxels[np.all((voxels >= 0) & (voxels < SPACE), axis=1)]
        voxels = first_seen(voxels, SPACE)
        if len(voxels) >= sites:
            return voxels[:sites].astype(np.int32)
    raise ValueError(f"frame: frame {number} has {len(voxels)} voxels, expected {sites}")


def first_seen(sites: np.ndarray, space: tuple[int, ...]) -> np.ndarray:
    """Returns the distinct sites in order of first occurrence."""
    _, first = np.unique(np.ravel_multi_index(tuple(sites.T), space), return_index=True)
    return sites[np.sort(first)]


def strided(sites: np.ndarray, space: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    """The output sites of a convolution with kernel 3, stride 2, padding 1: the next level of a network."""
    outputs, shape = sites.astype(np.int64)[:, None, :], tuple((size - 1) // 2 + 1 for size in space)
    for dim, size in enumerate(shape):  # o = (i + 1 - k) / 2: one output if i is even, two if it is odd
        here = outputs[..., dim]
        branches = []
        for step in (0, 1):
            branch = outputs.copy()
            branch[..., dim] = np.where(
                (here % 2 == 1) & (here // 2 + step < size), here // 2 + step, here // 2
            )
            branches.append(branch)
        outputs = np.concatenate(branches, axis=1)
    return first_seen(outputs.reshape(-1, len(space)), shape), shape
