"""mutual_information_forward, _backward and _forward_backward against their definitions, for NumPy arrays."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from conftest import in_forked_child, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from lattices import MODES, backward64, boundaries, diff1, forward64, prune, steps
from test_moe_dispatch import Producer

import turnout
from turnout import check

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def lattice_dtype(dtype):
    return np.float64 if dtype == np.float64 else np.float32


def precision(dtype):
    """Returns the precision of a gradient that is rounded to this dtype."""
    return max(float(ml_dtypes.finfo(dtype).eps), 1e-5 if dtype != np.float64 else 1e-12)


def rounded(values, dtype):
    """Rounds like gradients. Those of an unreachable end double at each step and overflow float16."""
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def assert_like_definition(px, py, boundary=None):
    """Checks all three functions: gradients for the same p, and end to end from px and py."""
    dtype, wide = px.dtype, lattice_dtype(px.dtype)
    options = {} if boundary is None else {"boundary": boundary}
    exact = 1e-12 if wide == np.float64 else 1e-5
    p, ans = turnout.mutual_information_forward(px, py, **options)
    expected_p, expected_ans = check.mutual_information_forward(px, py, **options)
    assert (p.dtype, ans.dtype) == (wide, wide)
    assert diff1(p, expected_p) <= exact
    assert diff1(ans, expected_ans) <= exact

    ans_grad = np.linspace(1, -2, len(px)).astype(wide)
    before = ans_grad.tobytes()
    grads = turnout.mutual_information_backward(px, py, p, ans_grad, **options)
    assert ans_grad.tobytes() == before
    expected = check.mutual_information_backward(px, py, p, ans_grad, **options)
    for actual, wanted, like in zip(grads, expected, (px, py), strict=False):
        assert (actual.dtype, actual.shape) == (dtype, like.shape)
        assert diff1(actual, rounded(wanted, dtype)) <= precision(dtype)

    again = turnout.mutual_information_backward(px, py, p, ans_grad, overwrite_ans_grad=True, **options)
    assert all(same_bits(a, b) for a, b in zip(again, grads, strict=True))
    np.testing.assert_allclose(ans_grad, expected[2], rtol=1e-4, atol=1e-6)

    fused_ans, *fused = turnout.mutual_information_forward_backward(px, py, **options)
    assert diff1(fused_ans, expected_ans) <= exact
    _, *wanted = check.mutual_information_forward_backward(px, py, **options)
    for actual, grad in zip(fused, wanted, strict=True):
        assert actual.dtype == dtype
        assert diff1(actual, rounded(grad, dtype)) <= max(precision(dtype), 10 * exact)


# -- results -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_worked_example(dtype):
    px, py = np.array([[[-1, -2]]], dtype), np.array([[[-0.5], [-0.25]]], dtype)
    p, ans = turnout.mutual_information_forward(px, py)
    np.testing.assert_allclose(p, [[[0, -0.5], [-1, -0.998071]]], atol=1e-6)
    assert ans[0] == p[0, 1, 1]
    ans_grad = np.ones(1, dtype)
    px_grad, py_grad = turnout.mutual_information_backward(px, py, p, ans_grad, overwrite_ans_grad=True)
    np.testing.assert_allclose(px_grad, [[[0.777300, 0.222700]]], atol=1e-6)
    np.testing.assert_allclose(py_grad, [[[0.222700], [0.777300]]], atol=1e-6)
    np.testing.assert_allclose(ans_grad, 1, atol=1e-6)
    fused = turnout.mutual_information_forward_backward(px, py)
    for actual, expected in zip(fused, (ans, px_grad, py_grad), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("with_boundary", [False, True])
def test_definition(rng, mode, dtype, with_boundary):
    px, py = steps(rng, 7, 13, 21, mode, dtype)
    assert_like_definition(px, py, boundaries(rng, 7, 13, 21) if with_boundary else None)


@settings(max_examples=80, deadline=None)
@given(
    st.tuples(st.integers(0, 4), st.integers(0, 20), st.integers(0, 20)),
    st.sampled_from([*MODES]),
    st.sampled_from(DTYPES),
    st.sampled_from([0.0, 0.1, 0.6, 1.0]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_any_shape(shape, mode, dtype, blocked, with_boundary, seed):
    rng = np.random.default_rng(seed)
    px, py = steps(rng, *shape, mode, dtype)
    for x in (px, py):
        x[rng.random(x.shape) < blocked] = -np.inf
    assert_like_definition(px, py, boundaries(rng, *shape) if with_boundary else None)


@pytest.mark.parametrize(
    ("shape", "boundary"),
    [
        ((4, 15, 104), None),
        ((1, 179, 180), [(2, 3, 179, 180)]),
        ((1, 178, 179), [(1, 2, 120, 130)]),
        ((2, 380, 380), [(5, 2, 380, 380), (5, 2, 3, 1)]),
        ((2, 300, 7), None),
        ((2, 3, 400), None),
    ],
)
def test_named_scales(rng, shape, boundary):
    px, py = steps(rng, *shape, low=-1.5)
    box = None if boundary is None else np.array(boundary)
    if box is None:
        p, ans = turnout.mutual_information_forward(px, py)
        assert diff1(p, forward64(px, py)) <= 1e-5
        grads = turnout.mutual_information_backward(px, py, p, np.ones_like(ans))
        for actual, expected in zip(grads, backward64(px, py, p, 1), strict=True):
            assert diff1(actual, expected) <= 1e-5
        return
    # A boundary is a smaller lattice, so cut it out for the definition.
    s, t, s_end, t_end = boundary[0]
    p, ans = turnout.mutual_information_forward(px, py, boundary=box)
    parts = px[:1, s:s_end, t : t_end + 1], py[:1, s : s_end + 1, t:t_end]
    inside = p[:1, s : s_end + 1, t : t_end + 1].copy()
    assert diff1(inside, forward64(*parts)) <= 1e-5
    assert ans[0] == p[0, s_end, t_end]
    ans_grad = np.full(shape[0], 2, np.float32)
    grads = turnout.mutual_information_backward(px, py, p, ans_grad, boundary=box, overwrite_ans_grad=True)
    for actual, expected, like in zip(grads, backward64(*parts, inside, 2), (px, py), strict=True):
        whole = np.zeros(like.shape)
        whole[:1, s : s + expected.shape[1], t : t + expected.shape[2]] = expected
        assert diff1(actual, whole) <= 1e-5
    np.testing.assert_allclose(ans_grad[0], 2, rtol=1e-4)
    if len(boundary) > 1:  # begin is greater than end: an empty lattice
        assert (ans[1], ans_grad[1]) == (0, 2)
        assert np.isneginf(p[1]).all()


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 5), (2, 5, 0), (2, 0, 0), (3, 1, 1)])
@pytest.mark.parametrize("mode", MODES)
def test_empty_and_least_shapes(rng, shape, mode):
    assert_like_definition(*steps(rng, *shape, mode))
    assert_like_definition(*steps(rng, *shape, mode), boundaries(rng, *shape))


def test_boundary_is_a_smaller_lattice(rng):
    px, py = steps(rng, 1, 12, 17)
    box = np.array([(2, 3, 9, 15)])
    _, *grads = turnout.mutual_information_forward_backward(px, py, boundary=box)
    _, *parts = turnout.mutual_information_forward_backward(px[:, 2:9, 3:16].copy(), py[:, 2:10, 3:15].copy())
    for whole, part in zip(grads, parts, strict=True):
        s, t = 2 + part.shape[1], 3 + part.shape[2]
        np.testing.assert_allclose(whole[:, 2:s, 3:t], part, rtol=1e-5, atol=1e-7)
        whole[:, 2:s, 3:t] = 0
        assert not whole.any()


# -- precision ---------------------------------------------------------------------------------------------


def banded(rng, shape, mode, low, band):
    """Draws px and py above `low`, -inf outside a band of symbols; adds py to px if constrained."""
    px, py = steps(rng, *shape, "regular" if mode == "regular" else "modified", low=low)
    if band is not None:
        prune(px, py, band)
    if mode == "constrained":
        px += py[:, 1:]
    return px, py


@pytest.mark.parametrize(
    ("shape", "mode", "low", "band"),
    [
        ((3, 50, 500), "regular", -2, None),
        ((3, 50, 500), "constrained", -8, None),
        ((2, 100, 800), "regular", -8, 5),
        ((2, 100, 800), "modified", -3, 5),
        ((2, 100, 800), "constrained", -3, 5),
        ((2, 200, 1500), "modified", -2, 20),
        ((1, 200, 1500), "regular", -2, None),
        ((1, 500, 3500), "regular", -2, 60),
        ((1, 3900, 100), "regular", -2, None),
        ((1, 600, 100), "regular", -6, 30),
    ],
)
def test_long_lattices(rng, shape, mode, low, band):
    """Checks both criteria: gradients for the same p, and everything end to end from px and py."""
    px, py = banded(rng, shape, mode, low, band)
    p, ans = turnout.mutual_information_forward(px, py)
    expected_p = forward64(px, py)
    assert np.isfinite(ans).all()
    assert diff1(p, expected_p) <= 1e-5
    assert diff1(ans, expected_p[:, -1, -1]) <= 1e-5
    ans_grad = np.ones(len(px), np.float32)
    grads = turnout.mutual_information_backward(px, py, p, ans_grad)
    fused_ans, *fused = turnout.mutual_information_forward_backward(px, py)
    assert diff1(fused_ans, expected_p[:, -1, -1]) <= 1e-5
    same_p, end_to_end = backward64(px, py, p, 1), backward64(px, py, expected_p, 1)
    for i in range(2):
        assert diff1(grads[i], same_p[i]) <= 1e-5
        assert diff1(grads[i], end_to_end[i]) <= (1e-4 if band is None else 1e-3)
        assert diff1(fused[i], end_to_end[i]) <= 1e-4


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_no_path(rng, share):
    """The gradients of a score of -inf are 0, whatever else is in the batch."""
    px, py = steps(rng, 2, 100, 50, "modified")  # each symbol takes a frame
    px[rng.random(px.shape) < share] = -np.inf
    box = np.array([(0, 0, 100, 50), (0, 0, 20, 50)])
    ans, px_grad, py_grad = turnout.mutual_information_forward_backward(px, py, boundary=box)
    assert np.isneginf(ans[0])
    assert not px_grad[0].any()
    assert not py_grad[0].any()
    assert np.isfinite(ans[1])
    np.testing.assert_allclose(px_grad[1].sum(), 20, rtol=1e-5)


def test_ans_grad_flows_to_the_start(rng):
    """The gradient at the start equals that at the end: no path is lost or counted twice."""
    px, py = steps(rng, 4, 30, 90)
    p, _ = turnout.mutual_information_forward(px, py)
    ans_grad = np.float32([1, -2, 0, 3e5])
    turnout.mutual_information_backward(px, py, p, ans_grad, overwrite_ans_grad=True)
    np.testing.assert_allclose(ans_grad, [1, -2, 0, 3e5], rtol=1e-4)


# -- threads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 60, 300), (1, 200, 700)])
@pytest.mark.parametrize("mode", MODES)
def test_same_bits(rng, threads, shape, mode):
    px, py = steps(rng, *shape, mode)
    prune(px, py, 40)
    box = boundaries(rng, *shape)
    box[0] = 0, 0, *shape[1:]

    def results():
        p, ans = turnout.mutual_information_forward(px, py, boundary=box)
        grads = turnout.mutual_information_backward(px, py, p, ans, boundary=box)
        return p, ans, *grads, *turnout.mutual_information_forward_backward(px, py, boundary=box)

    threads(1)
    expected = results()
    for count in (2, 3, 5):
        threads(count)
        for actual, wanted in zip(results(), expected, strict=True):
            assert same_bits(actual, wanted)


def test_after_fork(rng, threads):
    threads(2)
    arguments = steps(rng, 8, 60, 300)
    expected = turnout.mutual_information_forward(*arguments)  # starts the pool before the fork
    actual = in_forked_child(turnout.mutual_information_forward, *arguments)
    assert all(same_bits(a, b) for a, b in zip(actual, expected, strict=True))


# -- arrays ------------------------------------------------------------------------------------------------


def test_out(rng):
    px, py = steps(rng, 3, 5, 7)
    box = boundaries(rng, 3, 5, 7)
    box[0] = 1, 2, 4, 6
    p, ans = np.full((3, 6, 8), 77, np.float32), np.full(3, 77, np.float32)
    results = turnout.mutual_information_forward(px, py, boundary=box, out=(p, ans))
    assert results[0] is p
    assert results[1] is ans
    fresh, fresh_ans = turnout.mutual_information_forward(px, py, boundary=box)
    assert same_bits(ans, fresh_ans)
    inside = np.zeros(p.shape, bool)
    for b, (s, t, s_end, t_end) in enumerate(box):
        inside[b, s : s_end + 1, t : t_end + 1] = True
    assert (p[~inside] == 77).all()
    assert np.isneginf(fresh[~inside]).all()
    assert same_bits(p[inside], fresh[inside])

    ans_grad = np.ones(3, np.float32)
    grads = turnout.mutual_information_backward(px, py, p, ans_grad, boundary=box)
    out = np.full_like(px, 77), np.full_like(py, 77)
    for used in ((out[0], None), (None, out[1]), out):
        again = turnout.mutual_information_backward(px, py, p, ans_grad, boundary=box, out=used)
        for actual, wanted, o in zip(again, grads, used, strict=True):
            assert o is None or actual is o
            assert same_bits(actual, wanted)

    fused = turnout.mutual_information_forward_backward(px, py, boundary=box)
    out = (ans, *out)
    again = turnout.mutual_information_forward_backward(px, py, boundary=box, out=out)
    assert all(a is o and same_bits(a, b) for a, o, b in zip(again, out, fused, strict=True))


def test_read_only_inputs(rng):
    px, py = steps(rng, 2, 5, 7)
    p, ans = turnout.mutual_information_forward(px, py)
    ans_grad, box = np.ones_like(ans), np.array([(0, 0, 5, 7)] * 2)
    expected = turnout.mutual_information_backward(px, py, p, ans_grad)
    for array in (px, py, p, ans_grad, box):
        array.flags.writeable = False
    for arrays in ((px, py, p, ans_grad), tuple(map(Producer, (px, py, p, ans_grad)))):
        results = turnout.mutual_information_backward(*arrays, boundary=box)
        assert all(same_bits(a, b) for a, b in zip(results, expected, strict=True))


def test_input_is_not_changed(rng):
    px, py = steps(rng, 2, 9, 33)
    before = px.tobytes(), py.tobytes()
    p, ans = turnout.mutual_information_forward(px, py)
    kept = p.tobytes()
    turnout.mutual_information_backward(px, py, p, ans, overwrite_ans_grad=True)
    turnout.mutual_information_forward_backward(px, py)
    assert (px.tobytes(), py.tobytes(), p.tobytes()) == (*before, kept)


def test_boundary_changed_by_another_thread():
    """Whatever a boundary contains during a call, the call succeeds or is rejected."""
    script = """
import threading, time
import numpy as np, turnout

rng = np.random.default_rng(1)
px, py = (rng.uniform(-3, 0, shape).astype(np.float32) for shape in ((2, 120, 151), (2, 121, 150)))
box = np.array([(0, 0, 120, 150)] * 2)
done = False

def change():
    while not done:
        i = rng.integers(0, 8)
        before = box.flat[i]
        box.flat[i] = 2**33 if i % 3 else -(2**33)
        box.flat[i] = before

thread = threading.Thread(target=change)
thread.start()
until = time.monotonic() + 1
p, ans = np.zeros((2, 121, 151), np.float32), np.ones(2, np.float32)
while time.monotonic() < until:
    for call in (
        lambda: turnout.mutual_information_forward(px, py, boundary=box),
        lambda: turnout.mutual_information_backward(px, py, p, ans, boundary=box),
        lambda: turnout.mutual_information_forward_backward(px, py, boundary=box),
    ):
        try:
            call()
        except ValueError as error:
            assert "boundary[" in str(error), error
done = True
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
