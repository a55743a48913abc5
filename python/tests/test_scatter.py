"""scatter_sum, scatter_mean, scatter_max and their gradients on NumPy arrays."""

import numpy as np
import pytest
from conftest import same_bits
from scans import SPECIAL, features, same_values

import turnout
from turnout import check

NAMES = ["scatter_sum", "scatter_mean", "scatter_max"]
FLOATS = [np.float32, np.float64, np.float16]


def both(name, *arguments):
    results = [getattr(module, name)(*arguments) for module in (turnout, check)]
    return [result if isinstance(result, tuple) else (result,) for result in results]


def assert_same(name, *arguments):
    for actual, expected in zip(*both(name, *arguments), strict=True):
        assert same_values(actual, expected)


def case(rng, rows=60, channels=19, groups=12, dtype=np.float32, index=np.int64, special=False):
    src = features(rng, rows, channels, dtype, special)
    return src, rng.integers(0, groups, rows).astype(index)


def test_worked_example():
    src, index = np.array([[1.0, 5], [2, 5], [3, 4], [4, 6]], np.float32), np.array([2, 0, 2, 0])
    assert turnout.scatter_sum(src, index).tolist() == [[6, 11], [0, 0], [4, 9]]
    assert turnout.scatter_mean(src, index).tolist() == [[3, 5.5], [0, 0], [2, 4.5]]
    out, argmax = turnout.scatter_max(src, index)
    assert out.tolist() == [[4, 6], [0, 0], [3, 5]]
    assert argmax.tolist() == [[3, 3], [4, 4], [2, 0]]
    grad = np.array([[10, 20], [30, 40], [50, 60]], np.float32)
    assert turnout.scatter_sum_backward(grad, index).tolist() == [[50, 60], [10, 20], [50, 60], [10, 20]]
    assert turnout.scatter_mean_backward(grad, index).tolist() == [[25, 30], [5, 10], [25, 30], [5, 10]]
    assert turnout.scatter_max_backward(grad, index, argmax).tolist() == [[0, 60], [0, 0], [50, 0], [10, 20]]


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", NAMES)
def test_definition(rng, name, dtype, index):
    for special in (False, True):
        src, groups = case(rng, dtype=dtype, index=index, special=special)
        assert_same(name, src, groups)
        assert_same(name, src, np.sort(groups), 0, 20)
    results = turnout.scatter_max(src, groups)
    assert (results[0].dtype, results[1].dtype) == (dtype, np.int64)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers(rng, dtype):
    src = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (40, 7)).astype(dtype)
    index = rng.integers(0, 5, 40)
    assert_same("scatter_sum", src, index)
    assert_same("scatter_max", src, index, 0, 9)
    with pytest.raises(ValueError, match="scatter_mean: src has dtype i"):
        turnout.scatter_mean(src, index)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("shape", "dim"), [((7,), 0), ((7,), -1), ((3, 7), 1), ((7, 2, 3), 0), ((2, 7, 3), -2)]
)
def test_dimensions(rng, name, shape, dim):
    src = rng.standard_normal(shape).astype(np.float32)
    assert_same(name, src, np.array([4, 0, 4, 2, 0, 4, 4]), dim)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(5, 3), (5,), (5, 2, 3)])
def test_gradients(rng, dtype, shape):
    index = rng.integers(0, 5, 40)
    grad = rng.standard_normal(shape).astype(dtype)
    src = rng.standard_normal((40, *shape[1:])).astype(dtype)
    assert_same("scatter_sum_backward", grad, index)
    assert_same("scatter_mean_backward", grad, index)
    assert_same("scatter_max_backward", grad, index, turnout.scatter_max(src, index, 0, 5)[1])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_threads(rng, threads, count):
    src, index = case(rng, rows=30_000, channels=20, groups=4000)
    threads(1)
    expected = [getattr(turnout, name)(src, index) for name in NAMES]
    threads(count)
    for name, wanted in zip(NAMES, expected, strict=True):
        results = getattr(turnout, name)(src, index)
        if name == "scatter_max":
            assert all(same_bits(a, b) for a, b in zip(results, wanted, strict=True))
        else:
            assert same_bits(results, wanted)


def test_rows_below_the_start_of_a_maximum():
    """As in torch_scatter, a maximum starts at the lowest finite number."""
    least = np.finfo(np.float32).min
    src = np.array([np.nan, -np.inf, least, -1, np.nan], np.float32)
    out, argmax = turnout.scatter_max(src, np.array([0, 1, 2, 3, 3]), dim_size=5)
    assert out.tolist() == [0, 0, 0, -1, 0]
    assert argmax.tolist() == [5, 5, 5, 3, 5]
    assert np.isnan(turnout.scatter_sum(np.array(SPECIAL, np.float32), np.zeros(8, int))[0])


