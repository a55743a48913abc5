"""Calls of dynamic scatter for test_torch_traced.py."""

import torch

MAP = torch.zeros(4, dtype=torch.int64)
SITES = torch.zeros(4, 4, dtype=torch.int32)
SIZE, RANGE = [0.5] * 3, [-4.0] * 3 + [4.0] * 3

CALLS = {
    "voxelize": {"points": torch.ones(4, 3), "voxel_size": SIZE, "point_cloud_range": RANGE},
    "voxelize_hard": {
        **{"points": torch.ones(4, 3), "voxel_size": SIZE, "point_cloud_range": RANGE},
        **{"max_points": 2, "max_voxels": 3, "return_map": True},
    },
    "dynamic_scatter_forward": {"feats": torch.ones(4, 3), "coors": SITES, "reduce_type": "max"},
    "dynamic_scatter_backward": {
        **{"grad_voxel_feats": torch.ones(2, 3), "feats": torch.ones(4, 3), "voxel_feats": torch.ones(2, 3)},
        **{"point2voxel_map": MAP, "voxel_points_count": torch.ones(2, dtype=torch.int32)},
        "reduce_type": "mean",
    },
    "scatter_sum": {"src": torch.ones(4, 3), "index": MAP, "dim_size": 2},
    "scatter_mean": {"src": torch.ones(4, 3), "index": MAP, "dim_size": 2},
    "scatter_max": {"src": torch.ones(4, 3), "index": MAP, "dim_size": 2},
    "scatter_sum_backward": {"grad_out": torch.ones(2, 3), "index": MAP},
    "scatter_mean_backward": {"grad_out": torch.ones(2, 3), "index": MAP},
    "scatter_max_backward": {"grad_out": torch.ones(2, 3), "index": MAP, "argmax": torch.zeros(2, 3).long()},
}
DYNAMIC_SIZE = {"voxelize_hard": "voxels", "dynamic_scatter_forward": "voxels"}
FREE_RANK = {("scatter_sum_backward", "grad_out"), ("scatter_mean_backward", "grad_out")}
FREE_ROWS = {
    ("voxelize", "points"),
    ("voxelize_hard", "points"),
    ("scatter_sum_backward", "grad_out"),
    ("scatter_sum_backward", "index"),
    ("scatter_mean_backward", "grad_out"),
    ("scatter_mean_backward", "index"),
    ("scatter_max_backward", "index"),
}
WRONG = [
    ("voxelize", {"voxel_size": [1.0, 1.0]}),
    ("voxelize", {"voxel_size": []}),
    ("voxelize", {"points": torch.ones(4, 2)}),
    ("voxelize_hard", {"max_points": -2}),
    ("voxelize_hard", {"point_cloud_range": [1.0] * 5}),
    ("dynamic_scatter_forward", {"reduce_type": "median"}),
    ("dynamic_scatter_forward", {"coors": torch.zeros(4, 5, dtype=torch.int32)}),
    ("scatter_sum", {"dim_size": -1}),
    ("scatter_max", {"dim_size": 2**31}),
]
