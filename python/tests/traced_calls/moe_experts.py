"""Calls of grouped products and of the expert block for test_torch_traced.py."""

import torch

BLOCK = {
    **{"hidden_states": torch.ones(4, 5), "topk_ids": torch.zeros(4, 2, dtype=torch.int64)},
    **{"topk_weights": torch.ones(4, 2), "w13": torch.ones(3, 6, 5), "w2": torch.ones(3, 5, 3)},
    **{"w13_bias": torch.ones(3, 6), "w2_bias": torch.ones(3, 5), "activation": "silu"},
    **{"gated": True, "interleaved": False, "alpha": 1.702, "limit": None},
}
QUANTIZED = {
    **{"hidden_states": torch.ones(4, 5), "topk_ids": torch.zeros(4, 2, dtype=torch.int64)},
    **{"topk_weights": torch.ones(4, 2), "w13": torch.ones(3, 6, 5).to(torch.int8)},
    **{"w13_scale": torch.ones(3, 6, 1), "w2": torch.ones(3, 5, 3).to(torch.int8)},
    **{"w2_scale": torch.ones(3, 5, 1), "w13_bias": torch.ones(3, 6), "w2_bias": torch.ones(3, 5)},
    **{"activation": "silu", "gated": True, "interleaved": False, "alpha": 1.702, "limit": None},
}
CALLS = {
    "grouped_mm": {
        **{"input": torch.ones(5, 7), "weight": torch.ones(2, 7, 3), "offs": torch.tensor([2, 5])},
        "bias": torch.ones(2, 3),
    },
    "grouped_mm_backward_weight": {
        **{"input": torch.ones(5, 7), "out_grad": torch.ones(5, 3), "offs": torch.tensor([2, 5])},
        "with_bias": True,
    },
    "moe_experts": BLOCK,
    "moe_experts_quantized": QUANTIZED,
}
# A result has as many rows as this input, and its offsets are values.
FREE_ROWS = {("grouped_mm", "input"), ("grouped_mm_backward_weight", "offs")}
WRONG = [
    ("moe_experts", {"activation": "tanh"}),
    ("moe_experts_quantized", {"activation": "tanh"}),
    ("moe_experts", {"hidden_states": torch.ones(4, 5).half()}),
]
