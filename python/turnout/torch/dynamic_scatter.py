"""Voxelization of points, and reduction of a voxel's features to one row, as torch operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from turnout.dynamic_scatter import has_limits
from turnout.torch.messages import own_messages
from turnout.torch.registration import gradient

if TYPE_CHECKING:
    from turnout.typing import Numbers, ReduceType

__all__ = ["dynamic_scatter", "voxelize"]


_voxelize = torch.ops.turnout.voxelize.default
_voxelize_hard = torch.ops.turnout.voxelize_hard.default
_forward = torch.ops.turnout.dynamic_scatter_forward.default
_backward = torch.ops.turnout.dynamic_scatter_backward.default


@gradient(
    "dynamic_scatter_forward",
    of="feats",
    # Tensors that the gradient does not need are not saved: they may be freed or modified.
    by="reduce_type",
    saves={
        "sum": "point2voxel_map",
        "mean": "point2voxel_map voxel_points_count",
        "max": "feats voxel_feats point2voxel_map",
    },
    constant="voxel_coors point2voxel_map voxel_points_count",
    materialize=False,
)
def _(saved, grad_voxel_feats, *_):
    if grad_voxel_feats is None:
        return {}
    return {
        "feats": _backward(
            grad_voxel_feats,
            saved.feats,
            saved.voxel_feats,
            saved.point2voxel_map,
            saved.voxel_points_count,
            saved.reduce_type,
        )
    }


@gradient(
    "dynamic_scatter_backward",
    of="grad_voxel_feats",
    saves="grad_voxel_feats feats voxel_feats point2voxel_map voxel_points_count",
)
def _(saved, grad):
    """The gradient is linear in grad_voxel_feats, so its derivative is the transposed operation, a gather.

    Which point has the maximum does not change with feats, except where the maximum has no derivative.
    """
    voxel_of = saved.point2voxel_map
    if saved.reduce_type == "max":
        with torch.no_grad():
            ones = torch.ones_like(saved.grad_voxel_feats)
            is_taken = _backward(ones, saved.feats, saved.voxel_feats, voxel_of, None, "max") != 0
        grad = torch.where(is_taken, grad, 0)
    sums, rows, _, _ = _forward(grad, voxel_of.unsqueeze(1), "sum")
    if saved.reduce_type == "mean":
        sums = sums / saved.voxel_points_count[rows[:, 0].long()].unsqueeze(1)
    gathered = torch.zeros_like(saved.grad_voxel_feats).index_copy(0, rows[:, 0].long(), sums)
    return {"grad_voxel_feats": gathered}


# -- functions ---------------------------------------------------------------------------------------------


def _numbers(name: str, values: Any, count: int) -> list[float]:
    plain = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(plain, str) or not hasattr(plain, "__iter__"):
        raise TypeError(
            f"voxelize: {name} is of type {type(values).__name__}, expected a sequence of {count} numbers"
        )
    return [float(value) for value in plain]


@overload
def voxelize(points: torch.Tensor, voxel_size: Numbers, point_cloud_range: Numbers) -> torch.Tensor: ...
@overload
def voxelize(
    points: torch.Tensor,
    voxel_size: Numbers,
    point_cloud_range: Numbers,
    *,
    max_points: int,
    max_voxels: int,
    return_map: Literal[False] = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]: ...
@overload
def voxelize(
    points: torch.Tensor,
    voxel_size: Numbers,
    point_cloud_range: Numbers,
    *,
    max_points: int,
    max_voxels: int,
    return_map: Literal[True],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]: ...
@own_messages()
def voxelize(
    points: torch.Tensor,
    voxel_size: Numbers,
    point_cloud_range: Numbers,
    *,
    max_points: int = -1,
    max_voxels: int = -1,
    return_map: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Finds the voxel of each point; with two limits, groups the points by voxel.

    Returns coors ``[points, 3]``: z, y, x; or with limits voxels ``[voxels, max_points, features]``, coors
    ``[voxels, 3]`` and num_points_per_voxel, and with ``return_map`` point2voxel_map ``[points]``. The
    definition is that of :func:`turnout.voxelize`. ``points`` may be strided. There is no gradient: with
    limits, points that require grad are an error while grad mode is on.

    Example:
        >>> points = torch.tensor([[1.2, 0.3, 0.1], [1.9, 0.4, 0.2], [7.0, 2.5, 0.0], [99.0, 0.0, 0.0]])
        >>> size, area = [2.0, 1.0, 4.0], [0.0, 0.0, -2.0, 8.0, 4.0, 2.0]  # metres
        >>> turnout.torch.voxelize(points, size, area).tolist()  # z, y, x; the last point is outside
        [[0, 0, 0], [0, 0, 0], [0, 2, 3], [-1, -1, -1]]
        >>> voxels, coors, counts = turnout.torch.voxelize(points, size, area, max_points=5, max_voxels=100)
        >>> coors.tolist(), counts.tolist()
        ([[0, 0, 0], [0, 2, 3]], [2, 1])
    """
    size, range_ = _numbers("voxel_size", voxel_size, 3), _numbers("point_cloud_range", point_cloud_range, 6)
    if not has_limits(max_points, max_voxels, return_map):
        return _voxelize(points, size, range_)
    results = _voxelize_hard(points, size, range_, max_points, max_voxels, return_map)
    return results if return_map else results[:3]


