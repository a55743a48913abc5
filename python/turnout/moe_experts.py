"""Mixture of experts: grouped matrix products, and the expert block with weights of 32 to 4 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import Array, ExpertActivation, ExpertPrecision, NumPyArray, R, Source

__all__ = [
    "expert_activation_backward",
    "grouped_mm",
    "grouped_mm_backward_weight",
    "moe_experts",
    "moe_experts_forward",
    "moe_experts_quantized",
    "quantize_experts",
]


def grouped_mm(
    input: Source[R], weight: Array, *, offs: Array, bias: Array | None = None, out: R | None = None
) -> R:
    """Multiplies each group of rows by its own matrix.

    ::

        out[s, :] = input[s, :] @ weight[g] + bias[g]    for offs[g - 1] <= s < offs[g]
        out[s, :] = 0                                    for s >= offs[-1]

    Args:
        input: ``[rows, depth]``, float32, float64, float16 or bfloat16.
        weight: ``[groups, depth, columns]``, with the same dtype and any strides; it is not copied.
        offs: ``[groups]``, int32 or int64: the end of each group, ascending, ``0 .. rows``.
        bias: ``[groups, columns]`` or None.
        out: output array, ``[rows, columns]``.

    Returns:
        ``out``, or a new array. Sums are in float32 (float64 for float64) and are rounded once.

    Example:
        >>> rows = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
        >>> weight = np.array([[[1.0], [1.0]], [[10.0], [0.0]]], np.float32)  # two groups, one column
        >>> turnout.grouped_mm(rows, weight, offs=np.array([2, 3])).ravel().tolist()
        [3.0, 7.0, 50.0]
    """
    return _core.grouped_mm(input, weight, offs, bias, out)


def grouped_mm_backward_weight(
    input: Source[R],
    out_grad: Array,
    *,
    offs: Array,
    with_bias: bool = False,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R | None]:
    """The gradients of :func:`grouped_mm` for its weight and bias, given that of its result.

    The gradient of its input is ``grouped_mm(out_grad, weight.swapaxes(1, 2), offs=offs)``.

    Returns:
        weight_grad: ``[groups, depth, columns]``; zero for an empty group.
        bias_grad: ``[groups, columns]``, or None unless ``with_bias``.

    Example:
        >>> rows = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
        >>> grad = np.array([[1.0], [1.0], [10.0]], np.float32)
        >>> weight_grad, bias_grad = turnout.grouped_mm_backward_weight(
        ...     rows, grad, offs=np.array([2, 3]), with_bias=True
        ... )
        >>> weight_grad.reshape(2, 2).tolist(), bias_grad.ravel().tolist()
        ([[4.0, 6.0], [50.0, 60.0]], [2.0, 10.0])
    """
    return _core.grouped_mm_backward_weight(input, out_grad, offs, with_bias, out)


def moe_experts(
    hidden_states: Source[R],
    topk_ids: Array,
    topk_weights: Array,
    w13: Array,
    w2: Array,
    *,
    w13_bias: Array | None = None,
    w2_bias: Array | None = None,
    activation: ExpertActivation = "silu",
    gated: bool = True,
    interleaved: bool = False,
    alpha: float = 1.702,
    limit: float | None = None,
    precision: ExpertPrecision = "float32",
    transposed: bool = False,
    out: R | None = None,
) -> R:
    """The expert block of a mixture: the weighted sum of the experts' outputs for each token.

    ::

        a = w13[e] @ hidden_states[t] + w13_bias[e]           for each e = topk_ids[t, k]
        h = activation(gate of a) * (up of a)                 not gated: activation(a)
        out[t] = sum over k of topk_weights[t, k] * (w2[e] @ h + w2_bias[e])

    Args:
        hidden_states: ``[tokens, hidden]``, float32, float16 or bfloat16.
        topk_ids: ``[tokens, choices]``, int32 or int64. An id outside ``0 .. experts-1`` adds nothing.
        topk_weights: ``[tokens, choices]``, with the dtype of the tokens or float32.
        w13: ``[experts, 2 * inner, hidden]``: the gate rows, then the up rows. It has the dtype of the
            tokens, or is float16 or bfloat16 with float32 tokens. Any strides; it is not copied.
        w2: ``[experts, hidden, inner]``, with the dtype of ``w13`` and any strides.
        w13_bias: ``[experts, 2 * inner]``, with the dtype of ``w13`` or float32.
        w2_bias: ``[experts, hidden]``, with the dtype of ``w13`` or float32.
        activation: "silu", "gelu", "gelu_tanh", "relu", or "swigluoai", the activation of GPT-OSS.
        gated: if False, ``w13`` has ``inner`` rows and no gate.
        interleaved: whether gate and up rows alternate.
        alpha: parameter of "swigluoai".
        limit: parameter of "swigluoai"; None means no limit.
        precision: precision of products with bfloat16 weights on a CPU that multiplies bfloat16. "float32"
            splits float32 operands into two bfloat16 numbers, which keep 16 bits; "bfloat16" rounds them.
        transposed: if True, ``w13`` is ``[experts, hidden, 2 * inner]``, ``w2`` ``[experts, inner, hidden]``.
        out: output array, ``[tokens, hidden]``.

    Returns:
        ``out``, or a new array. Intermediate values are float32; the result is rounded once.

    Example:
        >>> tokens = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
        >>> ids = np.array([[0, 1], [1, 2]])  # there is no expert 2: that choice adds nothing
        >>> weights = np.array([[0.5, 0.5], [0.5, 0.5]], np.float32)
        >>> first = np.array([[[1.0, 0.0]], [[0.0, 1.0]]], np.float32)  # expert 0 takes the first column
        >>> second = np.array([[[2.0], [0.0]], [[0.0], [2.0]]], np.float32)
        >>> turnout.moe_experts(tokens, ids, weights, first, second, activation="relu", gated=False).tolist()
        [[1.0, 2.0], [0.0, 4.0]]
    """
    if transposed is not False:
        return _core.moe_experts_transposed(
            hidden_states, topk_ids, topk_weights, w13, w2, w13_bias, w2_bias, activation, gated,
            interleaved, alpha, limit, precision, transposed, out,
        )  # fmt: skip
    return _core.moe_experts(
        hidden_states, topk_ids, topk_weights, w13, w2, w13_bias, w2_bias, activation, gated, interleaved,
        alpha, limit, precision, out,
    )  # fmt: skip


def moe_experts_forward(
    hidden_states: Source[R],
    topk_ids: Array,
    topk_weights: Array,
    w13: Array,
    w2: Array,
    *,
    w13_bias: Array | None = None,
    w2_bias: Array | None = None,
    activation: ExpertActivation = "silu",
    gated: bool = True,
    interleaved: bool = False,
    alpha: float = 1.702,
    limit: float | None = None,
    precision: ExpertPrecision = "float32",
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """:func:`moe_experts` that also returns the products with ``w13``, which its gradient needs.

    Args:
        hidden_states, topk_ids, topk_weights, w13, w2, w13_bias, w2_bias: as for :func:`moe_experts`.
        activation, gated, interleaved, alpha, limit, precision: as for :func:`moe_experts`.
        out: output arrays, each may be None.

    Returns:
        out: the result of :func:`moe_experts`.
        products: ``[tokens * choices, 2 * inner]``: ``w13[e] @ hidden_states[t] + w13_bias[e]`` for the
            choices of expert 0, then of expert 1, and so on, rounded to the dtype of the tokens. The rows of
            choices without an expert follow and are 0.

    Example:
        >>> tokens, ids = np.array([[1.0], [2.0]], np.float32), np.array([[1], [0]])
        >>> first, second = np.array([[[3.0]], [[5.0]]], np.float32), np.ones((2, 1, 1), np.float32)
        >>> out, products = turnout.moe_experts_forward(
        ...     tokens, ids, np.ones((2, 1), np.float32), first, second, activation="relu", gated=False
        ... )
        >>> out.ravel().tolist(), products.ravel().tolist()
        ([5.0, 6.0], [6.0, 5.0])
    """
    return _core.moe_experts_forward(
        hidden_states, topk_ids, topk_weights, w13, w2, w13_bias, w2_bias, activation, gated, interleaved,
        alpha, limit, precision, out,
    )  # fmt: skip


def expert_activation_backward(
    products: Source[R],
    inner_grad: Array,
    row_weights: Array,
    *,
    activation: ExpertActivation = "silu",
    gated: bool = True,
    interleaved: bool = False,
    alpha: float = 1.702,
    limit: float | None = None,
    out: tuple[R | None, R | None, R | None] | None = None,
) -> tuple[R, R, R]:
    """The gradient of the activation between the two products of :func:`moe_experts`.

    ``h`` is the activation of ``products``. The gradients of a whole block are two calls of
    :func:`grouped_mm` and two of :func:`grouped_mm_backward_weight` around this one.

    Args:
        products: ``[rows, 2 * inner]``, or ``[rows, inner]`` if not gated; float32, float16 or bfloat16.
        inner_grad: ``[rows, inner]``, the gradient of ``h`` before it is multiplied by ``row_weights``.
        row_weights: ``[rows]``, the routing weight of each row; the dtype of ``products`` or float32.
        activation, gated, interleaved, alpha, limit: as for :func:`moe_experts`.
        out: output arrays, each may be None.

    Returns:
        products_grad: the gradient of ``row_weights * sum(inner_grad * h)`` for ``products``.
        weighted_inner: ``row_weights * h``.
        row_weights_grad: ``sum(inner_grad * h)`` of each row, float32.

    Example:
        >>> products, grad = np.array([[2.0, -1.0]], np.float32), np.array([[5.0, 7.0]], np.float32)
        >>> for result in turnout.expert_activation_backward(
        ...     products, grad, np.array([10.0], np.float32), activation="relu", gated=False
        ... ):
        ...     print(result.tolist())
        [[50.0, 0.0]]
        [[20.0, 0.0]]
        [10.0]
    """
    return _core.expert_activation_backward(
        products, inner_grad, row_weights, activation, gated, interleaved, alpha, limit, out
    )


def moe_experts_quantized(
    hidden_states: Source[R],
    topk_ids: Array,
    topk_weights: Array,
    w13: Array,
    w13_scale: Array,
    w2: Array,
    w2_scale: Array,
    *,
    w13_bias: Array | None = None,
    w2_bias: Array | None = None,
    activation: ExpertActivation = "silu",
    gated: bool = True,
    interleaved: bool = False,
    alpha: float = 1.702,
    limit: float | None = None,
    out: R | None = None,
) -> R:
    """:func:`moe_experts` with 8-bit or 4-bit weights, as :func:`quantize_experts` returns them.

    With few tokens, reading weights takes most of the time, and these have half or less than a third of the
    bytes of float16. Only the weights are rounded, not the tokens or intermediate values.

    Args:
        hidden_states: ``[tokens, hidden]``, float32, float16 or bfloat16.
        topk_ids: ``[tokens, choices]``, int32 or int64. An id outside ``0 .. experts-1`` adds nothing.
        topk_weights: ``[tokens, choices]``, with the dtype of the tokens or float32.
        w13: int8 ``[experts, 2 * inner, hidden]``, or for 4 bits uint8 ``[experts, 2 * inner, hidden / 2]``
            with ``hidden`` and ``inner`` multiples of 32. Contiguous, like all other arrays.
        w13_scale: ``[experts, 2 * inner, 1]``, or for 4 bits ``[experts, 2 * inner, hidden / 32]``; float32,
            float16 or bfloat16.
        w2: ``[experts, hidden, inner]`` or ``[experts, hidden, inner / 2]``.
        w2_scale: ``[experts, hidden, 1]`` or ``[experts, hidden, inner / 32]``.
        w13_bias: ``[experts, 2 * inner]``, with the dtype of the tokens or float32.
        w2_bias: ``[experts, hidden]``, with the dtype of the tokens or float32.
        activation, gated, interleaved, alpha, limit: as for :func:`moe_experts`.
        out: output array, ``[tokens, hidden]``.

    Example:
        >>> tokens, ids = np.array([[1.0, 2.0]], np.float32), np.array([[0]])
        >>> w13, w13_scale = turnout.quantize_experts(np.array([[[127.0, 0.0]]], np.float32))
        >>> w2, w2_scale = turnout.quantize_experts(np.array([[[254.0], [0.0]]], np.float32))
        >>> turnout.moe_experts_quantized(
        ...     tokens, ids, np.ones((1, 1), np.float32), w13, w13_scale, w2, w2_scale,
        ...     activation="relu", gated=False,
        ... ).tolist()
        [[32258.0, 0.0]]
    """
    return _core.moe_experts_quantized(
        hidden_states, topk_ids, topk_weights, w13, w13_scale, w2, w2_scale, w13_bias, w2_bias, activation,
        gated, interleaved, alpha, limit, out,
    )  # fmt: skip


def quantize_experts(weight: NumPyArray, *, bits: Literal[8, 4] = 8) -> tuple[NumPyArray, NumPyArray]:
    """Rounds weights ``[experts, rows, depth]`` to 8 or 4 bits, for :func:`moe_experts_quantized`.

    With 8 bits, values are int8 with one scale per row; the largest magnitude becomes 127. With 4 bits, a
    byte holds two elements, and there is one scale per 32 elements of a row; the element with the largest
    magnitude becomes -8. Experts are processed one at a time, without a second copy of all weights.

    Returns:
        values: int8 ``[experts, rows, depth]``, or uint8 ``[experts, rows, depth / 2]``.
        scale: float32 ``[experts, rows, 1]``, or ``[experts, rows, depth / 32]``.

    Example:
        >>> values, scale = turnout.quantize_experts(np.array([[[1.0, -2.0, 0.5]]], np.float32))
        >>> values.ravel().tolist(), round(float(scale[0, 0, 0]) * 127, 6)
        ([64, -127, 32], 2.0)
    """
    from turnout.quantization import quantize_each  # imports NumPy, which `import turnout` does not

    return quantize_each(weight.shape, lambda expert: weight[expert].astype("float32"), bits)
