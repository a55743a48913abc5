"""Pooling of the points in boxes, as torch operators; roiaware_pool3d has a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from turnout.roi_pooling import cells_of
from turnout.torch.messages import own_messages
from turnout.torch.registration import gradient

if TYPE_CHECKING:
    from turnout.typing import BoxZ, PoolMethod

__all__ = ["roiaware_points", "roiaware_pool3d", "roipoint_pool3d"]

_pool = torch.ops.turnout.roiaware_pool3d.default
_pool_backward = torch.ops.turnout.roiaware_pool3d_backward.default
_points = torch.ops.turnout.roiaware_points.default
_first_points = torch.ops.turnout.roipoint_pool3d.default

_SAVES = {"max": "rois points features", "avg": "rois points"}


@gradient("roiaware_pool3d", of="features", saves=_SAVES, by="pool_method")
def _(saved, grad):
    rule = saved.out_size, saved.max_points, saved.pool_method, saved.z, saved.margin
    return {"features": _pool_backward(grad, saved.rois, saved.points, saved.features, *rule)}


# Linear in grad_pooled: the derivative is the same choice of points for max, and the mean for avg.
@gradient("roiaware_pool3d_backward", of="grad_pooled", saves=_SAVES, by="pool_method", shapes="grad_pooled")
def _(saved, grad):
    rule = saved.out_size, saved.max_points, saved.pool_method, saved.z, saved.margin
    if saved.pool_method == "avg":
        return {"grad_pooled": _pool(saved.rois, saved.points, grad, *rule)}
    return {"grad_pooled": _pooled_by_maxima(saved, grad)}


def _pooled_by_maxima(saved, grad):
    """Selects from ``grad`` the point that has the maximum of each cell and channel."""
    cells, channels = saved.grad_pooled_shape[0] * saved.grad_pooled_shape[1], saved.grad_pooled_shape[2]
    rule = saved.out_size, saved.max_points, saved.z, saved.margin
    cell_of, point_of = _points(saved.rois, saved.points, *rule)
    # scatter_max does not take the lowest finite number. That of a narrower type is above it in float64.
    lists = saved.features[point_of].double()
    _, first = torch.ops.turnout.scatter_max(lists, cell_of, cells, True)
    is_taken = first < len(lists)
    rows = torch.cat([grad[point_of], grad.new_zeros(1, channels)])
    return (torch.where(is_taken, rows.gather(0, first), 0)).reshape(saved.grad_pooled_shape)


@own_messages()
def roiaware_pool3d(
    rois: torch.Tensor,
    points: torch.Tensor,
    features: torch.Tensor,
    out_size: int | Sequence[int],
    max_points: int = 127,
    pool_method: PoolMethod = "max",
    z: BoxZ = "center",
    margin: float = 1e-5,
) -> torch.Tensor:
    """Pools the features of the points of each cell of each box: ``[N, X, Y, Z, C]``.

    The definition is that of :func:`turnout.roiaware_pool3d`. Tensors may be strided. ``features`` has
    gradients of any order; the gradient finds the points again instead of keeping lists or an argmax.

    Example:
        >>> roi = torch.tensor([[0.0, 0, 0, 4, 2, 2, 0]])
        >>> points = torch.tensor([[-1.0, 0, 0], [-1.5, 0.5, 0.9], [1, 0, -1]])
        >>> features = torch.tensor([[1.0], [3.0], [5.0]], requires_grad=True)
        >>> pooled = turnout.torch.roiaware_pool3d(roi, points, features, [2, 1, 1])
        >>> pooled.flatten().tolist()
        [3.0, 5.0]
        >>> pooled.sum().backward()
        >>> features.grad.flatten().tolist()
        [0.0, 1.0, 1.0]
    """
    size = cells_of(out_size)
    pooled = _pool(rois, points, features, size, max_points, pool_method, z, margin)
    return pooled.reshape(pooled.shape[0], *size, pooled.shape[2])


@own_messages()
def roiaware_points(
    rois: torch.Tensor,
    points: torch.Tensor,
    out_size: int | Sequence[int],
    max_points: int = 127,
    z: BoxZ = "center",
    margin: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The points that :func:`roiaware_pool3d` pools: pairs of a cell and a point, int64.

    The definition is that of :func:`turnout.roiaware_points`.

    Example:
        >>> roi = torch.tensor([[0.0, 0, 0, 4, 2, 2, 0]])
        >>> points = torch.tensor([[-1.0, 0, 0], [1, 0, -1], [-1.5, 0.5, 0.9]])
        >>> cell_of, point_of = turnout.torch.roiaware_points(roi, points, [2, 1, 1])
        >>> cell_of.tolist(), point_of.tolist()
        ([0, 0, 1], [0, 2, 1])
    """
    return _points(rois, points, cells_of(out_size), max_points, z, margin)


@own_messages()
def roipoint_pool3d(
    points: torch.Tensor,
    features: torch.Tensor,
    boxes: torch.Tensor,
    samples: int,
    z: BoxZ = "center",
    margin: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first points in each box with their features, ``[B, M, samples, 3 + C]``, and which are empty.

    The definition is that of :func:`turnout.roipoint_pool3d`. It has no gradient: call it under
    ``torch.no_grad()``, as detectors do.

    Example:
        >>> points = torch.tensor([[[9.0, 9, 9], [0.5, 0, 0], [-0.5, 0, 0]]])
        >>> features = torch.tensor([[[1.0], [2], [3]]])
        >>> boxes = torch.tensor([[[0.0, 0, 0, 2, 2, 2, 0]]])
        >>> pooled, empty = turnout.torch.roipoint_pool3d(points, features, boxes, 3)
        >>> pooled[0, 0, :, 3].tolist(), empty.tolist()
        ([2.0, 3.0, 2.0], [[0]])
    """
    return _first_points(points, features, boxes, samples, z, margin)
