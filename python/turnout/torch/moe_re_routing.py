"""Mixture of experts, after an all-to-all: tokens regrouped by expert, and back, as torch operators."""

from __future__ import annotations

import torch

from turnout import _core
from turnout.torch.messages import own_messages
from turnout.torch.registration import define

__all__ = ["moe_re_routing", "moe_re_routing_inverse"]

_empty = torch.empty


def _forward_cpu(
    tokens, expert_token_num_per_rank, per_token_scales=None, expert_token_num_type=1, idx_type=0
):
    permuted, scales, idx, num = _core.moe_re_routing(
        tokens.contiguous(),
        expert_token_num_per_rank.contiguous(),
        None if per_token_scales is None else per_token_scales.contiguous(),
        expert_token_num_type,
        idx_type,
        None,
        True,
    )
    # An operator of torch returns tensors, always: absent scales are an empty one.
    return permuted, _empty(0, dtype=torch.float32, device="cpu") if scales is None else scales, idx, num


def _forward_fake(
    tokens, expert_token_num_per_rank, per_token_scales=None, expert_token_num_type=1, idx_type=0
):
    if per_token_scales is None:
        scales = tokens.new_empty((0,), dtype=torch.float32)
    else:
        scales = per_token_scales.new_empty(per_token_scales.shape)
    return (
        tokens.new_empty(tokens.shape),
        scales,
        tokens.new_empty((tokens.shape[0],), dtype=torch.int32),
        expert_token_num_per_rank.new_empty((expert_token_num_per_rank.shape[1],)),
    )


def _forward_save(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[2])
    ctx.idx_type = inputs[4]


def _forward_backward(ctx, grad_tokens, grad_scales, grad_idx, grad_num):
    (idx,) = ctx.saved_tensors
    tokens = scales = None
    if grad_tokens is not None and ctx.needs_input_grad[0]:
        tokens = _inverse(grad_tokens, idx, ctx.idx_type)
    if grad_scales is not None and ctx.needs_input_grad[2]:
        rows = grad_scales if grad_scales.dim() == 2 else grad_scales.unsqueeze(1)
        scales = _inverse(rows, idx, ctx.idx_type).reshape(grad_scales.shape)
    return tokens, None, scales, None, None


def _inverse_cpu(permute_tokens, permute_token_idx, idx_type=0):
    return _core.moe_re_routing_inverse(
        permute_tokens.contiguous(), permute_token_idx.contiguous(), idx_type, None, True
    )


def _inverse_fake(permute_tokens, permute_token_idx, idx_type=0):
    return permute_tokens.new_empty(permute_tokens.shape)


def _inverse_save(ctx, inputs, output):
    ctx.save_for_backward(inputs[1])
    ctx.idx_type = inputs[2]


def _inverse_backward(ctx, grad):
    # The index of the one type, read as the other, undoes it.
    (idx,) = ctx.saved_tensors
    return _inverse(grad, idx, 1 - ctx.idx_type), None, None


_forward = define(
    "moe_re_routing(Tensor tokens, Tensor expert_token_num_per_rank, Tensor? per_token_scales=None, "
    "int expert_token_num_type=1, int idx_type=0) -> (Tensor, Tensor, Tensor, Tensor)",
    _forward_cpu,
    _forward_fake,
    save=_forward_save,
    backward=_forward_backward,
)
_inverse = define(
    "moe_re_routing_inverse(Tensor permute_tokens, Tensor permute_token_idx, int idx_type=0) -> Tensor",
    _inverse_cpu,
    _inverse_fake,
    save=_inverse_save,
    backward=_inverse_backward,
)


@own_messages()
def moe_re_routing(
    tokens: torch.Tensor,
    expert_token_num_per_rank: torch.Tensor,
    *,
    per_token_scales: torch.Tensor | None = None,
    expert_token_num_type: int = 1,
    idx_type: int = 0,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """Brings the tokens of each expert together, those of earlier ranks first.

    Returns permute_tokens, permute_per_token_scales (None without scales), permute_token_idx and
    expert_token_num. The definition is that of :func:`turnout.moe_re_routing`. Tensors may be strided.
    Floating tokens and scales have gradients: those of the results, brought back by the index.

    Example:
        >>> counts = torch.tensor([[2, 1], [1, 1]])  # rank 0 sent 2 tokens to expert 0 and 1 to expert 1
        >>> tokens = torch.arange(5.0).unsqueeze(1)
        >>> permuted, _, came_from, per_expert = turnout.torch.moe_re_routing(tokens, counts)
        >>> permuted.flatten().tolist(), per_expert.tolist()
        ([0.0, 1.0, 3.0, 2.0, 4.0], [3, 2])
    """
    permuted, scales, idx, num = _forward(
        tokens, expert_token_num_per_rank, per_token_scales, expert_token_num_type, idx_type
    )
    return permuted, None if per_token_scales is None else scales, idx, num


@own_messages()
def moe_re_routing_inverse(
    permute_tokens: torch.Tensor, permute_token_idx: torch.Tensor, *, idx_type: int = 0
) -> torch.Tensor:
    """The way back of :func:`moe_re_routing`, by its index and for the same ``idx_type``.

    The definition is that of :func:`turnout.moe_re_routing_inverse`. Tensors may be strided. Differentiable:
    the gradient is re-ordered by the index.

    Example:
        >>> tokens = torch.arange(5.0).unsqueeze(1)
        >>> permuted, _, came_from, _ = turnout.torch.moe_re_routing(tokens, torch.tensor([[2, 1], [1, 1]]))
        >>> turnout.torch.moe_re_routing_inverse(permuted, came_from).flatten().tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    return _inverse(permute_tokens, permute_token_idx, idx_type)
