"""Mixture of experts with routings ``[choices, samples]``: dispatch and its gradients, as torch operators.

Dispatch and weighted sum are each other's gradients, and the gradients of the dot products. So all of them
can be differentiated any number of times.
"""

from __future__ import annotations

import torch

from turnout.torch.messages import own_messages
from turnout.torch.registration import gradient

__all__ = [
    "moe_dispatch_backward",
    "moe_dispatch_backward_data",
    "moe_dispatch_backward_gate",
    "moe_dispatch_forward",
]


_forward = torch.ops.turnout.moe_dispatch_forward.default
_backward_data = torch.ops.turnout.moe_dispatch_backward_data.default
_backward_gate = torch.ops.turnout.moe_dispatch_backward_gate.default
_backward = torch.ops.turnout.moe_dispatch_backward.default


@gradient("moe_dispatch_forward", of="gates input", saves="gates indices locations input")
def _(saved, grad):
    routing, sizes = (saved.indices, saved.locations), (saved.capacity, saved.num_experts)
    needs = saved.needs
    if needs.gates and needs.input and not torch.is_grad_enabled():
        grad_input, grad_gates = _backward(saved.gates, *routing, saved.input, grad, *sizes)
        return {"gates": grad_gates, "input": grad_input}
    grads = {}
    if needs.input:
        grads["input"] = _backward_data(saved.gates, *routing, grad, *sizes)
    if needs.gates:
        grads["gates"] = _backward_gate(*routing, saved.input, grad, *sizes).to(saved.gates.dtype)
    return grads


@gradient("moe_dispatch_backward_data", of="gates dispatch", saves="gates indices locations dispatch")
def _(saved, grad):
    routing, sizes = (saved.indices, saved.locations), (saved.capacity, saved.num_experts)
    grads = {}
    if saved.needs.dispatch:
        ones = saved.gates is None
        weights = torch.ones_like(saved.indices, dtype=grad.dtype) if ones else saved.gates
        grads["dispatch"] = _forward(weights, *routing, grad, *sizes)
    if saved.needs.gates:
        grads["gates"] = _backward_gate(*routing, grad, saved.dispatch, *sizes).to(saved.gates.dtype)
    return grads


@gradient("moe_dispatch_backward_gate", of="input dispatch", saves="indices locations input dispatch")
def _(saved, grad):
    routing, sizes = (saved.indices, saved.locations), (saved.capacity, saved.num_experts)
    grads = {}
    if saved.needs.input:
        grads["input"] = _backward_data(grad, *routing, saved.dispatch, *sizes)
    if saved.needs.dispatch:
        grads["dispatch"] = _forward(grad, *routing, saved.input, *sizes)
    return grads


@own_messages()
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
    ``torch.topk`` returns them.

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


@own_messages()
def moe_dispatch_backward_data(
    gates: torch.Tensor | None,
    indices: torch.Tensor,
    locations: torch.Tensor,
    dispatch: torch.Tensor,
    capacity: int,
    num_experts: int,
) -> torch.Tensor:
    """The gradient of :func:`moe_dispatch_forward` with respect to ``input``; if gates is None, all are 1.

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


@own_messages()
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


@own_messages()
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

    It is not differentiable: with grad mode on, a tensor that requires grad is an error.

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
