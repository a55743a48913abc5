"""What prunes an RNN-T lattice, and the best way through it."""

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
    """Which positions each frame of a lattice keeps: ``[batch, frames, rows]``, int64.

    Each frame starts at the window of ``rows`` positions with the largest score, the first of equal ones.
    Then starts are lowered until, from 0 on, they never fall and rise by at most ``rows - 1`` a frame, or 1
    if ``px_grad`` has no column more than there are frames.

    Args:
        px_grad, py_grad: how often each step is taken, float32 or float64: from
            :func:`turnout.mutual_information_forward_backward`.
        boundary: ``[batch, 4]``; of it only the ends are looked at. The last frame of a row keeps s_end.
        s_range: the ``rows`` that are wanted; no more than there are positions, and by ``"flow"`` of a
            regular px no fewer than the longest text needs.
        score: ``"flow"``, the blanks of the window less the symbol that leads into it; or ``"steps"``, all
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

    ``lm`` is ``[batch, symbols + 1, width]``; every row of ``ranges [batch, frames, rows]`` is consecutive.

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
    """The best way through each lattice: ``(symbol_frames, score)``.

    The recursion is that of :func:`turnout.mutual_information_forward` with the larger of the two terms, the
    symbol's where they are equal.

    Returns:
        symbol_frames: ``[batch, symbols]``, int64: the frame in which each symbol is taken; -1 outside the
            boundary, and where no way leads through.
        score: ``[batch]``, float64 beside float64, else float32.

    Example:
        >>> px = np.log(np.array([[[0.1, 0.8, 0.1]]], np.float32))  # one symbol, most likely in frame 1
        >>> py = np.log(np.array([[[0.9, 0.2], [0.5, 0.9]]], np.float32))
        >>> frames, score = turnout.rnnt_align(px, py)
        >>> frames.tolist(), round(float(np.exp(score[0])), 4)  # 0.9 * 0.8 * 0.9
        ([[1]], 0.648)
    """
    return _core.rnnt_align(px, py, boundary, out)
