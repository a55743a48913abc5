"""Functions of ``mmcv.ops`` that ask torch for a CUDA device before they call ``mmcv._ext``."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from turnout.compat._install import Undo, set_attribute, undo_all


def _ext() -> Any:
    return sys.modules["mmcv._ext"]


def _sample(ctx: Any, points_xyz: Tensor, num_points: int) -> Tensor:
    points = points_xyz.contiguous()
    samples, rows = points.shape[:2]
    indices = points.new_zeros((samples, num_points), dtype=torch.int32)
    distances = points.new_full((samples, rows), 1e10)
    _ext().furthest_point_sampling_forward(points, distances, indices, b=samples, n=rows, m=num_points)
    ctx.mark_non_differentiable(indices)
    return indices


def _nearest(
    ctx: Any, k: int, xyz: Tensor, center_xyz: Tensor | None = None, transposed: bool = False
) -> Tensor:
    if not 0 < k < 100:
        raise ValueError(f"knn: k is {k}, expected 1 .. 99")
    centers = xyz if center_xyz is None else center_xyz
    if transposed:
        xyz, centers = xyz.transpose(1, 2), centers.transpose(1, 2)
    xyz, centers = xyz.contiguous(), centers.contiguous()
    samples, queries, _ = centers.shape
    indices = centers.new_zeros((samples, queries, k), dtype=torch.int32)
    distances = centers.new_zeros((samples, queries, k), dtype=torch.float32)
    _ext().knn_forward(xyz, centers, indices, distances, b=samples, n=xyz.shape[1], m=queries, nsample=k)
    indices = indices.transpose(1, 2).contiguous()
    ctx.mark_non_differentiable(indices)
    return indices


def points_in_boxes_part(points: Tensor, boxes: Tensor) -> Tensor:
    """The first of the boxes ``[B, T, 7]`` with each of the points ``[B, M, 3]``, or -1; int32 ``[B, M]``.

    A box is x, y and z of the middle of its bottom, its three sizes and its heading.
    """
    first = points.new_full(points.shape[:2], -1, dtype=torch.int32)
    _ext().points_in_boxes_part_forward(boxes.contiguous(), points.contiguous(), first)
    return first


def points_in_boxes_all(points: Tensor, boxes: Tensor) -> Tensor:
    """1 for each point ``[B, M, 3]`` in each box ``[B, T, 7]``, otherwise 0; int32 ``[B, M, T]``."""
    inside = points.new_zeros((*points.shape[:2], boxes.shape[1]), dtype=torch.int32)
    _ext().points_in_boxes_all_forward(boxes.contiguous(), points.contiguous(), inside)
    return inside


def replace_wrappers() -> Undo:
    """Replaces them for tensors on the CPU, also in modules that have imported two of them before."""
    steps: list[Undo] = []

    def replace(module: str, owner: str | None, name: str, function: Any) -> None:
        found = sys.modules.get(module)
        holder = found if owner is None else getattr(found, owner, None)
        before = getattr(holder, name, None)
        if before is None:
            return

        def call(*arguments: Any, **options: Any) -> Any:
            tensors = [a for a in (*arguments, *options.values()) if isinstance(a, Tensor)]
            is_ours = all(tensor.device.type == "cpu" for tensor in tensors)
            return (function if is_ours else before)(*arguments, **options)

        call.__name__, call.__doc__ = name, function.__doc__
        steps.append(set_attribute(holder, name, call if owner is None else staticmethod(call)))

    replace("mmcv.ops.furthest_point_sample", "FurthestPointSampling", "forward", _sample)
    replace("mmcv.ops.knn", "KNN", "forward", _nearest)
    for module in ("mmcv.ops", "mmcv.ops.points_in_boxes"):
        replace(module, None, "points_in_boxes_part", points_in_boxes_part)
        replace(module, None, "points_in_boxes_all", points_in_boxes_all)
    return lambda: undo_all(steps)
