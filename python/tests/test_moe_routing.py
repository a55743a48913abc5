"""Gradients of dispatch, slots, combine and permutes against their definitions, for NumPy arrays."""

import ml_dtypes
import numpy as np
import pytest
from conftest import dispatch_arguments, same_bits

import turnout
from turnout import check

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
TOLERANCE = {4: 1e-5, 8: 1e-12, 2: 2e-2}


def assert_close(result, expected):
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    tolerance = TOLERANCE[result.dtype.itemsize]
    np.testing.assert_allclose(
        result.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=10 * tolerance
    )


def backward_arguments(rng, choices=None, dtype=np.float32):
    gates, indices, locations, tokens, capacity, experts = dispatch_arguments(
        rng, choices=choices, dtype=dtype
    )
    grad = rng.standard_normal((experts * capacity, tokens.shape[1])).astype(dtype)
    return gates, indices, locations, tokens, grad, capacity, experts


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("choices", [None, 1, 3])
def test_gradients_of_dispatch(rng, dtype, choices):
    gates, indices, locations, tokens, grad, *sizes = backward_arguments(rng, choices, dtype)
    grad_input, grad_gates = turnout.moe_dispatch_backward(gates, indices, locations, tokens, grad, *sizes)
    expected = check.moe_dispatch_backward(gates, indices, locations, tokens, grad, *sizes)
    assert same_bits(grad_input, expected[0])
    assert_close(grad_gates, expected[1])
    assert same_bits(turnout.moe_dispatch_backward_data(gates, indices, locations, grad, *sizes), grad_input)
    assert same_bits(turnout.moe_dispatch_backward_gate(indices, locations, tokens, grad, *sizes), grad_gates)
    assert same_bits(
        turnout.moe_dispatch_backward_data(None, indices, locations, grad, *sizes),
        check.moe_dispatch_backward_data(None, indices, locations, grad, *sizes),
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_float32_gates_have_float32_gradients(rng, dtype):
    gates, indices, locations, tokens, grad, *sizes = backward_arguments(rng, 2, dtype)
    grad_gates = turnout.moe_dispatch_backward(
        gates.astype(np.float32), indices, locations, tokens, grad, *sizes
    )[1]
    assert grad_gates.dtype == np.float32
    out = np.empty(indices.shape, np.float32)
    assert turnout.moe_dispatch_backward_gate(indices, locations, tokens, grad, *sizes, out=out) is out
    assert same_bits(out, grad_gates)


@pytest.mark.parametrize("choices", [None, 1, 3])
@pytest.mark.parametrize("priority", [None, np.float32, np.float64, np.float16])
def test_locations(rng, choices, priority):
    shape = 50 if choices is None else (50, choices)
    indices = rng.integers(-1, 5, shape)
    order = None if priority is None else rng.integers(-3, 4, 50).astype(priority)
    results = turnout.moe_locations(indices, 4, priority=order)
    for result, expected in zip(results, check.moe_locations(indices, 4, priority=order), strict=True):
        assert same_bits(result, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("choices", [None, 1, 3])
@pytest.mark.parametrize("gated", [False, True])
def test_dispatch_and_combine(rng, dtype, choices, gated):
    shape = 23 if choices is None else (23, choices)
    tokens = rng.standard_normal((23, 17)).astype(dtype)
    gates = np.asarray(rng.standard_normal(shape)).astype(dtype) if gated else None
    indices = rng.integers(-1, 5, shape)
    locations = turnout.moe_locations(indices, 4)[0]
    buffers = turnout.moe_dispatch(tokens, indices, locations, 7, 4, gates)
    assert same_bits(buffers, check.moe_dispatch(tokens, indices, locations, 7, 4, gates))
    expected = check.moe_combine(buffers, indices, locations, 7, gates)
    for view in (buffers, buffers.reshape(28, 17)):
        assert same_bits(turnout.moe_combine(view, indices, locations, 7, gates), expected)
    if gated:
        results = turnout.moe_combine_backward(tokens, buffers, indices, locations, gates, 7)
        expected = check.moe_combine_backward(tokens, buffers, indices, locations, gates, 7)
        assert same_bits(results[0], expected[0])
        assert_close(results[1], expected[1])


def test_out_has_either_shape(rng):
    tokens = rng.standard_normal((3, 2))
    indices, locations = np.array([1, 0, 1]), np.array([0, 1, 1])
    expected = turnout.moe_dispatch(tokens, indices, locations, 2, 2)
    for shape in ((2, 2, 2), (4, 2)):
        out = np.full(shape, 7.0)
        assert turnout.moe_dispatch(tokens, indices, locations, 2, 2, out=out) is out
        assert same_bits(out.reshape(2, 2, 2), expected)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("choices", [None, 1, 3])
@pytest.mark.parametrize("kept", [None, 0, 10, 1000, -4, -1000])
def test_permute_and_back(rng, dtype, choices, kept):
    tokens = rng.standard_normal((23, 17)).astype(dtype)
    indices = rng.integers(-2, 5, 23 if choices is None else (23, choices)).astype(np.int32)
    permuted, order = turnout.moe_token_permute(tokens, indices, kept)
    expected = check.moe_token_permute(tokens, indices, kept)
    assert same_bits(permuted, expected[0])
    assert same_bits(order, expected[1])
    probs = np.asarray(rng.standard_normal(indices.shape)).astype(dtype)
    assert same_bits(
        turnout.moe_token_unpermute(permuted, order, probs), check.moe_token_unpermute(permuted, order, probs)
    )
    if choices is None:
        assert same_bits(
            turnout.moe_token_unpermute(permuted, order), check.moe_token_unpermute(permuted, order)
        )


def test_permute_moves_any_dtype(rng):
    tokens = rng.integers(0, 200, (9, 5)).astype(np.uint8)
    assert turnout.moe_token_permute(tokens, np.arange(9)[::-1])[0].tolist() == tokens[::-1].tolist()


@pytest.mark.parametrize("with_probs", [False, True])
def test_sort_chunks(rng, with_probs):
    sizes, order = rng.multinomial(40, [1 / 7] * 7), rng.permutation(7).astype(np.int32)
    rows = rng.standard_normal((40, 3))
    probs = rng.standard_normal(40).astype(np.float32) if with_probs else None
    results = turnout.sort_chunks_by_idxs(rows, sizes, order, probs)
    expected = check.sort_chunks_by_idxs(rows, sizes, order, probs)
    assert same_bits(results[0], expected[0])
    assert same_bits(results[1], expected[1]) if with_probs else results[1] is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: turnout.moe_combine(x, np.zeros(3, int), None, 4),
            "moe_combine: expert_output.shape[0] is 6, expected a multiple of 4 = capacity",
        ),
        (
            lambda x: turnout.moe_combine(x.reshape(3, 2, 2), np.zeros(3, int), None, 3),
            "moe_combine: expert_output.shape[1] is 2, expected 3 = capacity",
        ),
        (
            lambda x: turnout.moe_dispatch(x, np.zeros((2, 6), int), None, 4, 2),
            "moe_dispatch: indices has shape [2, 6], expected [samples, choices?] with samples = 6: its "
            "dimensions are the other way round, transpose it",
        ),
        (
            lambda x: turnout.moe_dispatch_backward_data(None, *[np.zeros((3, 2), int)] * 2, x, 3, -1),
            "moe_dispatch_backward_data: num_experts is -1, expected 0 or more",
        ),
        (
            lambda x: turnout.moe_token_unpermute(x, np.zeros(5, int), np.ones((3, 2))),
            "moe_token_unpermute: probs.shape[0] is 3, expected 5 = ",
        ),
        (lambda x: turnout.moe_token_permute(x, np.zeros(5, int)), "moe_token_permute: "),
        (lambda x: turnout.moe_token_permute(x, np.zeros(6, int), 1.5), "moe_token_permute: num_out_tokens "),
        (
            lambda x: turnout.sort_chunks_by_idxs(x, np.array([1, 4]), np.array([1, 0])),
            "sort_chunks_by_idxs: split_sizes sums to 5, expected the 6 rows of input",
        ),
        (
            lambda x: turnout.moe_locations(x[0], 2),
            "moe_locations: indices has dtype float64, expected int32",
        ),
    ],
)
def test_messages(call, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        call(np.ones((6, 2)))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
