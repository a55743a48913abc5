"""The voxels of points, found once for many reductions, each of which is differentiable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.autograd import forward_ad

from turnout import _core
from turnout.torch.dynamic_scatter import _forward
from turnout.torch.messages import own_messages
from turnout.torch.registration import refuse_tangents

if TYPE_CHECKING:
    from turnout.typing import ReduceType

__all__ = ["VoxelIndex"]

# Looked up once: each call asks all of them.
_is_compiling = torch.compiler.is_compiling
_is_in_torch_func = torch._C._are_functorch_transforms_active
_count_of_modes = torch._C._len_torch_dispatch_stack
_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


def _is_followed(tensor: torch.Tensor) -> bool:
    """Whether a compiler, a transform or a mode of torch follows this call: they see operators alone."""
    if _is_compiling():
        if torch._dynamo.config.capture_dynamic_output_shape_ops:
            return True
        torch._dynamo.graph_break(
            msg="VoxelIndex: the number of voxels depends on values; "
            "torch._dynamo.config.capture_dynamic_output_shape_ops = True keeps it in the graph"
        )
        return False
    return type(tensor) not in _PLAIN_TYPES or _is_in_torch_func() or _count_of_modes() > 0


def _rows(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Row by row in memory, without the sign that a view may add: no dispatcher has looked at this one."""
    if not tensor.is_cpu:
        raise ValueError(f"{name} is on the device {tensor.device}, expected cpu")
    return (tensor.resolve_neg() if tensor.is_neg() else tensor).contiguous()


class VoxelIndexReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, feats, index, reduce_type):
        voxel_feats = _core.voxel_index_reduce(
            index._index, _rows("VoxelIndex.reduce: feats", feats), reduce_type, None
        )
        ctx.index, ctx.reduce_type = index, reduce_type
        ctx.save_for_backward(*((feats, voxel_feats) if reduce_type == "max" else (None, None)))
        return voxel_feats

    @staticmethod
    def backward(ctx, grad):
        return (
            VoxelIndexReduceBackward.apply(grad, *ctx.saved_tensors, ctx.index, ctx.reduce_type),
            None,
            None,
        )


class VoxelIndexReduceBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, grad_voxel_feats, feats, voxel_feats, index, reduce_type):
        ctx.index, ctx.reduce_type = index, reduce_type
        ctx.save_for_backward(feats, voxel_feats)
        return index._spread(grad_voxel_feats, feats, voxel_feats, reduce_type)

    @staticmethod
    def backward(ctx, grad):
        """As that of dynamic_scatter_backward: rows are gathered where they have been spread."""
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
    may be strided. A recorded gradient keeps the index. An index can be pickled, and comes back from the
    workers of a ``DataLoader``.

    ``torch.compile`` runs it outside of its graphs, unless it captures sizes that depend on data
    (``torch._dynamo.config.capture_dynamic_output_shape_ops = True``, as ``torch.export`` does by itself).
    Inside of a graph, and under ``torch.func``, each reduction groups the points again, by
    ``point2voxel_map``.

    Attributes:
        points: how many points there are.
        voxels: how many voxels there are.
        voxel_coors: ``[voxels, dims]``, ascending.
        point2voxel_map: ``[points]``, int32: the voxel of each point, or -1.
        voxel_points_count: ``[voxels]``, int32.
        first_point: ``[voxels]``, int32: the first point of each voxel, that with the smallest number. Found
            when it is asked for.

    Example:
        >>> index = turnout.torch.VoxelIndex(torch.tensor([[0, 7], [0, 7], [0, 2]]))
        >>> index
        VoxelIndex(3 points in 2 voxels)
        >>> feats = torch.tensor([[1.0], [3.0], [10.0]], requires_grad=True)
        >>> index.reduce(feats, "max").sum().backward()
        >>> feats.grad.tolist()
        [[0.0], [1.0], [1.0]]
    """

    @own_messages("VoxelIndex")
    def __init__(self, coors: torch.Tensor) -> None:
        if _is_followed(coors):
            nothing = coors.new_empty((coors.shape[0], 0), dtype=torch.float32)
            self._index = None
            _, *tensors = _forward(nothing, coors, "sum")
        else:
            self._index, tensors = _core.voxel_index(_rows("VoxelIndex: coors", coors), True)
        self._hold(tensors)

    def _hold(self, tensors) -> None:
        self.voxel_coors, self.point2voxel_map, self.voxel_points_count = tensors
        self.points: int = self.point2voxel_map.shape[0]
        self.voxels: int = self.voxel_points_count.shape[0]
        self._first_point: torch.Tensor | None = None

    @property
    def first_point(self) -> torch.Tensor:
        if self._first_point is None:
            self._first_point = self._find_first_point()
        return self._first_point

    def _find_first_point(self) -> torch.Tensor:
        if self._index is not None and not _is_followed(self.point2voxel_map):
            return _core.voxel_index_first_points(self._index)
        # The largest of their negative numbers, which float64 holds exactly.
        map_ = self.point2voxel_map
        rows = torch.arange(0, -map_.shape[0], -1, dtype=torch.float64, device=map_.device)
        largest = _forward(rows.unsqueeze(1), map_.unsqueeze(1), "max")[0]
        torch._check(largest.shape[0] == self.voxels)
        return -largest.squeeze(1).to(torch.int32)

    @own_messages("VoxelIndex.reduce", coors="point2voxel_map")
    def reduce(self, feats: torch.Tensor, reduce_type: ReduceType = "max") -> torch.Tensor:
        """voxel_feats ``[voxels, channels]``, the first of the results of ``dynamic_scatter_forward``.

        Differentiable with respect to ``feats``, as often as needed; no gradient sorts anything. With 'max'
        the first of the equal points has the whole gradient. ``feats`` may be strided.
        """
        if self._index is None or _is_followed(feats):
            # The map as coordinates of one column: they have the same groups, in the same order.
            voxel_feats = _forward(feats, self.point2voxel_map.unsqueeze(1), reduce_type)[0]
            torch._check(voxel_feats.shape[0] == self.voxels)
            return voxel_feats
        if forward_ad._current_level >= 0:
            refuse_tangents("VoxelIndex.reduce", {"feats": feats})
        return VoxelIndexReduce.apply(feats, self, reduce_type)

    def _spread(self, grad_voxel_feats, feats, voxel_feats, reduce_type):
        tensors = (grad_voxel_feats, feats, voxel_feats)
        rows = (x if x is None else _rows("VoxelIndex.reduce_backward: a gradient", x) for x in tensors)
        return _core.voxel_index_reduce_backward(self._index, *rows, reduce_type, None)

    def __getstate__(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.voxel_coors, self.point2voxel_map, self.voxel_points_count

    def __setstate__(self, tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
        self._hold(tensors)
        self._index, (_, _, counts) = _core.voxel_index(self.point2voxel_map.unsqueeze(1), True)
        if len(counts) != self.voxels:
            raise ValueError(
                f"VoxelIndex: point2voxel_map has {len(counts)} voxels, expected {self.voxels} as "
                "voxel_points_count; it was changed before it was pickled"
            )

    def __repr__(self) -> str:
        return f"VoxelIndex({self.points} points in {self.voxels} voxels)"
