"""Mutual information: the total score of the lattice of the RNN-T loss, and the probability of each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import Array, R, Source

__all__ = ["mutual_information_backward", "mutual_information_forward", "mutual_information_forward_backward"]


def mutual_information_forward(
    px: Source[R],
    py: Array,
    *,
    boundary: Array | None = None,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """Sums over all paths through a lattice of symbols and frames, in log space.

    ::

        p[s_begin, t_begin] = 0                                     for each row b of the batch
        p[s, t] = log_add(p[s-1, t-off] + px[s-1, t-off],           a symbol; off is 0, or 1 if modified
                          p[s, t-1] + py[s, t-1])                   a blank: on to the next frame
        ans = p[s_end, t_end]

    Steps from outside the boundary count as -inf. Inputs may be -inf; such a step is never taken.
    ``log_add(x, y)`` is x if y is NaN, and NaN if x is NaN.

    Arrays are in CPU memory. Inputs may be read-only and strided; strided inputs are copied first. ``out``
    must be contiguous. If the call fails, nothing is written.

    Args:
        px: ``[batch, symbols, frames + 1]``, or ``[batch, symbols, frames]`` for a modified lattice, in which
            a symbol also takes a frame. float32, float64, float16 or bfloat16.
        py: ``[batch, symbols + 1, frames]``, with the dtype of ``px``.
        boundary: ``[batch, 4]``, int64: s_begin, t_begin, s_end, t_end as inclusive positions in p; None
            means the whole lattice. A position outside ``0 .. symbols`` or ``0 .. frames`` is an error. If
            begin is beyond end, the lattice is empty and its ``ans`` is 0.
        out: tuple of output arrays ``(p, ans)``; None allocates that result. A given ``p`` keeps its contents
            outside the boundary.

    Returns:
        p: ``[batch, symbols + 1, frames + 1]``, float64 if ``px`` is float64, otherwise float32; -inf outside
            the boundary.
        ans: ``[batch]``, with the dtype of ``p``.

        Each is the array from ``out``, or a new one: a torch tensor if ``px`` is one, otherwise a NumPy
        array.

    Raises:
        ValueError: if arguments are inconsistent; the message names the first one.
        TypeError: if an argument is not an array, or not a tuple.

    Example:
        >>> half = np.log(np.float32(0.5))
        >>> px = np.array([[[half, half, -np.inf]]], np.float32)  # one symbol, two frames
        >>> py = np.full((1, 2, 2), half, np.float32)
        >>> p, ans = turnout.mutual_information_forward(px, py)
        >>> np.exp(ans).round(4).tolist()  # two paths of three steps: 2 / 2**3
        [0.25]
    """
    return _core.mutual_information_forward(px, py, boundary, out)


def mutual_information_backward(
    px: Source[R],
    py: Array,
    p: Array,
    ans_grad: Array,
    *,
    boundary: Array | None = None,
    overwrite_ans_grad: bool = False,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """The gradients of :func:`mutual_information_forward`.

    ::

        P = max(p, -1e30)
        g[s_end, t_end] = ans_grad
        px_grad[s, t] = g[s+1, t+off] * safe_exp(P[s, t] + px[s, t] - P[s+1, t+off])
        py_grad[s, t] = g[s, t+1]     * safe_exp(P[s, t] + py[s, t] - P[s, t+1])
        g[s, t] = px_grad[s, t] + py_grad[s, t]

    ``safe_exp(x)`` is exp(x), or 0 if x or exp(x) is not finite. Gradients outside the boundary are 0. If
    ``ans_grad`` is 1, a gradient is the probability that the step is taken.

    Args:
        px, py, boundary: as in the forward call.
        p: the first result of the forward call; it is not read outside the boundary.
        ans_grad: ``[batch]``, with the dtype of ``p``: the gradient of each ``ans``.
        overwrite_ans_grad: whether to set ``ans_grad`` to the gradient at the start of its lattice. For a
            consistent ``p`` this is the old value up to rounding. Rows with an empty lattice are not changed.
        out: tuple of output arrays ``(px_grad, py_grad)``; None allocates that result.

    Returns:
        px_grad, py_grad: shape and dtype of ``px`` and ``py``: the arrays from ``out``, or new ones.

    Raises:
        ValueError: if arguments are inconsistent; the message names the first one.
        TypeError: if an argument is not an array, not a flag, or not a tuple.

    Example:
        >>> half = np.log(np.float32(0.5))
        >>> px = np.array([[[half, half, -np.inf]]], np.float32)  # one symbol, two frames
        >>> py = np.full((1, 2, 2), half, np.float32)
        >>> p, ans = turnout.mutual_information_forward(px, py)
        >>> px_grad, py_grad = turnout.mutual_information_backward(px, py, p, np.ones_like(ans))
        >>> px_grad.round(4).tolist()  # the symbol is in either frame with probability 1/2
        [[[0.5, 0.5, 0.0]]]
        >>> py_grad.round(4).tolist()
        [[[0.5, 0.0], [0.5, 1.0]]]
    """
    return _core.mutual_information_backward(px, py, p, ans_grad, boundary, overwrite_ans_grad, out)


def mutual_information_forward_backward(
    px: Source[R],
    py: Array,
    *,
    boundary: Array | None = None,
    out: tuple[R | None, R | None, R | None] | None = None,
) -> tuple[R, R, R]:
    """Forward and backward in one pass, for training, with ``ans_grad`` 1 and without storing ``p``.

    The gradients are computed from the shares of the two steps into each cell, which sum to one. They are
    more precise than those from a rounded ``p``. If the end of a lattice cannot be reached (``ans`` is -inf),
    its gradients are 0.

    Args:
        px, py, boundary: as for :func:`mutual_information_forward`.
        out: tuple of output arrays ``(ans, px_grad, py_grad)``; None allocates that result.

    Returns:
        ans: as from :func:`mutual_information_forward`.
        px_grad, py_grad: shape and dtype of ``px`` and ``py``: the arrays from ``out``, or new ones.

    Example:
        >>> half = np.log(np.float32(0.5))
        >>> px = np.array([[[half, half, -np.inf]]], np.float32)  # one symbol, two frames
        >>> py = np.full((1, 2, 2), half, np.float32)
        >>> ans, px_grad, py_grad = turnout.mutual_information_forward_backward(px, py)
        >>> np.exp(ans).round(4).tolist(), px_grad.round(4).tolist()
        ([0.25], [[[0.5, 0.5, 0.0]]])
    """
    return _core.mutual_information_forward_backward(px, py, boundary, out)
