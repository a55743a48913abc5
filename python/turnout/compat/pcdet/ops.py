"""The functions of pcdet's compiled modules.

A function writes into the tensors that it is given and returns what the compiled one returns.
"""

from __future__ import annotations

from torch import Tensor

from turnout.compat import _bev, _boxes
from turnout.compat._extension import Table
from turnout.compat.pcdet import grouping, points, roi_pooling, vector_pooling
from turnout.torch.messages import own_messages

# -- pcdet.ops.iou3d_nms -----------------------------------------------------------------------------------


def boxes_overlap_bev_gpu(boxes_a: Tensor, boxes_b: Tensor, ans_overlap: Tensor) -> int:
    _boxes.write_overlap("boxes_overlap_bev_gpu", boxes_a=boxes_a, boxes_b=boxes_b, ans_overlap=ans_overlap)
    return 1


def boxes_iou_bev_gpu(boxes_a: Tensor, boxes_b: Tensor, ans_iou: Tensor) -> int:
    _boxes.write_overlap("boxes_iou_bev_gpu", boxes_a=boxes_a, boxes_b=boxes_b, ans_iou=ans_iou, iou=True)
    return 1


def boxes_iou_bev_cpu(boxes_a_tensor: Tensor, boxes_b_tensor: Tensor, ans_iou_tensor: Tensor) -> int:
    _boxes.write_overlap(
        "boxes_iou_bev_cpu",
        iou=True,
        boxes_a_tensor=boxes_a_tensor,
        boxes_b_tensor=boxes_b_tensor,
        ans_iou_tensor=ans_iou_tensor,
    )
    return 1


def boxes_aligned_overlap_bev_gpu(boxes_a: Tensor, boxes_b: Tensor, ans_overlap: Tensor) -> int:
    _boxes.write_aligned_overlap(
        "boxes_aligned_overlap_bev_gpu", boxes_a=boxes_a, boxes_b=boxes_b, ans_overlap=ans_overlap
    )
    return 1


def paired_boxes_overlap_bev_gpu(boxes_a: Tensor, boxes_b: Tensor, ans_overlap: Tensor) -> int:
    _boxes.write_aligned_overlap(
        "paired_boxes_overlap_bev_gpu", boxes_a=boxes_a, boxes_b=boxes_b, ans_overlap=ans_overlap
    )
    return 1


def boxes_aligned_iou_bev_cpu(boxes_a_tensor: Tensor, boxes_b_tensor: Tensor, ans_iou_tensor: Tensor) -> int:
    _boxes.write_aligned_overlap(
        "boxes_aligned_iou_bev_cpu",
        iou=True,
        boxes_a_tensor=boxes_a_tensor,
        boxes_b_tensor=boxes_b_tensor,
        ans_iou_tensor=ans_iou_tensor,
    )
    return 1


@own_messages(threshold="nms_overlap_thresh")
def nms_gpu(boxes: Tensor, keep: Tensor, nms_overlap_thresh: float) -> int:
    return _boxes.write_nms("nms_gpu", nms_overlap_thresh, boxes=boxes, keep=keep)


@own_messages(threshold="nms_overlap_thresh")
def nms_normal_gpu(boxes: Tensor, keep: Tensor, nms_overlap_thresh: float) -> int:
    return _boxes.write_nms("nms_normal_gpu", nms_overlap_thresh, normal=True, boxes=boxes, keep=keep)


# -- pcdet.ops.roiaware_pool3d -----------------------------------------------------------------------------


def points_in_boxes_gpu(boxes_tensor: Tensor, pts_tensor: Tensor, box_idx_of_points_tensor: Tensor) -> int:
    _boxes.write_first_box(
        "points_in_boxes_gpu",
        z="center",
        margin=1e-5,
        boxes_tensor=boxes_tensor,
        pts_tensor=pts_tensor,
        box_idx_of_points_tensor=box_idx_of_points_tensor,
    )
    return 1


