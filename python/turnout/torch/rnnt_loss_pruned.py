"""The RNN-T losses over pruned lattices, with k2's arguments: of given logits, and fused with the joiner."""

from __future__ import annotations

from typing import Literal, overload

import torch

from turnout.torch.messages import own_messages
from turnout.torch.rnnt_logprobs import RnntType, fused_steps, pruned_steps
from turnout.torch.rnnt_loss import Grads, Reduction, check_options, loss_of

__all__ = ["rnnt_loss_pruned", "rnnt_loss_pruned_fused"]


@overload
def rnnt_loss_pruned(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    ranges: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    use_hat_loss: bool = False,
    *,
    return_grad: Literal[False] = False,
    zero_infinity: bool = False,
    overwrite_logits: bool = False,
    fastemit_lambda: float = 0.0,
) -> torch.Tensor: ...
@overload
def rnnt_loss_pruned(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    ranges: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    use_hat_loss: bool = False,
    *,
    return_grad: Literal[True],
    zero_infinity: bool = False,
    overwrite_logits: bool = False,
    fastemit_lambda: float = 0.0,
) -> tuple[torch.Tensor, Grads]: ...
@own_messages()
def rnnt_loss_pruned(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    ranges: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    use_hat_loss: bool = False,
    *,
    return_grad: bool = False,
    zero_infinity: bool = False,
    overwrite_logits: bool = False,
    fastemit_lambda: float = 0.0,
) -> torch.Tensor | tuple[torch.Tensor, Grads]:
    """:func:`rnnt_loss` of a lattice in which each frame keeps only a few positions.

    Args:
        logits: ``[batch, frames, rows, classes]``: row r of frame t is position ``ranges[b, t, r]``.
        ranges: ``[batch, frames, rows]``, int64, from :func:`get_rnnt_prune_ranges`: consecutive positions
            within ``0 .. symbols`` in every frame inside the boundary.
        use_hat_loss: the blank, which must be 0, has the separate probability
            ``py = logsigmoid(logits[0])``, and the other classes share the rest.

    The other arguments are those of :func:`rnnt_loss`.

    Example:
        >>> logits = torch.zeros(1, 2, 2, 4)  # two frames that keep two positions, four classes
        >>> symbols, ranges = torch.tensor([[3]]), torch.tensor([[[0, 1], [0, 1]]])
        >>> loss = turnout.torch.rnnt_loss_pruned(logits, symbols, ranges, termination_symbol=0)
        >>> round(loss.neg().exp().item(), 5)  # nothing is pruned here: 2 / 4**3, as for rnnt_loss
        0.03125
    """
    check_options("rnnt_loss_pruned", rnnt_type, reduction)
    _refuse_single_rows("rnnt_loss_pruned", ranges, symbols, rnnt_type)
    return pruned_loss(
        *(logits, symbols, ranges, termination_symbol, boundary, rnnt_type, delay_penalty, reduction),
        use_hat_loss,
        return_grad=return_grad,
        zero_infinity=zero_infinity,
        overwrite_logits=overwrite_logits,
        fastemit_lambda=fastemit_lambda,
    )


def pruned_loss(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    ranges: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: str = "regular",
    delay_penalty: float = 0.0,
    reduction: str = "mean",
    use_hat_loss: bool = False,
    *,
    return_grad: bool = False,
    zero_infinity: bool = False,
    overwrite_logits: bool = False,
    fastemit_lambda: float = 0.0,
) -> torch.Tensor | tuple[torch.Tensor, Grads]:
    """:func:`rnnt_loss_pruned` that also accepts the constrained type with one position per frame.

    Such a lattice has no path, so its loss is infinite. k2 and fast_rnnt return that instead of an error.
    """
    check_options("rnnt_loss_pruned", rnnt_type, reduction)
    steps = pruned_steps(
        *("rnnt_loss_pruned", logits, symbols, ranges, termination_symbol, boundary, rnnt_type),
        *(use_hat_loss, overwrite_logits),
    )
    return loss_of(steps, boundary, delay_penalty, reduction, return_grad, zero_infinity, fastemit_lambda)


