"""Calls of MoE dispatch for test_torch_traced.py."""

import torch

MAP = torch.zeros(4, dtype=torch.int64)

CALLS = {
    "moe_dispatch_forward": {
        **{"gates": torch.ones(4), "indices": MAP, "locations": MAP, "input": torch.ones(4, 3)},
        **{"capacity": 2, "num_experts": 2},
    },
    "moe_dispatch_backward_data": {
        **{"gates": torch.ones(4), "indices": MAP, "locations": MAP, "dispatch": torch.ones(4, 3)},
        **{"capacity": 2, "num_experts": 2},
    },
    "moe_dispatch_backward_gate": {
        **{"indices": MAP, "locations": MAP, "input": torch.ones(4, 3), "dispatch": torch.ones(4, 3)},
        **{"capacity": 2, "num_experts": 2},
    },
    "moe_dispatch_backward": {
        **{"gates": torch.ones(4), "indices": MAP, "locations": MAP, "input": torch.ones(4, 3)},
        **{"dispatch": torch.ones(4, 3), "capacity": 2, "num_experts": 2},
    },
    "moe_locations": {"indices": MAP, "num_experts": 2, "priority": torch.ones(4)},
    "moe_dispatch": {
        **{"input": torch.ones(4, 3), "indices": MAP, "locations": MAP, "gates": torch.ones(4)},
        **{"capacity": 2, "num_experts": 2},
    },
    "moe_combine": {
        **{"expert_output": torch.ones(4, 3), "indices": MAP, "locations": MAP, "gates": torch.ones(4)},
        "capacity": 2,
    },
    "moe_combine_backward": {
        **{"grad_output": torch.ones(4, 3), "expert_output": torch.ones(4, 3), "indices": MAP},
        **{"locations": MAP, "gates": torch.ones(4), "capacity": 2},
    },
    "moe_token_permute": {"tokens": torch.ones(4, 3), "indices": MAP, "num_out_tokens": 0},
}
WITHOUT_GRADIENT = {"moe_dispatch_backward", "moe_combine_backward", "moe_locations"}
FREE_ROWS = {("moe_combine", "expert_output"), ("moe_combine_backward", "expert_output")}
WRONG = [
    ("moe_dispatch_forward", {"capacity": -1}),
]
