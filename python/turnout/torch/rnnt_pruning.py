"""Pruning of an RNN-T lattice, the best path through it, and the emission delay of its symbols."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch

from turnout.torch.messages import own_messages
from turnout.torch.mutual_information import mutual_information_recursion
from turnout.torch.registration import gradient
from turnout.torch.tracing import computed_size

__all__ = [
    "RnntAlignment",
    "do_rnnt_pruning",
    "get_rnnt_prune_ranges",
    "get_rnnt_prune_ranges_deprecated",
    "rnnt_align",
    "rnnt_emission_delay",
]

# -- which positions each frame keeps ----------------------------------------------------------------------


_ranges = torch.ops.turnout.rnnt_prune_ranges.default


@computed_size("rnnt_prune_ranges")
def _(arguments):
    """Unknown while tracing: the ends in ``boundary`` decide how far ``s_range`` is raised."""
    return None


@own_messages()
def get_rnnt_prune_ranges(
    px_grad: torch.Tensor, py_grad: torch.Tensor, boundary: torch.Tensor, s_range: int
) -> torch.Tensor:
    """The positions that each frame keeps for :func:`rnnt_loss_pruned`: ``[batch, frames, rows]``, int64.

    ``px_grad`` and ``py_grad`` are the gradients of :func:`rnnt_loss_simple` or :func:`rnnt_loss_smoothed`.
    Each frame keeps the ``rows`` consecutive positions that are visited most. From frame to frame they never
    decrease, and increase by at most ``rows - 1`` (1 unless the type is regular). ``rows`` is ``s_range``,
    but at most the number of positions, and for the regular type at least what the longest text needs. A
    warning says so if it differs.

    Example:
        >>> lm, am = torch.zeros(1, 4, 5), torch.zeros(1, 4, 5)  # three symbols, four frames, five classes
        >>> symbols, boundary = torch.tensor([[1, 2, 3]]), torch.tensor([[0, 0, 3, 4]])
        >>> _, grads = turnout.torch.rnnt_loss_simple(lm, am, symbols, 0, boundary, return_grad=True)
        >>> turnout.torch.get_rnnt_prune_ranges(*grads, boundary, s_range=2).tolist()
        [[[0, 1], [1, 2], [2, 3], [2, 3]]]
    """
    ranges = _ranges(px_grad.detach(), py_grad.detach(), boundary, s_range)
    if not torch.compiler.is_compiling() and ranges.shape[2] != s_range:
        why = (
            "each frame has no more positions"
            if ranges.shape[2] < s_range
            else "with fewer, no path leads through all frames"
        )
        warnings.warn(
            f"get_rnnt_prune_ranges: s_range is {s_range}, but {ranges.shape[2]} is used: {why}",
            stacklevel=3,
        )
    return ranges


@own_messages()
def get_rnnt_prune_ranges_deprecated(
    px_grad: torch.Tensor, py_grad: torch.Tensor, boundary: torch.Tensor, s_range: int
) -> torch.Tensor:
    """:func:`get_rnnt_prune_ranges` with the sum of all steps of a window as its score, as in older k2.

    ``s_range`` is never raised.

    Example:
        >>> lm, am = torch.zeros(1, 4, 5), torch.zeros(1, 4, 5)  # three symbols, four frames, five classes
        >>> symbols, boundary = torch.tensor([[1, 2, 3]]), torch.tensor([[0, 0, 3, 4]])
        >>> _, grads = turnout.torch.rnnt_loss_simple(lm, am, symbols, 0, boundary, return_grad=True)
        >>> turnout.torch.get_rnnt_prune_ranges_deprecated(*grads, boundary, s_range=2).tolist()
        [[[0, 1], [1, 2], [2, 3], [2, 3]]]
    """
    return _ranges(px_grad.detach(), py_grad.detach(), boundary, s_range, "steps")


# -- the rows of these positions ---------------------------------------------------------------------------


_pruning = torch.ops.turnout.rnnt_pruning_forward.default
_pruning_backward = torch.ops.turnout.rnnt_pruning_backward.default


@gradient("rnnt_pruning_forward", of="lm", saves="ranges", shapes="lm")
def _(saved, grad):
    return {"lm": _pruning_backward(grad, saved.ranges, saved.lm_shape[1] - 1)}


@gradient("rnnt_pruning_backward", of="pruned_grad", saves="ranges")
def _(saved, grad):
    return {"pruned_grad": _pruning(grad, saved.ranges)}


@own_messages()
def do_rnnt_pruning(
    am: torch.Tensor, lm: torch.Tensor, ranges: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs of a joiner for the positions that :func:`get_rnnt_prune_ranges` keeps.

    Args:
        am: ``[batch, frames, am_width]``; the first argument here, unlike in the losses.
        lm: ``[batch, symbols + 1, lm_width]``.
        ranges: ``[batch, frames, rows]``.

    Returns:
        am: ``[batch, frames, rows, am_width]``, an expanded view, which must not be written to.
        lm: ``[batch, frames, rows, lm_width]``: row ``ranges[b, t, r]`` of ``lm``.

    Example:
        >>> am, lm = torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[0.0], [10.0], [20.0]]])
        >>> ranges = torch.tensor([[[0, 1], [1, 2]]])  # two positions in each of two frames
        >>> am_rows, lm_rows = turnout.torch.do_rnnt_pruning(am, lm, ranges)
        >>> (am_rows + lm_rows).tolist()
        [[[[1.0], [11.0]], [[12.0], [22.0]]]]
    """
    pruned = _pruning(lm, ranges)
    if am.dim() != 3 or am.shape[:2] != ranges.shape[:2]:
        raise ValueError(
            f"do_rnnt_pruning: am has shape {list(am.shape)}, expected "
            f"[{ranges.shape[0]}, {ranges.shape[1]}, width] as ranges"
        )
    return am.unsqueeze(2).expand(-1, -1, ranges.shape[2], -1), pruned


