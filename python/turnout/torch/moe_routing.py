"""Mixture of experts with routings ``[samples, choices]``: slots, dispatch and combine as torch operators."""

from __future__ import annotations

import torch

from turnout.torch.messages import own_messages
from turnout.torch.moe_dispatch import _backward, _backward_gate
from turnout.torch.registration import gradient

__all__ = ["moe_combine", "moe_dispatch", "moe_locations"]


_locations = torch.ops.turnout.moe_locations.default
_dispatch = torch.ops.turnout.moe_dispatch.default
_combine = torch.ops.turnout.moe_combine.default
_combine_backward = torch.ops.turnout.moe_combine_backward.default


def _dots(tokens, routed, indices, locations, capacity, num_experts, dtype):
    """Dot products of tokens and their rows, ``[samples, choices]``."""
    slots = torch.zeros_like(indices) if locations is None else locations
    rows = routed.reshape(-1, tokens.shape[1])
    products = _backward_gate(indices.mT, slots.mT, tokens, rows, capacity, num_experts)
    return products.mT.to(dtype)


def _two_dimensional(*tensors):
    return (None if t is None else t.unsqueeze(1) if t.dim() == 1 else t for t in tensors)


@gradient("moe_dispatch", of="input gates", saves="input indices locations gates")
def _(saved, grad):
    sizes, gates, grads = (saved.capacity, saved.num_experts), saved.gates, {}
    experts, slots, weights = _two_dimensional(saved.indices, saved.locations, gates)
    if saved.needs.input and saved.needs.gates and slots is not None and not torch.is_grad_enabled():
        rows = grad.reshape(-1, grad.shape[2])
        grad_input, grad_gates = _backward(weights.mT, experts.mT, slots.mT, saved.input, rows, *sizes)
        return {"input": grad_input, "gates": grad_gates.mT.reshape(gates.shape)}
    if saved.needs.input:
        grads["input"] = _combine(grad, saved.indices, saved.locations, saved.capacity, gates)
    if saved.needs.gates:
        products = _dots(saved.input, grad, experts, slots, *sizes, gates.dtype)
        grads["gates"] = products.reshape(gates.shape)
    return grads


@gradient("moe_combine", of="expert_output gates", saves="expert_output indices locations gates")
def _(saved, grad):
    expert_output, gates, capacity, grads = saved.expert_output, saved.gates, saved.capacity, {}
    routing = saved.indices, saved.locations
    if saved.needs.expert_output and saved.needs.gates and not torch.is_grad_enabled():
        grad_output, grad_gates = _combine_backward(grad, expert_output, *routing, gates, capacity)
        return {"expert_output": grad_output, "gates": grad_gates}
    rows = expert_output.reshape(-1, expert_output.shape[-1])
    num_experts = rows.shape[0] // capacity if capacity else 0
    if saved.needs.expert_output and capacity:
        dispatched = _dispatch(grad, *routing, capacity, num_experts, gates)
        grads["expert_output"] = dispatched.reshape(expert_output.shape)
    elif saved.needs.expert_output:
        grads["expert_output"] = torch.zeros_like(expert_output)
    if saved.needs.gates:
        experts, slots = _two_dimensional(*routing)
        products = _dots(grad, rows, experts, slots, capacity, num_experts, gates.dtype)
        grads["gates"] = products.reshape(gates.shape)
    return grads


@own_messages()
def moe_locations(
    indices: torch.Tensor, num_experts: int, *, priority: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The slot of each choice in its expert's buffer, and the number of choices of each expert.

    The definition is that of :func:`turnout.moe_locations`: first choices of all tokens before second ones,
    tokens in descending order of ``priority``. Returns locations, int32 and shaped like ``indices``, and
    counts ``[num_experts]``, int64. There is no gradient.

    Example:
        >>> experts = torch.tensor([[1, 0], [1, 2], [0, 1]])  # each token's first and second choice
        >>> locations, counts = turnout.torch.moe_locations(experts, 3)
        >>> locations.tolist(), counts.tolist()
        ([[0, 1], [1, 0], [0, 2]], [2, 3, 1])
    """
    return _locations(indices, num_experts, None if priority is None else priority.detach())


@own_messages()
def moe_dispatch(
    input: torch.Tensor,
    indices: torch.Tensor,
    locations: torch.Tensor | None,
    capacity: int,
    num_experts: int,
    gates: torch.Tensor | None = None,
) -> torch.Tensor:
    """Copies each token to its slots in its experts' buffers, times its gates.

    Returns ``[num_experts, capacity, hidden]``. The definition is that of :func:`turnout.moe_dispatch`;
    routings are ``[samples]`` or ``[samples, choices]``. Tensors may be strided. Differentiable in ``input``
    and ``gates``. If several tokens share a row, the overwritten ones still get its gradient.

    Example:
        >>> tokens = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> experts = torch.tensor([[1, 0], [1, 2]])  # each token's first and second choice
        >>> locations, _ = turnout.torch.moe_locations(experts, 3)
        >>> turnout.torch.moe_dispatch(tokens, experts, locations, capacity=1, num_experts=3).tolist()
        [[[1.0, 2.0]], [[1.0, 2.0]], [[3.0, 4.0]]]
    """
    return _dispatch(input, indices, locations, capacity, num_experts, gates)


@own_messages()
def moe_combine(
    expert_output: torch.Tensor,
    indices: torch.Tensor,
    locations: torch.Tensor | None,
    capacity: int,
    gates: torch.Tensor | None = None,
) -> torch.Tensor:
    """The weighted sum of the experts' outputs for each token: ``[samples, hidden]``.

    The definition is that of :func:`turnout.moe_combine`; ``expert_output`` is ``[num_experts, capacity,
    hidden]`` or ``[num_experts * capacity, hidden]``. Tensors may be strided. Differentiable in
    ``expert_output`` and ``gates``. If several tokens read the same row, its gradient is that of the last.

    Example:
        >>> expert_output = torch.tensor([[[10.0]], [[20.0]], [[30.0]]])  # three experts with one slot
        >>> experts = torch.tensor([[1, 0], [1, 2]])
        >>> slots = torch.tensor([[0, 0], [1, 0]])  # slot 1 is beyond the capacity: that choice was dropped
        >>> gates = torch.tensor([[0.75, 0.25], [0.5, 0.5]], requires_grad=True)
        >>> output = turnout.torch.moe_combine(expert_output, experts, slots, 1, gates)
        >>> output.tolist()
        [[17.5], [15.0]]
        >>> output.sum().backward()
        >>> gates.grad.tolist()
        [[20.0, 10.0], [0.0, 30.0]]
    """
    return _combine(expert_output, indices, locations, capacity, gates)
