"""Shared by the tests of dynamic_scatter: points with many ties, and a comparison of values."""

import numpy as np

REDUCTIONS = ["max", "mean", "sum"]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1.0, -1.0]


def features(rng, points, channels, dtype=np.float32, special=False):
    """Draws few values for many points, so that most maxima are tied."""
    values = SPECIAL if special else [-2.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.0, 3.0]
    return np.array(values)[rng.integers(0, len(values), (points, channels))].astype(dtype)


def coordinates(rng, points, dims=3, dtype=np.int32, extent=3):
    """Draws coordinates; about one point in four is in no voxel, and the others share a few."""
    coors = rng.integers(0, extent, (points, dims))
    outside = rng.random(points) < 0.25
    coors[outside, rng.integers(0, dims)] = rng.choice([-1, -7, np.iinfo(np.int32).min])
    return coors.astype(dtype)


def same_values(actual, expected):
    """Compares bits, except that all NaNs are equal."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return False
    if actual.dtype.kind == "i":
        return np.array_equal(actual, expected)
    nan = np.isnan(expected)
    bits = f"u{expected.dtype.itemsize}"
    return np.array_equal(np.isnan(actual), nan) and np.array_equal(
        actual.view(bits)[~nan], expected.view(bits)[~nan]
    )
