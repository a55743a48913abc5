"""Mixture of experts, after an all-to-all: regroups tokens by expert, and back, as torch operators."""

from __future__ import annotations

import torch

from turnout.torch.messages import own_messages
from turnout.torch.registration import gradient

__all__ = ["moe_re_routing", "moe_re_routing_inverse"]


_forward = torch.ops.turnout.moe_re_routing.default
_inverse = torch.ops.turnout.moe_re_routing_inverse.default


@gradient(
    "moe_re_routing",
    of="tokens per_token_scales",
    saves="permute_token_idx",
    materialize=False,
)
def _(saved, grad_tokens, grad_scales, grad_idx, grad_num):
    grads = {}
    if grad_tokens is not None and saved.needs.tokens:
        grads["tokens"] = _inverse(grad_tokens, saved.permute_token_idx, saved.idx_type)
    if grad_scales is not None and saved.needs.per_token_scales:
        rows = grad_scales if grad_scales.dim() == 2 else grad_scales.unsqueeze(1)
        scales = _inverse(rows, saved.permute_token_idx, saved.idx_type)
        grads["per_token_scales"] = scales.reshape(grad_scales.shape)
    return grads


@gradient("moe_re_routing_inverse", of="permute_tokens", saves="permute_token_idx")
def _(saved, grad):
    # An index of one type, read as the other type, is the inverse.
    return {"permute_tokens": _inverse(grad, saved.permute_token_idx, 1 - saved.idx_type)}


@own_messages()
def moe_re_routing(
    tokens: torch.Tensor,
    expert_token_num_per_rank: torch.Tensor,
    *,
    per_token_scales: torch.Tensor | None = None,
    expert_token_num_type: int = 1,
    idx_type: int = 0,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """Groups the tokens by expert, and within each expert by rank.

    Returns permute_tokens, permute_per_token_scales (None without scales), permute_token_idx and
    expert_token_num. The definition is that of :func:`turnout.moe_re_routing`. Tensors may be strided.
    Differentiable in floating-point tokens and scales.

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
    """The inverse of :func:`moe_re_routing`, given its index and the same ``idx_type``.

    The definition is that of :func:`turnout.moe_re_routing_inverse`. Tensors may be strided. Differentiable
    in ``permute_tokens``.

    Example:
        >>> tokens = torch.arange(5.0).unsqueeze(1)
        >>> permuted, _, came_from, _ = turnout.torch.moe_re_routing(tokens, torch.tensor([[2, 1], [1, 1]]))
        >>> turnout.torch.moe_re_routing_inverse(permuted, came_from).flatten().tolist()
        [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    return _inverse(permute_tokens, permute_token_idx, idx_type)
