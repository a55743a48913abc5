"""The definitions of grouped products and of the expert block, and checks against them."""

from __future__ import annotations

import itertools
import math

import numpy as np

import turnout

__all__ = [
    "dequantized",
    "expert_activation_backward",
    "grouped_mm",
    "grouped_mm_backward_weight",
    "moe_experts",
    "moe_experts_forward",
    "moe_experts_quantized",
]


def grouped_mm(input, weight, *, offs, bias=None):
    """The definition of ``turnout.grouped_mm``, in float64."""
    out = np.zeros((len(input), weight.shape[2]))
    begin = 0
    for group, end in enumerate(np.asarray(offs).tolist()):
        out[begin:end] = np.asarray(input[begin:end], np.float64) @ np.asarray(weight[group], np.float64)
        if bias is not None:
            out[begin:end] += np.asarray(bias[group], np.float64)
        begin = end
    return out


def grouped_mm_backward_weight(input, out_grad, *, offs):
    """The definition of ``turnout.grouped_mm_backward_weight``, in float64."""
    bounds = [0, *np.asarray(offs).tolist()]
    x, y = (np.asarray(a, np.float64) for a in (input, out_grad))
    groups = [slice(a, b) for a, b in itertools.pairwise(bounds)]
    return np.stack([x[g].T @ y[g] for g in groups]), np.stack([y[g].sum(axis=0) for g in groups])


def _activated(activation, x, alpha):
    match activation:
        case "silu":
            return x / (1 + np.exp(-x))
        case "gelu":
            return 0.5 * x * np.vectorize(math.erfc)(-x * math.sqrt(0.5))
        case "gelu_tanh":
            return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        case "relu":
            return np.maximum(x, 0)
        case _:
            return x / (1 + np.exp(-alpha * x))


def moe_experts(
    hidden_states, topk_ids, topk_weights, w13, w2, *, w13_bias=None, w2_bias=None, activation="silu",
    interleaved=False, transposed=False, alpha=1.702, limit=None, gated=True,
):  # fmt: skip
    """The definition of ``turnout.moe_experts``, in float64."""
    x, gates, up, down = (np.asarray(a, np.float64) for a in (hidden_states, topk_weights, w13, w2))
    if transposed:
        up, down = up.swapaxes(1, 2), down.swapaxes(1, 2)
    inner = down.shape[2]
    out = np.zeros(x.shape)
    for t, k in np.ndindex(*np.shape(topk_ids)):
        expert = int(topk_ids[t, k])
        if not 0 <= expert < len(up):
            continue
        a = up[expert] @ x[t]
        if w13_bias is not None:
            a = a + np.asarray(w13_bias[expert], np.float64)
        if gated:
            gate, value = (a[::2], a[1::2]) if interleaved else (a[:inner], a[inner:])
            if activation == "swigluoai":
                most = math.inf if limit is None else limit
                gate, value = np.minimum(gate, most), np.clip(value, -most, most) + 1
            h = _activated(activation, gate, alpha) * value
        else:
            h = _activated(activation, a, alpha)
        y = down[expert] @ h
        if w2_bias is not None:
            y = y + np.asarray(w2_bias[expert], np.float64)
        out[t] += gates[t, k] * y
    return out


