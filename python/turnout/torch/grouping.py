"""Grouping, gathering and interpolation of features, as torch operators with gradients.

Results may be modified in place before the backward pass: no gradient needs them.
"""

from __future__ import annotations

import torch

from turnout.torch.messages import own_messages
from turnout.torch.registration import gradient

__all__ = [
    "gather_points",
    "group_points",
    "group_points_stacked",
    "three_interpolate",
    "three_interpolate_stacked",
]

_group = torch.ops.turnout.group_points.default
_group_backward = torch.ops.turnout.group_points_backward.default
_gather = torch.ops.turnout.gather_points.default
_gather_backward = torch.ops.turnout.gather_points_backward.default
_group_stacked = torch.ops.turnout.group_points_stacked.default
_group_stacked_backward = torch.ops.turnout.group_points_stacked_backward.default
_interpolate = torch.ops.turnout.three_interpolate.default
_interpolate_backward = torch.ops.turnout.three_interpolate_backward.default
_interpolate_stacked = torch.ops.turnout.three_interpolate_stacked.default
_interpolate_stacked_backward = torch.ops.turnout.three_interpolate_stacked_backward.default


# Each operator is the derivative of its own gradient.


@gradient("group_points", of="features", saves="indices", shapes="features")
def _(saved, grad):
    return {"features": _group_backward(grad, saved.indices, saved.features_shape[2])}


@gradient("group_points_backward", of="grad_out", saves="indices")
def _(saved, grad):
    return {"grad_out": _group(grad, saved.indices)}


@gradient("gather_points", of="features", saves="indices", shapes="features")
def _(saved, grad):
    return {"features": _gather_backward(grad, saved.indices, saved.features_shape[2])}


@gradient("gather_points_backward", of="grad_out", saves="indices")
def _(saved, grad):
    return {"grad_out": _gather(grad, saved.indices)}


@gradient("group_points_stacked", of="features", saves="counts indices index_counts", shapes="features")
def _(saved, grad):
    rows = saved.features_shape[0]
    return {"features": _group_stacked_backward(grad, saved.counts, saved.indices, saved.index_counts, rows)}


@gradient("group_points_stacked_backward", of="grad_out", saves="counts indices index_counts")
def _(saved, grad):
    return {"grad_out": _group_stacked(grad, saved.counts, saved.indices, saved.index_counts)}


def _grad_weights(features, indices, grad_out, weights):
    """The sum over channels of each neighbour's features times the gradient: [B, P, 3].

    Products are in the type of the weights, as those of the operator are.
    """
    neighbours = _group(features, indices).to(weights.dtype)
    return (neighbours * grad_out.unsqueeze(-1).to(weights.dtype)).sum(1)


def _grad_weights_stacked(features, indices, grad_out, weights):
    neighbours = _rows_of(features, indices).to(weights.dtype)
    return (neighbours * grad_out.unsqueeze(1).to(weights.dtype)).sum(2)


def _rows_of(features, indices):
    return features.index_select(0, indices.reshape(-1)).reshape(*indices.shape, features.shape[1])


@gradient("three_interpolate", of="features weights", saves="features indices weights")
def _(saved, grad):
    indices, weights, features = saved.indices, saved.weights, saved.features
    grads = {}
    if saved.needs.features:
        grads["features"] = _interpolate_backward(grad, indices, weights, features.shape[2])
    if saved.needs.weights:
        grads["weights"] = _grad_weights(features, indices, grad, weights)
    return grads


@gradient("three_interpolate_backward", of="grad_out weights", saves="grad_out indices weights")
def _(saved, grad):
    grads = {}
    if saved.needs.grad_out:
        grads["grad_out"] = _interpolate(grad, saved.indices, saved.weights)
    if saved.needs.weights:
        grads["weights"] = _grad_weights(grad, saved.indices, saved.grad_out, saved.weights)
    return grads


@gradient("three_interpolate_stacked", of="features weights", saves="features indices weights")
def _(saved, grad):
    indices, weights, features = saved.indices, saved.weights, saved.features
    grads = {}
    if saved.needs.features:
        grads["features"] = _interpolate_stacked_backward(grad, indices, weights, features.shape[0])
    if saved.needs.weights:
        grads["weights"] = _grad_weights_stacked(features, indices, grad, weights)
    return grads


