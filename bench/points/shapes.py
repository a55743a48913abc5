"""Clouds of the benchmarks."""

from __future__ import annotations

import numpy as np


def scan(points: int, seed: int = 0) -> np.ndarray:
    """Points whose density falls with the distance from the sensor, as in a scan."""
    random = np.random.default_rng(seed)
    angle, distance = random.uniform(-np.pi, np.pi, points), random.exponential(20, points)
    xyz = np.stack([distance * np.cos(angle), distance * np.sin(angle), random.normal(-1, 0.8, points)], 1)
    return xyz.astype(np.float32)


def room(points: int, seed: int = 0) -> np.ndarray:
    """Points everywhere in a cube of 20 m."""
    return np.random.default_rng(seed).uniform(0, 20, (points, 3)).astype(np.float32)
