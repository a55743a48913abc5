"""Mixture of experts with routings ``[choices, samples]``: dispatch and its gradients, as torch operators.

The three movements are each other's gradients: dispatch and weighted sum of each other, and both together
those of the dot products. So all of them can be differentiated any number of times.
"""

from __future__ import annotations

import torch

from turnout import _core
from turnout.torch.library import define
from turnout.torch.sentences import own_sentences

__all__ = [
    "moe_dispatch_backward",
    "moe_dispatch_backward_data",
    "moe_dispatch_backward_gate",
    "moe_dispatch_forward",
]


def _forward_cpu(gates, indices, locations, input, capacity, num_experts):
    return _core.moe_dispatch_forward(
        gates.contiguous(),
        indices.contiguous(),
        locations.contiguous(),
        input.contiguous(),
        capacity,
        num_experts,
        None,
        True,
    )


def _forward_fake(gates, indices, locations, input, capacity, num_experts):
    return input.new_empty((num_experts * capacity, input.shape[1]))


def _save(ctx, inputs, output):
    *tensors, ctx.capacity, ctx.num_experts = inputs
    ctx.save_for_backward(*tensors)


def _forward_backward(ctx, grad):
    gates, indices, locations, input = ctx.saved_tensors
    needs_gates, _, _, needs_input = ctx.needs_input_grad[:4]
    grad_gates = grad_input = None
    if needs_gates and needs_input and not torch.is_grad_enabled():
        grad_input, grad_gates = _backward(
            gates, indices, locations, input, grad, ctx.capacity, ctx.num_experts
        )
    else:
        if needs_input:
            grad_input = _backward_data(gates, indices, locations, grad, ctx.capacity, ctx.num_experts)
        if needs_gates:
            grad_gates = _backward_gate(indices, locations, input, grad, ctx.capacity, ctx.num_experts)
            grad_gates = grad_gates.to(gates.dtype)
    return grad_gates, None, None, grad_input, None, None


def _backward_data_cpu(gates, indices, locations, dispatch, capacity, num_experts):
    return _core.moe_dispatch_backward_data(
        None if gates is None else gates.contiguous(),
        indices.contiguous(),
        locations.contiguous(),
        dispatch.contiguous(),
        capacity,
        num_experts,
        None,
        True,
    )


def _backward_data_fake(gates, indices, locations, dispatch, capacity, num_experts):
    return dispatch.new_empty((indices.shape[-1], dispatch.shape[1]))


def _backward_data_backward(ctx, grad):
    gates, indices, locations, dispatch = ctx.saved_tensors
    needs_gates, _, _, needs_dispatch = ctx.needs_input_grad[:4]
    grad_gates = grad_dispatch = None
    if needs_dispatch:
        weights = torch.ones_like(indices, dtype=grad.dtype) if gates is None else gates
        grad_dispatch = _forward(weights, indices, locations, grad, ctx.capacity, ctx.num_experts)
    if needs_gates:
        grad_gates = _backward_gate(indices, locations, grad, dispatch, ctx.capacity, ctx.num_experts)
        grad_gates = grad_gates.to(gates.dtype)
    return grad_gates, None, None, grad_dispatch, None, None


def _backward_gate_cpu(indices, locations, input, dispatch, capacity, num_experts):
    return _core.moe_dispatch_backward_gate(
        indices.contiguous(),
        locations.contiguous(),
        input.contiguous(),
        dispatch.contiguous(),
        capacity,
        num_experts,
        None,
        True,
    )


def _backward_gate_fake(indices, locations, input, dispatch, capacity, num_experts):
    return input.new_empty(indices.shape)


def _backward_gate_backward(ctx, grad):
    indices, locations, input, dispatch = ctx.saved_tensors
    _, _, needs_input, needs_dispatch = ctx.needs_input_grad[:4]
    grad_input = grad_dispatch = None
    if needs_input:
        grad_input = _backward_data(grad, indices, locations, dispatch, ctx.capacity, ctx.num_experts)
    if needs_dispatch:
        grad_dispatch = _forward(grad, indices, locations, input, ctx.capacity, ctx.num_experts)
    return None, None, grad_input, grad_dispatch, None, None


def _backward_cpu(gates, indices, locations, input, dispatch, capacity, num_experts):
    return _core.moe_dispatch_backward(
        gates.contiguous(),
        indices.contiguous(),
        locations.contiguous(),
        input.contiguous(),
        dispatch.contiguous(),
        capacity,
        num_experts,
        None,
        True,
    )


def _backward_fake(gates, indices, locations, input, dispatch, capacity, num_experts):
    return input.new_empty(input.shape), gates.new_empty(gates.shape)


