"""Simulated LiDAR scans of streets, for experiments and training without a dataset; needs only NumPy.

Example:
    >>> from turnout.simulate import CLASSES, lidar_scan
    >>> scan = lidar_scan(seed=0)
    >>> sum(CLASSES[label] == "car" for label in scan.labels) > 10
    True
    >>> coors = turnout.voxelize(scan.points, (0.1, 0.1, 0.2), (-51.2, -51.2, -5, 51.2, 51.2, 3.2))
    >>> bool((coors >= 0).all(axis=1).mean() > 0.8)
    True
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnout.simulate.rays import Rays
from turnout.simulate.street import CLASSES, SENSOR_HEIGHT, Street

__all__ = ["CLASSES", "SENSOR_HEIGHT", "Scan", "lidar_scan"]

REACH = 80.0  # metres
NOISE = 0.015  # standard deviation of a distance, metres
SIGNAL = 8e-6  # reflectance * cosine of incidence / distance^2 at which two of three pulses return


class Scan(NamedTuple):
    """One revolution of the scanner, with its ground truth. The sensor is at x = y = z = 0.

    Attributes:
        points: ``[points, 4]`` float32, in scan order: x (ahead), y (left) and z (up) in metres, and the
            reflectance in [0, 1].
        boxes: ``[boxes, 7]`` float32: the centre x, y, z, the length, width and height, and the heading in
            [-pi, pi), counter-clockwise from x.
        labels: ``[boxes]`` int32: the class of each box, an index into ``CLASSES``.
        instance: ``[points]`` int32: the row in ``boxes`` of the object that the pulse hit, or -1.

    Example:
        >>> scan = turnout.simulate.lidar_scan(azimuths=256)
        >>> on_car = np.isin(scan.instance, np.flatnonzero(scan.labels == 0))
        >>> bool(scan.points[on_car, 2].max() < 0.5)  # cars are hardly higher than the sensor
        True
    """

    points: NDArray[np.float32]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int32]
    instance: NDArray[np.int32]


def lidar_scan(seed: int = 0, *, beams: int = 64, azimuths: int = 2048, min_points: int = 5) -> Scan:
    """Simulates one revolution of a 64-beam scanner on the roof of a car in a street.

    Each seed is another street: its buildings, trees, poles and bushes, its parked and driving vehicles, its
    pedestrians and the slope of its ground differ. Each pulse returns from the first surface that it meets,
    so objects cast shadows. Distances have noise, and pulses to distant, dark or slanted surfaces get lost.
    The same arguments give the same scan. It takes about half a second.

    Args:
        seed: Any non-negative integer.
        beams: Number of beams, spread over the elevations of an HDL-64, +2 to -24.3 degrees.
        azimuths: Number of steps of a revolution.
        min_points: Objects with fewer points, which are hidden or far away, have no box.

    Example:
        >>> scan = turnout.simulate.lidar_scan(seed=1)
        >>> scan.points.shape[1], scan.boxes.shape[1], len(scan.boxes) == len(scan.labels)
        (4, 7, True)
        >>> bool((np.bincount(scan.instance[scan.instance >= 0]) >= 5).all())
        True
    """
    for name, value, least in (("seed", seed, 0), ("beams", beams, 1), ("azimuths", azimuths, 1)):
        if value < least:
            raise ValueError(f"lidar_scan: {name} is {value}, expected {least} or more")
    random = np.random.default_rng(seed)
    street = Street(random)
    # Neighbouring beams are a third of a degree apart in the upper half, half a degree in the lower half.
    upper, lower = 2 - np.arange(32) / 3, -8.83 - np.arange(32) / 2
    elevation = np.interp(np.linspace(0, 63, beams), np.arange(64), np.concatenate((upper, lower)))
    rays = Rays(np.linspace(np.pi, -np.pi, azimuths, endpoint=False), np.radians(elevation))
    street.cast(rays)
    return returned(rays, street, random, min_points)


def returned(rays: Rays, street: Street, random: np.random.Generator, min_points: int) -> Scan:
    """Returns the points of the pulses that come back, and the boxes that enough of them hit."""
    shape = rays.distance.shape
    with np.errstate(divide="ignore"):
        signal = rays.reflectance * rays.cosine / rays.distance**2
    seen = (rays.distance < REACH) & (random.random(shape) < 0.985 * -np.expm1(-signal / SIGNAL))
    distance = rays.distance[seen] + random.normal(0, NOISE, seen.sum())
    shine = rays.reflectance[seen] * (0.5 + 0.5 * np.sqrt(rays.cosine[seen]))
    shine = np.clip(shine * random.normal(1, 0.1, len(shine)), 0, 1)
    points = np.column_stack((rays.directions[seen] * distance[:, None], shine)).astype(np.float32)

    instance = rays.instance[seen]
    hits = np.bincount(instance + 1, minlength=1 + len(street.boxes))[1:]
    kept = hits >= min_points
    row_of = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1).astype(np.int32)
    boxes = np.array(street.boxes, dtype=np.float32).reshape(-1, 7)[kept]
    return Scan(points, boxes, np.array(street.labels, dtype=np.int32)[kept], row_of[instance])
