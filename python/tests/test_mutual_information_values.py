"""mutual_information: NaN, infinities, unreachable cells, values at the limits of floats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lattices import MODES, steps

import turnout
from turnout import check

INF, NAN = np.inf, np.nan


def forward(px, py, **options):
    return turnout.mutual_information_forward(px, py, **options)


def backward(px, py, p, ans_grad=(1.0,), **options):
    ans_grad = np.asarray(ans_grad, p.dtype)
    grads = turnout.mutual_information_backward(px, py, p, ans_grad, overwrite_ans_grad=True, **options)
    return *grads, ans_grad


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9), st.integers(0, 20), st.sampled_from([0.02, 0.3]), st.integers(0, 2**32))
def test_any_values(mode, dtype, symbols, frames, share, seed):
    """p is arbitrary, too, not necessarily a forward result."""
    rng = np.random.default_rng(seed)
    px, py = steps(rng, 2, symbols, frames, mode, dtype)
    for x in (px, py):
        odd = rng.random(x.shape) < share
        x[odd] = rng.choice([-INF, INF, NAN, -3e30, -50, 20, 1e-40], x.shape)[odd]
    for actual, expected in zip(forward(px, py), check.mutual_information_forward(px, py), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)

    p = rng.uniform(-2, 0, (2, symbols + 1, frames + 1)).astype(dtype)
    odd = rng.random(p.shape) < share
    p[odd] = rng.choice([-INF, INF, NAN, -3e30, -1e30, -150, 120], p.shape)[odd]
    results = backward(px, py, p, (1, -2))
    expected = check.mutual_information_backward(px, py, p, np.array([1, -2], dtype))
    if max(abs(wanted).max(initial=0) for wanted in expected) > 1e30:
        return  # these gradients overflow float32
    for actual, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9), st.integers(0, 20), st.sampled_from([0.02, 0.3]), st.integers(0, 2**32))
def test_any_values_in_one_pass(mode, dtype, symbols, frames, share, seed):
    """No gradient is NaN or infinite, and all equal the definition."""
    rng = np.random.default_rng(seed)
    px, py = steps(rng, 2, symbols, frames, mode, dtype)
    for x in (px, py):
        odd = rng.random(x.shape) < share
        x[odd] = rng.choice([-INF, INF, NAN, -3e30, -50, 20, 1e-40], x.shape)[odd]
    results = turnout.mutual_information_forward_backward(px, py)
    expected = check.mutual_information_forward_backward(px, py)
    for actual, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-4)


def test_infinite_end():
    """An infinite gradient times a product of weights that underflows float32 is infinite, not NaN."""
    px, py = np.zeros((1, 1, 25), np.float32), np.zeros((1, 2, 24), np.float32)
    py[0, 1] = -20
    p, _ = forward(px, py)
    for end in (INF, -INF):
        px_grad, py_grad, reached = backward(px, py, p, (end,))
        assert (px_grad == end).all()
        assert (py_grad == end).all()
        assert reached.tolist() == [end]


def test_nan_along_the_symbols_stays_and_along_the_frames_is_dropped():
    px, py = np.full((1, 2, 3), -1.0), np.full((1, 3, 2), -1.0)
    symbol = px.copy()
    symbol[0, 0, 1] = NAN
    p, ans = forward(symbol, py)
    assert np.isnan(p[0]).tolist() == [[False] * 3, [False, True, False], [False, True, False]]
    close(p[0, 1, 2], -3)  # only from above: the NaN term from the left is dropped
    blank = py.copy()
    blank[0, 1, 0] = NAN
    p, ans = forward(px, blank)
    assert np.isfinite(p).all()
    close(p[0, 1, 1], -2)
    blank[0, 0, 0] = NAN  # no symbol leads there, so -inf remains
    p, ans = forward(px, blank)
    assert np.isneginf(p[0, 0, 1:]).all()
    assert np.isfinite(ans).all()


def test_plus_infinity_dominates():
    px, py = np.zeros((1, 1, 3)), np.zeros((1, 2, 2))
    px[0, 0, 1] = INF
    p, _ = forward(px, py)
    assert p[0, 1].tolist() == [0, INF, INF]
    px_grad, py_grad, reached = backward(px, py, p)
    assert not px_grad.any()  # the difference is not finite
    assert (py_grad[0, 1, 1], reached[0]) == (0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_only_blanks(rng, mode):
    px, py = steps(rng, 2, 4, 6, mode)
    px[:] = -INF
    p, ans = forward(px, py)
    assert np.isneginf(p[:, 1:]).all()
    close(p[:, 0, 1:], np.cumsum(py[:, 0], axis=1))
    assert np.isneginf(ans).all()
    box = np.array([(0, 0, 0, 6)] * 2)
    p, ans = forward(px, py, boundary=box)
    close(ans, py[:, 0].sum(axis=1))
    px_grad, py_grad, reached = backward(px, py, p, (1, 3), boundary=box)
    assert not px_grad.any()
    close(py_grad[:, 0], [[1] * 6, [3] * 6])
    assert not py_grad[:, 1:].any()
    close(reached, (1, 3))


def test_unreachable_cells_have_no_gradient_when_the_end_is_reached(rng):
    px, py = steps(rng, 1, 6, 9)
    px[0, :, 5:] = -INF  # no symbol after frame 4
    py[0, 2:4, 1] = -INF
    p, ans = forward(px, py)
    assert np.isfinite(ans).all()
    results = backward(px, py, p)
    for actual, expected in zip(
        results, check.mutual_information_backward(px, py, p, np.ones(1)), strict=True
    ):
        close(actual, expected)
    assert not results[0][0, :, 5:].any()
    close(results[2], 1)


def test_gradient_of_an_unreachable_end_is_duplicated():
    """Both steps into an unreachable cell from unreachable cells have weight 1, as on the devices."""
    px, py = np.full((1, 1, 3), -1.0, np.float32), np.full((1, 2, 2), -1.0, np.float32)
    p = np.full((1, 2, 3), -INF, np.float32)
    p[0, 0, 0] = 0
    px_grad, py_grad, reached = backward(px, py, p)
    assert px_grad.tolist() == [[[0, 1, 1]]]  # the start is reachable: exp(1e30) is infinite, so 0
    assert py_grad.tolist() == [[[0, 1], [1, 1]]]
    assert reached.tolist() == [0]


def test_clamp(rng):
    """All values below -1e30 are equal, and adding a step does not change them."""
    px, py = np.full((1, 1, 2), -5.0, np.float32), np.full((1, 2, 1), -5.0, np.float32)
    grads = [
        backward(px, py, np.full((1, 2, 2), lowest, np.float32)) for lowest in (-INF, -3e38, -2e30, -1e30)
    ]
    for results in grads:
        assert [x.tolist() for x in results] == [[[[1, 1]]], [[[1], [1]]], [2]]
    px[:] = -INF
    assert backward(px, py, np.full((1, 2, 2), -INF, np.float32))[0].tolist() == [[[0, 0]]]


def test_exp_overflows_to_zero():
    px, py = np.full((1, 1, 1), 95, np.float32), np.zeros((1, 2, 0), np.float32)
    p = np.zeros((1, 2, 1), np.float32)
    assert backward(px, py, p)[0].tolist() == [[[0]]]
    wide = backward(px.astype(np.float64), py.astype(np.float64), p.astype(np.float64))
    close(wide[0] / np.exp(95.0), 1)


def test_nan_in_p_is_a_term_of_zero(rng):
    px, py = steps(rng, 1, 3, 4)
    p, _ = forward(px, py)
    p[0, 2, 2] = NAN
    px_grad, py_grad, _ = backward(px, py, p)
    assert (px_grad[0, 2, 2], px_grad[0, 1, 2], py_grad[0, 2, 2], py_grad[0, 2, 1]) == (0, 0, 0, 0)
    assert np.isfinite(px_grad).all()
    assert np.isfinite(py_grad).all()


def test_ans_grad_is_multiplied_plainly(rng):
    px, py = steps(rng, 3, 2, 3)
    px[:, 0, 0] = -INF
    p, _ = forward(px, py)
    px_grad, py_grad, _ = backward(px, py, p, (NAN, INF, 0))
    assert np.isnan(px_grad[0]).all()
    assert np.isnan(px_grad[1, 0, 0])  # inf * 0
    assert px_grad[1, 1, 3] == INF
    assert not (px_grad[2].any() or py_grad[2].any())


def test_tiny_weights(rng):
    """Steps so unlikely that their gradients are subnormal or underflow to 0."""
    px, py = steps(rng, 2, 20, 40)
    px[:, :, ::2] -= 80
    py[:, ::3] -= 60
    p, _ = forward(px, py)
    results = backward(px, py, p, (1, 1))
    for actual, expected in zip(
        results, check.mutual_information_backward(px, py, p, np.ones(2)), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-30)


@pytest.mark.parametrize("mode", MODES)
def test_modified_starts_in_the_first_row(rng, mode):
    px, py = steps(rng, 1, 3, 5, mode)
    p, _ = forward(px, py, boundary=np.array([(1, 2, 3, 5)]))
    assert np.isneginf(p[0, 2:, 2]).all() == (mode == "modified")


def test_more_symbols_than_frames(rng):
    """In modified lattices each symbol takes a frame, so there is no path."""
    px, py = steps(rng, 1, 5, 3, "modified")
    p, ans = forward(px, py)
    assert np.isneginf(ans).all()
    for actual, expected in zip(
        backward(px, py, p), check.mutual_information_backward(px, py, p, np.ones(1)), strict=True
    ):
        close(actual, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_overwritten_only_when_asked(rng, dtype):
    px, py = steps(rng, 3, 4, 5, dtype=dtype)
    box = np.array([(0, 0, 4, 5), (3, 3, 3, 3), (2, 0, 1, 5)])
    p, ans = forward(px, py, boundary=box)
    assert ans[1:].tolist() == [0, 0]
    ans_grad = np.float32([7, 1.1, 1.3])
    ans_grad[1:].view(np.uint32)[:] = 0x7FC01234, 0x7FC05678  # a NaN of these bits
    before = ans_grad.tobytes()
    turnout.mutual_information_backward(px, py, p, ans_grad, boundary=box)
    assert ans_grad.tobytes() == before
    turnout.mutual_information_backward(px, py, p, ans_grad, boundary=box, overwrite_ans_grad=True)
    close(ans_grad[0], 7)
    assert ans_grad.view(np.uint32)[2] == 0x7FC05678  # an empty lattice does not change it
    assert np.isnan(ans_grad[1])
