"""Pruning of an RNN-T lattice, and the best path through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import Array, Int, PruneScore, R, Source

__all__ = ["rnnt_align", "rnnt_prune_ranges", "rnnt_pruning_backward", "rnnt_pruning_forward"]


def rnnt_prune_ranges(
    px_grad: Source[R],
    py_grad: Array,
    boundary: Array,
    s_range: Int,
    *,
    score: PruneScore = "flow",
    out: R | None = None,
) -> R:
    """The positions that each frame of a lattice keeps: ``[batch, frames, rows]``, int64.

    Each frame first starts at the window of ``rows`` positions with the largest score (on a tie, the first).
    Starts are then lowered until they begin at 0, never decrease, and increase by at most ``rows - 1`` per
    frame, or by at most 1 if ``px_grad`` is modified (has as many columns as frames).

    Args:
        px_grad, py_grad: the probability of each step, float32 or float64, from
            :func:`turnout.mutual_information_forward_backward`.
        boundary: ``[batch, 4]``; only the ends are read. The last frame of a row keeps s_end.
        s_range: the requested ``rows``. The result has at most as many rows as positions, and for ``"flow"``
            with a regular px at least as many as the longest text needs.
        score: ``"flow"``, the blanks of the window minus the symbol that leads into it; or ``"steps"``, all
            steps of the window.

    Example:
        >>> px = np.log(np.full((1, 3, 5), 0.5, np.float32))  # three symbols, four frames
        >>> py = np.log(np.full((1, 4, 4), 0.5, np.float32))
        >>> _, px_grad, py_grad = turnout.mutual_information_forward_backward(px, py)
        >>> ranges = turnout.rnnt_prune_ranges(px_grad, py_grad, np.array([[0, 0, 3, 4]]), s_range=2)
        >>> ranges.tolist()  # two of four positions in each frame, from the first to the last
        [[[0, 1], [0, 1], [1, 2], [2, 3]]]
    """
    return _core.rnnt_prune_ranges(px_grad, py_grad, boundary, s_range, score, out)


def rnnt_pruning_forward(lm: Source[R], ranges: Array, *, out: R | None = None) -> R:
    """``pruned[b, t, r] = lm[b, ranges[b, t, r]]``: ``[batch, frames, rows, width]``.

    ``lm`` is ``[batch, symbols + 1, width]``. Rows of ``ranges [batch, frames, rows]`` must be consecutive.

    Example:
        >>> lm = np.array([[[0.0], [10.0], [20.0]]], np.float32)  # a row for each position
        >>> ranges = np.array([[[0, 1], [1, 2]]])  # two positions in each of two frames
        >>> turnout.rnnt_pruning_forward(lm, ranges).tolist()
        [[[[0.0], [10.0]], [[10.0], [20.0]]]]
    """
    return _core.rnnt_pruning_forward(lm, ranges, out)


def rnnt_pruning_backward(pruned_grad: Source[R], ranges: Array, symbols: Int, *, out: R | None = None) -> R:
    """The gradient of :func:`rnnt_pruning_forward`: ``[batch, symbols + 1, width]``, summed over frames.

    Example:
        >>> ranges = np.array([[[0, 1], [1, 2]]])
        >>> grad = np.array([[[[1.0], [2.0]], [[3.0], [4.0]]]], np.float32)
        >>> turnout.rnnt_pruning_backward(grad, ranges, symbols=2).tolist()  # position 1 is in both frames
        [[[1.0], [5.0], [4.0]]]
    """
    return _core.rnnt_pruning_backward(pruned_grad, ranges, symbols, out)


def rnnt_align(
    px: Source[R],
    py: Array,
    *,
    boundary: Array | None = None,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """The best path through each lattice: ``(symbol_frames, score)``.

    The recursion is that of :func:`turnout.mutual_information_forward` with the larger of the two terms (on a
    tie, that of the symbol).

    Returns:
        symbol_frames: ``[batch, symbols]``, int64: the frame in which each symbol is emitted, or -1 outside
            the boundary and in a lattice without a path.
        score: ``[batch]``, float64 if ``px`` is float64, otherwise float32.

    Example:
        >>> px = np.log(np.array([[[0.1, 0.8, 0.1]]], np.float32))  # one symbol, most likely in frame 1
        >>> py = np.log(np.array([[[0.9, 0.2], [0.5, 0.9]]], np.float32))
        >>> frames, score = turnout.rnnt_align(px, py)
        >>> frames.tolist(), round(float(np.exp(score[0])), 4)  # 0.9 * 0.8 * 0.9
        ([[1]], 0.648)
    """
    return _core.rnnt_align(px, py, boundary, out)
