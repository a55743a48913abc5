"""get_indice_pairs against its definition, for NumPy arrays."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from test_moe_dispatch import Producer

import turnout
from turnout import check

MODES = [{}, {"subm": True}, {"transpose": True}]


def sites(rng, rows, batch_size, spatial_shape, dtype=np.int32):
    """Draws batch numbers and coordinates, many of them equal in a small space."""
    return np.stack([rng.integers(0, n, rows) for n in (batch_size, *spatial_shape)], axis=1).astype(dtype)


def distinct_sites(rng, rows, batch_size, spatial_shape):
    shape = (batch_size, *spatial_shape)
    chosen = rng.choice(np.prod(shape), rows, replace=False)
    return np.stack(np.unravel_index(chosen, shape), axis=1).astype(np.int32)


def assert_like_definition(*arguments, **options):
    results = turnout.get_indice_pairs(*arguments, **options)
    assert type(results) is tuple
    for actual, expected in zip(results, check.get_indice_pairs(*arguments, **options), strict=True):
        assert type(actual) is np.ndarray
        assert same_bits(actual, expected)
    return results


def pairs_of(results):
    """Returns the pairs as lists of (input row, output row), one list per offset."""
    _, pairs, num = results
    for k, n in enumerate(num):
        assert (pairs[k, :, n:] == -1).all()
    return [list(zip(*pairs[k, :, :n].tolist(), strict=True)) for k, n in enumerate(num)]


# -- results -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "outputs", "pairs"),
    [
        ({}, [0, 1, 2], [[(0, 1), (1, 2)], [(0, 0), (1, 1)], [(1, 0)]]),
        ({"subm": True}, [0, 1], [[(0, 1)], [(0, 0), (1, 1)], [(1, 0)]]),
        ({"transpose": True}, [0, 1, 2], [[(1, 0)], [(0, 0), (1, 1)], [(0, 1), (1, 2)]]),
    ],
)
def test_worked_example(options, outputs, pairs):
    indices = np.array([[0, 0, 0, 0], [0, 0, 0, 1]], np.int32)
    results = turnout.get_indice_pairs(indices, 1, (1, 1, 3), (1, 1, 3), 1, (0, 0, 1), **options)
    assert results[0].tolist() == [[0, 0, 0, x] for x in outputs]
    assert pairs_of(results) == pairs
    assert [r.dtype for r in results] == [np.int32] * 3
    assert (results[1].shape, results[2].shape) == ((3, 2, 2), (3,))


@st.composite
def convolutions(draw):
    """Draws arguments whose output shape is at least 1 in every dimension."""
    options = draw(st.sampled_from(MODES))
    spatial_shape, kernel, stride, padding, dilation, output_padding = [], [], [], [], [], []
    dims = draw(st.integers(1, 4))
    for _ in range(dims):
        k = draw(st.sampled_from([1, 3])) if options.get("subm") else draw(st.integers(1, 3))
        kernel.append(k)
        stride.append(1 if options.get("subm") else draw(st.integers(1, 3)))
        dilation.append(draw(st.integers(1, 3)))
        padding.append(draw(st.integers(0, (k - 1) // 2 if options.get("transpose") else 3)))
        output_padding.append(draw(st.integers(0, 2)))
        reach = 1 if options else max(1, dilation[-1] * (k - 1) + 1 - 2 * padding[-1])
        spatial_shape.append(reach + draw(st.integers(0, 3)))
        if not options and draw(st.integers(0, 9)) == 0:
            kernel[-1] = -1
    batch_size = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    indices = sites(rng, draw(st.integers(0, 14)), batch_size, spatial_shape, dtype)
    vectors = kernel, stride, padding, dilation, output_padding
    return (indices, batch_size, tuple(spatial_shape), *vectors), options


@settings(max_examples=150, deadline=None)
@given(call=convolutions())
def test_definition(call):
    arguments, options = call
    out_indices, pairs, num = assert_like_definition(*arguments, **options)
    shape = turnout.indice_pairs_output_shape(*arguments[2:], **options)
    assert all(type(n) is int for n in shape)
    assert (out_indices[:, 1:] < shape).all()
    assert pairs.max(initial=-1) < max(len(arguments[0]), len(out_indices))
    assert num.sum() == (pairs[:, 0] >= 0).sum()


# Each seed scale with fewer sites, which are close together as in a scan, some of them on the bounds.
@pytest.mark.parametrize(
    ("space", "options"),
    [
        ((41, 1440, 1440), {"padding": 1, "subm": True}),
        ((11, 360, 360), {"stride": 2, "padding": (0, 1, 1)}),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_seed_scales(rng, space, options, dtype):
    walk = rng.integers(-1, 2, (1500, 3)).cumsum(axis=0) + np.array(space) // 2
    near = np.concatenate([rng.integers(0, 4, (1500, 1)), np.clip(walk, 0, np.array(space) - 1)], axis=1)
    corners = np.array(list(np.ndindex(4, 2, 2, 2))) * [1, *(n - 1 for n in space)]
    indices = rng.permutation(np.unique(np.concatenate([near, corners]), axis=0)).astype(dtype)
    assert_like_definition(indices, 4, space, 3, **options)


@pytest.mark.parametrize("options", MODES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("batches", "dims"), [(1, 2), (2**31 - 1, 1)])
def test_large_coordinates(options, dtype, batches, dims):
    """Tests sites at the ends of the largest spaces, and of one that is too large."""
    last = 2**31 - 4 if options.get("transpose") else 2**31 - 2  # the output shape has the same limit
    ends = [(batches - 1, *x) for x in np.ndindex(*[2] * dims)]
    indices = np.abs(np.array(ends) - [[0] + [last] * dims])
    indices = np.concatenate([indices, np.zeros_like(indices[:1])]).astype(dtype)
    assert_like_definition(indices, batches, [last + 1] * dims, **options)
    indices = np.zeros((1, 5), dtype)
    with pytest.raises(
        NotImplementedError, match="get_indice_pairs: the output space, with its margins, takes more"
    ):
        turnout.get_indice_pairs(indices, batches, [last + 1] * 4, **options)


@pytest.mark.parametrize("options", MODES)
def test_no_rows(options):
    results = assert_like_definition(np.zeros((0, 3), np.int64), 2, (4, 5), padding=1, **options)
    assert [r.shape for r in results] == [(0, 3), (9, 2, 0), (9,)]
    out = (np.full((2, 3), 7), None, np.full(9, 7, np.int32))
    again = turnout.get_indice_pairs(np.zeros((0, 3), np.int64), 2, (4, 5), **options, out=out)
    assert again[0] is out[0]
    assert (out[0] == -1).all()
    assert (out[2] == 0).all()


def test_inputs_without_any_output():
    indices = np.array([[0, 1], [0, 2]], np.int32)  # between the outputs at 0 and 3
    results = assert_like_definition(indices, 1, (4,), 1, 3)
    assert results[0].shape == (0, 2)
    assert (results[1] == -1).all()


def test_full_grid(rng):
    indices = rng.permutation(np.array(list(np.ndindex(2, 3, 4, 5)), np.int32))
    for options in MODES:
        assert_like_definition(indices, 2, (3, 4, 5), 3, 1, 1, **options)


def test_many_offsets(rng):
    assert_like_definition(sites(rng, 5, 1, (9, 9, 9)), 1, (9, 9, 9), 16, 1, 8)


@pytest.mark.parametrize(("stride", "dilation"), [(2, 2), (3, 2), (2, 3)])
def test_stride_and_dilation(rng, stride, dilation):
    indices = sites(rng, 50, 2, (9, 10))
    for options in ({}, {"transpose": True}):
        assert_like_definition(indices, 2, (9, 10), 3, stride, 1, dilation, **options)


# -- properties --------------------------------------------------------------------------------------------


def test_submanifold_pairs_are_symmetric(rng):
    indices = distinct_sites(rng, 80, 2, (6, 5, 7))
    pairs = pairs_of(
        turnout.get_indice_pairs(indices, 2, (6, 5, 7), (3, 1, 5), dilation=(2, 1, 1), subm=True)
    )
    assert pairs[7] == [(i, i) for i in range(80)]
    for one, mirrored in zip(pairs, reversed(pairs), strict=True):
        assert sorted(one) == sorted((o, i) for i, o in mirrored)


@pytest.mark.parametrize("options", MODES)
def test_kernel_one_is_the_identity(rng, options):
    indices = distinct_sites(rng, 40, 2, (6, 7))
    indices = indices[np.lexsort(indices.T[::-1])]
    results = turnout.get_indice_pairs(indices, 2, (6, 7), 1, **options)
    assert same_bits(results[0], indices)
    assert pairs_of(results) == [[(i, i) for i in range(40)]]


def test_equal_sites():
    """The last one is the output of a submanifold convolution; all are inputs."""
    indices = np.array([[0, 2], [0, 3], [0, 2], [0, 2]], np.int32)
    results = turnout.get_indice_pairs(indices, 1, (5,), subm=True)
    assert same_bits(results[0], indices)
    assert pairs_of(results) == [[(0, 1), (2, 1), (3, 1)], [(0, 3), (1, 1), (2, 3), (3, 3)], [(1, 3)]]
    results = turnout.get_indice_pairs(indices, 1, (5,), 1)
    assert results[0].tolist() == [[0, 2], [0, 3]]
    assert pairs_of(results) == [[(0, 0), (1, 1), (2, 0), (3, 0)]]


@pytest.mark.parametrize("given_padding", [0, 1, 7])
def test_submanifold_padding_is_the_centre(rng, given_padding):
    indices = sites(rng, 40, 2, (6, 7))
    results = turnout.get_indice_pairs(indices, 2, (6, 7), 3, 1, given_padding, 2, subm=True)
    for actual, expected in zip(
        results, turnout.get_indice_pairs(indices, 2, (6, 7), 3, dilation=2, subm=True), strict=True
    ):
        assert same_bits(actual, expected)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1), (4, 3, 1)])
def test_transposed_reverses_the_pairs(rng, kernel, stride, padding):
    space = (9, 8)
    indices = distinct_sites(rng, 40, 2, space)
    forward = turnout.get_indice_pairs(indices, 2, space, kernel, stride, padding)
    reached = turnout.indice_pairs_output_shape(space, kernel, stride, padding)
    rest = [(n + 2 * padding - kernel) % stride for n in space]
    back = turnout.get_indice_pairs(forward[0], 2, reached, kernel, stride, padding, 1, rest, transpose=True)
    row_of = {tuple(site): row for row, site in enumerate(indices.tolist())}
    rows = [row_of.get(tuple(site)) for site in back[0].tolist()]
    for there, again in zip(pairs_of(forward), pairs_of(back), strict=True):
        assert sorted(there) == sorted((rows[o], i) for i, o in again if rows[o] is not None)


def test_threads(rng, threads):
    indices = sites(rng, 20000, 2, (20, 60, 60))
    for options in ({"padding": 1, "subm": True}, {"stride": 2, "padding": 1}):
        threads(1)
        expected = turnout.get_indice_pairs(indices, 2, (20, 60, 60), **options)
        for count in (2, 5):
            threads(count)
            results = turnout.get_indice_pairs(indices, 2, (20, 60, 60), **options)
            assert all(same_bits(a, b) for a, b in zip(results, expected, strict=True))


def test_calls_at_the_same_time(rng, threads):
    """A call releases the GIL between its two steps."""
    threads(2)
    calls = [sites(rng, 9000 + 500 * i, 2, (20, 40, 40)) for i in range(4)]
    options = [{"padding": 1, "subm": i % 2 == 0} for i in range(4)]

    def call(i):
        return turnout.get_indice_pairs(calls[i], 2, (20, 40, 40), **options[i])

    expected = [call(i) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for i, results in zip(list(range(4)) * 5, pool.map(call, list(range(4)) * 5), strict=True):
            assert all(same_bits(a, b) for a, b in zip(results, expected[i], strict=True))


def test_large_results_are_cached(rng, cache):
    arguments = 1, (40, 40, 40)
    first = turnout.get_indice_pairs(sites(rng, 6000, *arguments), *arguments, padding=1)[1]
    where = first.ctypes.data
    del first
    assert cache().idle >= 27 * 2 * 6000 * 4
    indices = np.zeros((6000, 4), np.int32)
    indices[:, 1] = 1
    again = turnout.get_indice_pairs(indices, *arguments, subm=True)[1]
    assert again.ctypes.data == where
    assert (again[13] == [np.arange(6000), np.full(6000, 5999)]).all()
    assert (np.delete(again, 13, axis=0) == -1).all()


# -- arguments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stride", [2, (2, 2), [2, 2], np.int8(2), np.array(2), np.array([2, 2], np.uint16), [np.int64(2), 2]]
)
def test_kinds_of_integers(rng, stride):
    indices = sites(rng, 20, 2, (6, 7))
    expected = check.get_indice_pairs(indices, 2, (6, 7), 3, 2)
    for shape in ((6, 7), [6, 7], np.array([6, 7])):
        results = turnout.get_indice_pairs(indices, np.int64(2), shape, 3, stride)
        assert all(same_bits(a, b) for a, b in zip(results, expected, strict=True))
    assert turnout.indice_pairs_output_shape((6, 7), 3, stride) == (2, 3)


@pytest.mark.parametrize("yes", [True, 1, np.bool_(True)])
def test_kinds_of_flags(yes):
    indices = np.array([[0, 3]], np.int32)
    no = type(yes)(False)
    assert len(turnout.get_indice_pairs(indices, 1, (5,), subm=yes, transpose=no)[0]) == 1
    assert len(turnout.get_indice_pairs(indices, 1, (5,), subm=no, transpose=yes)[0]) == 3


def test_dlpack_and_read_only_inputs(rng):
    indices = sites(rng, 20, 2, (6, 7))
    expected = check.get_indice_pairs(indices, 2, (6, 7))
    indices.flags.writeable = False
    for given_indices in (indices, Producer(indices)):
        results = turnout.get_indice_pairs(given_indices, 2, (6, 7))
        assert all(same_bits(a, b) for a, b in zip(results, expected, strict=True))


@pytest.mark.parametrize(
    ("arguments", "options", "shape"),
    [
        (((41, 1440, 1440), 3, 1, 1), {"subm": True}, (41, 1440, 1440)),
        (((11, 360, 360), 3, 2, (0, 1, 1)), {}, (5, 180, 180)),
        (((7,), 3, 2, 0, 2), {}, (2,)),
        (((7, 9), (-1, 3)), {}, (1, 7)),
        (((5, 180), 3, 2, (0, 1), 1, (0, 1)), {"transpose": True}, (11, 360)),
        (((4, 4), 3, 2, 0, 5), {"transpose": True}, (9, 9)),
    ],
)
def test_output_shape(arguments, options, shape):
    assert turnout.indice_pairs_output_shape(*arguments, **options) == shape
