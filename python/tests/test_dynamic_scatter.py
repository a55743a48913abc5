"""dynamic_scatter_forward, dynamic_scatter_backward and VoxelIndex against their definitions, for NumPy."""

import copy
import pickle
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from conftest import at_the_same_time, in_forked_child, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from scans import REDUCTIONS, coordinates, features, same_values
from test_moe_dispatch import Producer

import turnout
from turnout import check

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
INT32_MAX = 2**31 - 1


def assert_like_definition(feats, coors, reduce_type="max"):
    results = turnout.dynamic_scatter_forward(feats, coors, reduce_type)
    assert type(results) is tuple
    expected = check.dynamic_scatter_forward(feats, coors, reduce_type)
    for actual, wanted in zip(results, expected, strict=True):
        assert type(actual) is np.ndarray
        assert same_values(actual, wanted)
    return results


# -- the forward call --------------------------------------------------------------------------------------


def test_worked_example():
    coors = [(12, 5, 9), (8, 6, 14), (8, 15, 3), (-1, 18, 7), (5, 12, -1), (9, 14, 15)]
    feats = np.arange(6.0).reshape(6, 1)
    voxel_feats, voxel_coors, index, count = turnout.dynamic_scatter_forward(feats, np.array(coors, np.int32))
    assert voxel_coors.tolist() == [[8, 6, 14], [8, 15, 3], [9, 14, 15], [12, 5, 9]]
    assert index.tolist() == [3, 0, 1, -1, -1, 2]
    assert count.tolist() == [1, 1, 1, 1]
    assert voxel_feats.tolist() == [[1], [2], [5], [0]]
    assert [x.dtype for x in (voxel_feats, voxel_coors, index, count)] == [np.float64, *[np.int32] * 3]


@pytest.mark.parametrize(
    ("reduce_type", "reduced", "grads"),
    [
        ("max", [[4, 8], [3, -1]], [[0, 20], [10, 0], [30, 40], [0, 0], [0, 0], [0, 0]]),
        ("mean", [[3, 5], [3, -1]], [[2.5, 5], [2.5, 5], [30, 40], [2.5, 5], [0, 0], [2.5, 5]]),
        ("sum", [[12, 20], [3, -1]], [[10, 20], [10, 20], [30, 40], [10, 20], [0, 0], [10, 20]]),
    ],
)
def test_three_reductions(reduce_type, reduced, grads):
    coors = np.array([[0, 7], [0, 7], [2, 0], [0, 7], [0, -1], [0, 7]])
    feats = np.array([[1, 8], [4, 3], [3, -1], [4, 8], [99, 99], [3, 1]], np.float32)
    voxel_feats, voxel_coors, index, count = turnout.dynamic_scatter_forward(feats, coors, reduce_type)
    assert voxel_feats.tolist() == reduced
    assert (voxel_coors.tolist(), voxel_coors.dtype) == ([[0, 7], [2, 0]], np.int64)
    assert index.tolist() == [0, 0, 1, 0, -1, 0]
    assert count.tolist() == [4, 1]
    upstream = np.array([[10, 20], [30, 40]], np.float32)
    arguments = upstream, feats, voxel_feats, index, count, reduce_type
    assert turnout.dynamic_scatter_backward(*arguments).tolist() == grads


