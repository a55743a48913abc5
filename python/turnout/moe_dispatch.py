"""Mixture of experts: copies tokens into their experts' buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import R2, Array, Int, R, Source

__all__ = [
    "moe_dispatch_backward",
    "moe_dispatch_backward_data",
    "moe_dispatch_backward_gate",
    "moe_dispatch_forward",
]


def moe_dispatch_forward(
    gates: Array,
    indices: Array,
    locations: Array,
    input: Source[R],
    capacity: Int,
    num_experts: Int,
    *,
    out: R | None = None,
) -> R:
    """Copies each token, times its gate, to its slot in its expert's buffer.

    ::

        for k in 0 .. choices-1, i in 0 .. samples-1, in this order:
            if 0 <= indices[k, i] < num_experts and 0 <= locations[k, i] < capacity:
                dispatch[indices[k, i] * capacity + locations[k, i], :] = gates[k, i] * input[i, :]

    A token whose expert or slot is out of range is dropped; no index value is an error. If several tokens
    have the same row, the last one wins. Rows without a token are zero, or keep their contents if ``out`` is
    given. Each product is rounded once, in the tokens' dtype; 16-bit floats are multiplied in float32 and
    rounded to nearest even. The bits depend on neither the number of threads nor the instruction set.

    Arrays are in CPU memory. Inputs may be read-only and strided; strided inputs are copied first. ``out``
    must be contiguous. If the call fails, nothing is written.

    Args:
        gates: weights, ``[samples]`` or ``[choices, samples]``, with the dtype of ``input`` or float32.
        indices: expert of each token, int32 or int64, shaped like ``gates``.
        locations: slot of each token in its expert's buffer, int32 or int64, shaped like ``gates``.
        input: tokens, ``[samples, hidden]``, float32, float64, float16 or bfloat16.
        capacity: number of slots per expert.
        num_experts: number of experts.
        out: output array, ``[num_experts * capacity, hidden]``, with the dtype of ``input``. It may overlap
            ``input``, which is then copied first.

    Returns:
        ``out``, or a new array: a torch tensor if ``input`` is one, otherwise a NumPy array.

    Raises:
        ValueError: if arguments are inconsistent; the message names the first one.
        TypeError: if an argument is not an array, or not an integer.

    Example:
        >>> tokens = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
        >>> gates = np.array([1.0, 0.5, 2.0], np.float32)
        >>> experts, slots = np.array([1, 0, 1]), np.array([0, 0, 1])
        >>> turnout.moe_dispatch_forward(gates, experts, slots, tokens, capacity=2, num_experts=2).tolist()
        [[1.5, 2.0], [0.0, 0.0], [1.0, 2.0], [10.0, 12.0]]
    """
    return _core.moe_dispatch_forward(gates, indices, locations, input, capacity, num_experts, out)


def moe_dispatch_backward_data(
    gates: Array | None,
    indices: Array,
    locations: Array,
    dispatch: Source[R],
    capacity: Int,
    num_experts: Int,
    *,
    out: R | None = None,
) -> R:
    """The gradient of :func:`moe_dispatch_forward` with respect to ``input``.

    ::

        row = indices[k, i] * capacity + locations[k, i]
        grad_input[i, :] = sum over k of gates[k, i] * dispatch[row, :]

    A dropped choice adds +0. Terms are added in ascending k. Each product and each sum is rounded separately,
    in float64 for float64 and in float32 for all other dtypes, and the result is rounded once to its dtype.
    The bits depend on neither the number of threads nor the instruction set. A token that was overwritten in
    the forward call still gets a gradient.

    Args:
        gates: as in the forward call; None means all ones.
        indices, locations: as in the forward call, ``[samples]`` or ``[choices, samples]``.
        dispatch: the gradient of the forward result, ``[num_experts * capacity, hidden]``.
        capacity, num_experts: as in the forward call.
        out: output array, ``[samples, hidden]``, with the dtype of ``dispatch``; all of it is written.

    Returns:
        ``out``, or a new array of the same type as ``dispatch``.

    Example:
        >>> gates = np.array([1.0, 0.5, 2.0], np.float32)
        >>> experts, slots = np.array([1, 0, 1]), np.array([0, 0, 1])
        >>> grad = np.arange(8, dtype=np.float32).reshape(4, 2)  # of the rows of both experts
        >>> turnout.moe_dispatch_backward_data(gates, experts, slots, grad, 2, 2).tolist()
        [[4.0, 5.0], [0.0, 0.5], [12.0, 14.0]]
    """
    return _core.moe_dispatch_backward_data(gates, indices, locations, dispatch, capacity, num_experts, out)


def moe_dispatch_backward_gate(
    indices: Array,
    locations: Array,
    input: Source[R],
    dispatch: Array,
    capacity: Int,
    num_experts: Int,
    *,
    out: R | None = None,
) -> R:
    """The gradient of :func:`moe_dispatch_forward` with respect to ``gates``.

    ::

        grad_gates[k, i] = sum over j of input[i, j] * dispatch[indices[k, i] * capacity + locations[k, i], j]

    The gradient of a dropped choice is 0. Products are summed in float32 over up to 1024 columns, and these
    sums in float64; for float64 all sums are in float64. The bits do not depend on the number of threads.

    Args:
        indices, locations: as in the forward call, ``[samples]`` or ``[choices, samples]``.
        input: the tokens of the forward call, ``[samples, hidden]``.
        dispatch: the gradient of the forward result, ``[num_experts * capacity, hidden]``.
        capacity, num_experts: as in the forward call.
        out: output array, shaped like ``indices``, with the dtype of ``input`` or float32.

    Returns:
        ``out``, or a new array with the dtype of ``input``.

    Example:
        >>> tokens = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
        >>> experts, slots = np.array([1, 0, 1]), np.array([0, 0, 1])
        >>> grad = np.arange(8, dtype=np.float32).reshape(4, 2)
        >>> turnout.moe_dispatch_backward_gate(experts, slots, tokens, grad, 2, 2).tolist()
        [14.0, 4.0, 72.0]
    """
    return _core.moe_dispatch_backward_gate(indices, locations, input, dispatch, capacity, num_experts, out)


def moe_dispatch_backward(
    gates: Source[R2],
    indices: Array,
    locations: Array,
    input: Source[R],
    dispatch: Array,
    capacity: Int,
    num_experts: Int,
    *,
    out: tuple[R | None, R2 | None] | None = None,
) -> tuple[R, R2]:
    """Both gradients of :func:`moe_dispatch_forward`, with one read of ``dispatch``.

    Returns grad_input and grad_gates as :func:`moe_dispatch_backward_data` and
    :func:`moe_dispatch_backward_gate` define them, with the dtypes of ``input`` and ``gates``.

    Example:
        >>> tokens = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
        >>> gates = np.array([1.0, 0.5, 2.0], np.float32)
        >>> experts, slots = np.array([1, 0, 1]), np.array([0, 0, 1])
        >>> grad = np.arange(8, dtype=np.float32).reshape(4, 2)
        >>> tokens_grad, gates_grad = turnout.moe_dispatch_backward(gates, experts, slots, tokens, grad, 2, 2)
        >>> tokens_grad.tolist(), gates_grad.tolist()
        ([[4.0, 5.0], [0.0, 0.5], [12.0, 14.0]], [14.0, 4.0, 72.0])
    """
    return _core.moe_dispatch_backward(gates, indices, locations, input, dispatch, capacity, num_experts, out)
