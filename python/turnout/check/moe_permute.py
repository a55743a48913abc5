"""The definitions of token permutation and chunk reordering, and checks against them."""

from __future__ import annotations

import numpy as np

import turnout
from turnout.check.moe_dispatch import weighted_sums

__all__ = ["moe_token_permute", "moe_token_unpermute", "sort_chunks_by_idxs"]


def moe_token_permute(tokens, indices, num_out_tokens=None):
    """The definition of ``turnout.moe_token_permute``."""
    choices = indices.shape[1] if indices.ndim == 2 else 1
    order = np.argsort(indices.ravel(), kind="stable")
    sorted_indices = np.empty(len(order), np.int32)
    sorted_indices[order] = np.arange(len(order))
    kept = order[: num_out_tokens or None]
    return tokens[kept // choices], sorted_indices


def moe_token_unpermute(permuted_tokens, sorted_indices, probs=None):
    """The definition of ``turnout.moe_token_unpermute``."""
    choices = probs.shape[1] if probs is not None and probs.ndim == 2 else 1
    rows = sorted_indices.reshape(-1, choices)
    weights = None if probs is None else probs.reshape(rows.shape)
    return weighted_sums(permuted_tokens, rows, weights, permuted_tokens.dtype)


def sort_chunks_by_idxs(input, split_sizes, sorted_idxs, probs=None):
    """The definition of ``turnout.sort_chunks_by_idxs``."""
    starts = np.cumsum(split_sizes)[:-1]

    def sort(rows):
        chunks = np.split(rows, starts)
        return np.concatenate([chunks[i] for i in sorted_idxs])

    return sort(input), None if probs is None else sort(probs)


def _check_permute(rng: np.random.Generator) -> None:
    tokens = rng.standard_normal((37, 19)).astype(np.float32)
    indices = rng.integers(0, 5, (37, 2))
    probs = rng.standard_normal((37, 2)).astype(np.float32)
    for kept in (None, 50, -3):
        permuted, sorted_indices = turnout.moe_token_permute(tokens, indices, kept)
        expected = moe_token_permute(tokens, indices, kept)
        np.testing.assert_array_equal(permuted, expected[0])
        np.testing.assert_array_equal(sorted_indices, expected[1])
        np.testing.assert_array_equal(
            turnout.moe_token_unpermute(permuted, sorted_indices, probs),
            moe_token_unpermute(permuted, sorted_indices, probs),
        )


def _check_sort_chunks(rng: np.random.Generator) -> None:
    sizes, order = rng.multinomial(37, [1 / 6] * 6), rng.permutation(6)
    rows, probs = rng.standard_normal((37, 5)), rng.standard_normal(37)
    results = turnout.sort_chunks_by_idxs(rows, sizes, order, probs)
    for result, expected in zip(results, sort_chunks_by_idxs(rows, sizes, order, probs), strict=True):
        np.testing.assert_array_equal(result, expected)


CHECKS = {
    "moe_token_permute": _check_permute,
    "moe_token_unpermute": _check_permute,
    "sort_chunks_by_idxs": _check_sort_chunks,
}
