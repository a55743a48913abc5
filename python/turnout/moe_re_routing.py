"""Mixture of experts, after an all-to-all: tokens that arrive grouped by rank, regrouped by expert."""

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
    """Brings the tokens of each expert together, those of earlier ranks first.

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

    Pure movement: the bits are those of the input. The order inside each run of ``c[r, e]`` tokens stays.

    Arrays are in CPU memory. Inputs may be read-only and strided; strided ones are copied first. ``out`` is
    contiguous. On an error nothing is written.

    Args:
        tokens: ``[rows, hidden]``, grouped by rank and inside each rank by expert; any dtype of at most 8
            bytes, those of ml_dtypes included.
        expert_token_num_per_rank: ``[ranks, experts]``, int32 or int64: how many tokens each rank sent to
            each expert. Each is 0 or more, and they sum to ``rows``.
        per_token_scales: ``[rows]`` or ``[rows, scale_width]``, any dtype: moves with its token.
        expert_token_num_type: 1: ``expert_token_num`` counts the tokens of each expert; 0: it is the running
            sum of that, whose last entry is ``rows``.
        idx_type: 0: ``permute_token_idx`` says where each output row came from; 1: where each input row went.
        out: where to write: a tuple in the order of the results, with None for what is to be allocated.

    Returns:
        permute_tokens: shape and dtype of ``tokens``.
        permute_per_token_scales: shape and dtype of ``per_token_scales``, or None without it.
        permute_token_idx: ``[rows]``, int32.
        expert_token_num: ``[experts]``, dtype of ``expert_token_num_per_rank``.

        Each is the array from ``out``, or a new one: a torch tensor when the argument it is made from is one
        (``tokens`` for the index), else a NumPy array.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: something that is no array, no integer, or no tuple.

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
    """The way back of :func:`moe_re_routing`, by its index.

    ::

        tokens[permute_token_idx[d], :] = permute_tokens[d, :]    # idx_type 0, gather
        tokens[i, :] = permute_tokens[permute_token_idx[i], :]    # idx_type 1, scatter

    Args:
        permute_tokens: ``[rows, hidden]``, any dtype of at most 8 bytes.
        permute_token_idx: ``[rows]``, int32 or int64: a permutation of ``0 .. rows-1``. The first entry that
            is out of range, or named a second time, is refused, and nothing is written.
        idx_type: the one that ``moe_re_routing`` was called with.
        out: where to write, shape and dtype of ``permute_tokens``.

    Returns:
        ``out``, or a new array: a torch tensor when ``permute_tokens`` is one, else a NumPy array.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: something that is no array, or no integer.

    Example:
        >>> tokens = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]], np.float32)
        >>> permuted, _, came_from, _ = turnout.moe_re_routing(tokens, np.array([[2, 1], [1, 1]]))
        >>> turnout.moe_re_routing_inverse(permuted, came_from).ravel().tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    return _core.moe_re_routing_inverse(permute_tokens, permute_token_idx, idx_type, out)
