"""Pooling of whole batch elements, as torch operators with gradients."""

from __future__ import annotations

import torch

from turnout.torch.registration import gradient
from turnout.torch.scatter import scatter_sum

__all__ = ["global_avg_pool", "global_max_pool"]

_max = torch.ops.turnout.global_max_pool_forward.default
_max_grad = torch.ops.turnout.global_max_pool_backward.default
_avg = torch.ops.turnout.global_avg_pool_forward.default
_avg_grad = torch.ops.turnout.global_avg_pool_backward.default


@gradient("global_max_pool_forward", of="features", saves="features features_out indices")
def _(saved, grad):
    return {"features": _max_grad(saved.features, saved.features_out, grad, saved.indices)}


@gradient("global_max_pool_backward", of="output_grad", saves="features features_out indices")
def _(saved, grad):
    """The gradient is linear in output_grad, so its derivative is the transposed operation, a gather.

    Which inputs equal the maximum does not change with features, except where it has no derivative.
    """
    batch = saved.indices[:, 0].long()
    is_taken = saved.features == saved.features_out[batch]
    spread = torch.where(is_taken, grad, 0)
    return {"output_grad": scatter_sum(spread, batch, 0, saved.features_out.shape[0])}


def global_max_pool(features: torch.Tensor, indices: torch.Tensor, batch_size: int) -> torch.Tensor:
    """The maximum of each channel over the rows of each batch element; 0 for one without rows.

    The definition is that of :func:`turnout.global_max_pool_forward`. Tensors may be strided. ``features``
    has gradients of any order; every input that equals the maximum gets the whole gradient.

    Example:
        >>> features = torch.tensor([[1.0, 2.0], [4.0, 0.0], [-3.0, 6.0]])
        >>> indices = torch.tensor([[0, 5], [0, 9], [1, 5]])  # batch number, coordinate
        >>> turnout.torch.global_max_pool(features, indices, 2).tolist()
        [[4.0, 2.0], [-3.0, 6.0]]
    """
    return _max(features, indices, batch_size)


# Each of the two is the derivative of the other.


@gradient("global_avg_pool_forward", of="features", saves="indices")
def _(saved, grad):
    return {"features": _avg_grad(grad, saved.indices)}


@gradient("global_avg_pool_backward", of="output_grad", saves="indices", shapes="output_grad")
def _(saved, grad):
    return {"output_grad": _avg(grad, saved.indices, saved.output_grad_shape[0])}


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
