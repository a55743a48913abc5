"""The RNN-T losses over whole lattices, with k2's arguments: of given logits, simple and smoothed."""

from __future__ import annotations

from typing import Literal, overload

import torch

from turnout.torch.messages import own_messages
from turnout.torch.mutual_information import mutual_information_recursion
from turnout.torch.rnnt_logprobs import (
    RnntType,
    Steps,
    is_modified,
    joint_steps,
    simple_steps,
    smoothed_steps,
)

__all__ = ["rnnt_loss", "rnnt_loss_simple", "rnnt_loss_smoothed"]

Grads = tuple[torch.Tensor, torch.Tensor]
Reduction = Literal["none", "mean", "sum"]
_REDUCTIONS = ("none", "mean", "sum")


class ScaledGradient(torch.autograd.Function):
    """A tensor whose gradient is multiplied."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, factor):
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


def check_options(op: str, rnnt_type: str, reduction: str) -> None:
    if reduction not in _REDUCTIONS:
        expected = ", ".join(f"'{name}'" for name in _REDUCTIONS)
        raise ValueError(f"{op}: reduction is {reduction!r}, expected one of {expected}")
    is_modified(op, rnnt_type)


def loss_of(
    steps: Steps,
    boundary: torch.Tensor | None,
    delay_penalty: float,
    reduction: str,
    return_grad: bool,
    zero_infinity: bool,
    fastemit_lambda: float,
) -> torch.Tensor | tuple[torch.Tensor, Grads]:
    px, py = steps.px, steps.py
    if delay_penalty > 0:
        # Rewards symbols before the middle of the frames, and penalises those after it.
        frames = torch.tensor([py.shape[2]], device=px.device) if boundary is None else boundary[:, 3]
        t = torch.arange(px.shape[2], dtype=px.dtype, device=px.device)
        px = px + delay_penalty * ((frames.to(px.dtype).reshape(-1, 1, 1) - 1) / 2 - t)
    if fastemit_lambda != 0:
        px = ScaledGradient.apply(px, 1 + fastemit_lambda)
    grads = None
    if return_grad:
        scores, grads = mutual_information_recursion(px, py, boundary, return_grad=True)
    else:
        scores = mutual_information_recursion(px, py, boundary)
    # The recursion drops some NaN. The factor makes the loss and the gradients NaN.
    factor = torch.ones_like(scores).masked_fill(steps.is_bad, torch.nan)
    loss = -scores * factor
    if zero_infinity:
        loss = torch.where(loss.isposinf(), 0, loss)
    if reduction == "mean":
        loss = loss.mean()
    elif reduction == "sum":
        loss = loss.sum()
    return loss if grads is None else (loss, grads)


@overload
def rnnt_loss(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    *,
    return_grad: Literal[False] = False,
    zero_infinity: bool = False,
    overwrite_logits: bool = False,
    fastemit_lambda: float = 0.0,
) -> torch.Tensor: ...
@overload
def rnnt_loss(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    *,
    return_grad: Literal[True],
    zero_infinity: bool = False,
    overwrite_logits: bool = False,
    fastemit_lambda: float = 0.0,
) -> tuple[torch.Tensor, Grads]: ...
@own_messages()
def rnnt_loss(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    *,
    return_grad: bool = False,
    zero_infinity: bool = False,
    overwrite_logits: bool = False,
    fastemit_lambda: float = 0.0,
) -> torch.Tensor | tuple[torch.Tensor, Grads]:
    """The RNN-T loss of given logits: the negative log of the sum of the probabilities of all alignments.

    ::

        n = logsumexp(logits[b, t, s])
        px[b, s, t] = logits[b, t, s, symbols[b, s]] - n       a symbol
        py[b, s, t] = logits[b, t, s, termination_symbol] - n  no symbol in this frame
        loss[b] = -mutual_information_recursion(px, py, boundary)[b]

    Computed in float32, or in float64 for float64, regardless of autocast; gradients have the dtype of the
    logits. Logits outside the boundary are not read, and their gradients are 0. Logits whose sum is not
    finite make the loss and the gradients of their row NaN; ``reduction="none"`` shows which row it is. A row
    without a path through the lattice has an infinite loss and gradients of 0. There is no second derivative.

    Args:
        logits: ``[batch, frames, symbols + 1, classes]``, float32, float64, float16 or bfloat16.
        symbols: ``[batch, symbols]``, int64 or int32, each within ``0 .. classes - 1`` inside the boundary;
            symbols outside are ignored.
        termination_symbol: the class of the blank.
        boundary: ``[batch, 4]``, int64: s_begin, t_begin, s_end, t_end with begin <= end; all symbols and
            frames if None.
        rnnt_type: 'regular'; 'modified', where a symbol consumes a frame; or 'constrained', where it also
            includes the blank after it. The latter two need at least as many frames as symbols in each row.
        delay_penalty: if above 0, this times ``(frames - 1) / 2 - t`` is added to px.
        reduction: 'none', 'mean' or 'sum', over the batch.
        return_grad: returns ``(loss, (px_grad, py_grad))``: how often each step is taken, regardless of the
            reduction.
        zero_infinity: an infinite loss becomes 0.
        overwrite_logits: writes the gradient to the memory of the logits. Other functions that need the
            logits for their gradients then raise an error that says that they were modified.
        fastemit_lambda: FastEmit regularisation: multiplies gradients of symbols by ``1 + fastemit_lambda``
            and leaves the loss unchanged.

    Example:
        >>> logits = torch.zeros(1, 2, 2, 4)  # two frames, one symbol, four equally likely classes
        >>> symbols = torch.tensor([[3]])
        >>> logits = logits.requires_grad_()
        >>> loss = turnout.torch.rnnt_loss(logits, symbols, termination_symbol=0)
        >>> round(loss.neg().exp().item(), 5)  # two paths of three steps: 2 / 4**3
        0.03125
        >>> loss.backward()
        >>> [round(x, 4) for x in logits.grad[0, 0, 0].tolist()]
        [-0.25, 0.25, 0.25, -0.25]
    """
    check_options("rnnt_loss", rnnt_type, reduction)
    steps = joint_steps(
        "rnnt_loss", logits, symbols, termination_symbol, boundary, rnnt_type, overwrite_logits
    )
    return loss_of(steps, boundary, delay_penalty, reduction, return_grad, zero_infinity, fastemit_lambda)


@overload
def rnnt_loss_simple(
    lm: torch.Tensor,
    am: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    return_grad: Literal[False] = False,
    *,
    zero_infinity: bool = False,
    fastemit_lambda: float = 0.0,
) -> torch.Tensor: ...
@overload
def rnnt_loss_simple(
    lm: torch.Tensor,
    am: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    *,
    return_grad: Literal[True],
    zero_infinity: bool = False,
    fastemit_lambda: float = 0.0,
) -> tuple[torch.Tensor, Grads]: ...
@own_messages()
def rnnt_loss_simple(
    lm: torch.Tensor,
    am: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    return_grad: bool = False,
    *,
    zero_infinity: bool = False,
    fastemit_lambda: float = 0.0,
) -> torch.Tensor | tuple[torch.Tensor, Grads]:
    """:func:`rnnt_loss` of ``logits[b, t, s] = am[b, t] + lm[b, s]``, which are never stored.

    Args:
        lm: ``[batch, symbols + 1, classes]``.
        am: ``[batch, frames, classes]``, dtype of ``lm``.
        return_grad: as for :func:`rnnt_loss`; :func:`get_rnnt_prune_ranges` takes the gradients.

    The other arguments are those of :func:`rnnt_loss`.

    Example:
        >>> lm, am = torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)  # one symbol, two frames, four classes
        >>> symbols = torch.tensor([[3]])
        >>> loss, (px_grad, py_grad) = turnout.torch.rnnt_loss_simple(lm, am, symbols, 0, return_grad=True)
        >>> round(loss.neg().exp().item(), 5)  # two paths of three steps: 2 / 4**3
        0.03125
        >>> [round(x, 4) for x in px_grad.flatten().tolist()]
        [0.5, 0.5, 0.0]
    """
    check_options("rnnt_loss_simple", rnnt_type, reduction)
    steps = simple_steps("rnnt_loss_simple", lm, am, symbols, termination_symbol, boundary, rnnt_type)
    return loss_of(steps, boundary, delay_penalty, reduction, return_grad, zero_infinity, fastemit_lambda)


@overload
def rnnt_loss_smoothed(
    lm: torch.Tensor,
    am: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    lm_only_scale: float = 0.1,
    am_only_scale: float = 0.1,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    return_grad: Literal[False] = False,
    *,
    zero_infinity: bool = False,
    fastemit_lambda: float = 0.0,
) -> torch.Tensor: ...
@overload
def rnnt_loss_smoothed(
    lm: torch.Tensor,
    am: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    lm_only_scale: float = 0.1,
    am_only_scale: float = 0.1,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    *,
    return_grad: Literal[True],
    zero_infinity: bool = False,
    fastemit_lambda: float = 0.0,
) -> tuple[torch.Tensor, Grads]: ...
@own_messages()
def rnnt_loss_smoothed(
    lm: torch.Tensor,
    am: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    lm_only_scale: float = 0.1,
    am_only_scale: float = 0.1,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
    delay_penalty: float = 0.0,
    reduction: Reduction = "mean",
    return_grad: bool = False,
    *,
    zero_infinity: bool = False,
    fastemit_lambda: float = 0.0,
) -> torch.Tensor | tuple[torch.Tensor, Grads]:
    """:func:`rnnt_loss_simple` with steps interpolated with those of ``lm`` alone and of ``am`` alone.

    ::

        mean = softmax(lm) averaged over the batch and all positions, padding included
        lm_only[b, s] = log_softmax(lm[b, s])
        am_only[b, t] = log_softmax(am[b, t] + log(mean))
        px = (1 - lm_only_scale - am_only_scale) px_simple + lm_only_scale lm_only + am_only_scale am_only

    each at the symbol, and ``py`` in the same way at the termination symbol. Through the mean, rows of a
    batch and their gradients depend on each other.

    Example:
        >>> lm, am = torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)  # one symbol, two frames, four classes
        >>> symbols = torch.tensor([[3]])
        >>> loss = turnout.torch.rnnt_loss_smoothed(lm, am, symbols, 0, lm_only_scale=0.25, am_only_scale=0.0)
        >>> round(loss.neg().exp().item(), 5)
        0.03125
    """
    check_options("rnnt_loss_smoothed", rnnt_type, reduction)
    steps = smoothed_steps(
        *("rnnt_loss_smoothed", lm, am, symbols, termination_symbol),
        *(lm_only_scale, am_only_scale, boundary, rnnt_type),
    )
    return loss_of(steps, boundary, delay_penalty, reduction, return_grad, zero_infinity, fastemit_lambda)
