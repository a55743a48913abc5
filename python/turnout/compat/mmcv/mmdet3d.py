"""Modules of mmdetection3d and of its projects that are compiled, or compile for CUDA."""

from __future__ import annotations

import torch
from torch import Tensor

from turnout.compat import _bev
from turnout.compat._extension import Table, functions_of
from turnout.compat._install import Undo, enter_module, undo_all
from turnout.compat._rotate_iou import rotate_iou_gpu_eval
from turnout.compat.mmcv import ext
from turnout.compat.mmcv.voxels import Numbers
from turnout.torch.messages import own_messages

_EVALUATION = "mmdet3d.evaluation.functional.kitti_utils.rotate_iou"
_PROJECTS = "projects.BEVFusion.bevfusion.ops"


# -- voxels of the project BEVFusion ------------------------------------------------------------------------
# The order of arguments differs from mmcv's, and coordinates are x, y, z instead of z, y, x.


@own_messages(point_cloud_range="coors_range")
def hard_voxelize(
    points: Tensor,
    voxels: Tensor,
    coors: Tensor,
    num_points_per_voxel: Tensor,
    voxel_size: Numbers,
    coors_range: Numbers,
    max_points: int,
    max_voxels: int,
    NDim: int = 3,  # noqa: N803
    deterministic: bool = True,
) -> int:
    number = torch.zeros((), dtype=torch.int64)
    reversed_coors = coors.flip(-1)
    tensors = (voxels, reversed_coors, num_points_per_voxel, number)
    limits = (max_points, max_voxels, NDim, deterministic)
    ext.hard_voxelize_forward(points, voxel_size, coors_range, *tensors, *limits)
    coors.copy_(reversed_coors.flip(-1))
    return int(number)


@own_messages(point_cloud_range="coors_range")
def dynamic_voxelize(
    points: Tensor,
    coors: Tensor,
    voxel_size: Numbers,
    coors_range: Numbers,
    NDim: int = 3,  # noqa: N803
) -> None:
    reversed_coors = torch.empty_like(coors)
    ext.dynamic_voxelize_forward(points, voxel_size, coors_range, reversed_coors, NDim)
    coors.copy_(reversed_coors.flip(-1))


MODULES: dict[str, Table] = {
    f"{_PROJECTS}.voxel.voxel_layer": {
        "dynamic_point_to_voxel_backward": ext.dynamic_point_to_voxel_backward,
        "dynamic_point_to_voxel_forward": ext.dynamic_point_to_voxel_forward,
        "dynamic_voxelize": dynamic_voxelize,
        "hard_voxelize": hard_voxelize,
    },
    f"{_PROJECTS}.bev_pool.bev_pool_ext": {
        "bev_pool_backward": _bev.bev_pool_backward,
        "bev_pool_forward": _bev.bev_pool_forward,
    },
    "projects.DSVT.dsvt.ops.ingroup_inds.ingroup_inds_cuda": {
        "forward": _bev.ingroup_forward,
    },
}


def enter_mmdet3d() -> Undo | None:
    """Enters stand-ins in sys.modules without importing mmdet3d; None: there is a GPU."""
    if torch.cuda.is_available():
        return None
    steps = [enter_module(_EVALUATION, "mmcv", {"rotate_iou_gpu_eval": rotate_iou_gpu_eval})]
    for name, table in MODULES.items():
        functions = functions_of(name, table, lambda function: None, ext.HINT)
        steps.append(enter_module(name, "mmcv", functions))
    return lambda: undo_all(steps)
