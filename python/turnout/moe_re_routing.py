"""Mixture of experts, after an all-to-all: regroups tokens, which arrive grouped by rank, by expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import R2, R3, Array, Int, R, Source

__all__ = ["moe_re_routing", "moe_re_routing_inverse"]


def moe_re_routing(
    tokens: Source[R],
    expert_token_num_per_rank: Source[R3],
    *,
    per_token_scales: Source[R2] | None = None,
    expert_token_num_type: Int = 1,
    idx_type: Int = 0,
    out: tuple[R | None, R2 | None, R | None, R3 | None] | None = None,
) -> tuple[R, R2 | None, R, R3]:
    """Groups the tokens by expert, and within each expert by rank.

    ::

        c = expert_token_num_per_rank
        for each rank r and expert e:
            src = tokens of ranks before r                    + tokens of rank r for experts before e
            dst = tokens for experts before e, from all ranks + tokens for e from ranks before r
            for k in 0 .. c[r, e]-1:
                permute_tokens[dst + k, :] = tokens[src + k, :]
                permute_per_token_scales[dst + k] = per_token_scales[src + k]    # when given
                permute_token_idx[dst + k] = src + k                             # idx_type 0, gather
                permute_token_idx[src + k] = dst + k                             # idx_type 1, scatter

    Rows are copied bit by bit. The order within each run of ``c[r, e]`` tokens is kept.

    Arrays are in CPU memory. Inputs may be read-only and strided; strided inputs are copied first. ``out``
    must be contiguous. If the call fails, nothing is written.

    Args:
        tokens: ``[rows, hidden]``, grouped by rank and within each rank by expert; any dtype of at most 8
            bytes, including those of ml_dtypes.
        expert_token_num_per_rank: ``[ranks, experts]``, int32 or int64: the number of tokens that each rank
            sent to each expert. Each must be 0 or more, and they must sum to ``rows``.
        per_token_scales: ``[rows]`` or ``[rows, scale_width]``, any dtype, or None; moved with the tokens.
        expert_token_num_type: if 1, ``expert_token_num`` is the number of tokens of each expert; if 0, their
            cumulative sum, whose last entry is ``rows``.
        idx_type: 0: ``permute_token_idx`` has the input row of each output row; 1: the converse.
        out: tuple of output arrays, in the order of the results; None allocates that result.

    Returns:
        permute_tokens: shape and dtype of ``tokens``.
        permute_per_token_scales: shape and dtype of ``per_token_scales``, or None without it.
        permute_token_idx: ``[rows]``, int32.
        expert_token_num: ``[experts]``, dtype of ``expert_token_num_per_rank``.

        Each is the array from ``out``, or a new one: a torch tensor if the corresponding argument is one
        (``tokens`` for the index), otherwise a NumPy array.

    Raises:
        ValueError: if arguments are inconsistent; the message names the first one.
        TypeError: if an argument is not an array, not an integer, or not a tuple.

    Example:
        >>> tokens = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]], np.float32)
        >>> counts = np.array([[2, 1], [1, 1]])  # rank 0 sent two tokens to expert 0 and one to expert 1
        >>> permuted, _, came_from, per_expert = turnout.moe_re_routing(tokens, counts)
        >>> permuted.ravel().tolist(), per_expert.tolist()
        ([0.0, 1.0, 3.0, 2.0, 4.0], [3, 2])
    """
    return _core.moe_re_routing(
        tokens, expert_token_num_per_rank, per_token_scales, expert_token_num_type, idx_type, out
    )


def moe_re_routing_inverse(
    permute_tokens: Source[R], permute_token_idx: Array, *, idx_type: Int = 0, out: R | None = None
) -> R:
    """The inverse of :func:`moe_re_routing`, given its index.

    ::

        tokens[permute_token_idx[d], :] = permute_tokens[d, :]    # idx_type 0, gather
        tokens[i, :] = permute_tokens[permute_token_idx[i], :]    # idx_type 1, scatter

    Args:
        permute_tokens: ``[rows, hidden]``, any dtype of at most 8 bytes.
        permute_token_idx: ``[rows]``, int32 or int64: a permutation of ``0 .. rows-1``.
        idx_type: the ``idx_type`` of the call of ``moe_re_routing``.
        out: output array with the shape and dtype of ``permute_tokens``.

    Returns:
        ``out``, or a new array: a torch tensor if ``permute_tokens`` is one, otherwise a NumPy array.

    Raises:
        ValueError: if arguments are inconsistent, or if an index is out of range or repeated; the message
            names the first one.
        TypeError: if an argument is not an array, or not an integer.

    Example:
        >>> tokens = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]], np.float32)
        >>> permuted, _, came_from, _ = turnout.moe_re_routing(tokens, np.array([[2, 1], [1, 1]]))
        >>> turnout.moe_re_routing_inverse(permuted, came_from).ravel().tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    return _core.moe_re_routing_inverse(permute_tokens, permute_token_idx, idx_type, out)