# -- the best path -----------------------------------------------------------------------------------------


_align = torch.ops.turnout.rnnt_align.default


class RnntAlignment(NamedTuple):
    """The result of :func:`rnnt_align`.

    Example:
        >>> px = torch.tensor([[[0.1, 0.8, 0.1]]]).log()  # one symbol, most likely in frame 1
        >>> py = torch.tensor([[[0.9, 0.2], [0.5, 0.9]]]).log()
        >>> turnout.torch.rnnt_align(px, py).frames.tolist()
        [[1]]
    """

    frames: torch.Tensor  # [batch, symbols], int64: the frame of each symbol; -1 outside the boundary
    score: torch.Tensor  # [batch]: the log-probability of this path alone
    confidence: torch.Tensor  # [batch, symbols]: the probability that the symbol is emitted in this frame


@own_messages()
def rnnt_align(px: torch.Tensor, py: torch.Tensor, boundary: torch.Tensor | None = None) -> RnntAlignment:
    """The best path through each lattice, whose steps are those of the ``get_rnnt_logprobs`` functions.

    Of two equally good steps into a cell, the symbol is chosen. The confidence is the share of all paths that
    emit the symbol in this frame. There is no gradient.

    Example:
        >>> px = torch.tensor([[[0.1, 0.8, 0.1]]]).log()  # one symbol, most likely in frame 1
        >>> py = torch.tensor([[[0.9, 0.2], [0.5, 0.9]]]).log()
        >>> frames, score, confidence = turnout.torch.rnnt_align(px, py)
        >>> frames.tolist(), round(score.exp().item(), 4)  # 0.9 * 0.8 * 0.9
        ([[1]], 0.648)
        >>> round(confidence.item(), 4)  # 0.648 of 0.648 + 0.1 * 0.5 * 0.9 + 0.9 * 0.2 * 0.1
        0.9114
    """
    px, py = px.detach(), py.detach()
    frames, score = _align(px, py, boundary)
    _, (px_grad, _) = mutual_information_recursion(px, py, boundary, return_grad=True)
    taken = (
        px_grad.gather(2, frames.clamp(min=0).unsqueeze(2)).squeeze(2) if px.shape[2] > 0 else px_grad.sum(2)
    )
    return RnntAlignment(frames, score, torch.where(frames < 0, 0, taken))


@own_messages()
def rnnt_emission_delay(px_grad: torch.Tensor, frames: torch.Tensor) -> torch.Tensor:
    """The mean delay of each symbol relative to a given alignment, in frames: ``[batch, symbols]``.

    ``px_grad`` is the probability of each step, from a loss with ``return_grad=True``. ``frames [batch,
    symbols]`` is the frame of each symbol in the alignment; if it is -1, the delay is NaN. The mean is over
    all paths through the lattice.

    Example:
        >>> px_grad = torch.tensor([[[0.25, 0.25, 0.5]]])  # the probability of each frame
        >>> turnout.torch.rnnt_emission_delay(px_grad, torch.tensor([[1]])).tolist()  # 0.25 + 2 * 0.5 - 1
        [[0.25]]
    """
    if px_grad.dim() != 3 or frames.shape != px_grad.shape[:2]:
        raise ValueError(
            f"rnnt_emission_delay: frames has shape {list(frames.shape)}, expected {list(px_grad.shape[:2])} "
            f"as px_grad has shape {list(px_grad.shape)}"
        )
    t = torch.arange(px_grad.shape[2], dtype=px_grad.dtype, device=px_grad.device)
    expected = (px_grad * t).sum(2) / px_grad.sum(2)
    return torch.where(frames < 0, torch.nan, expected - frames)
