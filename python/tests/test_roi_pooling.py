"""RoI pooling against loops over boxes and cells in NumPy, its memory, and the errors of its arguments."""

import numpy as np
import pytest

import turnout
from turnout import _core


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def scene(rng, rois=12, points=600, channels=5, dtype=np.float32):
    boxes = rng.uniform([-3, -3, -1, 1, 1, 1, -3], [3, 3, 1, 5, 3, 3, 3], (rois, 7)).astype(dtype)
    cloud = rng.uniform([-5, -5, -2], [5, 5, 3], (points, 3)).astype(dtype)
    return boxes, cloud, (rng.integers(-20, 20, (points, channels)) / 8).astype(np.float32)


def lists(boxes, cloud, size, most, z):
    """The points of each cell, in float64: the scene has no points near borders."""
    found = {}
    margin = 1e-5 if z == "center" else 0
    inside = turnout.points_in_boxes(cloud, boxes, z, margin, all=True)
    for n, (x, y, low, dx, dy, dz, heading) in enumerate(boxes.astype(float)):
        bottom = low - dz / 2 if z == "center" else low
        for k in np.flatnonzero(inside[:, n]):
            px, py, pz = cloud[k].astype(float) - (x, y, bottom)
            c, s = np.cos(heading), np.sin(heading)
            local = (px * c + py * s) / dx + 0.5, (py * c - px * s) / dy + 0.5, pz / dz
            cell = [int(np.clip(v * m, 0, m - 1)) for v, m in zip(local, size, strict=True)]
            found.setdefault((n, *cell), []).append(k)
    return {cell: points[:most] for cell, points in found.items()}


@pytest.mark.parametrize("z", ["center", "bottom"])
@pytest.mark.parametrize("most", [3, 127])
def test_roiaware_pool3d(rng, z, most):
    boxes, cloud, features = scene(rng)
    size, margin = (4, 3, 2), 1e-5 if z == "center" else 0
    found = lists(boxes, cloud, size, most, z)
    assert len(found) > 50 and max(map(len, found.values())) >= 3
    largest, mean = np.zeros((2, len(boxes), *size, 5), np.float32)
    grad_largest, grad_mean = np.zeros((2, len(cloud), 5))
    grad = (rng.integers(-20, 20, (len(boxes), *size, 5)) / 8).astype(np.float32)
    for cell, points in sorted(found.items()):
        rows = features[points]
        largest[cell] = rows.max(0)
        mean[cell] = rows.sum(0) / np.float32(len(points))
        grad_largest[np.array(points)[rows.argmax(0)], np.arange(5)] += grad[cell]
        np.add.at(grad_mean, points, grad[cell].astype(float) / len(points))
    rule = size, most, "max", z, margin
    pooled = turnout.roiaware_pool3d(boxes, cloud, features, *rule)
    assert np.array_equal(pooled, largest)
    assert np.array_equal(turnout.roiaware_pool3d_backward(grad, boxes, cloud, features, *rule), grad_largest)
    rule = size, most, "avg", z, margin
    assert np.array_equal(turnout.roiaware_pool3d(boxes, cloud, features, *rule), mean)
    np.testing.assert_allclose(
        turnout.roiaware_pool3d_backward(grad, boxes, cloud, None, *rule), grad_mean, rtol=0, atol=1e-5
    )
    cell_of, point_of = turnout.roiaware_points(boxes, cloud, size, most, z, margin)
    pairs = [(np.ravel_multi_index(cell, (len(boxes), *size)), k) for cell, ks in found.items() for k in ks]
    assert sorted(pairs) == list(zip(cell_of, point_of, strict=True))


def test_one_size_for_all_directions_and_a_given_result(rng):
    boxes, cloud, features = scene(rng)
    expected = turnout.roiaware_pool3d(boxes, cloud, features, (3, 3, 3))
    out = np.full_like(expected, 7)
    assert turnout.roiaware_pool3d(boxes, cloud, features, 3, out=out) is out
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_features_have_their_own_dtype(rng, dtype):
    boxes, cloud, features = scene(rng)
    pooled = turnout.roiaware_pool3d(boxes, cloud, features.astype(dtype), 3)
    assert pooled.dtype == dtype
    assert np.array_equal(pooled, turnout.roiaware_pool3d(boxes, cloud, features, 3).astype(dtype))


