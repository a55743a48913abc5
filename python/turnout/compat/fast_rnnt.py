"""The functions of fast_rnnt: ``turnout.compat.fast_rnnt``.

They are k2's with ``return_grad`` as the last argument of every loss, and with another order of arguments in
:func:`get_rnnt_logprobs_joint`. Unlike fast_rnnt, they accept texts without symbols, and ``backward()`` does
not change the gradients that ``return_grad`` returns.

Example:
    >>> from turnout.compat import fast_rnnt
    >>> logits, symbols = torch.zeros(1, 2, 2, 4), torch.tensor([[3]])  # two frames, one symbol, four classes
    >>> loss = fast_rnnt.rnnt_loss(logits, symbols, termination_symbol=0)
    >>> round(loss.neg().exp().item(), 5)  # two paths of three steps: 2 / 4**3
    0.03125
"""

from __future__ import annotations

import torch

from turnout import torch as own
from turnout.compat._install import Installation, missing
from turnout.torch import (
    get_rnnt_logprobs,
    get_rnnt_logprobs_pruned,
    get_rnnt_logprobs_smoothed,
    get_rnnt_prune_ranges,
    joint_mutual_information_recursion,
    mutual_information_recursion,
    rnnt_loss_simple,
    rnnt_loss_smoothed,
)
from turnout.torch.messages import own_messages
from turnout.torch.rnnt_loss import Grads
from turnout.torch.rnnt_loss_pruned import pruned_loss

__all__ = [
    "do_rnnt_pruning",
    "get_rnnt_logprobs",
    "get_rnnt_logprobs_joint",
    "get_rnnt_logprobs_pruned",
    "get_rnnt_logprobs_smoothed",
    "get_rnnt_prune_ranges",
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


def with_cuda() -> bool:
    """Returns False: tensors cannot be on a GPU."""
    return False


@own_messages()
def rnnt_loss(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: str = "regular",
    delay_penalty: float = 0.0,
    reduction: str = "mean",
    return_grad: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, Grads]:
    """:func:`turnout.torch.rnnt_loss` with the arguments of fast_rnnt."""
    return own.rnnt_loss(
        *(logits, symbols, termination_symbol, boundary, rnnt_type, delay_penalty, reduction),
        return_grad=return_grad,
    )


@own_messages()
def rnnt_loss_pruned(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    ranges: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: str = "regular",
    delay_penalty: float = 0.0,
    reduction: str = "mean",
    return_grad: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, Grads]:
    """:func:`turnout.torch.rnnt_loss_pruned` with the arguments of fast_rnnt.

    With one position per frame, the constrained type has no path: the loss is infinite, not an error.
    """
    return pruned_loss(
        *(logits, symbols, ranges, termination_symbol, boundary, rnnt_type, delay_penalty, reduction),
        return_grad=return_grad,
    )


@own_messages()
def get_rnnt_logprobs_joint(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: str = "regular",
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`turnout.torch.get_rnnt_logprobs_joint` with ``boundary`` before ``rnnt_type``."""
    return own.get_rnnt_logprobs_joint(logits, symbols, termination_symbol, rnnt_type, boundary)


@own_messages()
def do_rnnt_pruning(
    am: torch.Tensor, lm: torch.Tensor, ranges: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`turnout.torch.do_rnnt_pruning` for ``am`` and ``lm`` of the same width."""
    if am.shape[-1] != lm.shape[-1]:
        raise ValueError(
            f"do_rnnt_pruning: am.shape[2] is {am.shape[-1]}, expected {lm.shape[-1]} as lm.shape[2]"
        )
    return own.do_rnnt_pruning(am, lm, ranges)


_OTHERS = frozenset({"get_hat_logprobs_pruned", "get_rnnt_prune_ranges_deprecated"})
__getattr__ = missing(
    "fast_rnnt", _OTHERS, "fast_rnnt's losses here, and more in turnout.torch and turnout.compat.k2"
)

_recursions = {name: globals()[name] for name in __all__ if name.endswith("_recursion")}
_losses = {name: globals()[name] for name in __all__ if "rnnt" in name}
install, uninstall = Installation(
    "fast_rnnt",
    {
        "fast_rnnt": {**_recursions, **_losses, "with_cuda": with_cuda},
        "fast_rnnt.mutual_information": _recursions,
        "fast_rnnt.rnnt_loss": _losses,
    },
    getattr=__getattr__,
).functions("import fast_rnnt")
