"""The demo's lines about mixtures of experts."""

from __future__ import annotations

import numpy as np

import turnout
import turnout.check
from demo.job import Job


def moe_dispatch(dtype: str, fresh: bool) -> Job:
    samples, hidden, num_experts, capacity = 18432, 512, 2, 11520
    random = np.random.default_rng(0)
    gates = random.random(samples, dtype=np.float32)
    indices = random.integers(0, num_experts, samples, dtype=np.int32)
    locations = np.zeros(samples, dtype=np.int32)
    for expert in range(num_experts):
        mine = np.flatnonzero(indices == expert)
        locations[mine] = np.arange(len(mine))
    tokens = random.random((samples, hidden), dtype=np.float32).astype(dtype)
    out = None if fresh else np.zeros((num_experts * capacity, hidden), dtype=dtype)

    def definition() -> np.ndarray:
        """The definition, one token at a time."""
        expected = np.zeros((num_experts * capacity, hidden), dtype=dtype)
        for i in range(samples):
            if 0 <= indices[i] < num_experts and 0 <= locations[i] < capacity:
                product = gates[i] * tokens[i].astype(np.float32)
                expected[indices[i] * capacity + locations[i]] = product.astype(dtype)
        return expected

    def run() -> np.ndarray:
        return turnout.moe_dispatch_forward(gates, indices, locations, tokens, capacity, num_experts, out=out)

    row_of, buffers = indices * capacity + locations, np.zeros((num_experts * capacity, hidden), dtype)

    def plain() -> None:
        (np.zeros_like(buffers) if fresh else buffers)[row_of] = gates[:, None] * tokens

    rows = num_experts * capacity if fresh else samples
    return Job(
        "moe_dispatch_forward" + (", zeroed" if fresh else ""),
        f"{samples} x {hidden} {dtype}, {num_experts} experts",
        run,
        definition,
        (samples + rows) * hidden * np.dtype(dtype).itemsize,
        plain=plain,
    )


def routing(samples: int, num_experts: int, choices: int) -> tuple[np.ndarray, ...]:
    """Random experts and gates ``[samples, choices]``."""
    random = np.random.default_rng(0)
    indices = random.integers(0, num_experts, (samples, choices), dtype=np.int32)
    return indices, random.random((samples, choices), dtype=np.float32)


def moe_dispatch_backward() -> Job:
    """Both gradients of moe_dispatch_forward with one read of the buffers."""
    samples, hidden, num_experts, capacity = 18432, 512, 2, 11520
    indices, gates = (x[:, 0].copy() for x in routing(samples, num_experts, 1))
    locations, _ = turnout.moe_locations(indices, num_experts)
    random = np.random.default_rng(1)
    tokens = random.random((samples, hidden), dtype=np.float32)
    dispatch = random.random((num_experts * capacity, hidden), dtype=np.float32)
    arguments = gates, indices, locations, tokens, dispatch, capacity, num_experts
    out = np.empty_like(tokens), np.empty_like(gates)
    return Job(
        "moe_dispatch_backward",
        f"{samples} x {hidden} float32, {num_experts} experts",
        lambda: turnout.moe_dispatch_backward(*arguments, out=out),
        lambda: turnout.check.moe_dispatch_backward(*arguments),
        3 * tokens.nbytes,
        tolerance=1e-6,
    )


def moe_locations() -> Job:
    samples, num_experts, choices = 16384, 64, 2
    indices, _ = routing(samples, num_experts, choices)
    out = np.empty_like(indices), np.empty(num_experts, dtype=np.int64)
    return Job(
        "moe_locations",
        f"{samples} tokens, {num_experts} experts, top {choices}",
        lambda: turnout.moe_locations(indices, num_experts, out=out),
        lambda: turnout.check.moe_locations(indices, num_experts),
        indices.nbytes + out[0].nbytes,
    )


def moe_combine() -> Job:
    samples, hidden, num_experts, choices = 16384, 1024, 64, 2
    indices, gates = routing(samples, num_experts, choices)
    locations, counts = turnout.moe_locations(indices, num_experts)
    shape = num_experts, int(counts.max()), hidden
    experts = np.random.default_rng(1).random(shape, dtype=np.float32)
    arguments = experts, indices, locations, shape[1], gates
    out = np.empty((samples, hidden), dtype=np.float32)
    return Job(
        "moe_combine",
        f"{samples} x {hidden} float32, {num_experts} experts, top {choices}",
        lambda: turnout.moe_combine(*arguments, out=out),
        lambda: turnout.check.moe_combine(*arguments),
        (choices + 1) * out.nbytes,
    )


def moe_token_permute(back: bool) -> Job:
    samples, hidden, num_experts, choices = 2048, 2048, 128, 8
    indices, probs = routing(samples, num_experts, choices)
    tokens = np.random.default_rng(1).random((samples, hidden), dtype=np.float32)
    scale = f"{samples} x {hidden} float32, {num_experts} experts, top {choices}"
    out = turnout.moe_token_permute(tokens, indices)
    bytes_moved = (choices + 1) * tokens.nbytes
    if not back:
        return Job(
            "moe_token_permute",
            scale,
            lambda: turnout.moe_token_permute(tokens, indices, out=out),
            lambda: turnout.check.moe_token_permute(tokens, indices),
            bytes_moved,
        )
    result = np.empty_like(tokens)
    return Job(
        "moe_token_unpermute",
        scale,
        lambda: turnout.moe_token_unpermute(*out, probs, out=result),
        lambda: turnout.check.moe_token_unpermute(*out, probs),
        bytes_moved,
    )


def moe_re_routing() -> Job:
    rows, hidden, ranks, experts = 16384, 7168, 8, 32
    random = np.random.default_rng(0)
    pairs = ranks * experts
    counts = random.multinomial(rows, np.full(pairs, 1 / pairs)).reshape(ranks, experts).astype(np.int32)
    tokens = random.integers(-128, 128, (rows, hidden), dtype=np.int8)
    out = (
        np.empty_like(tokens),
        None,
        np.empty(rows, dtype=np.int32),
        np.empty(experts, dtype=np.int32),
    )

    def definition() -> np.ndarray:
        """The definition, one (rank, expert) block of tokens at a time."""
        expected = np.empty_like(tokens)
        for r in range(ranks):
            for e in range(experts):
                source = counts[:r].sum() + counts[r, :e].sum()
                row = counts[:, :e].sum() + counts[:r, e].sum()
                expected[row : row + counts[r, e]] = tokens[source : source + counts[r, e]]
        return expected

    return Job(
        "moe_re_routing",
        f"{rows} x {hidden} int8, {ranks} ranks, {experts} experts",
        lambda: turnout.moe_re_routing(tokens, counts, out=out)[0],
        definition,
        2 * tokens.nbytes,
    )
