"""Wrong calls. Each line with a mark is an error of both checkers; no other line is. Never run."""

import numpy as np
import torch
from numpy.typing import NDArray

import turnout
import turnout.torch as tt


def of_numpy(x: NDArray[np.float32], i: NDArray[np.int64]) -> None:
    turnout.scatter_sum("rows", i)  # error
    turnout.scatter_sum([1.0, 2.0], i)  # error
    turnout.scatter_sum(1, i)  # error
    turnout.scatter_sum(None, i)  # error
    turnout.scatter_sum(x, "index")  # error
    turnout.scatter_sum(x, [0, 1])  # error
    turnout.scatter_sum(x, i, 0.5)  # error
    turnout.scatter_sum(x, i, dim_size="5")  # error
    turnout.scatter_sum(x, i, out="out")  # error
    turnout.scatter_sum(x)  # error
    turnout.scatter_sum(x, i, 0, None, x)  # error
    turnout.scatter_max(x, i, out=x)  # error
    turnout.moe_dispatch_forward(x, i, i, x, 2.0, 4)  # error
    turnout.moe_dispatch_forward(x, i, i, x, 2, num_expert=4)  # error
    turnout.dynamic_scatter_forward(x, i, "median")  # error
    turnout.dynamic_scatter_forward("feats", i)  # error
    turnout.get_indice_pairs(i, 1, "666")  # error
    turnout.get_indice_pairs(i, 1, [6.0])  # error
    turnout.indice_max_pool_forward(x, i, i, 3, init="one")  # error
    turnout.rnnt_logprobs_fused_forward(x, x, x, i, i, "gelu", 0)  # error
    turnout.rnnt_prune_ranges(x, x, i, 5, score="best")  # error
    turnout.voxelize(x, "abc", x)  # error
    turnout.voxelize(x, [1, 1, 1], x, max_points=5)  # error
    turnout.VoxelIndex("coors")  # error
    turnout.VoxelIndex(i).reduce(x, "min")  # error
    turnout.box_iou_rotated(x, x, "giou")  # error
    turnout.nms3d(x, [0.5], 0.5)  # error
    turnout.nms3d(x, None, "0.5")  # error
    turnout.points_in_boxes(x, x, "top")  # error
    turnout.set_num_threads("2")  # error
    turnout.output_cache(1.5)  # error
    number: int = turnout.scatter_sum(x, i)  # error
    del number


def of_torch(x: torch.Tensor, i: torch.Tensor, array: NDArray[np.float32]) -> None:
    tt.scatter_sum(array, i)  # error
    tt.scatter_sum("rows", i)  # error
    tt.moe_combine(x, i, None, "1")  # error
    tt.rnnt_loss(x, i, 0, reduction="median")  # error
    tt.rnnt_loss(x, i, 0, rnnt_type="irregular")  # error
    tt.dynamic_scatter(x, i, "median")  # error
    tt.indice_max_pool(x, i, i, 3, init="one")  # error
    tt.nms3d(x, array, 0.5)  # error
    tt.nn.SubMConv(3, 4, 16, "3")  # error
    tt.nn.SparseTensor("features", i, [6], 1)  # error
    an_array: NDArray[np.float32] = turnout.scatter_sum(x, i)  # error
    del an_array
    turnout.scatter_sum(array, i).requires_grad_()  # error
    turnout.scatter_sum(x, i).astype(np.float64)  # error
