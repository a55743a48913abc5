"""segment_csr, gather_csr, scatter_min, ingroup_indices and bev_pool on NumPy arrays."""

import numpy as np
import pytest
from conftest import same_bits
from scans import features

import turnout

REDUCTIONS = ["sum", "mean", "min", "max"]
FLOATS = [np.float32, np.float64, np.float16]


def reduced(src, indptr, reduce):
    """The definition, by the scatter functions."""
    indptr = np.asarray(indptr, np.int64)
    groups = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    rows = src[indptr[0] : indptr[-1]]
    results = getattr(turnout, f"scatter_{reduce}")(rows, groups, 0, len(indptr) - 1)
    if reduce in ("sum", "mean"):
        return results, np.full(results.shape, len(src))
    out, arg = results
    return out, np.where(arg == len(rows), len(src), arg + indptr[0])


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_segments_are_groups(rng, reduce, dtype, index):
    for special in (False, True):
        src = features(rng, 90, 70, dtype, special)
        indptr = np.sort(rng.integers(0, 91, 20)).astype(index)
        out, arg = turnout.segment_csr(src, indptr, reduce, return_arg=True)
        expected = reduced(src, indptr, reduce)
        np.testing.assert_array_equal(out, expected[0])
        np.testing.assert_array_equal(arg, expected[1])
        assert (out.dtype, arg.dtype) == (dtype, np.int64)
        assert same_bits(turnout.segment_csr(src, indptr, reduce), out)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers(rng, dtype):
    src = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (40, 7)).astype(dtype)
    indptr = np.array([0, 9, 9, 30])
    for reduce in ("sum", "min", "max"):
        np.testing.assert_array_equal(
            turnout.segment_csr(src, indptr, reduce), reduced(src, indptr, reduce)[0]
        )
    with pytest.raises(ValueError, match="segment_csr: src has integers, expected floating-point numbers"):
        turnout.segment_csr(src, indptr, "mean")
    out, argmin = turnout.scatter_min(src, np.zeros(40, int))
    np.testing.assert_array_equal(out[0], src.min(axis=0))
    np.testing.assert_array_equal(argmin[0], src.argmin(axis=0))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_threads(rng, threads, count):
    src = rng.standard_normal((30_000, 20)).astype(np.float32)
    indptr = np.sort(rng.integers(0, 30_001, 4000))
    groups = rng.integers(0, 4000, 30_000)
    coords = rng.integers(0, [30, 20, 2, 3], (30_000, 4))
    calls = [lambda r=r: turnout.segment_csr(src, indptr, r) for r in REDUCTIONS]
    calls.append(lambda: turnout.scatter_min(src, groups)[0])
    calls.append(lambda: turnout.gather_csr(src[:3999], indptr))
    calls.append(lambda: turnout.bev_pool(src, coords, 3, 2, 30, 20))
    threads(1)
    expected = [call() for call in calls]
    threads(count)
    assert all(same_bits(call(), wanted) for call, wanted in zip(calls, expected, strict=True))


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 3)])
def test_gather(rng, shape):
    src, indptr = rng.standard_normal(shape), np.array([2, 4, 4, 5, 9, 10])
    out = turnout.gather_csr(src, indptr, 12)
    assert not out[:2].any() and not out[10:].any()
    np.testing.assert_array_equal(out[2:10], np.repeat(src, np.diff(indptr), axis=0))
    np.testing.assert_array_equal(turnout.gather_csr(src, indptr), out[:10])


def test_minima_mirror_maxima(rng):
    src, index = features(rng, 60, 19, np.float32, True), rng.integers(0, 12, 60)
    out, argmin = turnout.scatter_min(src, index, 0, 15)
    negated, argmax = turnout.scatter_max(-src, index, 0, 15)
    np.testing.assert_array_equal(out, -negated)
    np.testing.assert_array_equal(argmin, argmax)
    moved = turnout.scatter_min(src.T, index, 1, 15)
    np.testing.assert_array_equal(moved[0], out.T)
    np.testing.assert_array_equal(moved[1], argmin.T)


def test_ranks(rng):
    for groups in (rng.integers(0, 30, 500), rng.integers(0, 30, 500) * (1 << 50) + 7):
        order = np.argsort(groups, kind="stable")
        _, counts = np.unique(groups, return_counts=True)
        expected = np.empty(500, np.int64)
        expected[order] = np.concatenate([np.arange(count) for count in counts])
        np.testing.assert_array_equal(turnout.ingroup_indices(groups), expected)
    assert turnout.ingroup_indices(np.zeros(0, np.int32)).shape == (0,)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("rows", "channels", "extents"),
    [(300, 7, (2, 1, 4, 5)), (300, 7, (4, 3, 20, 50)), (4000, 70, (2, 1, 40, 50))],
    ids=["in order", "few rows", "beyond the cache"],
)
def test_bev_pool(rng, dtype, rows, channels, extents):
    feats = rng.standard_normal((rows, channels)).astype(dtype)
    batch, depth, height, width = extents
    coords = rng.integers(0, [height, width, depth, batch], (rows, 4))
    cells = np.ravel_multi_index(coords[:, [3, 2, 0, 1]].T, extents)
    out = turnout.bev_pool(feats, coords, *extents)
    expected = turnout.scatter_sum(feats, cells, dim_size=int(np.prod(extents)))
    assert same_bits(out, np.moveaxis(expected.reshape(*extents, channels), 4, 1))
    np.testing.assert_array_equal(turnout.bev_pool_backward(out, coords), expected[cells])


def test_messages():
    src = np.ones((4, 2), np.float32)
    with pytest.raises(ValueError, match=r"^segment_csr: indptr\[1\] is 5, expected 0 \.\. 4"):
        turnout.segment_csr(src, np.array([0, 5]))
    with pytest.raises(ValueError, match=r"^segment_csr: indptr\[2\] is 1, expected 2 \.\. 4"):
        turnout.segment_csr(src, np.array([0, 2, 1]))
    with pytest.raises(ValueError, match=r"^gather_csr: indptr\[4\] is 4, expected 3 \.\. 3"):
        turnout.gather_csr(src, np.array([0, 1, 2, 3, 4]), 3)
    with pytest.raises(ValueError, match=r"^scatter_min: index\[1\] is -1, expected 0 \.\. 2"):
        turnout.scatter_min(src, np.array([0, -1, 2, 0]), 0, 3)
    with pytest.raises(ValueError, match=r"^ingroup_indices: groups\[2\] is -7, expected 0 or more"):
        turnout.ingroup_indices(np.array([0, 1, -7]))
    coords = np.array([[0, 1, 0, 0], [1, 3, 0, 0]])
    with pytest.raises(
        ValueError, match=r"^bev_pool: coords\[1, 1\] is 3, expected 0 \.\. 2, below the width"
    ):
        turnout.bev_pool(src[:2], coords, 1, 1, 2, 3)


def test_out(rng):
    src, indptr = rng.standard_normal((9, 3)), np.array([0, 4, 9])
    out, arg = np.empty((2, 3)), np.empty((2, 3), np.int32)
    assert turnout.segment_csr(src, indptr, "max", out=out) is out
    results = turnout.segment_csr(src, indptr, "max", return_arg=True, out=(None, arg))
    assert results[1] is arg
    np.testing.assert_array_equal(results[0], out)
    np.testing.assert_array_equal(np.take_along_axis(src, arg.astype(int), axis=0), out)
