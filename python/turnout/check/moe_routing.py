"""The definitions of slots, dispatch and combine, and checks against them."""

from __future__ import annotations

import numpy as np

import turnout
from turnout.check.lanes import wide_type
from turnout.check.moe_dispatch import dot_products, rows_of, weighted_sums

__all__ = ["moe_combine", "moe_combine_backward", "moe_dispatch", "moe_locations"]


def _with_choices(array):
    return None if array is None else np.asarray(array).reshape(len(array), -1)


def moe_locations(indices, num_experts, *, priority=None):
    """The definition of ``turnout.moe_locations``."""
    experts = _with_choices(indices)
    locations = np.full(experts.shape, -1, np.int32)
    counts = np.zeros(num_experts, np.int64)
    order = range(len(experts))
    if priority is not None:
        order = np.argsort(-np.asarray(priority, np.float64), kind="stable")
    for k in range(experts.shape[1]):
        for i in order:
            expert = experts[i, k]
            if 0 <= expert < num_experts:
                locations[i, k] = counts[expert]
                counts[expert] += 1
    return locations.reshape(np.shape(indices)), counts


def moe_dispatch(input, indices, locations, capacity, num_experts, gates=None):
    """The definition of ``turnout.moe_dispatch``."""
    rows = _with_choices(rows_of(indices, locations, capacity, num_experts))
    weights, wide = _with_choices(gates), wide_type(input.dtype)
    dispatch = np.zeros((num_experts * capacity, input.shape[1]), input.dtype)
    with np.errstate(all="ignore"):
        for k in range(rows.shape[1]):
            for i in np.flatnonzero(rows[:, k] >= 0):
                token = input[i]
                if weights is not None:
                    token = (weights[i, k].astype(wide) * token.astype(wide)).astype(input.dtype)
                dispatch[rows[i, k]] = token
    return dispatch.reshape(num_experts, capacity, -1)


def moe_combine(expert_output, indices, locations, capacity, gates=None):
    """The definition of ``turnout.moe_combine``."""
    flat = expert_output.reshape(-1, expert_output.shape[-1])
    num_experts = len(flat) // capacity if capacity else 0
    rows = _with_choices(rows_of(indices, locations, capacity, num_experts))
    return weighted_sums(flat, rows, _with_choices(gates), flat.dtype)


def moe_combine_backward(grad_output, expert_output, indices, locations, gates, capacity):
    """The definition of ``turnout.moe_combine_backward``."""
    flat = expert_output.reshape(-1, expert_output.shape[-1])
    num_experts = len(flat) // capacity if capacity else 0
    rows = _with_choices(rows_of(indices, locations, capacity, num_experts))
    grad = moe_dispatch(grad_output, indices, locations, capacity, num_experts, gates)
    products = dot_products(grad_output, flat, rows)
    return grad.reshape(expert_output.shape), products.reshape(gates.shape).astype(gates.dtype)


def _check_moe_routing(rng: np.random.Generator) -> None:
    samples, choices, hidden, capacity, num_experts = 37, 2, 19, 20, 4
    tokens = rng.standard_normal((samples, hidden)).astype(np.float32)
    gates = rng.standard_normal((samples, choices)).astype(np.float32)
    indices = rng.integers(-1, num_experts + 1, (samples, choices))
    for priority in (None, rng.standard_normal(samples)):
        found = turnout.moe_locations(indices, num_experts, priority=priority)
        for result, expected in zip(
            found, moe_locations(indices, num_experts, priority=priority), strict=True
        ):
            np.testing.assert_array_equal(result, expected)
    locations = found[0]
    for weights in (None, gates):
        dispatch = turnout.moe_dispatch(tokens, indices, locations, capacity, num_experts, weights)
        np.testing.assert_array_equal(
            dispatch, moe_dispatch(tokens, indices, locations, capacity, num_experts, weights)
        )
        np.testing.assert_array_equal(
            turnout.moe_combine(dispatch, indices, locations, capacity, weights),
            moe_combine(dispatch, indices, locations, capacity, weights),
        )
    arguments = (tokens, dispatch, indices, locations, gates, capacity)
    grad, grad_gates = turnout.moe_combine_backward(*arguments)
    expected_grad, expected_gates = moe_combine_backward(*arguments)
    np.testing.assert_array_equal(grad, expected_grad)
    np.testing.assert_allclose(grad_gates, expected_gates, rtol=1e-5, atol=1e-5)


CHECKS = {
    name: _check_moe_routing
    for name in ("moe_locations", "moe_dispatch", "moe_combine", "moe_combine_backward")
}
