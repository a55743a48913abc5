"""Calls of sparse convolution for test_torch_traced.py."""

import torch

SITES = torch.zeros(4, 4, dtype=torch.int32)
PAIRS, NUM = torch.zeros(2, 2, 4, dtype=torch.int32), torch.ones(2, dtype=torch.int64)

CALLS = {
    "get_indice_pairs": {
        **{"indices": SITES, "batch_size": 1, "spatial_shape": [5, 6, 7], "kernel_size": [3], "stride": [1]},
        **{"padding": [0], "dilation": [1], "output_padding": [0], "subm": True, "transpose": False},
    },
    "indice_convolution_forward": {
        **{"features": torch.ones(4, 3), "filters": torch.ones(2, 3, 5), "indice_pairs": PAIRS},
        **{"indice_num": NUM, "num_act_out": 4, "bias": torch.ones(5)},
    },
    "indice_convolution_backward_data": {
        **{"output_grad": torch.ones(4, 5), "filters": torch.ones(2, 3, 5), "indice_pairs": PAIRS},
        **{"indice_num": NUM, "num_act_in": 4},
    },
    "indice_convolution_backward_filter": {
        **{"features": torch.ones(4, 3), "output_grad": torch.ones(4, 5), "indice_pairs": PAIRS},
        "indice_num": NUM,
    },
    "indice_convolution_index": {"indice_pairs": PAIRS, "indice_num": NUM, "rows": 4, "out_rows": 4},
    "indice_max_pool_forward": {
        **{"features": torch.ones(4, 3), "indice_pairs": PAIRS, "indice_num": NUM, "num_act_out": 4},
    },
    "indice_max_pool_backward": {
        **{"features": torch.ones(4, 3), "features_out": torch.ones(4, 3), "output_grad": torch.ones(4, 3)},
        **{"indice_pairs": PAIRS, "indice_num": NUM},
    },
    "indice_avg_pool_forward": {
        **{"features": torch.ones(4, 3), "indice_pairs": PAIRS, "indice_num": NUM, "num_act_out": 4},
    },
    "indice_avg_pool_backward": {
        **{"output_grad": torch.ones(4, 3), "indice_pairs": PAIRS, "indice_num": NUM, "num_act_in": 4},
    },
    "global_max_pool_forward": {"features": torch.ones(4, 3), "indices": SITES, "batch_size": 1},
    "global_max_pool_backward": {
        **{"features": torch.ones(4, 3), "features_out": torch.ones(1, 3), "output_grad": torch.ones(1, 3)},
        "indices": SITES,
    },
    "global_avg_pool_forward": {"features": torch.ones(4, 3), "indices": SITES, "batch_size": 1},
    "global_avg_pool_backward": {"output_grad": torch.ones(1, 3), "indices": SITES},
}
DYNAMIC_SIZE = {"indice_convolution_index": "words"}
FREE_RANK = {
    ("indice_convolution_forward", "filters"),
    ("indice_convolution_backward_data", "filters"),
}
FREE_ROWS = FREE_RANK | {
    ("get_indice_pairs", "indices"),
    ("global_avg_pool_backward", "indices"),
    *((name, argument) for name in CALLS for argument in ("features", "features_out", "output_grad")),
}
WRONG = [
    ("get_indice_pairs", {"spatial_shape": [5, 6]}),
    ("get_indice_pairs", {"spatial_shape": [5, 6, 0]}),
    ("get_indice_pairs", {"kernel_size": [3, 3]}),
    ("get_indice_pairs", {"kernel_size": [2]}),
    ("get_indice_pairs", {"subm": False, "kernel_size": [7], "padding": [0]}),
    ("get_indice_pairs", {"transpose": True}),
    ("get_indice_pairs", {"batch_size": 0}),
    ("get_indice_pairs", {"indices": SITES[:, :3]}),
    ("indice_convolution_forward", {"filters": torch.ones(3, 5)}),
    ("indice_convolution_backward_data", {"filters": torch.ones(3, 5)}),
    ("global_max_pool_forward", {"features": torch.ones(5, 3)}),
    ("global_avg_pool_forward", {"features": torch.ones(5, 3)}),
    ("global_avg_pool_forward", {"indices": SITES[:, :0]}),
]
