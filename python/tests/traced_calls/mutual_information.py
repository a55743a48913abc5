"""Calls of mutual information for test_torch_traced.py."""

import torch

CALLS = {
    "mutual_information_forward": {
        "px": torch.zeros(2, 3, 5),
        "py": torch.zeros(2, 4, 4),
        "boundary": torch.zeros(2, 4, dtype=torch.int64),
    },
    "mutual_information_backward": {
        **{"px": torch.zeros(2, 3, 5), "py": torch.zeros(2, 4, 4), "p": torch.zeros(2, 4, 5)},
        **{"ans_grad": torch.zeros(2), "boundary": torch.zeros(2, 4, dtype=torch.int64)},
    },
    "mutual_information_forward_backward": {
        "px": torch.zeros(2, 3, 5),
        "py": torch.zeros(2, 4, 4),
        "boundary": torch.zeros(2, 4, dtype=torch.int64),
    },
}
WRONG = [
    ("mutual_information_forward", {"px": torch.zeros(2, 3, 6)}),
]
