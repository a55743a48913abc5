"""Grouping, interpolation and RoI pooling of ``mmcv._ext``: tensors first, sizes as keywords."""

from __future__ import annotations

from torch import Tensor

from turnout.compat import _grouping, _roi_pooling
from turnout.compat._grouping import FLOATS, Call

_SUFFIX = "_tensor"
_RULE = ("bottom", 0.0)  # of points in boxes


def group_points_forward(
    points_tensor: Tensor, idx_tensor: Tensor, out_tensor: Tensor, b: int, c: int, n: int, npoints: int,
    nsample: int,
) -> None:  # fmt: skip
    call = Call("group_points_forward", FLOATS, b=b, c=c, n=n, npoints=npoints, nsample=nsample)
    _grouping.write_group(call, points_tensor, idx_tensor, out_tensor, _SUFFIX)


def group_points_backward(
    grad_out_tensor: Tensor, idx_tensor: Tensor, grad_points_tensor: Tensor, b: int, c: int, n: int,
    npoints: int, nsample: int,
) -> None:  # fmt: skip
    call = Call("group_points_backward", FLOATS, b=b, c=c, n=n, npoints=npoints, nsample=nsample)
    _grouping.add_group_grad(call, grad_out_tensor, idx_tensor, grad_points_tensor, _SUFFIX)


def gather_points_forward(
    points_tensor: Tensor, idx_tensor: Tensor, out_tensor: Tensor, b: int, c: int, n: int, npoints: int
) -> None:
    call = Call("gather_points_forward", FLOATS, b=b, c=c, n=n, npoints=npoints)
    _grouping.write_gather(call, points_tensor, idx_tensor, out_tensor, _SUFFIX)


def gather_points_backward(
    grad_out_tensor: Tensor, idx_tensor: Tensor, grad_points_tensor: Tensor, b: int, c: int, n: int,
    npoints: int,
) -> None:  # fmt: skip
    call = Call("gather_points_backward", FLOATS, b=b, c=c, n=n, npoints=npoints)
    _grouping.add_gather_grad(call, grad_out_tensor, idx_tensor, grad_points_tensor, _SUFFIX)


def three_interpolate_forward(
    points_tensor: Tensor, idx_tensor: Tensor, weight_tensor: Tensor, out_tensor: Tensor, b: int, c: int,
    m: int, n: int,
) -> None:  # fmt: skip
    call = Call("three_interpolate_forward", FLOATS, b=b, c=c, m=m, n=n)
    _grouping.write_interpolation(call, points_tensor, idx_tensor, weight_tensor, out_tensor, _SUFFIX)


def three_interpolate_backward(
    grad_out_tensor: Tensor, idx_tensor: Tensor, weight_tensor: Tensor, grad_points_tensor: Tensor, b: int,
    c: int, n: int, m: int,
) -> None:  # fmt: skip
    call = Call("three_interpolate_backward", FLOATS, b=b, c=c, n=n, m=m)
    tensors = grad_out_tensor, idx_tensor, weight_tensor, grad_points_tensor
    _grouping.add_interpolation_grad(call, *tensors, _SUFFIX)


def stack_group_points_forward(
    features_tensor: Tensor, features_batch_cnt_tensor: Tensor, idx_tensor: Tensor,
    idx_batch_cnt_tensor: Tensor, out_tensor: Tensor, b: int, c: int, m: int, nsample: int,
) -> None:  # fmt: skip
    call = Call("stack_group_points_forward", FLOATS, b=b, c=c, m=m, nsample=nsample)
    tensors = features_tensor, features_batch_cnt_tensor, idx_tensor, idx_batch_cnt_tensor, out_tensor
    _grouping.write_stacked_group(call, *tensors, _SUFFIX)


def stack_group_points_backward(
    grad_out_tensor: Tensor, idx_tensor: Tensor, idx_batch_cnt_tensor: Tensor,
    features_batch_cnt_tensor: Tensor, grad_features_tensor: Tensor, b: int, c: int, m: int, n: int,
    nsample: int,
) -> None:  # fmt: skip
    call = Call("stack_group_points_backward", FLOATS, b=b, c=c, m=m, n=n, nsample=nsample)
    counts = idx_batch_cnt_tensor, features_batch_cnt_tensor
    tensors = grad_out_tensor, idx_tensor, *counts, grad_features_tensor
    _grouping.add_stacked_group_grad(call, *tensors, _SUFFIX)


def roiaware_pool3d_forward(
    rois: Tensor, pts: Tensor, pts_feature: Tensor, argmax: Tensor, pts_idx_of_voxels: Tensor,
    pooled_features: Tensor, pool_method: int,
) -> None:  # fmt: skip
    tensors = rois, pts, pts_feature, argmax, pts_idx_of_voxels, pooled_features
    _roi_pooling.write_roiaware("roiaware_pool3d_forward", *_RULE, FLOATS, *tensors, pool_method)


def roiaware_pool3d_backward(
    pts_idx_of_voxels: Tensor, argmax: Tensor, grad_out: Tensor, grad_in: Tensor, pool_method: int
) -> None:
    tensors = pts_idx_of_voxels, argmax, grad_out, grad_in
    _roi_pooling.add_roiaware_grad("roiaware_pool3d_backward", FLOATS, *tensors, pool_method)


def roipoint_pool3d_forward(
    xyz: Tensor, boxes3d: Tensor, pts_feature: Tensor, pooled_features: Tensor, pooled_empty_flag: Tensor
) -> None:
    tensors = xyz, boxes3d, pts_feature, pooled_features, pooled_empty_flag
    _roi_pooling.write_roipoint("roipoint_pool3d_forward", *_RULE, FLOATS, *tensors)


FUNCTIONS = (
    gather_points_backward,
    gather_points_forward,
    group_points_backward,
    group_points_forward,
    roiaware_pool3d_backward,
    roiaware_pool3d_forward,
    roipoint_pool3d_forward,
    stack_group_points_backward,
    stack_group_points_forward,
    three_interpolate_backward,
    three_interpolate_forward,
)
