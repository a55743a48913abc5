"""spconv's voxel generators: points grouped by voxel."""

from __future__ import annotations

import warnings
from contextlib import nullcontext as nullcontext
from typing import Any

import numpy as np
import torch

import turnout
from turnout import torch as own
from turnout.compat import _sparse
from turnout.torch.messages import own_messages

Numbers = Any  # a sequence of numbers, an array or a tensor


class PointToVoxel:
    """Groups the points of one cloud by voxel, in the order of a limited :func:`turnout.voxelize`.

    Args:
        vsize_xyz: the voxel size, one to three numbers in the order x, y, z.
        coors_range_xyz: the lower bounds of the grid, then its upper bounds.
        num_point_features: the number of columns of a point; coordinates are first.
        max_num_voxels: how many voxels are kept, the first ones.
        max_num_points_per_voxel: how many points per voxel are kept, the first ones.
        device: the CPU. A CUDA device is replaced by the CPU, with a warning, if torch finds none.

    Attributes:
        ndim: the number of coordinates.
        grid_size: the number of voxels in the directions z, y, x.
    """

    def __init__(
        self,
        vsize_xyz: Numbers,
        coors_range_xyz: Numbers,
        num_point_features: int,
        max_num_voxels: int,
        max_num_points_per_voxel: int,
        device: torch.device | str = "cpu",
    ) -> None:
        size, ends = [float(x) for x in vsize_xyz], [float(x) for x in coors_range_xyz]
        dims = len(size)
        if not 1 <= dims <= 3:
            raise ValueError(f"PointToVoxel: vsize_xyz has {dims} elements, expected 1 .. 3")
        if len(ends) != 2 * dims:
            raise ValueError(f"PointToVoxel: coors_range_xyz has {len(ends)} elements, expected {2 * dims}")
        if num_point_features < dims:
            raise ValueError(
                f"PointToVoxel: num_point_features is {num_point_features}, expected {dims} or more"
            )
        self.ndim = dims
        self.device = _usable(torch.device(device))
        self.num_point_features = num_point_features
        self.max_num_voxels = max_num_voxels
        self.max_num_points_per_voxel = max_num_points_per_voxel
        # The operator has three coordinates. The grid is one voxel thick in the missing ones.
        more = 3 - dims
        self._size = [*size, *[1.0] * more]
        self._range = [*ends[:dims], *[0.0] * more, *ends[dims:], *[1.0] * more]
        self.grid_size = _sparse.voxel_grid_size(size, ends)[::-1]

    def __call__(
        self, pc: torch.Tensor, clear_voxels: bool = True, empty_mean: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns voxels ``[voxels, points, features]`` float32, indices ``[voxels, ndim]`` int32 in the
        order z, y, x, and the number of points in each voxel, int32.

        ``empty_mean`` fills positions without a point with the mean of the voxel's points instead of 0.
        ``clear_voxels`` is accepted, but results are always new.
        """
        del clear_voxels
        return self._group(self._three_dims(pc), empty_mean)[:3]

    def generate_voxel_with_id(
        self, pc: torch.Tensor, clear_voxels: bool = True, empty_mean: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Like a call, but also returns the number of each point's voxel, int64.

        It is -1 if the point is in no voxel or in one beyond ``max_num_voxels``. A point whose voxel is full
        still has that voxel's number.
        """
        del clear_voxels
        voxels, indices, num, ids = self._group(self._three_dims(pc), empty_mean, return_map=True)
        return voxels, indices, num, ids.long()

    @own_messages("PointToVoxel")
    def _three_dims(self, pc: torch.Tensor) -> torch.Tensor:
        pc = pc.detach()
        if pc.dim() != 2 or pc.shape[1] != self.num_point_features:
            raise ValueError(
                f"PointToVoxel: pc has shape {tuple(pc.shape)}, expected [points, {self.num_point_features}]"
            )
        missing = pc.new_zeros((pc.shape[0], 3 - self.ndim))
        return torch.cat([pc[:, : self.ndim], missing, pc[:, self.ndim :]], 1) if self.ndim < 3 else pc

    @own_messages(
        "PointToVoxel",
        points="pc",
        voxel_size="vsize_xyz",
        point_cloud_range="coors_range_xyz",
        max_points="max_num_points_per_voxel",
        max_voxels="max_num_voxels",
    )
    def _group(
        self, points: torch.Tensor, empty_mean: bool, return_map: bool = False
    ) -> tuple[torch.Tensor, ...]:
        voxels, coors, num, *map_ = own.voxelize(
            points,
            self._size,
            self._range,
            max_points=self.max_num_points_per_voxel,
            max_voxels=self.max_num_voxels,
            return_map=return_map,
        )
        if self.ndim < 3:
            voxels = torch.cat([voxels[..., : self.ndim], voxels[..., 3:]], -1)
        voxels = voxels.float()
        if empty_mean:
            is_empty = torch.arange(voxels.shape[1]) >= num[:, None]
            mean = voxels.sum(1) / num[:, None]
            voxels = torch.where(is_empty[..., None], mean[:, None], voxels)
        return voxels, coors[:, 3 - self.ndim :].contiguous(), num, *map_


def _usable(device: torch.device) -> torch.device:
    if device.type == "cuda" and not torch.cuda.is_available():
        warnings.warn(
            f"PointToVoxel: device is {device}, but torch finds no CUDA device; using the CPU",
            stacklevel=3,
        )
        return torch.device("cpu")
    if device.type != "cpu":
        raise ValueError(f"PointToVoxel: device is {device}, expected cpu")
    return device


def gather_features_by_pc_voxel_id(
    seg_res_features: torch.Tensor, pc_voxel_id: torch.Tensor, invalid_value: float = 0
) -> torch.Tensor:
    """Returns the features of each point's voxel, or ``invalid_value`` where its number is -1."""
    is_valid = pc_voxel_id != -1
    gathered = seg_res_features.new_full((len(pc_voxel_id), *seg_res_features.shape[1:]), invalid_value)
    return gathered.index_put((is_valid,), seg_res_features[pc_voxel_id[is_valid]])


class VoxelGenerator:
    """The voxel generator of spconv 1.x: :class:`PointToVoxel` with NumPy arrays.

    Args:
        voxel_size: three numbers, x, y, z.
        point_cloud_range: six numbers: minimum x, y, z, then maximum x, y, z.
        max_num_points: how many points per voxel are kept, the first ones.
        max_voxels: how many voxels are kept, the first ones.
    """

    def __init__(
        self, voxel_size: Numbers, point_cloud_range: Numbers, max_num_points: int, max_voxels: int = 20000
    ) -> None:
        self.voxel_size = np.asarray(voxel_size, np.float32)
        self.point_cloud_range = np.asarray(point_cloud_range, np.float32)
        self.max_num_points_per_voxel = max_num_points
        self.max_voxels = max_voxels
        self.grid_size = np.array(_sparse.voxel_grid_size(self.voxel_size, self.point_cloud_range))

    def generate(self, points: np.ndarray, max_voxels: int | None = None) -> Any:
        """Returns voxels ``[voxels, max_num_points, features]``, coordinates ``[voxels, 3]`` in the order
        z, y, x, and the number of points in each voxel.
        """
        return turnout.voxelize(
            points,
            self.voxel_size,
            self.point_cloud_range,
            max_points=self.max_num_points_per_voxel,
            max_voxels=self.max_voxels if max_voxels is None else max_voxels,
        )


class VoxelGeneratorV2(VoxelGenerator):
    """Like :class:`VoxelGenerator`, but :meth:`generate` returns a dictionary."""

    def generate(self, points: np.ndarray, max_voxels: int | None = None) -> dict[str, np.ndarray]:
        names = ("voxels", "coordinates", "num_points_per_voxel")
        return dict(zip(names, super().generate(points, max_voxels), strict=True))
