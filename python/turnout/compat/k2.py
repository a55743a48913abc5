"""k2's functions for the RNN-T loss: ``turnout.compat.k2``.

Example:
    >>> from turnout.compat import k2
    >>> logits, symbols = torch.zeros(1, 2, 2, 4), torch.tensor([[3]])  # two frames, one symbol, four classes
    >>> loss = k2.rnnt_loss(logits, symbols, termination_symbol=0)
    >>> round(loss.neg().exp().item(), 5)  # two paths of three steps: 2 / 4**3
    0.03125
"""

from __future__ import annotations

import torch

from turnout.compat._install import Installation, missing
from turnout.torch import (
    do_rnnt_pruning,
    get_rnnt_logprobs,
    get_rnnt_logprobs_joint,
    get_rnnt_logprobs_pruned,
    get_rnnt_logprobs_smoothed,
    get_rnnt_prune_ranges,
    get_rnnt_prune_ranges_deprecated,
    joint_mutual_information_recursion,
    mutual_information_recursion,
    rnnt_loss,
    rnnt_loss_simple,
    rnnt_loss_smoothed,
)
from turnout.torch.messages import own_messages
from turnout.torch.rnnt_logprobs import pruned_steps
from turnout.torch.rnnt_loss_pruned import pruned_loss

__all__ = [
    "do_rnnt_pruning",
    "get_hat_logprobs_pruned",
    "get_rnnt_logprobs",
    "get_rnnt_logprobs_joint",
    "get_rnnt_logprobs_pruned",
    "get_rnnt_logprobs_smoothed",
    "get_rnnt_prune_ranges",
    "get_rnnt_prune_ranges_deprecated",
    "install",
    "joint_mutual_information_recursion",
    "mutual_information_recursion",
    "rnnt_loss",
    "rnnt_loss_pruned",
    "rnnt_loss_simple",
    "rnnt_loss_smoothed",
    "uninstall",
    "with_cuda",
]

with_cuda = False


# With one position per frame, the constrained type has no path: the loss is infinite, not an error.
rnnt_loss_pruned = own_messages("rnnt_loss_pruned")(pruned_loss)


@own_messages()
def get_hat_logprobs_pruned(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    ranges: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None,
    rnnt_type: str = "regular",
) -> tuple[torch.Tensor, torch.Tensor]:
    """The steps ``(px, py)`` of :func:`turnout.torch.rnnt_loss_pruned` with ``use_hat_loss``."""
    steps = pruned_steps(
        *("get_hat_logprobs_pruned", logits, symbols, ranges, termination_symbol, boundary, rnnt_type),
        use_hat_loss=True,
    )
    return steps.px, steps.py


# Other names that users of k2 import.
_OTHERS = frozenset(
    {
        *("CtcLoss", "DenseFsaVec", "Fsa", "MWERLoss", "OnlineDenseIntersecter", "RaggedShape"),
        *("RaggedTensor", "RnntDecodingConfig", "RnntDecodingStream", "RnntDecodingStreams"),
        *("SymbolTable", "arc_sort", "compose", "connect", "create_fsa_vec", "ctc_graph"),
        *("ctc_loss", "ctc_topo", "determinize", "get_best_matching_stats", "index_select"),
        *("intersect", "intersect_dense", "intersect_dense_pruned", "intersect_device", "invert"),
        *("levenshtein_alignment", "levenshtein_graph", "linear_fsa", "mwer_loss"),
        *("one_best_decoding", "ragged", "random_paths", "shortest_path", "swoosh_l", "swoosh_r"),
        *("top_sort", "trivial_graph", "union"),
    }
)
__getattr__ = missing("k2", _OTHERS, "its RNN-T losses and the recursions under them")

_recursions = {name: globals()[name] for name in __all__ if name.endswith("_recursion")}
_losses = {name: globals()[name] for name in __all__ if "rnnt" in name}
install, uninstall = Installation(
    "k2",
    {
        "k2": {**_recursions, **_losses, "with_cuda": with_cuda},
        "k2.mutual_information": _recursions,
        "k2.rnnt_loss": {**_losses, "get_hat_logprobs_pruned": get_hat_logprobs_pruned},
    },
    getattr=__getattr__,
).functions("import k2")