@st.composite
def scans(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    points, channels = draw(st.integers(0, 40)), draw(st.integers(0, 20))
    coors = coordinates(
        rng,
        points,
        draw(st.integers(1, 4)),
        draw(st.sampled_from([np.int32, np.int64])),
        draw(st.sampled_from([1, 2, 5, INT32_MAX])),
    )
    feats = features(rng, points, channels, draw(st.sampled_from(DTYPES)), draw(st.booleans()))
    return feats, coors, draw(st.sampled_from(REDUCTIONS)), rng


@settings(max_examples=200, deadline=None)
@given(scan=scans())
def test_definition(scan):
    feats, coors, reduce_type, rng = scan
    voxel_feats, voxel_coors, index, count = assert_like_definition(feats, coors, reduce_type)
    grad = features(rng, *voxel_feats.shape, feats.dtype, special=True)
    expected = check.dynamic_scatter_backward(grad, feats, voxel_feats, index, count, reduce_type)
    actual = turnout.dynamic_scatter_backward(grad, feats, voxel_feats, index, count, reduce_type)
    assert same_values(actual, expected)
    voxels = turnout.VoxelIndex(coors)
    assert (voxels.points, voxels.voxels) == (len(coors), len(count))
    for one, wanted in (
        (voxels.voxel_coors, voxel_coors),
        (voxels.point2voxel_map, index),
        (voxels.voxel_points_count, count),
        (voxels.reduce(feats, reduce_type), voxel_feats),
        (voxels.reduce_backward(grad, feats, voxel_feats, reduce_type), expected),
    ):
        assert same_values(one, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduce_type", REDUCTIONS)
@pytest.mark.parametrize("points", [1, 63, 3000])
def test_sizes_and_dtypes(rng, dtype, reduce_type, points):
    feats = rng.standard_normal((points, 33)).astype(dtype)
    assert_like_definition(feats, coordinates(rng, points, extent=6), reduce_type)


@pytest.mark.parametrize("dims", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_large_coordinates(rng, dims, dtype):
    """Voxels ascend whatever their size: keys are packed if they fit, and compared otherwise."""
    most = np.iinfo(dtype).max
    ends = np.array([0, 1, INT32_MAX - 1, INT32_MAX, most - 1, most], dtype)
    coors = ends[rng.integers(0, len(ends), (200, dims))]
    coors[::7, rng.integers(0, dims)] = np.iinfo(dtype).min
    assert_like_definition(features(rng, 200, 2), coors)
    spread = rng.integers(0, most, (300, dims), dtype)
    assert_like_definition(features(rng, 600, 2), np.concatenate([spread, spread[::-1]]), "sum")


def test_batches_are_the_most_significant_column(rng):
    coors = coordinates(rng, 100)
    batch = rng.integers(0, 3, (100, 1)).astype(np.int32)
    feats = features(rng, 100, 4)
    together = turnout.dynamic_scatter_forward(feats, np.hstack([batch, coors]))
    first = 0
    for b in range(3):
        rows = batch[:, 0] == b
        alone = turnout.dynamic_scatter_forward(feats[rows], coors[rows])
        part = slice(first, first + len(alone[0]))
        assert same_bits(together[0][part], alone[0])
        assert (together[1][part, 0] == b).all()
        assert same_bits(together[1][part, 1:].copy(), alone[1])
        first = part.stop
    assert first == len(together[0])


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
@pytest.mark.parametrize(("points", "channels"), [(0, 4), (0, 0), (5, 0)])
def test_empty(reduce_type, points, channels):
    feats, coors = np.zeros((points, channels), np.float32), np.zeros((points, 3), np.int32)
    results = assert_like_definition(feats, coors, reduce_type)
    voxels = min(points, 1)
    assert [x.shape for x in results] == [(voxels, channels), (voxels, 3), (points,), (voxels,)]
    grad = turnout.dynamic_scatter_backward(results[0], feats, results[0], *results[2:], reduce_type)
    assert grad.shape == (points, channels)


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
def test_no_point_is_in_a_voxel(rng, reduce_type):
    feats, coors = features(rng, 50, 7), np.full((50, 3), -1)
    coors[1::2] = (3, 4, -5)
    results = assert_like_definition(feats, coors, reduce_type)
    assert [len(x) for x in results] == [0, 0, 50, 0]
    assert (results[2] == -1).all()
    for grad in (
        turnout.dynamic_scatter_backward(results[0], feats, results[0], *results[2:], reduce_type),
        turnout.VoxelIndex(coors).reduce_backward(results[0], feats, results[0], reduce_type),
    ):
        assert same_bits(grad, np.zeros((50, 7), np.float32))


def test_nan_is_skipped():
    feats = np.array([[np.nan, np.nan, -0.0], [2, np.nan, 0.0]], np.float32)
    coors = np.zeros((2, 1), np.int32)
    voxel_feats, _, *index = turnout.dynamic_scatter_forward(feats, coors)
    assert voxel_feats.tolist() == [[2, -np.inf, 0]]
    assert np.signbit(voxel_feats[0, 2])  # the first of equal values
    grad = turnout.dynamic_scatter_backward(np.full((1, 3), 5, np.float32), feats, voxel_feats, *index)
    assert grad.tolist() == [[0, 0, 5], [5, 0, 0]]


# -- the gradient ------------------------------------------------------------------------------------------


def test_gradient_follows_the_given_maximum(rng):
    """A voxel whose given maximum equals no point passes its gradient to none."""
    feats, coors = features(rng, 40, 5), coordinates(rng, 40)
    voxel_feats, _, index, count = turnout.dynamic_scatter_forward(feats, coors)
    changed = voxel_feats.copy()
    changed[0] = 17
    changed[1] = feats[index == 1][-1]
    changed[2] = np.nan
    grad = rng.standard_normal(voxel_feats.shape).astype(np.float32)
    expected = check.dynamic_scatter_backward(grad, feats, changed, index, count)
    for actual in (
        turnout.dynamic_scatter_backward(grad, feats, changed, index, None),
        turnout.VoxelIndex(coors).reduce_backward(grad, feats, changed),
    ):
        assert same_bits(actual, expected)
        assert not actual[(index == 0) | (index == 2)].any()


def test_equal_points_of_one_voxel():
    feats = np.full((100, 3), 2.5, np.float32)
    voxel_feats, _, *index = turnout.dynamic_scatter_forward(feats, np.zeros((100, 2), np.int32))
    grad = turnout.dynamic_scatter_backward(np.ones((1, 3), np.float32), feats, voxel_feats, *index)
    assert (grad[0] == 1).all()
    assert not grad[1:].any()


def test_arguments_that_a_reduction_does_not_need(rng):
    feats, coors = features(rng, 40, 5), coordinates(rng, 40)
    voxel_feats, _, index, count = turnout.dynamic_scatter_forward(feats, coors)
    voxels = turnout.VoxelIndex(coors)
    grad = rng.standard_normal(voxel_feats.shape).astype(np.float32)
    for reduce_type, needed in (
        ("max", (feats, voxel_feats, index, None)),
        ("mean", (None, None, index, count)),
        ("sum", (None, None, index.astype(np.int64), None)),
    ):
        expected = check.dynamic_scatter_backward(grad, feats, voxel_feats, index, count, reduce_type)
        assert same_bits(turnout.dynamic_scatter_backward(grad, *needed, reduce_type), expected)
        assert same_bits(voxels.reduce_backward(grad, *needed[:2], reduce_type=reduce_type), expected)


# -- out=, threads, other arrays ---------------------------------------------------------------------------


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
@pytest.mark.parametrize("spare", [0, 9])
def test_out(rng, reduce_type, spare):
    feats, coors = features(rng, 60, 5), coordinates(rng, 60)
    expected = check.dynamic_scatter_forward(feats, coors, reduce_type)
    rows = len(expected[0]) + spare
    out = np.full((rows, 5), 7, np.float32), None, np.full(60, 7, np.int64), np.full(rows, 7, np.int64)
    results = turnout.dynamic_scatter_forward(feats, coors, reduce_type, out=out)
    assert results[2] is out[2]
    assert (results[0] is out[0]) == (results[3] is out[3]) == (spare == 0)
    for actual, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)
    for memory, wanted in ((out[0], expected[0]), (out[3], expected[3])):
        np.testing.assert_array_equal(memory[: len(wanted)], wanted)
        assert (memory[len(wanted) :] == 7).all()


def test_out_of_gradient_and_index(rng):
    feats, coors = features(rng, 60, 5), coordinates(rng, 60)
    voxels = turnout.VoxelIndex(coors)
    out, grad_out = np.empty((voxels.voxels, 5), np.float32), np.empty((60, 5), np.float32)
    assert voxels.reduce(feats, out=out) is out
    grad = rng.standard_normal(out.shape).astype(np.float32)
    index = voxels.point2voxel_map, voxels.voxel_points_count
    expected = check.dynamic_scatter_backward(grad, feats, out, *index)
    assert voxels.reduce_backward(grad, feats, out, out=grad_out) is grad_out
    assert same_bits(grad_out, expected)
    grad_out[:] = 7
    assert turnout.dynamic_scatter_backward(grad, feats, out, *index, out=grad_out) is grad_out
    assert same_bits(grad_out, expected)


def test_index_does_not_need_its_coordinates(rng):
    feats, coors = features(rng, 60, 5), coordinates(rng, 60)
    expected = check.dynamic_scatter_forward(feats, coors)
    voxels = turnout.VoxelIndex(coors)
    coors[:] = -1
    del coors
    assert same_bits(voxels.reduce(feats), expected[0])
    assert same_bits(voxels.voxel_coors, expected[1])
    assert repr(voxels) == f"VoxelIndex(60 points in {len(expected[0])} voxels)"


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
def test_threads(rng, threads, reduce_type):
    feats = rng.standard_normal((40000, 20)).astype(np.float32)
    coors = coordinates(rng, 40000, extent=20)

    def results():
        forward = turnout.dynamic_scatter_forward(feats, coors, reduce_type)
        grad = turnout.dynamic_scatter_backward(forward[0], feats, forward[0], *forward[2:], reduce_type)
        voxels = turnout.VoxelIndex(coors)
        again = voxels.reduce_backward(forward[0], feats, forward[0], reduce_type)
        return *forward, voxels.reduce(feats, reduce_type), grad, again

    threads(1)
    expected = results()
    for count in (2, 5):
        threads(count)
        assert all(same_bits(a, b) for a, b in zip(results(), expected, strict=True))


def test_one_index_for_several_threads(rng, threads):
    threads(2)
    voxels = turnout.VoxelIndex(coordinates(rng, 20000, extent=10))
    feats = [rng.standard_normal((20000, 16)).astype(np.float32) for _ in range(4)]
    expected = [voxels.reduce(x, "mean") for x in feats]

    def is_right(i):
        return all(same_bits(voxels.reduce(feats[i], "mean"), expected[i]) for _ in range(10))

    assert all(at_the_same_time([partial(is_right, i) for i in range(4)]))


def test_after_fork(rng, threads):
    threads(2)
    arguments = rng.standard_normal((40000, 20)).astype(np.float32), coordinates(rng, 40000, extent=20)
    expected = turnout.dynamic_scatter_forward(*arguments)
    for a, b in zip(in_forked_child(turnout.dynamic_scatter_forward, *arguments), expected, strict=True):
        assert same_bits(a, b)


def test_dlpack_and_read_only_inputs(rng):
    feats, coors = features(rng, 60, 5), coordinates(rng, 60)
    expected = check.dynamic_scatter_forward(feats, coors)
    for array in (feats, coors):
        array.flags.writeable = False
    for wrap in (np.asarray, Producer):
        results = turnout.dynamic_scatter_forward(wrap(feats), wrap(coors))
        assert all(same_bits(a, b) for a, b in zip(results, expected, strict=True))
        voxels = turnout.VoxelIndex(wrap(coors))
        assert same_bits(voxels.reduce(wrap(feats)), expected[0])
        grad = turnout.dynamic_scatter_backward(
            *(wrap(x) for x in (expected[0], feats, expected[0], *expected[2:]))
        )
        assert same_bits(grad, voxels.reduce_backward(wrap(expected[0]), wrap(feats), wrap(expected[0])))


def test_index_is_pickled(rng):
    """As a DataLoader's worker sends it, and as deepcopy copies it."""
    coors = rng.integers(-1, 4, (200, 3)).astype(np.int64)
    feats, grads = rng.standard_normal((200, 5)), rng.standard_normal((80, 5))
    index = turnout.VoxelIndex(coors)
    data = pickle.dumps(index)
    assert len(data) < 3 * (index.voxel_coors.nbytes + index.point2voxel_map.nbytes)
    for other in (pickle.loads(data), copy.deepcopy(index), in_forked_child(turnout.VoxelIndex, coors)):
        assert repr(other) == repr(index)
        for name in ("voxel_coors", "point2voxel_map", "voxel_points_count"):
            assert same_bits(getattr(other, name), getattr(index, name))
        for reduce_type in ("sum", "mean", "max"):
            reduced = index.reduce(feats, reduce_type)
            assert same_bits(other.reduce(feats, reduce_type), reduced)
            arguments = grads[: index.voxels], feats, reduced, reduce_type
            assert same_bits(other.reduce_backward(*arguments), index.reduce_backward(*arguments))


@pytest.mark.parametrize("coors", [np.zeros((0, 3), np.int32), np.full((5, 2), -1, np.int32)])
def test_index_without_voxels_is_pickled(coors):
    index = pickle.loads(pickle.dumps(turnout.VoxelIndex(coors)))
    assert (index.points, index.voxels) == (len(coors), 0)
    assert index.reduce(np.zeros((len(coors), 2))).shape == (0, 2)


def test_state_of_an_index_is_checked():
    kind = type(turnout.VoxelIndex(np.zeros((1, 1), np.int32))._index)
    for wrong in (np.zeros((2, 2), np.int32), np.zeros(2), "map"):
        index = kind.__new__(kind)
        with pytest.raises((ValueError, TypeError), match="VoxelIndex: point2voxel_map "):
            index.__setstate__((wrong, False))
