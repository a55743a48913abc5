"""Mixture of experts without capacity: sorts tokens by expert, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import R2, Array, Int, R, Source

__all__ = ["moe_token_permute", "moe_token_unpermute", "sort_chunks_by_idxs"]


def moe_token_permute(
    tokens: Source[R],
    indices: Array,
    num_out_tokens: Int | None = None,
    *,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """Copies tokens into the order of their experts.

    ::

        f = the stable ascending order of indices.ravel()
        permuted_tokens[d, :] = tokens[f[d] // choices, :]
        sorted_indices[f[d]] = d

    Args:
        tokens: ``[samples, hidden]``, any dtype of at most 8 bytes.
        indices: experts, ``[samples]`` or ``[samples, choices]``, int32 or int64, any values.
        num_out_tokens: number of rows to keep. None or 0 keeps all; a negative number counts from the end.
        out: tuple of output arrays for both results; None allocates that result.

    Returns:
        permuted_tokens: ``[rows, hidden]``.
        sorted_indices: ``[samples * choices]``, int32: the row of each choice. Values of ``rows`` and more
            mark dropped choices.

    Example:
        >>> tokens = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
        >>> experts = np.array([[1, 0], [1, 2]])  # each token's first and second choice
        >>> permuted, went_to = turnout.moe_token_permute(tokens, experts)
        >>> permuted.tolist()  # expert 0: token 0; expert 1: tokens 0 and 1; expert 2: token 1
        [[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [3.0, 4.0]]
        >>> went_to.tolist()
        [1, 0, 2, 3]
    """
    return _core.moe_token_permute(tokens, indices, num_out_tokens, out)


def moe_token_unpermute(
    permuted_tokens: Source[R], sorted_indices: Array, probs: Array | None = None, *, out: R | None = None
) -> R:
    """The inverse of :func:`moe_token_permute`: the weighted sum of the rows of each token.

    ::

        tokens[i, :] = sum over k of probs[i, k] * permuted_tokens[sorted_indices[i * choices + k], :]

    An index out of range adds +0. Additions are ordered and rounded as in
    :func:`turnout.moe_dispatch_backward_data`.

    Args:
        permuted_tokens: ``[rows, hidden]``, float32, float64, float16 or bfloat16.
        sorted_indices: ``[samples * choices]``, int32 or int64.
        probs: ``[samples]`` or ``[samples, choices]``, with the dtype of ``permuted_tokens`` or float32. None
            means one choice per token and no multiplication.
        out: output array, ``[samples, hidden]``.

    Returns:
        ``out``, or a new array of the same type as ``permuted_tokens``.

    Example:
        >>> tokens = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
        >>> experts = np.array([[1, 0], [1, 2]])  # each token's first and second choice
        >>> permuted, went_to = turnout.moe_token_permute(tokens, experts)
        >>> probs = np.array([[0.75, 0.25], [0.5, 0.5]], np.float32)
        >>> turnout.moe_token_unpermute(permuted, went_to, probs).tolist()  # probs sum to 1: the tokens again
        [[1.0, 2.0], [3.0, 4.0]]
    """
    return _core.moe_token_unpermute(permuted_tokens, sorted_indices, probs, out, False)


def sort_chunks_by_idxs(
    input: Source[R],
    split_sizes: Array,
    sorted_idxs: Array,
    probs: Source[R2] | None = None,
    *,
    out: tuple[R | None, R2 | None] | None = None,
) -> tuple[R, R2 | None]:
    """Splits the rows of ``input`` into chunks and reorders the chunks.

    ::

        output = concatenate([chunks[i] for i in sorted_idxs])    # chunks: split_sizes rows each, in order

    :func:`turnout.moe_re_routing` is this function with ``split_sizes = c.ravel()`` and
    ``sorted_idxs = arange(ranks * experts).reshape(ranks, experts).T.ravel()``.

    Args:
        input: ``[rows, hidden]``, any dtype of at most 8 bytes.
        split_sizes: ``[chunks]``, int32 or int64. Each must be 0 or more, and they must sum to ``rows``.
        sorted_idxs: ``[chunks]``, int32 or int64; must be a permutation.
        probs: ``[rows]``, any dtype, or None; reordered like the rows.
        out: tuple of output arrays for both results; None allocates that result.

    Returns:
        output: shape and dtype of ``input``.
        permuted_probs: shape and dtype of ``probs``, or None if ``probs`` is None.

    Example:
        >>> rows = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]], np.float32)
        >>> output, _ = turnout.sort_chunks_by_idxs(rows, np.array([2, 1, 2]), np.array([2, 0, 1]))
        >>> output.ravel().tolist()
        [3.0, 4.0, 0.0, 1.0, 2.0]
    """
    return _core.sort_chunks_by_idxs(input, split_sizes, sorted_idxs, probs, out)