@overload
def rnnt_loss_pruned_fused(
    am: torch.Tensor,
    lm: torch.Tensor,
    weight: torch.Tensor,
    symbols: torch.Tensor,
    ranges: torch.Tensor,
    activation: Literal["tanh", "relu"] | None,
    termination_symbol: int,
    bias: torch.Tensor | None = None,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    use_hat_loss: bool = False,
    *,
    return_grad: Literal[False] = False,
    zero_infinity: bool = False,
    fastemit_lambda: float = 0.0,
) -> torch.Tensor: ...
@overload
def rnnt_loss_pruned_fused(
    am: torch.Tensor,
    lm: torch.Tensor,
    weight: torch.Tensor,
    symbols: torch.Tensor,
    ranges: torch.Tensor,
    activation: Literal["tanh", "relu"] | None,
    termination_symbol: int,
    bias: torch.Tensor | None = None,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    use_hat_loss: bool = False,
    *,
    return_grad: Literal[True],
    zero_infinity: bool = False,
    fastemit_lambda: float = 0.0,
) -> tuple[torch.Tensor, Grads]: ...
@own_messages()
def rnnt_loss_pruned_fused(
    am: torch.Tensor,
    lm: torch.Tensor,
    weight: torch.Tensor,
    symbols: torch.Tensor,
    ranges: torch.Tensor,
    activation: Literal["tanh", "relu"] | None,
    termination_symbol: int,
    bias: torch.Tensor | None = None,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    use_hat_loss: bool = False,
    *,
    return_grad: bool = False,
    zero_infinity: bool = False,
    fastemit_lambda: float = 0.0,
) -> torch.Tensor | tuple[torch.Tensor, Grads]:
    """A joiner and :func:`rnnt_loss_pruned` in one, whose logits are never stored as a whole.

    ::

        am_rows, lm_rows = do_rnnt_pruning(am, lm, ranges)
        logits = torch.nn.functional.linear(activation(am_rows + lm_rows), weight, bias)
        rnnt_loss_pruned(logits, symbols, ranges, ...)

    with the same value and gradients up to rounding. The backward call computes the logits again, one tile of
    rows at a time, from the sums that the forward call keeps.

    Args:
        am: ``[batch, frames, width]``: the encoder's projection.
        lm: ``[batch, symbols + 1, width]``: the decoder's projection.
        weight: ``[classes, width]``: the output layer. All floating-point tensors have one dtype.
        activation: 'tanh', 'relu' or None.
        bias: ``[classes]`` or None.

    The other arguments are those of :func:`rnnt_loss_pruned`.

    Example:
        >>> am, lm, weight = torch.zeros(1, 2, 5), torch.zeros(1, 2, 5), torch.ones(4, 5)
        >>> symbols, ranges = torch.tensor([[3]]), torch.tensor([[[0, 1], [0, 1]]])
        >>> loss = turnout.torch.rnnt_loss_pruned_fused(am, lm, weight, symbols, ranges, "tanh", 0)
        >>> round(loss.neg().exp().item(), 5)  # tanh(0) gives equal logits: 2 / 4**3
        0.03125
    """
    check_options("rnnt_loss_pruned_fused", rnnt_type, reduction)
    _refuse_single_rows("rnnt_loss_pruned_fused", ranges, symbols, rnnt_type)
    steps = fused_steps(
        *("rnnt_loss_pruned_fused", am, lm, weight, symbols, ranges, activation),
        *(termination_symbol, bias, boundary, rnnt_type, use_hat_loss),
    )
    return loss_of(steps, boundary, delay_penalty, reduction, return_grad, zero_infinity, fastemit_lambda)


def _refuse_single_rows(op: str, ranges: torch.Tensor, symbols: torch.Tensor, rnnt_type: str) -> None:
    if rnnt_type == "constrained" and ranges.shape[-1] == 1 and symbols.shape[-1] > 0:
        raise ValueError(
            f"{op}: ranges.shape[2] is 1, expected 2 or more with rnnt_type 'constrained', whose symbols "
            "need the next position in the same frame"
        )
