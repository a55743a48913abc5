"""Points into voxels, and the features of a voxel's points reduced to one row, as torch operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from turnout import _core
from turnout.torch.messages import own_messages
from turnout.torch.registration import define
from turnout.torch.tracing import unknown_size, value_of

if TYPE_CHECKING:
    from turnout.typing import Numbers, ReduceType

__all__ = ["dynamic_scatter", "voxelize"]


def _contiguous(tensor):
    return None if tensor is None else tensor.contiguous()


# -- points into voxels ------------------------------------------------------------------------------------


def _voxelize_cpu(points, voxel_size, point_cloud_range):
    return _core.voxelize(points.contiguous(), voxel_size, point_cloud_range, -1, -1, False, None, True)


def _voxelize_fake(points, voxel_size, point_cloud_range):
    return points.new_empty((points.shape[0], 3), dtype=torch.int32)


def _hard_cpu(points, voxel_size, point_cloud_range, max_points, max_voxels, return_map=False):
    results = _core.voxelize(
        points.contiguous(), voxel_size, point_cloud_range, max_points, max_voxels, return_map, None, True
    )
    return results if return_map else (*results, points.new_empty((0,), dtype=torch.int32))


def _hard_fake(points, voxel_size, point_cloud_range, max_points, max_voxels, return_map=False):
    limits = value_of(max_points), value_of(max_voxels)
    if any(limit is not None and limit < 0 for limit in limits):
        raise ValueError(
            f"voxelize: max_points is {limits[0]} and max_voxels is {limits[1]}, expected two limits of 0 or "
            "more, or -1 for both"
        )
    voxels = unknown_size("voxelize_hard", "voxels")
    return (
        points.new_empty((voxels, max_points, points.shape[1])),
        points.new_empty((voxels, 3), dtype=torch.int32),
        points.new_empty((voxels,), dtype=torch.int32),
        points.new_empty((points.shape[0] if return_map else 0,), dtype=torch.int32),
    )


# -- reductions --------------------------------------------------------------------------------------------


def _forward_cpu(feats, coors, reduce_type="max"):
    return _core.dynamic_scatter_forward(feats.contiguous(), coors.contiguous(), reduce_type, None, True)


def _forward_fake(feats, coors, reduce_type="max"):
    voxels = unknown_size("dynamic_scatter_forward", "voxels")
    return (
        feats.new_empty((voxels, feats.shape[1])),
        coors.new_empty((voxels, coors.shape[1])),
        coors.new_empty((coors.shape[0],), dtype=torch.int32),
        coors.new_empty((voxels,), dtype=torch.int32),
    )


def _forward_save(ctx, inputs, output):
    feats, _, reduce_type = inputs
    voxel_feats, voxel_coors, point2voxel_map, voxel_points_count = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(voxel_coors, point2voxel_map, voxel_points_count)
    ctx.reduce_type = reduce_type
    # What the gradient does not need may be freed.
    compared = (feats, voxel_feats) if reduce_type == "max" else (None, None)
    ctx.save_for_backward(*compared, point2voxel_map, voxel_points_count if reduce_type == "mean" else None)


def _forward_grad(ctx, grad_voxel_feats, *_):
    if grad_voxel_feats is None:
        return None, None, None
    return _backward(grad_voxel_feats, *ctx.saved_tensors, ctx.reduce_type), None, None


def _backward_cpu(
    grad_voxel_feats, feats, voxel_feats, point2voxel_map, voxel_points_count, reduce_type="max"
):
    tensors = (grad_voxel_feats, feats, voxel_feats, point2voxel_map, voxel_points_count)
    return _core.dynamic_scatter_backward(*map(_contiguous, tensors), reduce_type, None, True)


def _backward_fake(
    grad_voxel_feats, feats, voxel_feats, point2voxel_map, voxel_points_count, reduce_type="max"
):
    return grad_voxel_feats.new_empty((point2voxel_map.shape[0], grad_voxel_feats.shape[1]))


def _backward_save(ctx, inputs, output):
    *tensors, ctx.reduce_type = inputs
    ctx.save_for_backward(*tensors)


def _backward_grad(ctx, grad):
    """The gradient is linear in grad_voxel_feats: its derivative gathers what it has spread.

    Which point has the maximum does not change with feats, except where the maximum has no derivative.
    """
    grad_voxel_feats, feats, voxel_feats, point2voxel_map, voxel_points_count = ctx.saved_tensors
    if ctx.reduce_type == "max":
        with torch.no_grad():
            ones = torch.ones_like(grad_voxel_feats)
            is_taken = _backward(ones, feats, voxel_feats, point2voxel_map, None, "max") != 0
        grad = torch.where(is_taken, grad, 0)
    sums, rows, _, _ = _forward(grad, point2voxel_map.unsqueeze(1), "sum")
    if ctx.reduce_type == "mean":
        sums = sums / voxel_points_count[rows[:, 0].long()].unsqueeze(1)
    gathered = torch.zeros_like(grad_voxel_feats).index_copy(0, rows[:, 0].long(), sums)
    return gathered, None, None, None, None, None


_voxelize = define(
    "voxelize(Tensor points, float[] voxel_size, float[] point_cloud_range) -> Tensor",
    _voxelize_cpu,
    _voxelize_fake,
)
_voxelize_hard = define(
    "voxelize_hard(Tensor points, float[] voxel_size, float[] point_cloud_range, SymInt max_points, "
    "SymInt max_voxels, bool return_map=False) -> (Tensor, Tensor, Tensor, Tensor)",
    _hard_cpu,
    _hard_fake,
    refuse=("points",),
)
_backward = define(
    "dynamic_scatter_backward(Tensor grad_voxel_feats, Tensor? feats, Tensor? voxel_feats, "
    'Tensor point2voxel_map, Tensor? voxel_points_count, str reduce_type="max") -> Tensor',
    _backward_cpu,
    _backward_fake,
    save=_backward_save,
    backward=_backward_grad,
)
_forward = define(
    'dynamic_scatter_forward(Tensor feats, Tensor coors, str reduce_type="max") '
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _forward_cpu,
    _forward_fake,
    save=_forward_save,
    backward=_forward_grad,
)


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
    """The voxel that each point is in; with two limits, the points themselves, voxel by voxel.

    Returns coors ``[points, 3]``: z, y, x; or with limits voxels ``[voxels, max_points, features]``, coors
    ``[voxels, 3]`` and num_points_per_voxel, and with ``return_map`` point2voxel_map ``[points]``. The
    definition is that of :func:`turnout.voxelize`. ``points`` may be strided. There is no gradient: with
    limits, points that require grad are refused while grad mode is on.

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
    if max_points == -1 and max_voxels == -1:
        if return_map:
            raise ValueError("voxelize: return_map is True, expected max_points and max_voxels with it")
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

    voxel_feats is differentiable with respect to ``feats``, as often as needed. With 'max' the first of the
    equal points has the whole gradient.

    Under ``torch.compile`` the number of voxels is a size that depends on data; some releases of torch want
    ``torch._dynamo.config.capture_dynamic_output_shape_ops = True`` for that.

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
