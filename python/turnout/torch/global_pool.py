"""Pooling of whole batch elements, as torch operators with gradients."""

from __future__ import annotations

import torch

from turnout import _core
from turnout.torch.registration import define
from turnout.torch.scatter import scatter_sum

__all__ = ["global_avg_pool", "global_max_pool"]


def _max_cpu(features, indices, batch_size):
    return _core.global_max_pool_forward(features.contiguous(), indices.contiguous(), batch_size, None, True)


def _forward_fake(features, indices, batch_size):
    return features.new_empty((batch_size, features.shape[1]))


def _max_save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output, inputs[1])


def _max_backward(ctx, grad):
    features, output, indices = ctx.saved_tensors
    return _max_grad(features, output, grad, indices), None, None


def _max_grad_cpu(features, features_out, output_grad, indices):
    tensors = (x.contiguous() for x in (features, features_out, output_grad, indices))
    return _core.global_max_pool_backward(*tensors, None, True)


def _max_grad_fake(features, features_out, output_grad, indices):
    return features.new_empty(features.shape)


def _max_grad_save(ctx, inputs, output):
    features, features_out, _, indices = inputs
    ctx.save_for_backward(features, features_out, indices)


def _max_grad_backward(ctx, grad):
    """The gradient is linear in output_grad: its derivative gathers what it has spread.

    Which inputs equal the maximum does not change with features, except where it has no derivative.
    """
    features, features_out, indices = ctx.saved_tensors
    batch = indices[:, 0].long()
    is_taken = features == features_out[batch]
    return None, None, scatter_sum(torch.where(is_taken, grad, 0), batch, 0, features_out.shape[0]), None


_max = define(
    "global_max_pool_forward(Tensor features, Tensor indices, SymInt batch_size) -> Tensor",
    _max_cpu,
    _forward_fake,
    save=_max_save,
    backward=_max_backward,
)
_max_grad = define(
    "global_max_pool_backward(Tensor features, Tensor features_out, Tensor output_grad, Tensor indices) "
    "-> Tensor",
    _max_grad_cpu,
    _max_grad_fake,
    save=_max_grad_save,
    backward=_max_grad_backward,
)


def global_max_pool(features: torch.Tensor, indices: torch.Tensor, batch_size: int) -> torch.Tensor:
    """The maximum of each channel over the rows of each batch element; 0 for one without rows.

    The definition is that of :func:`turnout.global_max_pool_forward`. Tensors may be strided. ``features``
    has gradients of any order: every input that equals the maximum gets all of it.

    Example:
        >>> features = torch.tensor([[1.0, 2.0], [4.0, 0.0], [-3.0, 6.0]])
        >>> indices = torch.tensor([[0, 5], [0, 9], [1, 5]])  # batch number, coordinate
        >>> turnout.torch.global_max_pool(features, indices, 2).tolist()
        [[4.0, 2.0], [-3.0, 6.0]]
    """
    return _max(features, indices, batch_size)


def _avg_cpu(features, indices, batch_size):
    return _core.global_avg_pool_forward(features.contiguous(), indices.contiguous(), batch_size, None, True)


def _avg_grad_cpu(output_grad, indices):
    return _core.global_avg_pool_backward(output_grad.contiguous(), indices.contiguous(), None, True)


def _avg_grad_fake(output_grad, indices):
    return output_grad.new_empty((indices.shape[0], output_grad.shape[1]))


# Each of the two is the derivative of the other.


def _avg_save(ctx, inputs, output):
    ctx.save_for_backward(inputs[1])


def _avg_backward(ctx, grad):
    return _avg_grad(grad, *ctx.saved_tensors), None, None


def _avg_grad_save(ctx, inputs, output):
    output_grad, indices = inputs
    ctx.save_for_backward(indices)
    ctx.batch_size = output_grad.shape[0]


def _avg_grad_backward(ctx, grad):
    return _avg(grad, *ctx.saved_tensors, ctx.batch_size), None


_avg = define(
    "global_avg_pool_forward(Tensor features, Tensor indices, SymInt batch_size) -> Tensor",
    _avg_cpu,
    _forward_fake,
    save=_avg_save,
    backward=_avg_backward,
)
_avg_grad = define(
    "global_avg_pool_backward(Tensor output_grad, Tensor indices) -> Tensor",
    _avg_grad_cpu,
    _avg_grad_fake,
    save=_avg_grad_save,
    backward=_avg_grad_backward,
)


def global_avg_pool(features: torch.Tensor, indices: torch.Tensor, batch_size: int) -> torch.Tensor:
    """The mean of each channel over the rows of each batch element; 0 for one without rows.

    The definition is that of :func:`turnout.global_avg_pool_forward`. Tensors may be strided. ``features``
    has gradients of any order.

    Example:
        >>> features = torch.tensor([[1.0, 2.0], [4.0, 0.0], [-3.0, 6.0]])
        >>> indices = torch.tensor([[0, 5], [0, 9], [1, 5]])  # batch number, coordinate
        >>> turnout.torch.global_avg_pool(features, indices, 2).tolist()
        [[2.5, 1.0], [-3.0, 6.0]]
    """
    return _avg(features, indices, batch_size)
