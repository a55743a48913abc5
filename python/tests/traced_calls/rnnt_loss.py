"""Calls of the RNN-T losses for test_torch_traced.py."""

import torch

BOX = torch.zeros(2, 4, dtype=torch.int64)
TEXT, KEPT = torch.zeros(2, 3, dtype=torch.int64), torch.arange(2).repeat(2, 4, 1)
STEPS = {"px_grad": torch.zeros(2, 3, 5), "py_grad": torch.zeros(2, 4, 4)}
JOINER = {
    **{"am": torch.ones(2, 4, 6), "lm": torch.ones(2, 4, 6), "weight": torch.ones(5, 6)},
    **{"bias": torch.ones(5), "activation": "tanh", "symbols": TEXT, "ranges": KEPT},
    **{"termination_symbol": 0, "boundary": BOX},
}

CALLS = {
    "rnnt_logprobs_joint_forward": {
        **{"logits": torch.ones(2, 4, 4, 6), "symbols": TEXT, "termination_symbol": 0, "boundary": BOX},
        **{"modified": False, "overwrite_logits": False},
    },
    "rnnt_logprobs_joint_backward": {
        **{"logits": torch.ones(2, 4, 4, 6), "symbols": TEXT, "normalizer": torch.ones(2, 4, 4)},
        **{**STEPS, "termination_symbol": 0, "boundary": BOX},
    },
    "rnnt_logprobs_pruned_forward": {
        **{"logits": torch.ones(2, 4, 2, 6), "symbols": TEXT, "ranges": KEPT, "termination_symbol": 0},
        **{"boundary": BOX, "modified": False, "use_hat_loss": False, "overwrite_logits": False},
    },
    "rnnt_logprobs_pruned_backward": {
        **{"logits": torch.ones(2, 4, 2, 6), "symbols": TEXT, "ranges": KEPT, **STEPS},
        **{"normalizer": torch.ones(2, 4, 2), "termination_symbol": 0, "boundary": BOX},
        "use_hat_loss": False,
    },
    "rnnt_logprobs_fused_forward": {**JOINER, "modified": False, "use_hat_loss": False},
    "rnnt_logprobs_fused_backward": {
        **{**JOINER, "normalizer": torch.ones(2, 4, 2), **STEPS, "use_hat_loss": False},
    },
    "rnnt_logprobs_simple_forward": {
        **{"lm": torch.ones(2, 4, 6), "am": torch.ones(2, 4, 6), "symbols": TEXT, "termination_symbol": 0},
        **{"boundary": BOX, "modified": False},
    },
    "rnnt_logprobs_simple_backward": {
        **{"lm": torch.ones(2, 4, 6), "am": torch.ones(2, 4, 6), "symbols": TEXT, **STEPS},
        **{"normalizer": torch.ones(2, 4, 4), "termination_symbol": 0, "boundary": BOX},
    },
    "rnnt_prune_ranges": {**STEPS, "boundary": BOX, "s_range": 2, "score": "flow"},
    "rnnt_pruning_forward": {"lm": torch.ones(2, 4, 6), "ranges": KEPT},
    "rnnt_pruning_backward": {"pruned_grad": torch.ones(2, 4, 2, 6), "ranges": KEPT, "symbols": 3},
    "rnnt_align": {"px": torch.zeros(2, 3, 5), "py": torch.zeros(2, 4, 4), "boundary": BOX},
}
WITHOUT_GRADIENT = {"rnnt_align"}
DYNAMIC_SIZE = {"rnnt_prune_ranges": "s_range"}
WRONG = [
    ("rnnt_logprobs_joint_forward", {"termination_symbol": -1}),
    ("rnnt_logprobs_simple_forward", {"termination_symbol": 6}),
    ("rnnt_logprobs_pruned_forward", {"symbols": TEXT[:, :0]}),
    ("rnnt_prune_ranges", {"score": "most"}),
    ("rnnt_logprobs_fused_forward", {"activation": "gelu"}),
]
