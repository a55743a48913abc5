"""Grouping, gathering and interpolation against NumPy's indexing, and the errors of their arguments."""

import numpy as np
import pytest

import turnout

DTYPES = [np.float32, np.float64, np.float16]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def eighths(rng, shape, dtype):
    """Numbers whose sums are exact."""
    return (rng.integers(-32, 33, shape) / 8).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_group_and_gather(rng, dtype, index):
    features = eighths(rng, (2, 6, 9), dtype)
    indices = rng.integers(0, 9, (2, 5, 4)).astype(index)
    grouped = turnout.group_points(features, indices)
    assert grouped.dtype == dtype
    for b in range(2):
        assert np.array_equal(grouped[b], features[b][:, indices[b]])
        assert np.array_equal(turnout.gather_points(features, indices[:, :, 0])[b], grouped[b, :, :, 0])
    expected = np.zeros((2, 6, 9))
    for b in range(2):
        np.add.at(expected[b], (slice(None), indices[b]), grouped[b])
    assert np.array_equal(turnout.group_points_backward(grouped, indices, 9), expected.astype(dtype))
    flat = grouped.reshape(2, 6, 20)
    found = turnout.gather_points_backward(flat, indices.reshape(2, 20), 9)
    assert np.array_equal(found, expected.astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_group_stacked(rng, dtype):
    counts, index_counts = np.array([4, 0, 3]), np.array([2, 1, 5])
    features = eighths(rng, (7, 20), dtype)
    rows = np.concatenate([rng.integers(0, 4, (2, 9)), np.full((1, 9), -1), rng.integers(4, 7, (5, 9))])
    indices = rows - np.repeat([0, 4, 4], index_counts)[:, None]
    grouped = turnout.group_points_stacked(features, counts, indices, index_counts)
    expected = features[rows].transpose(0, 2, 1).copy()
    expected[2] = 0  # the sample has no points
    assert np.array_equal(grouped, expected)
    grads = np.zeros((7, 20))
    np.add.at(grads, rows[rows[:, 0] >= 0], grouped.transpose(0, 2, 1)[rows[:, 0] >= 0])
    found = turnout.group_points_stacked_backward(grouped, counts, indices, index_counts, 7)
    assert np.array_equal(found, grads.astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_three_interpolate(rng, dtype):
    lane = np.float64 if dtype == np.float64 else np.float32
    features = eighths(rng, (2, 6, 9), dtype)
    indices = rng.integers(0, 9, (2, 5, 3))
    weights = eighths(rng, (2, 5, 3), lane)
    out = turnout.three_interpolate(features, indices, weights)
    neighbours = np.stack([features[b][:, indices[b]] for b in range(2)]).astype(np.float64)
    assert np.array_equal(out, (neighbours * weights[:, None]).sum(-1).astype(dtype))
    grads = np.zeros((2, 6, 9))
    for b in range(2):
        np.add.at(grads[b], (slice(None), indices[b]), out[b][:, :, None].astype(float) * weights[b])
    assert np.array_equal(turnout.three_interpolate_backward(out, indices, weights, 9), grads.astype(dtype))
    stacked = turnout.three_interpolate_stacked(features[0].T.copy(), indices[0], weights[0])
    assert np.array_equal(stacked, out[0].T)
    found = turnout.three_interpolate_stacked_backward(stacked, indices[0], weights[0], 9)
    assert np.array_equal(found, grads[0].T.astype(dtype))


def test_sums_are_in_the_order_of_the_indices():
    grad = np.array([[[[1e8, 1.0, -1e8, 0.5]]]], np.float32)
    indices = np.zeros((1, 1, 4), np.int64)
    assert turnout.group_points_backward(grad, indices, 1).item() == 0.5
    counts = np.array([1])
    stacked = turnout.group_points_stacked_backward(grad[0], counts, indices[0], counts, 1)
    assert stacked.item() == 0.5


def test_without_points():
    indices = np.array([[[0, 5]]])
    assert not turnout.group_points(np.zeros((1, 2, 0), np.float32), indices).any()
    assert turnout.group_points_backward(np.ones((1, 2, 1, 2), np.float32), indices, 0).shape == (1, 2, 0)
    with pytest.raises(
        ValueError, match=r"indices\[0, 0\] is 0, expected no indices, since there are no rows"
    ):
        turnout.gather_points(np.zeros((1, 2, 0), np.float32), np.zeros((1, 1), int))
    with pytest.raises(ValueError, match=r"expected no indices, since there are no rows"):
        turnout.three_interpolate(
            np.zeros((1, 2, 0), np.float32), np.zeros((1, 1, 3), int), np.ones((1, 1, 3), np.float32)
        )


def test_an_index_out_of_range_writes_nothing():
    features, out = np.ones((1, 2, 3), np.float32), np.full((1, 2, 1), 7, np.float32)
    with pytest.raises(ValueError, match=r"^gather_points: indices\[0, 0\] is 3, expected 0 .. 2"):
        turnout.gather_points(features, np.array([[3]]), out=out)
    with pytest.raises(ValueError, match=r"^group_points: indices\[0, 0, 0\] is -1, expected 0 .. 2"):
        turnout.group_points(features, np.array([[[-1]]]), out=out[..., None])
    assert (out == 7).all()


def test_large_calls_are_the_same_on_any_number_of_threads(rng):
    features = rng.standard_normal((2, 33, 5000), np.float32)
    indices = rng.integers(0, 5000, (2, 700, 16))
    weights = rng.random((2, 9000, 3), np.float32)
    near = rng.integers(0, 5000, (2, 9000, 3))
    results = []
    threads = turnout.get_num_threads()
    try:
        for count in (1, 3):
            turnout.set_num_threads(count)
            grouped = turnout.group_points(features, indices)
            interpolated = turnout.three_interpolate(features, near, weights)
            results.append(
                [
                    grouped,
                    interpolated,
                    turnout.group_points_backward(grouped, indices, 5000),
                    turnout.three_interpolate_backward(interpolated, near, weights, 5000),
                ]
            )
    finally:
        turnout.set_num_threads(threads)
    for one, other in zip(*results, strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(results[0][0][1], features[1][:, indices[1]])