_forward = define(
    "moe_dispatch_forward(Tensor gates, Tensor indices, Tensor locations, Tensor input, SymInt capacity, "
    "SymInt num_experts) -> Tensor",
    _forward_cpu,
    _forward_fake,
    save=_save,
    backward=_forward_backward,
)
_backward_data = define(
    "moe_dispatch_backward_data(Tensor? gates, Tensor indices, Tensor locations, Tensor dispatch, "
    "SymInt capacity, SymInt num_experts) -> Tensor",
    _backward_data_cpu,
    _backward_data_fake,
    save=_save,
    backward=_backward_data_backward,
)
_backward_gate = define(
    "moe_dispatch_backward_gate(Tensor indices, Tensor locations, Tensor input, Tensor dispatch, "
    "SymInt capacity, SymInt num_experts) -> Tensor",
    _backward_gate_cpu,
    _backward_gate_fake,
    save=_save,
    backward=_backward_gate_backward,
)
_backward = define(
    "moe_dispatch_backward(Tensor gates, Tensor indices, Tensor locations, Tensor input, Tensor dispatch, "
    "SymInt capacity, SymInt num_experts) -> (Tensor, Tensor)",
    _backward_cpu,
    _backward_fake,
    refuse=("gates", "input", "dispatch"),
)


@own_sentences()
def moe_dispatch_forward(
    gates: torch.Tensor,
    indices: torch.Tensor,
    locations: torch.Tensor,
    input: torch.Tensor,
    capacity: int,
    num_experts: int,
) -> torch.Tensor:
    """Copies each token, times its gate, to its slot in its expert's buffer; other slots are zero.

    The definition is that of :func:`turnout.moe_dispatch_forward`, with routings ``[choices, samples]``.
    Tensors may be strided. Differentiable in ``gates`` and ``input``. :func:`moe_dispatch` takes routings as
    ``torch.topk`` gives them.

    Example:
        >>> tokens = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
        >>> gates = torch.tensor([1.0, 0.5, 2.0])
        >>> experts, slots = torch.tensor([1, 0, 1]), torch.tensor([0, 0, 1])
        >>> rows = turnout.torch.moe_dispatch_forward(gates, experts, slots, tokens, 2, num_experts=2)
        >>> rows.tolist()
        [[1.5, 2.0], [0.0, 0.0], [1.0, 2.0], [10.0, 12.0]]
        >>> rows.sum().backward()
        >>> tokens.grad.tolist()
        [[1.0, 1.0], [0.5, 0.5], [2.0, 2.0]]
    """
    return _forward(gates, indices, locations, input, capacity, num_experts)


@own_sentences()
def moe_dispatch_backward_data(
    gates: torch.Tensor | None,
    indices: torch.Tensor,
    locations: torch.Tensor,
    dispatch: torch.Tensor,
    capacity: int,
    num_experts: int,
) -> torch.Tensor:
    """The gradient of :func:`moe_dispatch_forward` with respect to ``input``; without gates they are ones.

    The definition is that of :func:`turnout.moe_dispatch_backward_data`. Differentiable in ``gates`` and
    ``dispatch``.

    Example:
        >>> gates = torch.tensor([1.0, 0.5, 2.0])
        >>> experts, slots = torch.tensor([1, 0, 1]), torch.tensor([0, 0, 1])
        >>> grad = torch.arange(8.0).reshape(4, 2)  # of the rows of both experts
        >>> turnout.torch.moe_dispatch_backward_data(gates, experts, slots, grad, 2, 2).tolist()
        [[4.0, 5.0], [0.0, 0.5], [12.0, 14.0]]
    """
    return _backward_data(gates, indices, locations, dispatch, capacity, num_experts)


@own_sentences()
def moe_dispatch_backward_gate(
    indices: torch.Tensor,
    locations: torch.Tensor,
    input: torch.Tensor,
    dispatch: torch.Tensor,
    capacity: int,
    num_experts: int,
) -> torch.Tensor:
    """The gradient of :func:`moe_dispatch_forward` with respect to ``gates``, in the dtype of ``input``.

    The definition is that of :func:`turnout.moe_dispatch_backward_gate`. Differentiable in ``input`` and
    ``dispatch``.

    Example:
        >>> tokens = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> experts, slots = torch.tensor([1, 0, 1]), torch.tensor([0, 0, 1])
        >>> grad = torch.arange(8.0).reshape(4, 2)
        >>> turnout.torch.moe_dispatch_backward_gate(experts, slots, tokens, grad, 2, 2).tolist()
        [14.0, 4.0, 72.0]
    """
    return _backward_gate(indices, locations, input, dispatch, capacity, num_experts)


@own_sentences()
def moe_dispatch_backward(
    gates: torch.Tensor,
    indices: torch.Tensor,
    locations: torch.Tensor,
    input: torch.Tensor,
    dispatch: torch.Tensor,
    capacity: int,
    num_experts: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both gradients of :func:`moe_dispatch_forward`, with one read of ``dispatch``.

    Without a gradient of its own: tensors that require grad are refused while grad mode is on.

    Example:
        >>> tokens = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> gates = torch.tensor([1.0, 0.5, 2.0])
        >>> experts, slots = torch.tensor([1, 0, 1]), torch.tensor([0, 0, 1])
        >>> grad = torch.arange(8.0).reshape(4, 2)
        >>> grads = turnout.torch.moe_dispatch_backward(gates, experts, slots, tokens, grad, 2, 2)
        >>> [grad.tolist() for grad in grads]
        [[[4.0, 5.0], [0.0, 0.5], [12.0, 14.0]], [14.0, 4.0, 72.0]]
    """
    return _backward(gates, indices, locations, input, dispatch, capacity, num_experts)
