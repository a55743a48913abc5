"""The voxels of a set of points, found once for many differentiable reductions."""

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

# Looked up once, because each call uses all of them.
_is_compiling = torch.compiler.is_compiling
_is_in_torch_func = torch._C._are_functorch_transforms_active
_count_of_modes = torch._C._len_torch_dispatch_stack
_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


def _is_followed(tensor: torch.Tensor) -> bool:
    """Returns whether a compiler, transform or mode of torch traces this call; they see only operators."""
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
    """Returns the tensor contiguous and without a negative bit, which no dispatcher has resolved here."""
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
        """Gathers rows, the transposed operation, as for dynamic_scatter_backward."""
        reduce_type = ctx.reduce_type
        if reduce_type == "max":
            feats, voxel_feats = ctx.saved_tensors
            is_taken = ctx.index._spread(torch.ones_like(voxel_feats), feats, voxel_feats, "max") != 0
            grad, reduce_type = torch.where(is_taken, grad, 0), "sum"
        return ctx.index.reduce(grad, reduce_type), None, None, None, None


class VoxelIndex:
    """The voxels of a set of points, found once for many differentiable reductions.

    ::

        index = turnout.torch.VoxelIndex(coors)
        mean = index.reduce(points, "mean")
        most = index.reduce(feats)                      # the same points, with other features

    This is :class:`turnout.VoxelIndex` with autograd, on torch's threads. Only the constructor reads
    ``coors``, which may be strided. A recorded gradient keeps the index alive. An index can be pickled, so a
    worker of a ``DataLoader`` can return it.

    ``torch.compile`` runs it outside its graphs, unless it captures data-dependent sizes
    (``torch._dynamo.config.capture_dynamic_output_shape_ops = True``, which is the default of
    ``torch.export``). Inside a graph, and under ``torch.func``, each reduction groups the points again, by
    ``point2voxel_map``.

    Attributes:
        points: the number of points.
        voxels: the number of voxels.
        voxel_coors: ``[voxels, dims]``, ascending.
        point2voxel_map: ``[points]``, int32: the voxel of each point, or -1.
        voxel_points_count: ``[voxels]``, int32.
        first_point: ``[voxels]``, int32: the smallest point number in each voxel, found on first access.

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
        # The smallest point number is the largest negated one, which float64 represents exactly.
        map_ = self.point2voxel_map
        rows = torch.arange(0, -map_.shape[0], -1, dtype=torch.float64, device=map_.device)
        largest = _forward(rows.unsqueeze(1), map_.unsqueeze(1), "max")[0]
        torch._check(largest.shape[0] == self.voxels)
        return -largest.squeeze(1).to(torch.int32)

    @own_messages("VoxelIndex.reduce", coors="point2voxel_map")
    def reduce(self, feats: torch.Tensor, reduce_type: ReduceType = "max") -> torch.Tensor:
        """Returns voxel_feats ``[voxels, channels]``, the first result of ``dynamic_scatter_forward``.

        ``feats`` may be strided. It has gradients of any order, none of which sorts. With 'max' the first of
        equal points gets the whole gradient.
        """
        if self._index is None or _is_followed(feats):
            # The map as coordinates of one column has the same groups, in the same order.
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
