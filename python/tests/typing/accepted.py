"""Right calls, and the types of their results. Checked by test_types.py, never run."""

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import assert_type

import turnout
import turnout.torch as tt
from turnout.typing import Array, NumPyArray


class Exported:
    """An array of a library that has DLPack and nothing else."""

    def __dlpack__(self, *, stream: int | None = None) -> object:
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        raise NotImplementedError


class OfAnArrayApi(Exported):
    """One of a library that follows the array API standard."""

    def __array_namespace__(self, *, api_version: str | None = None) -> object:
        raise NotImplementedError


def numpy_arrays(x: NDArray[np.float32], i: NDArray[np.int64], b: NDArray[np.bool_]) -> None:
    assert_type(turnout.scatter_sum(x, i), NumPyArray)
    assert_type(turnout.scatter_max(x, i, dim=1, dim_size=np.int64(5)), tuple[NumPyArray, NumPyArray])
    assert_type(turnout.scatter_sum(x, i, out=x), NDArray[np.float32])
    assert_type(turnout.moe_re_routing(b, i)[0], NumPyArray)
    permuted, scales, _, counts = turnout.moe_re_routing(x, i, per_token_scales=x)
    assert_type(permuted, NumPyArray)
    assert_type(scales, NumPyArray | None)
    assert_type(counts, NumPyArray)
    assert_type(turnout.get_indice_pairs(i, 1, [6, 6], 3, (1, 2), subm=True)[2], NumPyArray)
    assert_type(turnout.indice_pairs_output_shape([41, 1600], 3, np.array([2, 2])), tuple[int, ...])
    assert_type(turnout.voxelize(x, [0.1, 0.1, 4.0], x), NumPyArray)
    limits = turnout.voxelize(x, (1, 1, 1), x, max_points=5, max_voxels=100)
    assert_type(limits, tuple[NumPyArray, NumPyArray, NumPyArray])
    mapped = turnout.voxelize(x, (1, 1, 1), x, max_points=5, max_voxels=100, return_map=True)
    assert_type(mapped[3], NumPyArray)
    assert_type(turnout.dynamic_scatter_forward(x, i, "mean")[0], NumPyArray)
    index = turnout.VoxelIndex(i)
    assert_type(index.voxel_coors, NumPyArray)
    assert_type(index.reduce(x, "sum"), NumPyArray)
    assert_type(turnout.rnnt_prune_ranges(x, x, i, 5, score="steps"), NumPyArray)
    assert_type(turnout.boxes_iou_bev(x, x, aligned=True), NumPyArray)
    assert_type(turnout.box_iou_rotated(x, x, "iof", out=x), NDArray[np.float32])
    assert_type(turnout.nms3d(x, None, 0.5, max_keep=np.int64(5)), NumPyArray)
    assert_type(turnout.points_in_boxes(x, x, "bottom", 0, all=True), NumPyArray)
    assert_type(turnout.output_cache(2**20).limit, int)


def other_arrays(x: Exported, y: OfAnArrayApi, z: NDArray[np.float32]) -> None:
    assert_type(turnout.scatter_sum(z, x), NumPyArray)
    assert_type(turnout.scatter_sum(y, x), NumPyArray)


def torch_tensors(x: torch.Tensor, p: torch.nn.Parameter, i: NDArray[np.int64]) -> None:
    assert_type(turnout.scatter_sum(x, x), torch.Tensor)
    assert_type(turnout.scatter_sum(p, i), torch.Tensor)
    assert_type(turnout.scatter_sum(x, i, out=x), torch.Tensor)
    assert_type(turnout.moe_dispatch_forward(i, i, i, x, 4, 2), torch.Tensor)
    assert_type(turnout.moe_dispatch_forward(x, x, x, i, 4, 2), NumPyArray)
    assert_type(turnout.VoxelIndex(x).point2voxel_map, torch.Tensor)


def functions_of_torch(x: torch.Tensor, i: torch.Tensor) -> None:
    assert_type(tt.scatter_max(x, i), tuple[torch.Tensor, torch.Tensor])
    loss = tt.rnnt_loss(x, i, 0, rnnt_type="modified", reduction="sum")
    loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
    simple, (px_grad, py_grad) = tt.rnnt_loss_simple(x, x, i, 0, return_grad=True)
    assert_type(simple, torch.Tensor)
    assert_type(tt.get_rnnt_prune_ranges(px_grad, py_grad, i, 5), torch.Tensor)
    assert_type(tt.dynamic_scatter(x, i), tuple[torch.Tensor, torch.Tensor])
    assert_type(tt.voxelize(x, [1.0, 1.0, 1.0], x), torch.Tensor)
    assert_type(tt.nms(x, None, 0.5, 1), torch.Tensor)
    assert_type(tt.points_in_boxes(x, x, all=True), torch.Tensor)
    layers = tt.nn.SparseSequential(tt.nn.SubMConv(3, 4, 16, 3), torch.nn.ReLU())
    layers(tt.nn.SparseTensor(x, i, [41, 1600, 1408], 1))


def sums(rows: Array, index: Array) -> None:
    turnout.moe_combine(np.zeros((1, 1, 1)), index, None, 1, rows)
