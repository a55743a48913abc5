"""Grouping, gathering and interpolation of ``pointnet2_batch_cuda`` and ``pointnet2_stack_cuda``."""

from __future__ import annotations

from torch import Tensor

from turnout.compat import _grouping
from turnout.compat._grouping import F32, Call

# -- pcdet.ops.pointnet2.pointnet2_batch: the first numbers are sizes --------------------------------------


def group_points_wrapper(
    b: int, c: int, n: int, npoints: int, nsample: int, points: Tensor, idx: Tensor, out: Tensor
) -> int:
    call = Call("group_points_wrapper", F32, b=b, c=c, n=n, npoints=npoints, nsample=nsample)
    _grouping.write_group(call, points, idx, out)
    return 1


def group_points_grad_wrapper(
    b: int, c: int, n: int, npoints: int, nsample: int, grad_out: Tensor, idx: Tensor, grad_points: Tensor
) -> int:
    call = Call("group_points_grad_wrapper", F32, b=b, c=c, n=n, npoints=npoints, nsample=nsample)
    _grouping.add_group_grad(call, grad_out, idx, grad_points)
    return 1


def gather_points_wrapper(
    b: int, c: int, n: int, npoints: int, points: Tensor, idx: Tensor, out: Tensor
) -> int:
    call = Call("gather_points_wrapper", F32, b=b, c=c, n=n, npoints=npoints)
    _grouping.write_gather(call, points, idx, out)
    return 1


def gather_points_grad_wrapper(
    b: int, c: int, n: int, npoints: int, grad_out: Tensor, idx: Tensor, grad_points: Tensor
) -> int:
    call = Call("gather_points_grad_wrapper", F32, b=b, c=c, n=n, npoints=npoints)
    _grouping.add_gather_grad(call, grad_out, idx, grad_points)
    return 1


def three_interpolate_wrapper(
    b: int, c: int, m: int, n: int, points: Tensor, idx: Tensor, weight: Tensor, out: Tensor
) -> None:
    call = Call("three_interpolate_wrapper", F32, b=b, c=c, m=m, n=n)
    _grouping.write_interpolation(call, points, idx, weight, out)


def three_interpolate_grad_wrapper(
    b: int, c: int, n: int, m: int, grad_out: Tensor, idx: Tensor, weight: Tensor, grad_points: Tensor
) -> None:
    call = Call("three_interpolate_grad_wrapper", F32, b=b, c=c, n=n, m=m)
    _grouping.add_interpolation_grad(call, grad_out, idx, weight, grad_points)


# -- pcdet.ops.pointnet2.pointnet2_stack -------------------------------------------------------------------


def stack_group_points_wrapper(
    B: int,  # noqa: N803
    M: int,  # noqa: N803
    C: int,  # noqa: N803
    nsample: int,
    features: Tensor,
    features_batch_cnt: Tensor,
    idx: Tensor,
    idx_batch_cnt: Tensor,
    out: Tensor,
) -> int:
    call = Call("group_points_wrapper", F32, b=B, m=M, c=C, nsample=nsample)
    _grouping.write_stacked_group(call, features, features_batch_cnt, idx, idx_batch_cnt, out)
    return 1


def stack_group_points_grad_wrapper(
    B: int,  # noqa: N803
    M: int,  # noqa: N803
    C: int,  # noqa: N803
    N: int,  # noqa: N803
    nsample: int,
    grad_out: Tensor,
    idx: Tensor,
    idx_batch_cnt: Tensor,
    features_batch_cnt: Tensor,
    grad_features: Tensor,
) -> int:
    call = Call("group_points_grad_wrapper", F32, b=B, m=M, c=C, n=N, nsample=nsample)
    counts = idx_batch_cnt, features_batch_cnt
    _grouping.add_stacked_group_grad(call, grad_out, idx, *counts, grad_features)
    return 1


def stack_three_interpolate_wrapper(features: Tensor, idx: Tensor, weight: Tensor, out: Tensor) -> None:
    call = Call("three_interpolate_wrapper", F32)
    _grouping.write_stacked_interpolation(call, features, idx, weight, out)


def stack_three_interpolate_grad_wrapper(
    grad_out: Tensor, idx: Tensor, weight: Tensor, grad_features: Tensor
) -> None:
    call = Call("three_interpolate_grad_wrapper", F32)
    _grouping.add_stacked_interpolation_grad(call, grad_out, idx, weight, grad_features)
