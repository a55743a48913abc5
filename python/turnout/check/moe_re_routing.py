"""The definitions of MoE re-routing, and checks against them."""

from __future__ import annotations

import numpy as np

import turnout

__all__ = ["moe_re_routing", "moe_re_routing_inverse"]


def moe_re_routing(
    tokens, expert_token_num_per_rank, *, per_token_scales=None, expert_token_num_type=1, idx_type=0
):
    """The definition of ``turnout.moe_re_routing``."""
    counts = expert_token_num_per_rank
    ranks, experts = counts.shape
    permute_tokens = np.empty_like(tokens)
    permute_scales = None if per_token_scales is None else np.empty_like(per_token_scales)
    permute_token_idx = np.empty(len(tokens), np.int32)
    for r in range(ranks):
        for e in range(experts):
            source = counts[:r].sum() + counts[r, :e].sum()
            row = counts[:, :e].sum() + counts[:r, e].sum()
            for k in range(counts[r, e]):
                permute_tokens[row + k] = tokens[source + k]
                if permute_scales is not None:
                    permute_scales[row + k] = per_token_scales[source + k]
                if idx_type == 0:
                    permute_token_idx[row + k] = source + k
                else:
                    permute_token_idx[source + k] = row + k
    num = counts.sum(axis=0, dtype=counts.dtype)
    if expert_token_num_type == 0:
        num = np.cumsum(num, dtype=counts.dtype)
    return permute_tokens, permute_scales, permute_token_idx, num


def moe_re_routing_inverse(permute_tokens, permute_token_idx, *, idx_type=0):
    """The definition of ``turnout.moe_re_routing_inverse``."""
    tokens = np.empty_like(permute_tokens)
    for i, position in enumerate(permute_token_idx):
        if idx_type == 0:
            tokens[position] = permute_tokens[i]
        else:
            tokens[i] = permute_tokens[position]
    return tokens


def _check_moe_re_routing(rng: np.random.Generator) -> None:
    counts = rng.integers(0, 4, (5, 7))
    rows = int(counts.sum())
    arguments = rng.integers(-128, 128, (rows, 19), np.int8), counts
    for choice in (0, 1):
        options = {
            "per_token_scales": rng.standard_normal((rows, 3)).astype(np.float32),
            "expert_token_num_type": choice,
            "idx_type": choice,
        }
        results = turnout.moe_re_routing(*arguments, **options)
        for actual, expected in zip(results, moe_re_routing(*arguments, **options), strict=True):
            np.testing.assert_array_equal(actual, expected)


def _check_moe_re_routing_inverse(rng: np.random.Generator) -> None:
    arguments = rng.standard_normal((37, 19)), rng.permutation(37)
    for idx_type in (0, 1):
        actual = turnout.moe_re_routing_inverse(*arguments, idx_type=idx_type)
        np.testing.assert_array_equal(actual, moe_re_routing_inverse(*arguments, idx_type=idx_type))


CHECKS = {
    "moe_re_routing": _check_moe_re_routing,
    "moe_re_routing_inverse": _check_moe_re_routing_inverse,
}
