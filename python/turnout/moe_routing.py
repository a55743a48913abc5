"""Mixture of experts with routings ``[samples, choices]``: slots, dispatch and combine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import R2, Array, Int, R, Source

__all__ = ["moe_combine", "moe_combine_backward", "moe_dispatch", "moe_locations"]


def moe_locations(
    indices: Source[R],
    num_experts: Int,
    *,
    priority: Array | None = None,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """The slot of each choice in its expert's buffer: first choices of all tokens before second ones.

    ::

        for k in 0 .. choices-1, i in 0 .. samples-1, in this order:
            locations[i, k] = counts[indices[i, k]]
            counts[indices[i, k]] += 1

    Args:
        indices: experts, ``[samples]`` or ``[samples, choices]``, int32 or int64. An index out of range has
            location -1 and is not counted.
        num_experts: number of experts.
        priority: ``[samples]``, floating-point, or None. Tokens are taken in descending order of priority;
            ties keep their order, NaN is last.
        out: tuple of output arrays for locations and counts; None allocates that result.

    Returns:
        locations: shaped like ``indices``, int32. They are not limited by a capacity.
        counts: ``[num_experts]``, int64: the number of choices of each expert, kept or not.

    Example:
        >>> experts = np.array([[1, 0], [1, 2], [0, 1]])  # each token's first and second choice
        >>> locations, counts = turnout.moe_locations(experts, 3)
        >>> locations.tolist()
        [[0, 1], [1, 0], [0, 2]]
        >>> counts.tolist()
        [2, 3, 1]
    """
    return _core.moe_locations(indices, num_experts, priority, out)


def moe_dispatch(
    input: Source[R],
    indices: Array,
    locations: Array | None,
    capacity: Int,
    num_experts: Int,
    gates: Array | None = None,
    *,
    out: R | None = None,
) -> R:
    """Copies each token to its slots in its experts' buffers, times its gates; other slots are zero.

    ::

        dispatch[indices[i, k], locations[i, k], :] = gates[i, k] * input[i, :]

    The rules are those of :func:`turnout.moe_dispatch_forward`, whose routings are ``[choices, samples]``.

    Args:
        input: tokens, ``[samples, hidden]``, float32, float64, float16 or bfloat16.
        indices: experts, ``[samples]`` or ``[samples, choices]``, int32 or int64.
        locations: slots, shaped like ``indices``. None: all 0, so with a capacity of 1 an index is a row.
        capacity: number of slots per expert.
        num_experts: number of experts.
        gates: weights, shaped like ``indices``, with the dtype of ``input`` or float32. None copies the rows.
        out: output array, ``[num_experts, capacity, hidden]`` or ``[num_experts * capacity, hidden]``.

    Returns:
        ``out``, or a new array ``[num_experts, capacity, hidden]``.

    Example:
        >>> tokens = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
        >>> experts = np.array([[1, 0], [1, 2]])  # each token's first and second choice
        >>> locations, _ = turnout.moe_locations(experts, 3)
        >>> locations.tolist()  # token 1 would be second in expert 1, which has one slot
        [[0, 0], [1, 0]]
        >>> turnout.moe_dispatch(tokens, experts, locations, capacity=1, num_experts=3).tolist()
        [[[1.0, 2.0]], [[1.0, 2.0]], [[3.0, 4.0]]]
    """
    return _core.moe_dispatch(input, indices, locations, capacity, num_experts, gates, out)


def moe_combine(
    expert_output: Source[R],
    indices: Array,
    locations: Array | None,
    capacity: Int,
    gates: Array | None = None,
    *,
    out: R | None = None,
) -> R:
    """The weighted sum of the experts' outputs for each token.

    ::

        output[i, :] = sum over k of gates[i, k] * expert_output[indices[i, k], locations[i, k], :]

    A dropped choice adds +0. Additions are ordered and rounded as in
    :func:`turnout.moe_dispatch_backward_data`.

    Args:
        expert_output: ``[num_experts, capacity, hidden]`` or ``[rows, hidden]``, where ``rows`` is a multiple
            of ``capacity``. With a capacity of 0 all choices are dropped.
        indices, locations, capacity: as for :func:`moe_dispatch`.
        gates: weights, shaped like ``indices``, of the dtype of ``expert_output`` or float32; None: all ones.
        out: output array, ``[samples, hidden]``.

    Returns:
        ``out``, or a new array of the same type as ``expert_output``.

    Example:
        >>> expert_output = np.array([[[10.0]], [[20.0]], [[30.0]]], np.float32)  # three experts, one slot
        >>> experts = np.array([[1, 0], [1, 2]])
        >>> slots = np.array([[0, 0], [1, 0]])  # slot 1 is beyond the capacity: that choice was dropped
        >>> gates = np.array([[0.75, 0.25], [0.5, 0.5]], np.float32)
        >>> turnout.moe_combine(expert_output, experts, slots, 1, gates).tolist()
        [[17.5], [15.0]]
    """
    return _core.moe_combine(expert_output, indices, locations, capacity, gates, out)


def moe_combine_backward(
    grad_output: Source[R],
    expert_output: Array,
    indices: Array,
    locations: Array | None,
    gates: Source[R2],
    capacity: Int,
    *,
    out: tuple[R | None, R2 | None] | None = None,
) -> tuple[R, R2]:
    """The gradients of :func:`moe_combine`, with one read of ``grad_output``.

    ::

        grad_expert_output[row, :] = gates[i, k] * grad_output[i, :]    # rows without a token are zero
        grad_gates[i, k] = sum over j of grad_output[i, j] * expert_output[row, j]

    Returns:
        grad_expert_output: shaped like ``expert_output``. If several tokens have the same row, the last wins.
        grad_gates: shape and dtype of ``gates``.

    Example:
        >>> expert_output = np.array([[[10.0]], [[20.0]], [[30.0]]], np.float32)
        >>> experts, slots = np.array([[1, 0], [1, 2]]), np.array([[0, 0], [1, 0]])
        >>> gates = np.array([[0.75, 0.25], [0.5, 0.5]], np.float32)
        >>> grad = np.array([[1.0], [2.0]], np.float32)
        >>> of_output, of_gates = turnout.moe_combine_backward(grad, expert_output, experts, slots, gates, 1)
        >>> of_output.tolist(), of_gates.tolist()
        ([[[0.25]], [[0.75]], [[1.0]]], [[20.0, 10.0], [0.0, 60.0]])
    """
    return _core.moe_combine_backward(grad_output, expert_output, indices, locations, gates, capacity, out)
