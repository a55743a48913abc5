"""The definitions of MoE dispatch, and checks against them."""

from __future__ import annotations

import numpy as np

import turnout
from turnout.check.lanes import wide_type

__all__ = [
    "moe_dispatch_backward",
    "moe_dispatch_backward_data",
    "moe_dispatch_backward_gate",
    "moe_dispatch_forward",
]


def moe_dispatch_forward(gates, indices, locations, input, capacity, num_experts, *, out=None):
    """The definition of ``turnout.moe_dispatch_forward``."""
    dispatch = out
    if dispatch is None:
        dispatch = np.zeros((num_experts * capacity, input.shape[1]), input.dtype)
    wide = wide_type(input.dtype)
    routing = (np.atleast_2d(a) for a in (gates, indices, locations))  # [choices, samples]
    with np.errstate(all="ignore"):
        for gate_row, index_row, location_row in zip(*routing, strict=True):
            for i in range(input.shape[0]):
                expert, slot = int(index_row[i]), int(location_row[i])
                if 0 <= expert < num_experts and 0 <= slot < capacity:
                    product = gate_row[i].astype(wide) * input[i].astype(wide)
                    dispatch[expert * capacity + slot] = product.astype(input.dtype)
    return dispatch


def weighted_sums(routed, rows, gates, dtype):
    """``sum over k of gates[i, k] * routed[rows[i, k]]``, where a row out of range adds +0."""
    wide = wide_type(dtype)
    samples, choices = rows.shape
    tokens = np.zeros((samples, routed.shape[1]), dtype)
    with np.errstate(all="ignore"):
        for i in range(samples):
            terms = []
            for k in range(choices):
                term = np.zeros(routed.shape[1], wide)
                if 0 <= rows[i, k] < len(routed):
                    term = routed[rows[i, k]].astype(wide)
                    if gates is not None:
                        term = gates[i, k].astype(wide) * term
                terms.append(term)
            if terms:
                total = terms[0]
                for term in terms[1:]:
                    total = total + term
                tokens[i] = total.astype(dtype)
    return tokens


def dot_products(tokens, routed, rows):
    """``<tokens[i], routed[rows[i, k]]>`` in float64."""
    products = np.zeros(rows.shape)
    for i, k in np.ndindex(rows.shape):
        if 0 <= rows[i, k] < len(routed):
            products[i, k] = tokens[i].astype(np.float64) @ routed[rows[i, k]].astype(np.float64)
    return products


def rows_of(indices, locations, capacity, num_experts):
    """The row of each choice, or -1; without locations all locations are 0."""
    indices = np.asarray(indices, np.int64)
    slots = np.zeros_like(indices) if locations is None else np.asarray(locations, np.int64)
    valid = (indices >= 0) & (indices < num_experts) & (slots >= 0) & (slots < capacity)
    return np.where(valid, np.where(valid, indices, 0) * capacity + slots, -1)


def moe_dispatch_backward_data(gates, indices, locations, dispatch, capacity, num_experts):
    """The definition of ``turnout.moe_dispatch_backward_data``."""
    rows = np.atleast_2d(rows_of(indices, locations, capacity, num_experts)).T
    weights = None if gates is None else np.atleast_2d(gates).T
    return weighted_sums(dispatch, rows, weights, dispatch.dtype)


def moe_dispatch_backward_gate(indices, locations, input, dispatch, capacity, num_experts):
    """The definition of ``turnout.moe_dispatch_backward_gate``."""
    rows = np.atleast_2d(rows_of(indices, locations, capacity, num_experts)).T
    return dot_products(input, dispatch, rows).T.reshape(np.shape(indices)).astype(input.dtype)


def moe_dispatch_backward(gates, indices, locations, input, dispatch, capacity, num_experts):
    """The definition of ``turnout.moe_dispatch_backward``."""
    routing = (indices, locations)
    return (
        moe_dispatch_backward_data(gates, *routing, dispatch, capacity, num_experts),
        moe_dispatch_backward_gate(*routing, input, dispatch, capacity, num_experts).astype(gates.dtype),
    )


def _check_moe_dispatch_forward(rng: np.random.Generator) -> None:
    choices, samples, hidden, capacity, num_experts = 2, 37, 19, 5, 3
    arguments = (
        rng.standard_normal((choices, samples)).astype(np.float32),
        rng.integers(-1, num_experts + 1, (choices, samples)),
        rng.integers(-1, capacity + 1, (choices, samples)),
        rng.standard_normal((samples, hidden)).astype(np.float32),
        capacity,
        num_experts,
    )
    np.testing.assert_array_equal(turnout.moe_dispatch_forward(*arguments), moe_dispatch_forward(*arguments))


def _check_moe_dispatch_backward(rng: np.random.Generator) -> None:
    choices, samples, hidden, capacity, num_experts = 2, 37, 19, 5, 3
    gates = rng.standard_normal((choices, samples)).astype(np.float32)
    indices = rng.integers(-1, num_experts + 1, (choices, samples))
    locations = rng.integers(-1, capacity + 1, (choices, samples))
    input = rng.standard_normal((samples, hidden)).astype(np.float32)
    dispatch = rng.standard_normal((num_experts * capacity, hidden)).astype(np.float32)
    rest = (dispatch, capacity, num_experts)
    grad_input, grad_gates = turnout.moe_dispatch_backward(gates, indices, locations, input, *rest)
    expected_input, expected_gates = moe_dispatch_backward(gates, indices, locations, input, *rest)
    np.testing.assert_array_equal(grad_input, expected_input)
    np.testing.assert_allclose(grad_gates, expected_gates, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(
        turnout.moe_dispatch_backward_data(gates, indices, locations, *rest), expected_input
    )
    np.testing.assert_array_equal(
        turnout.moe_dispatch_backward_gate(indices, locations, input, *rest), grad_gates
    )


CHECKS = {
    "moe_dispatch_forward": _check_moe_dispatch_forward,
    "moe_dispatch_backward": _check_moe_dispatch_backward,
    "moe_dispatch_backward_data": _check_moe_dispatch_backward,
    "moe_dispatch_backward_gate": _check_moe_dispatch_backward,
}
