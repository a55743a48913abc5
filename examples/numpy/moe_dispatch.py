"""One layer of a mixture of experts with NumPy: route, dispatch, compute, combine."""

import numpy as np

import turnout

tokens, hidden, experts, choices = 64, 16, 4, 2
random = np.random.default_rng(0)
x = random.standard_normal((tokens, hidden), dtype=np.float32)
router = random.standard_normal((hidden, experts), dtype=np.float32)
weights = random.standard_normal((experts, hidden, hidden), dtype=np.float32) / hidden**0.5

scores = np.exp(x @ router)
scores /= scores.sum(axis=1, keepdims=True)
indices = np.argsort(-scores, axis=1)[:, :choices].astype(np.int32)  # the two best experts of each token
gates = np.take_along_axis(scores, indices, axis=1)

locations, counts = turnout.moe_locations(indices, experts)  # slots in the experts' buffers
capacity = int(counts.max())  # so that no token is dropped
buffers = turnout.moe_dispatch(x, indices, locations, capacity, experts)  # [experts, capacity, hidden]
results = np.matmul(buffers, weights)
y = turnout.moe_combine(results, indices, locations, capacity, gates=gates)

expected = sum(gates[:, k, None] * np.einsum("nh,nhj->nj", x, weights[indices[:, k]]) for k in range(choices))
print(f"tokens per expert: {counts.tolist()}, capacity {capacity}")
print(f"largest difference from computing token by token: {np.abs(y - expected).max():.1e}")
assert np.allclose(y, expected, atol=1e-5)

# Output:
#   tokens per expert: [31, 31, 37, 29], capacity 37
#   largest difference from computing token by token: 4.8e-07
