"""The definitions of MoE dispatch, and checks against them."""

from __future__ import annotations

import numpy as np

import turnout
from turnout.check.lanes import wide_type

__all__ = ["moe_dispatch_forward"]


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


CHECKS = {
    "moe_dispatch_forward": _check_moe_dispatch_forward,
}
