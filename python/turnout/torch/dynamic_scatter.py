"""Points into voxels, and the features of a voxel's points reduced to one row, as torch operators."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.autograd import forward_ad

from turnout import _core
from turnout.torch.library import define, refuse_tangents

Numbers = Any  # a sequence of numbers, an array or a tensor
Limits = Any  # an integer, or two of them as a sequence, an array or a tensor


def _contiguous(tensor):
    return None if tensor is None else tensor.contiguous()


# -- points into voxels ------------------------------------------------------------------------------------


def _voxelize_cpu(points, voxel_size, point_cloud_range):
    return _core.voxelize(points.contiguous(), voxel_size, point_cloud_range, -1, -1, None, True)


def _voxelize_fake(points, voxel_size, point_cloud_range):
    return points.new_empty((points.shape[0], 3), dtype=torch.int32)


def _hard_cpu(points, voxel_size, point_cloud_range, max_points, max_voxels):
    return _core.voxelize(
        points.contiguous(), voxel_size, point_cloud_range, max_points, max_voxels, None, True
    )


def _hard_fake(points, voxel_size, point_cloud_range, max_points, max_voxels):
    voxels = torch.library.get_ctx().new_dynamic_size()
    return (
        points.new_empty((voxels, max_points, points.shape[1])),
        points.new_empty((voxels, 3), dtype=torch.int32),
        points.new_empty((voxels,), dtype=torch.int32),
    )


# -- reductions --------------------------------------------------------------------------------------------


def _forward_cpu(feats, coors, reduce_type="max"):
    return _core.dynamic_scatter_forward(feats.contiguous(), coors.contiguous(), reduce_type, None, True)


def _forward_fake(feats, coors, reduce_type="max"):
    voxels = torch.library.get_ctx().new_dynamic_size()
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
    "SymInt max_voxels) -> (Tensor, Tensor, Tensor)",
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


# -- an index for many reductions --------------------------------------------------------------------------


def _plain(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Row by row in memory, without the sign that a view may add: no dispatcher has looked at this one."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is of type {type(tensor).__name__}, expected a torch.Tensor")
    return tensor.resolve_neg().contiguous()


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, feats, index, reduce_type):
        voxel_feats = _core.voxel_index_reduce(
            index._index, _plain("VoxelIndex.reduce: feats", feats), reduce_type, None
        )
        ctx.index, ctx.reduce_type = index, reduce_type
        ctx.save_for_backward(*((feats, voxel_feats) if reduce_type == "max" else (None, None)))
        return voxel_feats

    @staticmethod
    def backward(ctx, grad):
        return _ReduceBackward.apply(grad, *ctx.saved_tensors, ctx.index, ctx.reduce_type), None, None


class _ReduceBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, grad_voxel_feats, feats, voxel_feats, index, reduce_type):
        ctx.index, ctx.reduce_type = index, reduce_type
        ctx.save_for_backward(feats, voxel_feats)
        return index._spread(grad_voxel_feats, feats, voxel_feats, reduce_type)

    @staticmethod
    def backward(ctx, grad):
        """As in :func:`_backward_grad`: rows are gathered where they have been spread."""
        reduce_type = ctx.reduce_type
        if reduce_type == "max":
            feats, voxel_feats = ctx.saved_tensors
            is_taken = ctx.index._spread(torch.ones_like(voxel_feats), feats, voxel_feats, "max") != 0
            grad, reduce_type = torch.where(is_taken, grad, 0), "sum"
        return ctx.index.reduce(grad, reduce_type), None, None, None, None


class VoxelIndex:
    """The voxels of points, found once for many reductions, each of which is differentiable.

    ::

        index = turnout.torch.VoxelIndex(coors)
        mean = index.reduce(points, "mean")
        most = index.reduce(feats)                      # the same points, with other features

    :class:`turnout.VoxelIndex` for autograd, on torch's threads. ``coors`` are read here and never again, and
    may be strided. A recorded gradient keeps the index. ``torch.compile`` runs it outside of its graphs.

    Attributes:
        points: how many points there are.
        voxels: how many voxels there are.
        voxel_coors: ``[voxels, dims]``, ascending.
        point2voxel_map: ``[points]``, int32: the voxel of each point, or -1.
        voxel_points_count: ``[voxels]``, int32.
    """

    def __init__(self, coors: torch.Tensor) -> None:
        self._index, tensors = _core.voxel_index(_plain("VoxelIndex: coors", coors), True)
        self.voxel_coors, self.point2voxel_map, self.voxel_points_count = tensors
        self.points: int = len(self.point2voxel_map)
        self.voxels: int = len(self.voxel_points_count)

    def reduce(self, feats: torch.Tensor, reduce_type: str = "max") -> torch.Tensor:
        """voxel_feats ``[voxels, channels]``, the first of the results of ``dynamic_scatter_forward``.

        Differentiable with respect to ``feats``, as often as needed; no gradient sorts anything. With 'max'
        the first of the equal points has the whole gradient. ``feats`` may be strided.
        """
        if forward_ad._current_level >= 0:
            refuse_tangents("VoxelIndex.reduce", {"feats": feats})
        return _Reduce.apply(feats, self, reduce_type)

    def _spread(self, grad_voxel_feats, feats, voxel_feats, reduce_type):
        tensors = (grad_voxel_feats, feats, voxel_feats)
        rows = (x if x is None else _plain("VoxelIndex.reduce_backward", x) for x in tensors)
        return _core.voxel_index_reduce_backward(self._index, *rows, reduce_type, None)

    def __repr__(self) -> str:
        return f"VoxelIndex({self.points} points in {self.voxels} voxels)"


# -- the names and signatures that users of mmcv know ------------------------------------------------------


def dynamic_scatter(
    feats: torch.Tensor, coors: torch.Tensor, reduce_type: str = "max"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Reduces the features of the points of each voxel to one row: 'max', 'mean' or 'sum'.

    Returns voxel_feats ``[voxels, channels]`` and voxel_coors ``[voxels, dims]``, ascending. Points with a
    negative coordinate are in no voxel. The definition is that of :func:`turnout.dynamic_scatter_forward`;
    ``coors`` has 1 to 4 columns. Tensors may be strided.

    voxel_feats is differentiable with respect to ``feats``, as often as needed. With 'max' the first of the
    equal points has the whole gradient.

    Under ``torch.compile`` the number of voxels is a size that depends on data; some releases of torch want
    ``torch._dynamo.config.capture_dynamic_output_shape_ops = True`` for that.
    """
    voxel_feats, voxel_coors, _, _ = _forward(feats, coors, reduce_type)
    return voxel_feats, voxel_coors


