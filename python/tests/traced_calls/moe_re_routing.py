"""Calls of MoE re-routing for test_torch_traced.py."""

import torch

COUNT = torch.tensor([[3, 1]])

CALLS = {
    "moe_re_routing": {
        **{"tokens": torch.ones(4, 3), "expert_token_num_per_rank": COUNT, "per_token_scales": torch.ones(4)},
        **{"expert_token_num_type": 1, "idx_type": 0},
    },
    "moe_re_routing_inverse": {
        "permute_tokens": torch.ones(4, 3),
        "permute_token_idx": torch.arange(4),
        "idx_type": 0,
    },
}
WRONG = [
    ("moe_re_routing", {"idx_type": 2}),
    ("moe_re_routing_inverse", {"idx_type": -1}),
]
