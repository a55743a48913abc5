"""Calls of MoE dispatch for test_torch_traced.py."""

import torch

MAP = torch.zeros(4, dtype=torch.int64)

CALLS = {
    "moe_dispatch_forward": {
        **{"gates": torch.ones(4), "indices": MAP, "locations": MAP, "input": torch.ones(4, 3)},
        **{"capacity": 2, "num_experts": 2},
    },
}
WITHOUT_GRADIENT = {"moe_dispatch_forward"}
WRONG = [
    ("moe_dispatch_forward", {"capacity": -1}),
]
