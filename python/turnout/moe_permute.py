"""Mixture of experts without capacity: tokens in the order of their experts, and back."""

from __future__ import annotations

from typing import Any

from turnout import _core

__all__ = ["moe_token_permute", "moe_token_unpermute", "sort_chunks_by_idxs"]

Array = Any  # of NumPy, torch, or any library that speaks DLPack
Int = Any  # anything with __index__


def moe_token_permute(
    tokens: Array,
    indices: Array,
    num_out_tokens: Int | None = None,
    *,
    out: tuple[Array | None, Array | None] | None = None,
) -> tuple[Array, Array]:
    """Copies tokens into the order of their experts.

    ::

        f = the stable ascending order of indices.ravel()
        permuted_tokens[d, :] = tokens[f[d] // choices, :]
        sorted_indices[f[d]] = d

    Args:
        tokens: ``[samples, hidden]``, any dtype of at most 8 bytes.
        indices: experts, ``[samples]`` or ``[samples, choices]``, int32 or int64, any values.
        num_out_tokens: how many rows are kept: None or 0 for all, a negative number as in a slice.
        out: where to write: a tuple of both results, with None for what is to be allocated.

    Returns:
        permuted_tokens: ``[rows, hidden]``.
        sorted_indices: ``[samples * choices]``, int32: where each choice went. Choices that are not kept have
            values of ``rows`` and more.
    """
    return _core.moe_token_permute(tokens, indices, num_out_tokens, out, False)


def moe_token_unpermute(
    permuted_tokens: Array, sorted_indices: Array, probs: Array | None = None, *, out: Array | None = None
) -> Array:
    """The way back of :func:`moe_token_permute`: the weighted sum of the rows of each token.

    ::

        tokens[i, :] = sum over k of probs[i, k] * permuted_tokens[sorted_indices[i * choices + k], :]

    An index out of range adds +0. Order and rounding of additions are those of
    :func:`turnout.moe_dispatch_backward_data`.

    Args:
        permuted_tokens: ``[rows, hidden]``, float32, float64, float16 or bfloat16.
        sorted_indices: ``[samples * choices]``, int32 or int64.
        probs: ``[samples]`` or ``[samples, choices]``, of the dtype of ``permuted_tokens`` or float32. None:
            one choice for each token, and no multiplication.
        out: where to write, ``[samples, hidden]``.

    Returns:
        ``out``, or a new array of the kind of ``permuted_tokens``.
    """
    return _core.moe_token_unpermute(permuted_tokens, sorted_indices, probs, out, False)


def sort_chunks_by_idxs(
    input: Array,
    split_sizes: Array,
    sorted_idxs: Array,
    probs: Array | None = None,
    *,
    out: tuple[Array | None, Array | None] | None = None,
) -> tuple[Array, Array | None]:
    """Cuts the rows of ``input`` into chunks and puts them into another order.

    ::

        output = concatenate([chunks[i] for i in sorted_idxs])    # chunks: split_sizes rows each, in order

    :func:`turnout.moe_re_routing` is this with ``split_sizes = c.ravel()`` and
    ``sorted_idxs = arange(ranks * experts).reshape(ranks, experts).T.ravel()``.

    Args:
        input: ``[rows, hidden]``, any dtype of at most 8 bytes.
        split_sizes: ``[chunks]``, int32 or int64: each is 0 or more, and they sum to ``rows``.
        sorted_idxs: ``[chunks]``, int32 or int64: a permutation.
        probs: ``[rows]``, any dtype: moves with its row.
        out: where to write: a tuple of both results, with None for what is to be allocated.

    Returns:
        output: shape and dtype of ``input``.
        permuted_probs: shape and dtype of ``probs``, or None without it.
    """
    return _core.sort_chunks_by_idxs(input, split_sizes, sorted_idxs, probs, out, False)
