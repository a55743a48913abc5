"""Mixture of experts with routings ``[samples, choices]``: slots, dispatch, combine; as torch operators."""

from __future__ import annotations

import torch

from turnout import _core
from turnout.torch.library import define
from turnout.torch.moe_dispatch import _backward, _backward_gate
from turnout.torch.sentences import own_sentences

__all__ = ["moe_combine", "moe_dispatch", "moe_locations"]


def _contiguous(tensor):
    return None if tensor is None else tensor.contiguous()


# -- slots -------------------------------------------------------------------------------------------------


def _locations_cpu(indices, num_experts, priority=None):
    return _core.moe_locations(indices.contiguous(), num_experts, _contiguous(priority), None, True)


def _locations_fake(indices, num_experts, priority=None):
    return indices.new_empty(indices.shape, dtype=torch.int32), indices.new_empty(
        (num_experts,), dtype=torch.int64
    )


# -- dispatch ----------------------------------------------------------------------------------------------


def _dispatch_cpu(input, indices, locations, gates, capacity, num_experts):
    return _core.moe_dispatch(
        input.contiguous(),
        indices.contiguous(),
        _contiguous(locations),
        capacity,
        num_experts,
        _contiguous(gates),
        None,
        True,
    ).flatten(0, 1)


def _dispatch_fake(input, indices, locations, gates, capacity, num_experts):
    return input.new_empty((num_experts * capacity, input.shape[1]))


def _dispatch_save(ctx, inputs, output):
    *tensors, ctx.capacity, ctx.num_experts = inputs
    ctx.save_for_backward(*tensors)


def _dots(tokens, routed, indices, locations, capacity, num_experts, dtype):
    """Dot products of tokens and their rows, ``[samples, choices]``."""
    slots = torch.zeros_like(indices) if locations is None else locations
    products = _backward_gate(indices.mT, slots.mT, tokens, routed, capacity, num_experts)
    return products.mT.to(dtype)


def _two_dimensional(*tensors):
    return (None if t is None else t.unsqueeze(1) if t.dim() == 1 else t for t in tensors)


def _dispatch_backward(ctx, grad):
    input, indices, locations, gates = ctx.saved_tensors
    needs_input, needs_gates = ctx.needs_input_grad[0], ctx.needs_input_grad[3]
    sizes = ctx.capacity, ctx.num_experts
    grad_input = grad_gates = None
    experts, slots, weights = _two_dimensional(indices, locations, gates)
    if needs_input and needs_gates and slots is not None and not torch.is_grad_enabled():
        grad_input, grad_gates = _backward(weights.mT, experts.mT, slots.mT, input, grad, *sizes)
        grad_gates = grad_gates.mT.reshape(gates.shape)
    else:
        if needs_input:
            grad_input = _combine(grad, indices, locations, gates, ctx.capacity)
        if needs_gates:
            grad_gates = _dots(input, grad, experts, slots, *sizes, gates.dtype).reshape(gates.shape)
    return grad_input, None, None, grad_gates, None, None


# -- combine -----------------------------------------------------------------------------------------------


def _combine_cpu(expert_output, indices, locations, gates, capacity):
    return _core.moe_combine(
        expert_output.contiguous(),
        indices.contiguous(),
        _contiguous(locations),
        capacity,
        _contiguous(gates),
        None,
        True,
    )


def _combine_fake(expert_output, indices, locations, gates, capacity):
    return expert_output.new_empty((indices.shape[0], expert_output.shape[1]))


def _combine_save(ctx, inputs, output):
    *tensors, ctx.capacity = inputs
    ctx.save_for_backward(*tensors)


def _combine_gradients(ctx, grad):
    expert_output, indices, locations, gates = ctx.saved_tensors
    needs_output, needs_gates = ctx.needs_input_grad[0], ctx.needs_input_grad[3]
    num_experts = expert_output.shape[0] // ctx.capacity if ctx.capacity else 0
    grad_output = grad_gates = None
    if needs_output and needs_gates and not torch.is_grad_enabled():
        grad_output, grad_gates = _combine_backward(
            grad, expert_output, indices, locations, gates, ctx.capacity
        )
    else:
        if needs_output and ctx.capacity:
            grad_output = _dispatch(grad, indices, locations, gates, ctx.capacity, num_experts)
        elif needs_output:
            grad_output = torch.zeros_like(expert_output)
        if needs_gates:
            experts, slots = _two_dimensional(indices, locations)
            grad_gates = _dots(grad, expert_output, experts, slots, ctx.capacity, num_experts, gates.dtype)
            grad_gates = grad_gates.reshape(gates.shape)
    return grad_output, None, None, grad_gates, None


