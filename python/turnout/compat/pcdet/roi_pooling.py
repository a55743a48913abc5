"""RoI pooling of ``roiaware_pool3d_cuda`` and ``roipoint_pool3d_cuda``: z is the centre of a box."""

from __future__ import annotations

from torch import Tensor

from turnout.compat import _roi_pooling
from turnout.compat._grouping import F32

_RULE = ("center", 1e-5)


def roiaware_forward(
    rois: Tensor,
    pts: Tensor,
    pts_feature: Tensor,
    argmax: Tensor,
    pts_idx_of_voxels: Tensor,
    pooled_features: Tensor,
    pool_method: int,
) -> int:
    tensors = rois, pts, pts_feature, argmax, pts_idx_of_voxels, pooled_features
    _roi_pooling.write_roiaware("forward", *_RULE, F32, *tensors, pool_method)
    return 1


def roiaware_backward(
    pts_idx_of_voxels: Tensor, argmax: Tensor, grad_out: Tensor, grad_in: Tensor, pool_method: int
) -> int:
    tensors = pts_idx_of_voxels, argmax, grad_out, grad_in
    _roi_pooling.add_roiaware_grad("backward", F32, *tensors, pool_method)
    return 1


def roipoint_forward(
    xyz: Tensor, boxes3d: Tensor, pts_feature: Tensor, pooled_features: Tensor, pooled_empty_flag: Tensor
) -> int:
    tensors = xyz, boxes3d, pts_feature, pooled_features, pooled_empty_flag
    _roi_pooling.write_roipoint("forward", *_RULE, F32, *tensors)
    return 1