def points_in_boxes_cpu(boxes_tensor: Tensor, pts_tensor: Tensor, pts_indices_tensor: Tensor) -> int:
    _boxes.write_points_of_boxes(
        "points_in_boxes_cpu",
        z="center",
        margin=1e-2,
        boxes_tensor=boxes_tensor,
        pts_tensor=pts_tensor,
        pts_indices_tensor=pts_indices_tensor,
    )
    return 1


# -- the modules -------------------------------------------------------------------------------------------

MODULES: dict[str, Table] = {
    "pcdet.ops.iou3d_nms.iou3d_nms_cuda": {
        "boxes_aligned_iou_bev_cpu": boxes_aligned_iou_bev_cpu,
        "boxes_aligned_overlap_bev_gpu": boxes_aligned_overlap_bev_gpu,
        "boxes_iou_bev_cpu": boxes_iou_bev_cpu,
        "boxes_iou_bev_gpu": boxes_iou_bev_gpu,
        "boxes_overlap_bev_gpu": boxes_overlap_bev_gpu,
        "nms_gpu": nms_gpu,
        "nms_normal_gpu": nms_normal_gpu,
        "paired_boxes_overlap_bev_gpu": paired_boxes_overlap_bev_gpu,
    },
    "pcdet.ops.roiaware_pool3d.roiaware_pool3d_cuda": {
        "backward": roi_pooling.roiaware_backward,
        "forward": roi_pooling.roiaware_forward,
        "points_in_boxes_cpu": points_in_boxes_cpu,
        "points_in_boxes_gpu": points_in_boxes_gpu,
    },
    "pcdet.ops.roipoint_pool3d.roipoint_pool3d_cuda": {
        "forward": roi_pooling.roipoint_forward,
    },
    "pcdet.ops.pointnet2.pointnet2_batch.pointnet2_batch_cuda": {
        "ball_query_wrapper": points.ball_query_wrapper,
        "farthest_point_sampling_wrapper": points.farthest_point_sampling_wrapper,
        "gather_points_grad_wrapper": grouping.gather_points_grad_wrapper,
        "gather_points_wrapper": grouping.gather_points_wrapper,
        "group_points_grad_wrapper": grouping.group_points_grad_wrapper,
        "group_points_wrapper": grouping.group_points_wrapper,
        "three_interpolate_grad_wrapper": grouping.three_interpolate_grad_wrapper,
        "three_interpolate_wrapper": grouping.three_interpolate_wrapper,
        "three_nn_wrapper": points.three_nn_wrapper,
    },
    "pcdet.ops.pointnet2.pointnet2_stack.pointnet2_stack_cuda": {
        "ball_query_wrapper": points.stack_ball_query_wrapper,
        "farthest_point_sampling_wrapper": points.farthest_point_sampling_wrapper,
        "group_points_grad_wrapper": grouping.stack_group_points_grad_wrapper,
        "group_points_wrapper": grouping.stack_group_points_wrapper,
        "query_stacked_local_neighbor_idxs_wrapper_stack": vector_pooling.query_stacked_local_neighbor_idxs,
        "query_three_nn_by_stacked_local_idxs_wrapper_stack": vector_pooling.query_three_nn_of_lists,
        "stack_farthest_point_sampling_wrapper": points.stack_farthest_point_sampling_wrapper,
        "three_interpolate_grad_wrapper": grouping.stack_three_interpolate_grad_wrapper,
        "three_interpolate_wrapper": grouping.stack_three_interpolate_wrapper,
        "three_nn_wrapper": points.stack_three_nn_wrapper,
        "vector_pool_grad_wrapper": vector_pooling.vector_pool_grad,
        "vector_pool_wrapper": vector_pooling.vector_pool,
        "voxel_query_wrapper": points.voxel_query_wrapper,
    },
    "pcdet.ops.bev_pool.bev_pool_ext": {
        "bev_pool_backward": _bev.bev_pool_backward,
        "bev_pool_forward": _bev.bev_pool_forward,
    },
    "pcdet.ops.ingroup_inds.ingroup_inds_cuda": {
        "forward": _bev.ingroup_forward,
    },
}