class DynamicScatter(torch.nn.Module):
    """:func:`dynamic_scatter` of the points of one cloud, or of a batch of them.

    Args:
        voxel_size, point_cloud_range: kept as attributes; the coordinates say it all.
        average_points: 'mean', else 'max'.
    """

    def __init__(self, voxel_size: Numbers, point_cloud_range: Numbers, average_points: bool) -> None:
        super().__init__()
        self.voxel_size = voxel_size
        self.point_cloud_range = point_cloud_range
        self.average_points = average_points

    def forward_single(self, points: torch.Tensor, coors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """:func:`dynamic_scatter`, with the reduction of this module."""
        return dynamic_scatter(points, coors, "mean" if self.average_points else "max")

    def forward(self, points: torch.Tensor, coors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Features and coordinates of the voxels of ``points [points, channels]``.

        ``coors`` is ``[points, 3]``: z, y, x; with another number of columns the first one is the number of
        the cloud in the batch. Points of a batch come in any order; voxels are ascending in all columns.
        """
        # The number of the cloud is the most significant coordinate, so that one call is a call for each.
        return self.forward_single(points, coors)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(voxel_size={self.voxel_size}, "
            f"point_cloud_range={self.point_cloud_range}, average_points={self.average_points})"
        )


def _numbers(values: Numbers) -> list[float]:
    return [float(value) for value in (values.tolist() if hasattr(values, "tolist") else values)]


def _limits(max_voxels: Limits) -> tuple[int, int]:
    """The limit for training and that for all else."""
    limits = max_voxels.tolist() if hasattr(max_voxels, "tolist") else max_voxels
    if not hasattr(limits, "__len__"):
        return limits, limits
    if len(limits) != 2:
        raise ValueError(
            f"Voxelization: max_voxels has {len(limits)} elements, expected one limit, or 2: "
            "for training and for all else"
        )
    return tuple(limits)


def voxelization(
    points: torch.Tensor,
    voxel_size: Numbers,
    coors_range: Numbers,
    max_points: int = 35,
    max_voxels: int = 20000,
    deterministic: bool = True,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The points of each voxel, or with a limit of -1 the voxel of each point.

    Returns voxels ``[voxels, max_points, features]``, coors ``[voxels, 3]`` and num_points_per_voxel; or
    coors ``[points, 3]`` alone when ``max_points`` or ``max_voxels`` is -1. The definition is that of
    :func:`turnout.voxelize`, also for ``deterministic=False``. ``points`` may be strided; there is no
    gradient.
    """
    del deterministic
    size, range_ = _numbers(voxel_size), _numbers(coors_range)
    if max_points == -1 or max_voxels == -1:
        return _voxelize(points, size, range_)
    return _voxelize_hard(points, size, range_, max_points, max_voxels)


class Voxelization(torch.nn.Module):
    """:func:`voxelization` with fixed voxels.

    Args:
        voxel_size: three numbers, x, y, z.
        point_cloud_range: six numbers: x, y, z at least, x, y, z at most.
        max_num_points: of a voxel; -1: only coordinates, of all points.
        max_voxels: one limit, or one for training and one for all else.
        deterministic: accepted; results always are.

    Attributes:
        grid_size: how many voxels there are in the directions x, y, z, a tensor.
        pcd_shape: ``[1, grid_size[1], grid_size[0]]``.
    """

    def __init__(
        self,
        voxel_size: Numbers,
        point_cloud_range: Numbers,
        max_num_points: int,
        max_voxels: Limits = 20000,
        deterministic: bool = True,
    ) -> None:
        super().__init__()
        self.voxel_size = voxel_size
        self.point_cloud_range = point_cloud_range
        self.max_num_points = max_num_points
        self.max_voxels = _limits(max_voxels)
        self.deterministic = deterministic
        # One point, for the operator to say what is wrong with the grid now and not in the first call.
        _core.voxelize(torch.zeros(1, 3, device="cpu"), voxel_size, point_cloud_range, -1, -1, None, True)
        size, ends = (torch.tensor(_numbers(x), dtype=torch.float32) for x in (voxel_size, point_cloud_range))
        # Halves away from zero, as in the operator; torch.round takes them to the even number.
        self.grid_size = torch.tensor(
            [math.floor(extent + 0.5) for extent in ((ends[3:] - ends[:3]) / size).tolist()]
        )
        self.pcd_shape = [1, *self.grid_size[:2].flip(0)]

    def forward(self, input: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What :func:`voxelization` returns for these points."""
        return voxelization(
            input,
            self.voxel_size,
            self.point_cloud_range,
            self.max_num_points,
            self.max_voxels[0 if self.training else 1],
            self.deterministic,
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(voxel_size={self.voxel_size}, "
            f"point_cloud_range={self.point_cloud_range}, max_num_points={self.max_num_points}, "
            f"max_voxels={self.max_voxels}, deterministic={self.deterministic})"
        )