def test_roipoint_pool3d(rng):
    boxes, cloud, features = scene(rng)
    boxes[5, 0] = 100
    both = [np.stack([x, x[::-1]]) for x in (cloud, features, boxes)]
    pooled, empty = turnout.roipoint_pool3d(*both, 40)
    for b in range(2):
        inside = turnout.points_in_boxes(both[0][b], both[2][b], all=True)
        for m in range(len(boxes)):
            chosen = np.flatnonzero(inside[:, m])[:40]
            assert empty[b, m] == (len(chosen) == 0)
            rows = np.concatenate([both[0][b], both[1][b]], 1)
            expected = rows[np.resize(chosen, 40)] if len(chosen) else np.zeros((40, 8))
            assert np.array_equal(pooled[b, m], expected)
    assert empty.sum() >= 2 and empty.dtype == np.int32


@pytest.mark.parametrize(("rois", "points"), [(0, 9), (9, 0), (0, 0)])
def test_nothing_to_pool(rng, rois, points):
    boxes, cloud, features = scene(rng, rois, points)
    assert turnout.roiaware_pool3d(boxes, cloud, features, 2).shape == (rois, 2, 2, 2, 5)
    assert not turnout.roiaware_pool3d(boxes, cloud, features, 2).any()
    assert turnout.roiaware_points(boxes, cloud, 2)[0].shape == (0,)
    pooled, empty = turnout.roipoint_pool3d(cloud[None], features[None], boxes[None], 3)
    assert not pooled.any() and empty.all()


def test_errors_name_the_argument(rng):
    boxes, cloud, features = scene(rng)
    with pytest.raises(ValueError, match=r"^roiaware_pool3d: out_size\[1\] is 0, expected"):
        turnout.roiaware_pool3d(boxes, cloud, features, (2, 0, 2))
    with pytest.raises(ValueError, match=r"^roiaware_pool3d: features.shape\[0\] is 599"):
        turnout.roiaware_pool3d(boxes, cloud, features[1:], 2)
    with pytest.raises(ValueError, match=r"^roiaware_pool3d_backward: features"):
        turnout.roiaware_pool3d_backward(np.zeros((12, 8, 5), np.float32), boxes, cloud, None, 2)
    with pytest.raises(
        ValueError, match=r"^roipoint_pool3d: features has dtype float16, expected that of points"
    ):
        turnout.roipoint_pool3d(cloud[None], features[None].astype(np.float16), boxes[None], 3)


def test_memory_is_a_fraction_of_a_dense_list(rng):
    """The dense list of OpenPCDet would take 128 * 12**3 * 128 * 4 bytes."""
    boxes, cloud, features = scene(rng, 128, 16384, 8)
    out = np.empty((128, 12, 12, 12, 8), np.float32)
    turnout.trim()
    turnout.roiaware_pool3d(boxes, cloud, features, 12, out=out)
    used = _core.info()["scratch_idle"]  # what the call has used, and keeps for the next
    assert out.any()
    assert 0 < used < 128 * 12**3 * 128 * 4 / 10


def test_strided_out_is_refused():
    roi, points = np.array([[0, 0, 0, 4, 2, 2, 0]], np.float32), np.zeros((1, 3), np.float32)
    out = np.full((1, 2, 2, 2, 2), 7, np.float32)[..., ::2]
    with pytest.raises(ValueError, match=r"^roiaware_pool3d: out is strided, expected a contiguous array"):
        turnout.roiaware_pool3d(roi, points, np.ones((1, 1), np.float32), 2, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize(("rois", "channels"), [(0, 5), (12, 0)])
def test_out_without_elements(rng, rois, channels):
    boxes, cloud, features = scene(rng, rois, channels=channels)
    out = np.empty((rois, 2, 3, 4, channels), np.float32)
    assert turnout.roiaware_pool3d(boxes, cloud, features, (2, 3, 4), out=out) is out


def test_each_number_of_cells_is_checked(rng):
    """Other numbers with the same product are refused, too."""
    boxes, cloud, features = scene(rng)
    out = np.full((12, 4, 3, 2, 5), 7, np.float32)
    with pytest.raises(
        ValueError, match=r"^roiaware_pool3d: out\.shape\[1\] is 4, expected 2, out_size\[0\]$"
    ):
        turnout.roiaware_pool3d(boxes, cloud, features, (2, 3, 4), out=out)
    assert (out == 7).all()
    with pytest.raises(
        ValueError,
        match=r"^roiaware_pool3d_backward: grad_pooled\.shape\[2\] is 3, expected 2, out_size\[1\]$",
    ):
        turnout.roiaware_pool3d_backward(out, boxes, cloud, features, (4, 2, 3))
    with pytest.raises(ValueError, match=r"^roiaware_pool3d: out_size\[1\] is 0, expected"):
        turnout.roiaware_pool3d(boxes, cloud, features, (4, 0, 2), out=out)
