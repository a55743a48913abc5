"""Computes the expert block of a mixture in one call, and in steps: group rows, multiply, activate, sum."""

import numpy as np

import turnout

tokens, hidden, inner, experts, choices = 32, 16, 24, 4, 2
random = np.random.default_rng(0)
x = random.standard_normal((tokens, hidden), dtype=np.float32)
ids = np.argsort(random.random((tokens, experts)), axis=1)[:, :choices]  # a router's choices
weights = np.full((tokens, choices), 1 / choices, np.float32)
w13 = random.standard_normal((experts, 2 * inner, hidden), dtype=np.float32) / hidden**0.5  # gate and up rows
w2 = random.standard_normal((experts, hidden, inner), dtype=np.float32) / inner**0.5

y = turnout.moe_experts(x, ids, weights, w13, w2, activation="silu")

rows, places = turnout.moe_token_permute(x, ids)  # in the order of the experts
offs = np.bincount(ids.ravel(), minlength=experts).cumsum()  # the end of each expert's rows
gate, up = np.split(turnout.grouped_mm(rows, w13.swapaxes(1, 2), offs=offs), 2, axis=1)
results = turnout.grouped_mm(gate / (1 + np.exp(-gate)) * up, w2.swapaxes(1, 2), offs=offs)
steps = turnout.moe_token_unpermute(results, places, weights)

print(f"rows of each expert end at {offs.tolist()}")
print(f"largest difference between one call and its steps: {np.abs(y - steps).max():.1e}")
assert np.allclose(y, steps, atol=1e-5)

# Output:
#   rows of each expert end at [18, 34, 51, 64]
#   largest difference between one call and its steps: 1.2e-07
