"""voxelize, with and without limits, against its definition, for NumPy arrays."""

import ml_dtypes
import numpy as np
import pytest
from conftest import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from scans import same_values
from test_moe_dispatch import Producer

import turnout
from turnout import check

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
SIZE, RANGE = (0.5, 0.25, 4), (0, -1, -3, 4, 1, 1)


def cloud(rng, points, features=4, dtype=np.float32):
    """Draws points in and around RANGE, one in five on a border of its voxel or of the range."""
    least, most = np.array(RANGE[:3]), np.array(RANGE[3:])
    xyz = rng.uniform(least - 0.5, most + 0.5, (points, 3))
    borders = rng.random(points) < 0.2
    xyz[borders] = (np.round((xyz - least) / SIZE) * SIZE + least)[borders]
    return np.hstack([xyz, rng.standard_normal((points, features - 3))]).astype(dtype)


def assert_like_definition(*arguments, **limits):
    results = turnout.voxelize(*arguments, **limits)
    expected = check.voxelize(*arguments, **limits)
    assert type(results) is (tuple if limits else np.ndarray)
    pairs = zip(results, expected, strict=True) if limits else [(results, expected)]
    for actual, wanted in pairs:
        assert type(actual) is np.ndarray
        assert same_values(actual, wanted)
    return results


def hard_voxels(coors, max_points, max_voxels):
    """Returns the rows that each voxel keeps, computed point by point."""
    numbers, kept = {}, []
    for i, zyx in enumerate(map(tuple, coors.tolist())):
        if zyx[0] == -1:
            continue
        if zyx not in numbers:
            if len(kept) == max_voxels:
                continue
            numbers[zyx] = len(kept)
            kept.append([])
        if len(kept[numbers[zyx]]) < max_points:
            kept[numbers[zyx]].append(i)
    return list(numbers), kept


# -- the voxel of each point -------------------------------------------------------------------------------


def test_worked_example():
    """Voxels of 2 x 1 x 0.5 in a box of 4 x 3 x 1 that starts at (10, 20, 30)."""
    points = [
        ((10, 20, 30), (0, 0, 0)),
        ((11.9, 21, 30.49), (0, 1, 0)),
        ((12, 22.5, 30.5), (1, 2, 1)),
        ((13.99, 22.99, 30.99), (1, 2, 1)),
        ((14, 20, 30), (-1, -1, -1)),  # the upper borders are outside
        ((10, 23, 30), (-1, -1, -1)),
        ((10, 20, 31), (-1, -1, -1)),
        ((9.99, 20, 30), (-1, -1, -1)),
        ((10, np.nan, 30), (-1, -1, -1)),
        ((np.inf, 20, 30), (-1, -1, -1)),
        ((10, 20, -np.inf), (-1, -1, -1)),
        ((1e30, 20, 30), (-1, -1, -1)),
    ]
    given_points = np.array([p for p, _ in points], np.float32)
    coors = turnout.voxelize(given_points, (2, 1, 0.5), (10, 20, 30, 14, 23, 31))
    assert coors.tolist() == [list(c) for _, c in points]
    assert coors.dtype == np.int32


@pytest.mark.parametrize(("most", "cells"), [(2.4, 2), (2.5, 3), (2.6, 3), (3.5, 4)])
def test_the_grid_is_rounded(most, cells):
    """Halves are rounded away from zero, so a grid may end before or after the range."""
    points = np.array([(x + 0.25, 0, 0) for x in range(5)])
    coors = turnout.voxelize(points, (1, 1, 1), (0, 0, 0, most, 1, 1))
    assert coors[:, 2].tolist() == [x if x < cells else -1 for x in range(5)]


