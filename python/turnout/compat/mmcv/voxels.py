"""mmcv's functions and modules for points and voxels."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import torch

from turnout import torch as own
from turnout import voxelize as voxelize_arrays
from turnout.compat import _sparse
from turnout.torch import dynamic_scatter
from turnout.torch.messages import own_messages

Numbers = Any  # a sequence of numbers, an array or a tensor
Limits = Any  # an integer, or two of them as a sequence, an array or a tensor


class DynamicScatter(torch.nn.Module):
    """:func:`dynamic_scatter` of one point cloud or of a batch of them.

    Args:
        voxel_size, point_cloud_range: kept as attributes; only the coordinates are used.
        average_points: whether to reduce by 'mean' instead of 'max'.
    """

    def __init__(self, voxel_size: Numbers, point_cloud_range: Numbers, average_points: bool) -> None:
        super().__init__()
        self.voxel_size = voxel_size
        self.point_cloud_range = point_cloud_range
        self.average_points = average_points

    @own_messages("DynamicScatter", feats="points")
    def forward_single(self, points: torch.Tensor, coors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """:func:`dynamic_scatter` with the reduction of this module."""
        return dynamic_scatter(points, coors, "mean" if self.average_points else "max")

    def forward(self, points: torch.Tensor, coors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the features and coordinates of the voxels of ``points [points, channels]``.

        ``coors`` is ``[points, 3]`` in the order z, y, x. With another number of columns, the first one is
        the number of the cloud in the batch. Points may be in any order; voxels ascend in all columns.
        """
        # The cloud's number is the most significant coordinate, so one call handles the whole batch.
        return self.forward_single(points, coors)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(voxel_size={self.voxel_size}, "
            f"point_cloud_range={self.point_cloud_range}, average_points={self.average_points})"
        )


@own_messages(point_cloud_range="coors_range")
def voxelization(
    points: torch.Tensor,
    voxel_size: Numbers,
    coors_range: Numbers,
    max_points: int = 35,
    max_voxels: int = 20000,
    deterministic: bool = True,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the points of each voxel, or the voxel of each point if a limit is -1.

    Returns voxels ``[voxels, max_points, features]``, coors ``[voxels, 3]`` and num_points_per_voxel; or
    only coors ``[points, 3]`` if ``max_points`` or ``max_voxels`` is -1. Results follow
    :func:`turnout.voxelize`, even with ``deterministic=False``. ``points`` may be strided; there is no
    gradient.
    """
    del deterministic
    if max_points == -1 or max_voxels == -1:
        return own.voxelize(points, voxel_size, coors_range)
    return own.voxelize(points, voxel_size, coors_range, max_points=max_points, max_voxels=max_voxels)


def _limit(name: str, value: Any, kind: str) -> int:
    try:
        limit = operator.index(value)
    except TypeError:
        raise TypeError(f"Voxelization: {name} is of type {type(value).__name__}, expected {kind}") from None
    if limit < -1:
        raise ValueError(f"Voxelization: {name} is {limit}, expected 0 or more, or -1 for no limit")
    return limit


def _limits(max_voxels: Limits) -> tuple[int, int]:
    """Returns the limits for training and for evaluation."""
    limits = max_voxels.tolist() if hasattr(max_voxels, "tolist") else max_voxels
    kind = "an integer, or 2: for training and evaluation"
    if not hasattr(limits, "__len__"):
        return (_limit("max_voxels", limits, kind),) * 2
    if len(limits) != 2:
        raise ValueError(
            f"Voxelization: max_voxels has {len(limits)} elements, expected one limit, or 2: "
            "for training and evaluation"
        )
    return _limit("max_voxels[0]", limits[0], "an integer"), _limit("max_voxels[1]", limits[1], "an integer")


class Voxelization(torch.nn.Module):
    """:func:`voxelization` with a fixed grid.

    Args:
        voxel_size: three numbers, x, y, z.
        point_cloud_range: six numbers: minimum x, y, z, then maximum x, y, z.
        max_num_points: the limit per voxel; with -1, only the coordinates of all points are returned.
        max_voxels: one limit, or one for training and one for evaluation.
        deterministic: accepted; results are always deterministic.

    Attributes:
        grid_size: the number of voxels in the directions x, y, z, as a CPU tensor.
        pcd_shape: ``[1, grid_size[1], grid_size[0]]``.
    """

    @own_messages("Voxelization")
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
        self.max_num_points = _limit("max_num_points", max_num_points, "an integer")
        self.max_voxels = _limits(max_voxels)
        self.deterministic = deterministic
        # Call the operator on one point, so that an invalid grid is rejected now and not in the first call.
        # NumPy arrays have values whatever torch's default device is.
        voxelize_arrays(np.zeros((1, 3), np.float32), voxel_size, point_cloud_range)
        size, ends = ([float(x) for x in values] for values in (voxel_size, point_cloud_range))
        self.grid_size = torch.tensor(_sparse.voxel_grid_size(size, ends), device="cpu")
        self.pcd_shape = [1, *self.grid_size[:2].flip(0)]

    @own_messages(
        "Voxelization", points="input", coors_range="point_cloud_range", max_points="max_num_points"
    )
    def forward(self, input: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the result of :func:`voxelization` for these points."""
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