@gradient("three_interpolate_stacked_backward", of="grad_out weights", saves="grad_out indices weights")
def _(saved, grad):
    grads = {}
    if saved.needs.grad_out:
        grads["grad_out"] = _interpolate_stacked(grad, saved.indices, saved.weights)
    if saved.needs.weights:
        grads["weights"] = _grad_weights_stacked(grad, saved.indices, saved.grad_out, saved.weights)
    return grads


@own_messages()
def group_points(features: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """The features of the points of each group: ``[B, C, N]`` and ``[B, P, S]`` give ``[B, C, P, S]``.

    The definition is that of :func:`turnout.group_points`: without points the result is 0. Tensors may be
    strided. ``features`` has gradients of any order.

    Example:
        >>> features = torch.tensor([[[1.0, 2.0, 3.0]]], requires_grad=True)
        >>> grouped = turnout.torch.group_points(features, torch.tensor([[[2, 0], [1, 1]]]))
        >>> grouped.tolist()
        [[[[3.0, 1.0], [2.0, 2.0]]]]
        >>> grouped.sum().backward()
        >>> features.grad.tolist()
        [[[1.0, 2.0, 1.0]]]
    """
    return _group(features, indices)


@own_messages()
def gather_points(features: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """The features of chosen points: ``[B, C, N]`` and ``[B, P]`` give ``[B, C, P]``.

    The definition is that of :func:`turnout.gather_points`. Tensors may be strided. ``features`` has
    gradients of any order.

    Example:
        >>> features = torch.tensor([[[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]])
        >>> turnout.torch.gather_points(features, torch.tensor([[2, 0]])).tolist()
        [[[3.0, 1.0], [30.0, 10.0]]]
    """
    return _gather(features, indices)


@own_messages()
def group_points_stacked(
    features: torch.Tensor, counts: torch.Tensor, indices: torch.Tensor, index_counts: torch.Tensor
) -> torch.Tensor:
    """:func:`group_points` for stacked samples: ``[N, C]`` and ``[P, S]`` give ``[P, C, S]``.

    The definition is that of :func:`turnout.group_points_stacked`: sample b has ``counts[b]`` rows of
    ``features`` and ``index_counts[b]`` rows of ``indices``, and a sample without points gives 0. Tensors may
    be strided. ``features`` has gradients of any order.

    Example:
        >>> features = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
        >>> counts, index_counts = torch.tensor([1, 2]), torch.tensor([1, 1])
        >>> indices = torch.tensor([[0, 0], [1, 0]])
        >>> turnout.torch.group_points_stacked(features, counts, indices, index_counts).tolist()
        [[[1.0, 1.0], [10.0, 10.0]], [[3.0, 2.0], [30.0, 20.0]]]
    """
    return _group_stacked(features, counts, indices, index_counts)


@own_messages()
def three_interpolate(features: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Interpolates features from three points each: ``[B, C, N]`` and ``[B, P, 3]`` give ``[B, C, P]``.

    The definition is that of :func:`turnout.three_interpolate`; ``weights`` is ``[B, P, 3]``, float64 for
    float64 features, otherwise float32. Tensors may be strided. ``features`` and ``weights`` have gradients
    of any order.

    Example:
        >>> features = torch.tensor([[[1.0, 2.0, 4.0]]], requires_grad=True)
        >>> weights = torch.tensor([[[0.5, 0.25, 0.25]]])
        >>> out = turnout.torch.three_interpolate(features, torch.tensor([[[2, 0, 1]]]), weights)
        >>> out.tolist()
        [[[2.75]]]
        >>> out.sum().backward()
        >>> features.grad.tolist()
        [[[0.25, 0.25, 0.5]]]
    """
    return _interpolate(features, indices, weights)


@own_messages()
def three_interpolate_stacked(
    features: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """:func:`three_interpolate` for stacked samples: ``[N, C]`` and ``[P, 3]`` give ``[P, C]``.

    The definition is that of :func:`turnout.three_interpolate_stacked`; indices are rows of ``features``.
    ``features`` and ``weights`` have gradients of any order.

    Example:
        >>> features = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])
        >>> weights = torch.tensor([[0.5, 0.25, 0.25]])
        >>> indices = torch.tensor([[2, 0, 1]])
        >>> turnout.torch.three_interpolate_stacked(features, indices, weights).tolist()
        [[2.75, 27.5]]
    """
    return _interpolate_stacked(features, indices, weights)