@st.composite
def clouds(draw):
    """Draws grids whose voxels may or may not divide the range, and points on or near borders, and NaN."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from(DTYPES))
    size = np.array([draw(st.sampled_from([0.1, 0.3, 0.5, 1.0, 0.075])) for _ in range(3)])
    least = np.array([draw(st.sampled_from([-54.0, -0.1, 0.0, 3.3])) for _ in range(3)])
    cells = np.array([draw(st.integers(1, 12)) for _ in range(3)])
    most = least + cells * size + draw(st.sampled_from([0, 0.3, 0.5])) * size
    points = draw(st.integers(0, 60))
    xyz = (least + rng.integers(-1, 14, (points, 3)) * size).astype(dtype)
    moved = rng.random(xyz.shape)
    xyz = np.where(moved < 0.3, np.nextafter(xyz, dtype(np.inf)), xyz)
    xyz = np.where(moved > 0.7, np.nextafter(xyz, dtype(-np.inf)), xyz)
    xyz[rng.random(xyz.shape) < 0.02] = np.nan
    rest = rng.standard_normal((points, draw(st.integers(0, 3)))).astype(dtype)
    return np.hstack([xyz.astype(dtype), rest]), size, np.concatenate([least, most])


@settings(max_examples=150, deadline=None)
@given(arguments=clouds(), max_points=st.integers(0, 4), max_voxels=st.integers(0, 40))
def test_definition(arguments, max_points, max_voxels):
    assert_like_definition(*arguments)
    assert_like_definition(*arguments, max_points=max_points, max_voxels=max_voxels)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("points", [0, 1, 1000])
def test_dtypes(rng, dtype, points):
    arguments = cloud(rng, points, dtype=dtype), SIZE, RANGE
    assert_like_definition(*arguments)
    assert_like_definition(*arguments, max_points=3, max_voxels=50)


def test_large_grid():
    size, most = 1.0, 2.0**31 - 1
    points = np.array([(0, 0, 0), (most - 1, 0, 0), (most, 0, 0), (2.0**40, 0, 0)])
    coors = assert_like_definition(points, (size, 1, 1), (0, 0, 0, most, 1, 1))
    assert coors[:, 2].tolist() == [0, 2**31 - 2, -1, -1]


def test_mean_agrees_with_dynamic_scatter(rng):
    """Two ways to compute the mean of the points of a voxel agree."""
    points = cloud(rng, 400)
    coors = turnout.voxelize(points, SIZE, RANGE)
    mean, voxel_coors, _, count = turnout.dynamic_scatter_forward(points, coors, "mean")
    voxels, hard_coors, num = turnout.voxelize(points, SIZE, RANGE, max_points=400, max_voxels=400)
    order = np.lexsort(hard_coors.T[::-1])
    assert same_bits(hard_coors[order], voxel_coors)
    assert same_bits(num[order], count)
    np.testing.assert_allclose((voxels.sum(axis=1) / num[:, None])[order], mean, rtol=1e-4, atol=1e-5)


# -- the points of each voxel ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("max_points", "max_voxels"), [(35, 20000), (1, 10), (3, 7), (2, 1), (0, 5), (5, 0), (0, 0)]
)
def test_limits(rng, max_points, max_voxels):
    points = cloud(rng, 300)
    coors = turnout.voxelize(points, SIZE, RANGE)
    expected_coors, kept = hard_voxels(coors, max_points, max_voxels)
    voxels, coors, num = turnout.voxelize(points, SIZE, RANGE, max_points=max_points, max_voxels=max_voxels)
    assert voxels.shape == (len(kept), max_points, 4)
    assert coors.tolist() == [list(zyx) for zyx in expected_coors]
    assert num.tolist() == [len(rows) for rows in kept]
    for v, rows in enumerate(kept):
        assert same_bits(voxels[v, : len(rows)].copy(), points[rows])
        assert not voxels[v, len(rows) :].any()


def test_later_points_of_early_voxels_are_kept():
    points = np.array([[0.5, 0, 0], [1.5, 0, 0], [2.5, 0, 0], [0.7, 0, 0]], np.float32)
    limits = {"max_points": 2, "max_voxels": 2}
    voxels, coors, num = turnout.voxelize(points, (1, 1, 1), (0, 0, 0, 3, 1, 1), **limits)
    assert coors.tolist() == [[0, 0, 0], [0, 0, 1]]
    assert num.tolist() == [2, 1]
    assert voxels[:, :, 0].tolist() == [[0.5, np.float32(0.7)], [1.5, 0]]


def test_no_point_is_in_a_voxel():
    points = np.full((20, 4), 1e9, np.float32)
    assert (turnout.voxelize(points, SIZE, RANGE) == -1).all()
    results = turnout.voxelize(points, SIZE, RANGE, max_points=3, max_voxels=5)
    assert [x.shape for x in results] == [(0, 3, 4), (0, 3), (0,)]


# -- out=, threads, kinds of arguments ---------------------------------------------------------------------


def test_out(rng):
    points = cloud(rng, 100)
    out = np.empty((100, 3), np.int64)
    assert turnout.voxelize(points, SIZE, RANGE, out=out) is out
    np.testing.assert_array_equal(out, check.voxelize(points, SIZE, RANGE))


@pytest.mark.parametrize("max_voxels", [5, 500])
def test_out_with_limits(rng, max_voxels):
    points = cloud(rng, 100)
    limits = {"max_points": 3, "max_voxels": max_voxels}
    expected = check.voxelize(points, SIZE, RANGE, **limits)
    used = len(expected[0])
    out = (
        np.full((max_voxels, 3, 4), 7, np.float32),
        None,
        np.full(max_voxels, 7, np.int64),
    )
    results = turnout.voxelize(points, SIZE, RANGE, **limits, out=out)
    for actual, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)
    for actual, memory in ((results[0], out[0]), (results[2], out[2])):
        assert actual is memory if used == max_voxels else np.shares_memory(actual, memory)
        assert not memory[used:].any()


@pytest.mark.parametrize("limits", [{}, {"max_points": 4, "max_voxels": 9000}])
def test_threads(rng, threads, limits):
    points = rng.uniform(-10, 10, (60000, 5)).astype(np.float32)
    arguments = points, (0.5, 0.5, 1), (-9, -9, -9, 9, 9, 9)
    threads(1)
    expected = turnout.voxelize(*arguments, **limits)
    for count in (2, 5):
        threads(count)
        results = turnout.voxelize(*arguments, **limits)
        assert all(same_bits(a, b) for a, b in zip(results, expected, strict=True))


@pytest.mark.parametrize(
    ("size", "ends"),
    [
        ([1, 2, 1], list(RANGE)),
        (np.array([1, 2, 1]), np.array(RANGE)),
        (np.array([1, 2, 1], np.float32), np.array(RANGE, np.float16)),
        ((np.float32(1), 2.0, np.int8(1)), range(-3, 3)),
    ],
)
def test_kinds_of_numbers(rng, size, ends):
    points = cloud(rng, 100)
    expected = check.voxelize(points, [float(x) for x in size], [float(x) for x in ends])
    assert same_bits(turnout.voxelize(points, size, ends), expected)
    assert same_bits(turnout.voxelize(Producer(points), size, ends), expected)
    results = turnout.voxelize(points, size, ends, max_points=np.int64(2), max_voxels=np.uint8(9))
    assert len(results[0]) <= 9


def test_numbers_are_rounded_to_the_type_of_the_points():
    """0.1 is a different number in float32, and so are its multiples."""
    points = np.array([[0.3, 0, 0], [0.6, 0, 0], [0.7, 0, 0]])
    for dtype in (np.float32, np.float64):
        arguments = points.astype(dtype), (0.1, 1, 1), (0, 0, 0, 1, 1, 1)
        expected = assert_like_definition(*arguments)
        assert same_bits(turnout.voxelize(arguments[0], np.array(arguments[1]), arguments[2]), expected)