@overload
def dynamic_scatter(
    feats: torch.Tensor,
    coors: torch.Tensor,
    reduce_type: ReduceType = "max",
    *,
    return_map: Literal[False] = False,
) -> tuple[torch.Tensor, torch.Tensor]: ...
@overload
def dynamic_scatter(
    feats: torch.Tensor, coors: torch.Tensor, reduce_type: ReduceType = "max", *, return_map: Literal[True]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]: ...
@own_messages()
def dynamic_scatter(
    feats: torch.Tensor, coors: torch.Tensor, reduce_type: ReduceType = "max", *, return_map: bool = False
) -> tuple[torch.Tensor, ...]:
    """Reduces the features of the points of each voxel to one row: 'max', 'mean' or 'sum'.

    Returns voxel_feats ``[voxels, channels]`` and voxel_coors ``[voxels, dims]``, ascending. Points with a
    negative coordinate are in no voxel. With ``return_map`` point2voxel_map ``[points]``, int32, is a third
    result: the voxel of each point, or -1. The definition is that of :func:`turnout.dynamic_scatter_forward`;
    ``coors`` has 1 to 4 columns. Tensors may be strided.

    voxel_feats has gradients of any order with respect to ``feats``. With 'max' the first of equal points
    gets the whole gradient.

    Under ``torch.compile`` the number of voxels is a data-dependent size, for which some releases of torch
    require ``torch._dynamo.config.capture_dynamic_output_shape_ops = True``.

    Example:
        >>> feats = torch.tensor([[1.0, 5.0], [3.0, 4.0], [10.0, 0.0]], requires_grad=True)
        >>> coors = torch.tensor([[0, 7], [0, 7], [0, 2]])  # the first two points share a voxel
        >>> voxel_feats, voxel_coors = turnout.torch.dynamic_scatter(feats, coors, "mean")
        >>> voxel_coors.tolist(), voxel_feats.tolist()
        ([[0, 2], [0, 7]], [[10.0, 0.0], [2.0, 4.5]])
        >>> voxel_feats.sum().backward()
        >>> feats.grad.tolist()
        [[0.5, 0.5], [0.5, 0.5], [1.0, 1.0]]
    """
    voxel_feats, voxel_coors, point2voxel_map, _ = _forward(feats, coors, reduce_type)
    return (voxel_feats, voxel_coors, point2voxel_map) if return_map else (voxel_feats, voxel_coors)
