"""The expert block with weights of 8 and 4 bits as a torch operator, with gradients for the tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from turnout import _core
from turnout.quantization import quantize_each
from turnout.torch.messages import own_messages
from turnout.torch.moe_experts import _composed, _contiguous
from turnout.torch.registration import define

if TYPE_CHECKING:
    from turnout.typing import ExpertActivation

__all__ = ["moe_experts_quantized", "quantize_experts"]


def _dequantized(values, scale, dtype):
    if values.dtype == torch.int8:
        return (values * scale).to(dtype)
    groups = values.view(*scale.shape, 16)
    elements = torch.cat([groups & 15, groups >> 4], dim=-1).to(torch.int8) - 8
    return (elements * scale[..., None]).flatten(2).to(dtype)


def _quantized_cpu(
    x, ids, weights, w13, w13_scale, w2, w2_scale, w13_bias, w2_bias, activation, interleaved, gated, alpha,
    limit,
):  # fmt: skip
    return _core.moe_experts_quantized(
        x.contiguous(), ids.contiguous(), weights.contiguous(), w13.contiguous(), w13_scale.contiguous(),
        w2.contiguous(), w2_scale.contiguous(), _contiguous(w13_bias), _contiguous(w2_bias), activation,
        interleaved, gated, alpha, limit, None, True,
    )  # fmt: skip


def _quantized_fake(
    x, ids, weights, w13, w13_scale, w2, w2_scale, w13_bias, w2_bias, activation, interleaved, gated, alpha,
    limit,
):  # fmt: skip
    return x.new_empty(x.shape)


def _quantized_save(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:9])
    ctx.options = inputs[9:]


def _quantized_gradients(ctx, grad):
    """As :func:`_experts_gradients`, with the weights in the dtype of the tokens; scales have no gradient."""
    if ctx.needs_input_grad[4] or ctx.needs_input_grad[6]:
        raise RuntimeError("moe_experts_quantized: w13_scale and w2_scale have no gradient")
    x, ids, weights, w13, w13_scale, w2, w2_scale, w13_bias, w2_bias = ctx.saved_tensors
    tensors = [x, ids, weights, w13_bias, w2_bias]
    needs = [ctx.needs_input_grad[i] for i in (0, 1, 2, 7, 8)]
    with torch.enable_grad():
        tensors = [t.view_as(t) if need else t for t, need in zip(tensors, needs, strict=True)]
        x, ids, weights, w13_bias, w2_bias = tensors
        first, second = _dequantized(w13, w13_scale, x.dtype), _dequantized(w2, w2_scale, x.dtype)
        output = _composed(x, ids, weights, first, second, w13_bias, w2_bias, *ctx.options)
    wanted = [t for t, need in zip(tensors, needs, strict=True) if need]
    found = iter(torch.autograd.grad(output, wanted, grad, create_graph=torch.is_grad_enabled()))
    x, ids, weights, w13_bias, w2_bias = (next(found) if need else None for need in needs)
    return x, None, weights, None, None, None, None, w13_bias, w2_bias, *[None] * len(ctx.options)


_quantized = define(
    "moe_experts_quantized(Tensor hidden_states, Tensor topk_ids, Tensor topk_weights, Tensor w13, "
    "Tensor w13_scale, Tensor w2, Tensor w2_scale, Tensor? w13_bias, Tensor? w2_bias, str activation, "
    "bool interleaved, bool gated, float alpha, float? limit) -> Tensor",
    _quantized_cpu,
    _quantized_fake,
    save=_quantized_save,
    backward=_quantized_gradients,
)


@own_messages()
def moe_experts_quantized(
    hidden_states: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w13_scale: torch.Tensor,
    w2: torch.Tensor,
    w2_scale: torch.Tensor,
    *,
    w13_bias: torch.Tensor | None = None,
    w2_bias: torch.Tensor | None = None,
    activation: ExpertActivation = "silu",
    interleaved: bool = False,
    alpha: float = 1.702,
    limit: float | None = None,
    gated: bool = True,
) -> torch.Tensor:
    """:func:`turnout.moe_experts_quantized` with gradients for the tokens, ``topk_weights`` and biases.

    The weights and their scales have none. The backward pass makes the weights of the dtype of the tokens
    again, which takes their memory.

    Example:
        >>> tokens, ids = torch.tensor([[1.0, 2.0]], requires_grad=True), torch.tensor([[0]])
        >>> w13, w13_scale = turnout.torch.quantize_experts(torch.tensor([[[127.0, 0.0]]]))
        >>> w2, w2_scale = turnout.torch.quantize_experts(torch.tensor([[[254.0], [0.0]]]))
        >>> y = turnout.torch.moe_experts_quantized(
        ...     tokens, ids, torch.ones(1, 1), w13, w13_scale, w2, w2_scale, activation="relu", gated=False
        ... )
        >>> y.sum().backward()
        >>> y.tolist(), tokens.grad.tolist()
        ([[32258.0, 0.0]], [[32258.0, 0.0]])
    """
    return _quantized(
        hidden_states, topk_ids, topk_weights, w13, w13_scale, w2, w2_scale, w13_bias, w2_bias, activation,
        interleaved, gated, alpha, limit,
    )  # fmt: skip


@torch.no_grad()
def quantize_experts(weight: torch.Tensor, *, bits: Literal[8, 4] = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`turnout.quantize_experts` for tensors of any float dtype.

    Example:
        >>> values, scale = turnout.torch.quantize_experts(torch.tensor([[[1.0, -2.0, 0.5]]]))
        >>> values.flatten().tolist(), round(scale.item() * 127, 6)
        ([64, -127, 32], 2.0)
    """
    values, scale = quantize_each(weight.shape, lambda expert: weight[expert].float().numpy(), bits)
    return torch.from_numpy(values), torch.from_numpy(scale)
