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
    "sort_chunks_by_idxs": {
        **{"input": torch.ones(4, 3), "split_sizes": COUNT[0], "sorted_idxs": torch.tensor([1, 0])},
        "probs": torch.ones(4),
    },
}
WRONG = [
    ("moe_re_routing", {"idx_type": 2}),
    ("moe_re_routing_inverse", {"idx_type": -1}),
]
