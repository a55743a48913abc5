"""The expert block with 8-bit and 4-bit weights as a torch operator, with gradients for the tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from turnout.quantization import quantize_each
from turnout.torch.messages import own_messages
from turnout.torch.moe_experts import _composed, _gradients, _options_of
from turnout.torch.registration import gradient

if TYPE_CHECKING:
    from turnout.typing import ExpertActivation

__all__ = ["moe_experts_quantized", "quantize_experts"]

_quantized = torch.ops.turnout.moe_experts_quantized.default


def _dequantized(values, scale, dtype):
    if values.dtype == torch.int8:
        return (values * scale).to(dtype)
    groups = values.view(*scale.shape, 16)
    elements = torch.cat([groups & 15, groups >> 4], dim=-1).to(torch.int8) - 8
    return (elements * scale[..., None]).flatten(2).to(dtype)


@gradient(
    "moe_experts_quantized",
    of="hidden_states topk_weights w13_bias w2_bias",
    saves="hidden_states topk_ids topk_weights w13 w13_scale w2 w2_scale w13_bias w2_bias",
)
def _(saved, grad):
    """The gradient of moe_experts, with weights in the dtype of the tokens; scales have no gradient."""
    if saved.needs.w13_scale or saved.needs.w2_scale:
        raise RuntimeError("moe_experts_quantized: w13_scale and w2_scale have no gradient")
    dtype, options = saved.hidden_states.dtype, _options_of(saved)

    def block(hidden_states, topk_weights, w13_bias, w2_bias):
        w13, w2 = (
            _dequantized(saved.w13, saved.w13_scale, dtype),
            _dequantized(saved.w2, saved.w2_scale, dtype),
        )
        return _composed(hidden_states, saved.topk_ids, topk_weights, w13, w2, w13_bias, w2_bias, *options)

    names = "hidden_states", "topk_weights", "w13_bias", "w2_bias"
    return _gradients(block, {name: getattr(saved, name) for name in names}, saved.needs, grad)


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
    gated: bool = True,
    interleaved: bool = False,
    alpha: float = 1.702,
    limit: float | None = None,
) -> torch.Tensor:
    """:func:`turnout.moe_experts_quantized` with gradients for the tokens, ``topk_weights`` and biases.

    The weights and their scales have no gradients. The backward pass converts the weights to the dtype of the
    tokens, which needs memory for all of them.

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
        gated, interleaved, alpha, limit,
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