@pytest.mark.parametrize("name", NAMES)
def test_no_rows(name):
    src, index = np.zeros((0, 3), np.float32), np.zeros(0, np.int64)
    for dim_size, rows in ((None, 0), (2, 2)):
        results = getattr(turnout, name)(src, index, 0, dim_size)
        for result in results if name == "scatter_max" else (results,):
            assert result.shape == (rows, 3)
            assert not result.any()


def test_out(rng):
    src, index = case(rng)
    for name in ("scatter_sum", "scatter_mean"):
        out = np.full((14, 19), 7, np.float32)
        assert getattr(turnout, name)(src, index, out=out) is out
        assert same_values(out, getattr(check, name)(src, index, 0, 14))
    expected = check.scatter_max(src, index, 0, 14)
    for given in ((0, 1), (0,), (1,)):
        out = tuple(
            np.full((14, 19), 7, dtype) if i in given else None
            for i, dtype in enumerate((np.float32, np.int32))
        )
        results = turnout.scatter_max(src, index, out=out)
        assert all(results[i] is out[i] for i in given)
        assert all(np.array_equal(a, b) for a, b in zip(results, expected, strict=True))
    for name in ("scatter_max", "scatter_min"):
        wanted = getattr(turnout, name)(src, index, 0, 14)[0]
        out = np.full((14, 19), 7, np.float32)
        assert getattr(turnout, name)(src, index, return_arg=False, out=out) is out
        assert same_bits(out, wanted)
        moved = getattr(turnout, name)(src.T.copy(), index, 1, 14, return_arg=False)
        assert same_bits(moved, wanted.T)
    grad = np.full((60, 19), 7, np.float32)
    assert turnout.scatter_sum_backward(expected[0], index, out=grad) is grad
    assert same_bits(grad, expected[0][index])


@pytest.mark.parametrize("value", [-1, 12, 2**40])
def test_an_index_outside(rng, value):
    src, index = case(rng)
    index[[20, 30]] = value
    for name in NAMES:
        out = np.full((12, 19), 7, np.float32)
        to = (out, None) if name == "scatter_max" else out
        with pytest.raises(ValueError) as caught:
            getattr(turnout, name)(src, index, out=to)
        assert str(caught.value) == f"{name}: index[20] is {value}, expected 0 .. 11"
        assert (out == 7).all()
        if value != 12:
            with pytest.raises(
                ValueError, match=rf"^{name}: index\[20\] is {value}, expected 0 \.\. 2147483646"
            ):
                getattr(turnout, name)(src, index)


@pytest.mark.parametrize("name", NAMES)
def test_messages(rng, name):
    src, index = case(rng)
    function = getattr(turnout, name)
    for arguments, kind, message in (
        ((src, index, 2), ValueError, "dim is 2, expected -2 .. 1"),
        ((src, index, 1.0), TypeError, "dim is of type float, expected an integer"),
        ((src, index, 0, -1), ValueError, "dim_size is -1, expected 0 or more"),
        ((src, index, 0, 1.5), TypeError, "dim_size is of type float, expected an integer"),
        ((src, index[:9], 0), ValueError, "index.shape[0] is 9, expected 60 = src.shape[0]"),
        ((src, index[:, None]), ValueError, "index has 2 dimensions, expected"),
        ((src, index.astype(np.float32)), ValueError, "index has dtype float32, expected int32, int64"),
        ((np.float32(3), index), ValueError, "src has 0 dimensions"),
        ((src.astype(np.complex64), index), ValueError, "src has dtype"),
    ):
        with pytest.raises(kind) as caught:
            function(*arguments)
        assert str(caught.value).startswith(f"{name}: {message}")


def test_messages_of_out(rng):
    src, index = case(rng)
    for out, dim, dim_size, message in (
        (np.zeros((12, 18), np.float32), 0, None, "out.shape[1] is 18, expected 19 = src.shape[1]"),
        (np.zeros((12, 19), np.float64), 0, None, "out has dtype float64, expected that of src"),
        (np.zeros((12, 19), np.float32), 0, 13, "out.shape[0] is 12, expected 13 = dim_size"),
        (np.zeros((24, 19), np.float32)[::2], 0, None, "out is strided, expected contiguous"),
        (np.zeros((12, 19), np.float32), 1, None, "out is given with dim = 1, expected dim = 0 with it"),
    ):
        with pytest.raises(ValueError) as caught:
            turnout.scatter_sum(src, index, dim, dim_size, out=out)
        assert str(caught.value).startswith(f"scatter_sum: {message}")


def test_many_dimensions(rng):
    src = np.zeros((2,) + (1,) * 10, np.float32)
    with pytest.raises(ValueError, match="scatter_sum: src has 11 dimensions, expected"):
        turnout.scatter_sum(src, np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="scatter_sum: src has 11 dimensions, expected"):
        turnout.scatter_sum(src, np.zeros(2, np.int64), out=src)
