"""Mixture of experts: products of groups of rows with a matrix each, and the whole expert block."""

from __future__ import annotations

from typing import Any

from turnout import _core

__all__ = ["grouped_mm", "grouped_mm_backward_weight", "moe_experts"]

Array = Any  # of NumPy, torch, or any library that speaks DLPack


def grouped_mm(
    input: Array, weight: Array, *, offs: Array, bias: Array | None = None, out: Array | None = None
) -> Array:
    """Multiplies groups of rows with a matrix each.

    ::

        out[s, :] = input[s, :] @ weight[g] + bias[g]    for offs[g - 1] <= s < offs[g]
        out[s, :] = 0                                    for s >= offs[-1]

    Args:
        input: ``[rows, depth]``, float32, float64, float16 or bfloat16.
        weight: ``[groups, depth, columns]`` of the same dtype, with any strides; no copy is made.
        offs: ``[groups]``, int32 or int64: where each group ends, ascending, ``0 .. rows``.
        bias: ``[groups, columns]``.
        out: where to write, ``[rows, columns]``.

    Returns:
        ``out``, or a new array. Sums are in float32 (float64 for float64), rounded once.
    """
    return _core.grouped_mm(input, weight, offs, bias, out, False)


def grouped_mm_backward_weight(
    input: Array,
    out_grad: Array,
    *,
    offs: Array,
    with_bias: bool = False,
    out: tuple[Array | None, Array | None] | None = None,
) -> tuple[Array, Array | None]:
    """The gradients of :func:`grouped_mm` for its weight and bias, given that of its result.

    The gradient of its input is ``grouped_mm(out_grad, weight.swapaxes(1, 2), offs=offs)``.

    Returns:
        weight_grad: ``[groups, depth, columns]``; zero for an empty group.
        bias_grad: ``[groups, columns]``, or None without ``with_bias``.
    """
    return _core.grouped_mm_backward_weight(input, out_grad, offs, with_bias, out, False)


def moe_experts(
    hidden_states: Array,
    topk_ids: Array,
    topk_weights: Array,
    w13: Array,
    w2: Array,
    *,
    w13_bias: Array | None = None,
    w2_bias: Array | None = None,
    activation: str = "silu",
    interleaved: bool = False,
    transposed: bool = False,
    alpha: float = 1.702,
    limit: float | None = None,
    gated: bool = True,
    out: Array | None = None,
) -> Array:
    """The expert block of a mixture: for each token the weighted sum of what its experts give.

    ::

        a = w13[e] @ hidden_states[t] + w13_bias[e]           for each e = topk_ids[t, k]
        h = activation(gate of a) * (up of a)                 not gated: activation(a)
        out[t] = sum over k of topk_weights[t, k] * (w2[e] @ h + w2_bias[e])

    Args:
        hidden_states: ``[tokens, hidden]``, float32, float16 or bfloat16.
        topk_ids: ``[tokens, choices]``, int32 or int64. An id outside of ``0 .. experts-1`` adds nothing.
        topk_weights: ``[tokens, choices]``, of the dtype of the tokens or float32.
        w13: ``[experts, 2 * inner, hidden]``: the gate rows, then the up rows. Of the dtype of the tokens, or
            float16 or bfloat16 beside float32. Any strides; no copy is made.
        w2: ``[experts, hidden, inner]``, likewise.
        w13_bias: ``[experts, 2 * inner]``.
        w2_bias: ``[experts, hidden]``.
        activation: "silu", "gelu", "gelu_tanh", "relu" or "swigluoai", which is that of GPT-OSS.
        interleaved: gate and up rows alternate.
        transposed: ``w13`` is ``[experts, hidden, 2 * inner]`` and ``w2`` is ``[experts, inner, hidden]``.
        alpha: of "swigluoai".
        limit: of "swigluoai"; None: no limit.
        gated: False: ``w13`` has ``inner`` rows, and no gate.
        out: where to write, ``[tokens, hidden]``.

    Returns:
        ``out``, or a new array. Everything between is float32; the result is rounded once.
    """
    if transposed:
        w13, w2 = w13.swapaxes(1, 2), w2.swapaxes(1, 2)
    return _core.moe_experts(
        hidden_states, topk_ids, topk_weights, w13, w2, w13_bias, w2_bias, activation, interleaved, gated,
        alpha, limit, out, False,
    )  # fmt: skip
