"""``mmcv._ext``: the functions of mmcv's compiled module, with the argument names that its wrappers use."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from turnout import torch as own
from turnout.compat import _boxes
from turnout.compat._extension import Checks, Table, functions_of, widened
from turnout.compat.mmcv import ext_losses, ext_points, ext_pools, ext_scores
from turnout.compat.mmcv.ext_names import NAMES
from turnout.compat.mmcv.voxels import Numbers
from turnout.torch.messages import own_messages

HINT = "the page 'Coming from mmdetection3d' of the documentation lists the models that do without it"
_INT = torch.int32
_LONG = torch.int64

# -- overlaps and NMS --------------------------------------------------------------------------------------


def iou3d_boxes_overlap_bev_forward(boxes_a: Tensor, boxes_b: Tensor, ans_iou: Tensor) -> None:
    _boxes.write_overlap("iou3d_boxes_overlap_bev_forward", boxes_a=boxes_a, boxes_b=boxes_b, ans_iou=ans_iou)


def _write_nms3d(
    function: str, boxes: Tensor, keep: Tensor, num_out: Tensor, threshold: float, *, normal: bool
) -> None:
    number = Checks(function).tensor("num_out", num_out, "", _LONG)
    number.fill_(_boxes.write_nms(function, threshold, normal=normal, boxes=boxes, keep=keep))


@own_messages(threshold="nms_overlap_thresh")
def iou3d_nms3d_forward(boxes: Tensor, keep: Tensor, num_out: Tensor, nms_overlap_thresh: float) -> None:
    _write_nms3d("iou3d_nms3d_forward", boxes, keep, num_out, nms_overlap_thresh, normal=False)


@own_messages(threshold="nms_overlap_thresh")
def iou3d_nms3d_normal_forward(
    boxes: Tensor, keep: Tensor, num_out: Tensor, nms_overlap_thresh: float
) -> None:
    _write_nms3d("iou3d_nms3d_normal_forward", boxes, keep, num_out, nms_overlap_thresh, normal=True)


def box_iou_rotated(boxes1: Tensor, boxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool) -> None:
    """Writes into ``ious [N * M]``, or ``[N]`` if aligned: 0 the IoU, 1 the part of boxes1 in the overlap."""
    if mode_flag not in (0, 1):
        raise ValueError(f"box_iou_rotated: mode_flag is {mode_flag}, expected 0 or 1")
    checks = Checks("box_iou_rotated")
    a = checks.tensor("boxes1", boxes1, "N 5", *_boxes.F32)
    b = checks.tensor("boxes2", boxes2, "N 5" if aligned else "M 5", *_boxes.F32)
    size = len(a) if aligned else len(a) * len(b)
    out = Checks("box_iou_rotated", size=size).tensor("ious", ious, "size", *_boxes.F32)
    mode = "iof" if mode_flag else "iou"
    out.copy_(own.box_iou_rotated(a, b, mode=mode, aligned=bool(aligned)).reshape(-1))


@own_messages(threshold="iou_threshold", boxes="dets")
def nms_rotated(
    dets: Tensor,
    scores: Tensor,
    order: Tensor,
    dets_sorted: Tensor,
    labels: Tensor,
    iou_threshold: float,
    multi_label: int,
) -> Tensor:
    """The kept elements of ``order``. Rows have 5 columns, or 6: the last is ignored, and so is ``labels``.

    An empty ``order`` means that boxes are sorted here.
    """
    del labels, multi_label
    columns = 6 if dets.dim() == 2 and dets.shape[1] == 6 else 5
    checks = Checks("nms_rotated")
    boxes = checks.tensor("dets", dets, f"N {columns}", *_boxes.FLOATS)
    if not order.numel():
        scores = checks.tensor("scores", scores, "N", *_boxes.FLOATS)
        return own.nms_rotated(widened(boxes[:, :5]), widened(scores), float(iou_threshold))
    rows = checks.tensor("order", order, "N", _LONG, _INT)
    boxes = checks.tensor("dets_sorted", dets_sorted, f"N {columns}", boxes.dtype)
    return rows[own.nms_rotated(widened(boxes[:, :5]), None, float(iou_threshold))].long()


@own_messages(threshold="iou_threshold")
def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    checks = Checks("nms")
    found = checks.tensor("boxes", boxes, "N 4", *_boxes.F32)
    values = checks.tensor("scores", scores, "N", *_boxes.FLOATS)
    return own.nms(found, widened(values), float(iou_threshold), offset=operator.index(offset))


# -- points in boxes, whose z is that of the bottom ---------------------------------------------------------


def points_in_boxes_part_forward(
    boxes_tensor: Tensor, pts_tensor: Tensor, box_idx_of_points_tensor: Tensor
) -> None:
    _boxes.write_first_box(
        "points_in_boxes_part_forward",
        z="bottom",
        margin=0.0,
        dtypes=_boxes.FLOATS,
        boxes_tensor=boxes_tensor,
        pts_tensor=pts_tensor,
        box_idx_of_points_tensor=box_idx_of_points_tensor,
    )


def points_in_boxes_all_forward(
    boxes_tensor: Tensor, pts_tensor: Tensor, box_idx_of_points_tensor: Tensor
) -> None:
    _boxes.write_all_boxes(
        "points_in_boxes_all_forward",
        z="bottom",
        margin=0.0,
        dtypes=_boxes.FLOATS,
        boxes_tensor=boxes_tensor,
        pts_tensor=pts_tensor,
        box_idx_of_points_tensor=box_idx_of_points_tensor,
    )


def points_in_boxes_cpu_forward(boxes_tensor: Tensor, pts_tensor: Tensor, pts_indices_tensor: Tensor) -> None:
    _boxes.write_points_of_boxes(
        "points_in_boxes_cpu_forward",
        z="bottom",
        margin=0.0,
        boxes_tensor=boxes_tensor,
        pts_tensor=pts_tensor,
        pts_indices_tensor=pts_indices_tensor,
    )


# -- voxels ------------------------------------------------------------------------------------------------


def _refuse_dims(function: str, dims: int) -> None:
    if dims != 3:
        raise ValueError(f"{function}: NDim is {dims}, expected 3")


def write_voxels(
    function: str, points: Tensor, size: Numbers, range_: Numbers, voxels: Tensor, coors: Tensor,
    counts: Tensor, max_points: int, max_voxels: int,
) -> int:  # fmt: skip
    """The first points of each voxel, its coordinates and its number of points into rows of the results."""
    checks = Checks(function, max_points=max_points, max_voxels=max_voxels)
    points = checks.tensor("points", points, "N F", *_boxes.FLOATS)
    voxels = checks.tensor("voxels", voxels, "max_voxels max_points F", points.dtype)
    coors = checks.tensor("coors", coors, "max_voxels 3", _INT)
    counts = checks.tensor("num_points_per_voxel", counts, "max_voxels", _INT)
    found = own.voxelize(points, size, range_, max_points=int(max_points), max_voxels=int(max_voxels))
    for out, rows in zip((voxels, coors, counts), found, strict=True):
        out[: len(rows)] = rows
    return len(found[0])


@own_messages(point_cloud_range="coors_range")
def hard_voxelize_forward(
    points: Tensor,
    voxel_size: Numbers,
    coors_range: Numbers,
    voxels: Tensor,
    coors: Tensor,
    num_points_per_voxel: Tensor,
    voxel_num: Tensor,
    max_points: int,
    max_voxels: int,
    NDim: int = 3,  # noqa: N803
    deterministic: bool = True,
) -> None:
    del deterministic
    function = "hard_voxelize_forward"
    _refuse_dims(function, NDim)
    number = Checks(function).tensor("voxel_num", voxel_num, "", _LONG)
    limits = (max_points, max_voxels)
    arguments = (points, voxel_size, coors_range, voxels, coors, num_points_per_voxel)
    number.fill_(write_voxels(function, *arguments, *limits))


@own_messages(point_cloud_range="coors_range")
def dynamic_voxelize_forward(
    points: Tensor,
    voxel_size: Numbers,
    coors_range: Numbers,
    coors: Tensor,
    NDim: int = 3,  # noqa: N803
) -> None:
    _refuse_dims("dynamic_voxelize_forward", NDim)
    checks = Checks("dynamic_voxelize_forward")
    points = checks.tensor("points", points, "N F", *_boxes.FLOATS)
    out = checks.tensor("coors", coors, "N 3", _INT)
    out.copy_(own.voxelize(points, voxel_size, coors_range))


@own_messages()
def dynamic_point_to_voxel_forward(feats: Tensor, coors: Tensor, reduce_type: str) -> list[Tensor]:
    """voxel_feats, voxel_coors, point2voxel_map and voxel_points_count."""
    return list(torch.ops.turnout.dynamic_scatter_forward(feats.detach(), coors, reduce_type))


@own_messages(voxel_feats="reduced_feats", point2voxel_map="coors_idx", voxel_points_count="reduce_count")
def dynamic_point_to_voxel_backward(
    grad_feats: Tensor,
    grad_reduced_feats: Tensor,
    feats: Tensor,
    reduced_feats: Tensor,
    coors_idx: Tensor,
    reduce_count: Tensor,
    reduce_type: str,
) -> None:
    out = Checks("dynamic_point_to_voxel_backward").tensor("grad_feats", grad_feats, "N C", feats.dtype)
    tensors = [grad_reduced_feats, feats, reduced_feats, coors_idx, reduce_count]
    tensors = [tensor.detach() for tensor in tensors]
    out.copy_(torch.ops.turnout.dynamic_scatter_backward(*tensors, reduce_type))


# -- about the build ---------------------------------------------------------------------------------------


def get_compiler_version() -> str:
    return "Turnout's stand-in for mmcv._ext"


def get_compiling_cuda_version() -> str:
    return "not available"


# -- the module --------------------------------------------------------------------------------------------

_OFFERED: Table = {
    function.__name__: function
    for function in (
        box_iou_rotated,
        dynamic_point_to_voxel_backward,
        dynamic_point_to_voxel_forward,
        dynamic_voxelize_forward,
        get_compiler_version,
        get_compiling_cuda_version,
        hard_voxelize_forward,
        iou3d_boxes_overlap_bev_forward,
        iou3d_nms3d_forward,
        iou3d_nms3d_normal_forward,
        nms,
        nms_rotated,
        points_in_boxes_all_forward,
        points_in_boxes_cpu_forward,
        points_in_boxes_part_forward,
        *ext_losses.FUNCTIONS,
        *ext_points.FUNCTIONS,
        *ext_pools.FUNCTIONS,
        *ext_scores.FUNCTIONS,
    )
}
# A name without a function here is one that Turnout does not have.
TABLE: Table = {**dict.fromkeys(NAMES), **_OFFERED}


def contents_of(module: ModuleType) -> Mapping[str, Any]:
    """What ``mmcv._ext`` gets: a stand-in all names; a compiled module those that Turnout has.

    Names about the build stay those of the compiled module.
    """
    if module.__spec__ is not None and module.__spec__.loader is None:
        return functions_of("mmcv._ext", TABLE, lambda name: None, HINT)
    before = dict(vars(module))
    table = {name: function for name, function in _OFFERED.items() if not name.startswith("get_compil")}
    return functions_of("mmcv._ext", table, before.get, HINT)