def _combine_backward_cpu(grad_output, expert_output, indices, locations, gates, capacity):
    return _core.moe_combine_backward(
        grad_output.contiguous(),
        expert_output.contiguous(),
        indices.contiguous(),
        _contiguous(locations),
        capacity,
        gates.contiguous(),
        None,
        True,
    )


def _combine_backward_fake(grad_output, expert_output, indices, locations, gates, capacity):
    return expert_output.new_empty(expert_output.shape), gates.new_empty(gates.shape)


_locations = define(
    "moe_locations(Tensor indices, SymInt num_experts, Tensor? priority=None) -> (Tensor, Tensor)",
    _locations_cpu,
    _locations_fake,
)
_dispatch = define(
    "moe_dispatch(Tensor input, Tensor indices, Tensor? locations, Tensor? gates, SymInt capacity, "
    "SymInt num_experts) -> Tensor",
    _dispatch_cpu,
    _dispatch_fake,
    save=_dispatch_save,
    backward=_dispatch_backward,
)
_combine = define(
    "moe_combine(Tensor expert_output, Tensor indices, Tensor? locations, Tensor? gates, SymInt capacity) "
    "-> Tensor",
    _combine_cpu,
    _combine_fake,
    save=_combine_save,
    backward=_combine_gradients,
)
_combine_backward = define(
    "moe_combine_backward(Tensor grad_output, Tensor expert_output, Tensor indices, Tensor? locations, "
    "Tensor gates, SymInt capacity) -> (Tensor, Tensor)",
    _combine_backward_cpu,
    _combine_backward_fake,
    refuse=("grad_output", "expert_output", "gates"),
)


@own_sentences()
def moe_locations(
    indices: torch.Tensor, num_experts: int, *, priority: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The slot of each choice in its expert's buffer, and the choices of each expert.

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


@own_sentences()
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
    routings are ``[samples]`` or ``[samples, choices]``. Tensors may be strided.
    Differentiable in ``input`` and ``gates``. Where several tokens share a row, the ones that were
    overwritten still get its gradient.

    Example:
        >>> tokens = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> experts = torch.tensor([[1, 0], [1, 2]])  # each token's first and second choice
        >>> locations, _ = turnout.torch.moe_locations(experts, 3)
        >>> turnout.torch.moe_dispatch(tokens, experts, locations, capacity=1, num_experts=3).tolist()
        [[[1.0, 2.0]], [[1.0, 2.0]], [[3.0, 4.0]]]
    """
    dispatch = _dispatch(input, indices, locations, gates, capacity, num_experts)
    return dispatch.reshape(num_experts, capacity, dispatch.shape[1])


@own_sentences()
def moe_combine(
    expert_output: torch.Tensor,
    indices: torch.Tensor,
    locations: torch.Tensor | None,
    capacity: int,
    gates: torch.Tensor | None = None,
) -> torch.Tensor:
    """The weighted sum of what a token's experts gave for it: ``[samples, hidden]``.

    The definition is that of :func:`turnout.moe_combine`; ``expert_output`` is ``[num_experts, capacity,
    hidden]`` or ``[num_experts * capacity, hidden]``. Tensors may be strided.
    Differentiable in ``expert_output`` and ``gates``. Where several tokens read one row, its gradient is that
    of the last one.

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
    if expert_output.dim() == 3:
        if expert_output.shape[1] != capacity:
            raise ValueError(
                f"moe_combine: expert_output.shape[1] is {expert_output.shape[1]}, "
                f"expected {capacity} = capacity"
            )
        expert_output = expert_output.flatten(0, 1)
    return _combine(expert_output, indices, locations, gates, capacity)