def moe_experts_forward(hidden_states, topk_ids, topk_weights, w13, w2, *, w13_bias=None, **options):
    """The definition of ``turnout.moe_experts_forward``, in float64."""
    x, up = np.asarray(hidden_states, np.float64), np.asarray(w13, np.float64)
    ids, choices = np.ravel(topk_ids), np.shape(topk_ids)[1]
    products = np.zeros((len(ids), up.shape[1]))
    ordered = [(expert, q) for expert in range(len(up)) for q in np.flatnonzero(ids == expert)]
    for row, (expert, q) in enumerate(ordered):
        bias = 0 if w13_bias is None else np.asarray(w13_bias[expert], np.float64)
        products[row] = up[expert] @ x[q // choices] + bias
    options["w13_bias"] = w13_bias
    return moe_experts(hidden_states, topk_ids, topk_weights, w13, w2, **options), products


def expert_activation_backward(
    products, inner_grad, row_weights, *, activation="silu", gated=True, interleaved=False, alpha=1.702,
    limit=None,
):  # fmt: skip
    """The definition of ``turnout.expert_activation_backward``, in float64, by central differences."""
    a, grad, weights = (np.asarray(x, np.float64) for x in (products, inner_grad, row_weights))
    inner = grad.shape[1]

    def h(a):
        if not gated:
            return _activated(activation, a, alpha)
        gate, up = (a[:, ::2], a[:, 1::2]) if interleaved else (a[:, :inner], a[:, inner:])
        if activation == "swigluoai":
            most = math.inf if limit is None else limit
            gate, up = np.minimum(gate, most), np.clip(up, -most, most) + 1
        return _activated(activation, gate, alpha) * up

    products_grad, step = np.zeros_like(a), 1e-6
    for column in range(a.shape[1]):
        shift = np.zeros(a.shape[1])
        shift[column] = step
        change = (h(a + shift) - h(a - shift)) / (2 * step)
        products_grad[:, column] = weights * (grad * change).sum(axis=1)
    return products_grad, weights[:, None] * h(a), (grad * h(a)).sum(axis=1)


def dequantized(values, scale):
    """Decodes the results of ``turnout.quantize_experts`` to float64."""
    scale = np.asarray(scale, np.float64)
    if values.dtype == np.int8:
        return values * scale
    groups = values.reshape(*scale.shape, 16)
    elements = np.concatenate([groups & 15, groups >> 4], axis=-1).astype(np.float64) - 8
    return (elements * scale[..., None]).reshape(*values.shape[:2], -1)


def moe_experts_quantized(hidden_states, topk_ids, topk_weights, w13, w13_scale, w2, w2_scale, **options):
    """The definition of ``turnout.moe_experts_quantized``, in float64."""
    weights = dequantized(w13, w13_scale), dequantized(w2, w2_scale)
    return moe_experts(hidden_states, topk_ids, topk_weights, *weights, **options)


def _check_grouped_mm(rng: np.random.Generator) -> None:
    x = rng.standard_normal((23, 17)).astype(np.float32)
    w = rng.standard_normal((4, 9, 17)).astype(np.float32).swapaxes(1, 2)
    y = rng.standard_normal((23, 9)).astype(np.float32)
    offs = np.int32([5, 5, 14, 20])
    np.testing.assert_allclose(turnout.grouped_mm(x, w, offs=offs), grouped_mm(x, w, offs=offs), atol=1e-4)
    found = turnout.grouped_mm_backward_weight(x, y, offs=offs, with_bias=True)
    for result, expected in zip(found, grouped_mm_backward_weight(x, y, offs=offs), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-4)


def _check_moe_experts(rng: np.random.Generator) -> None:
    tokens, hidden, inner, experts = 11, 24, 10, 5
    x = rng.standard_normal((tokens, hidden)).astype(np.float32)
    ids = rng.integers(-1, experts + 1, (tokens, 2))
    gates = rng.random((tokens, 2), dtype=np.float32)
    w13 = rng.standard_normal((experts, 2 * inner, hidden)).astype(np.float32) / 5
    w2 = rng.standard_normal((experts, hidden, inner)).astype(np.float32) / 3
    for activation in ("silu", "gelu", "gelu_tanh", "relu", "swigluoai"):
        options = {"activation": activation, "limit": 1.0}
        found = turnout.moe_experts(x, ids, gates, w13, w2, **options)
        np.testing.assert_allclose(found, moe_experts(x, ids, gates, w13, w2, **options), atol=1e-4)
        found = turnout.moe_experts_forward(x, ids, gates, w13, w2, **options)
        expected = moe_experts_forward(x, ids, gates, w13, w2, **options)
        for result, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(result, right, atol=1e-4)


def _check_activation(rng: np.random.Generator) -> None:
    products = rng.standard_normal((7, 26)).astype(np.float32)
    inner_grad = rng.standard_normal((7, 13)).astype(np.float32)
    weights = rng.random(7, dtype=np.float32)
    for activation in ("silu", "gelu", "gelu_tanh", "relu", "swigluoai"):
        for interleaved in (False, True):
            options = {"activation": activation, "interleaved": interleaved, "limit": 1.0}
            found = turnout.expert_activation_backward(products, inner_grad, weights, **options)
            expected = expert_activation_backward(products, inner_grad, weights, **options)
            for result, right in zip(found, expected, strict=True):
                np.testing.assert_allclose(result, right, atol=1e-4)


def _check_quantized(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 64)).astype(np.float32)
    ids, gates = rng.integers(-1, 5, (3, 2)), rng.random((3, 2), dtype=np.float32)
    for bits in (8, 4):
        w13 = turnout.quantize_experts(rng.standard_normal((4, 64, 64)).astype(np.float32) / 8, bits=bits)
        w2 = turnout.quantize_experts(rng.standard_normal((4, 64, 32)).astype(np.float32) / 6, bits=bits)
        found = turnout.moe_experts_quantized(x, ids, gates, *w13, *w2)
        np.testing.assert_allclose(found, moe_experts_quantized(x, ids, gates, *w13, *w2), atol=1e-4)


CHECKS = {
    "grouped_mm": _check_grouped_mm,
    "grouped_mm_backward_weight": _check_grouped_mm,
    "expert_activation_backward": _check_activation,
    "moe_experts": _check_moe_experts,
    "moe_experts_forward": _check_moe_experts,
    "moe_experts_quantized": _check_quantized,
}
