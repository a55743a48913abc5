"""Mutual information: the lattice of the RNN-T loss, its total score and how often each step is taken."""

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
    """Sums over all ways through a lattice of symbols and frames, in log space.

    ::

        p[s_begin, t_begin] = 0                                     for each row b of the batch
        p[s, t] = log_add(p[s-1, t-off] + px[s-1, t-off],           a symbol; off is 0, or 1 when modified
                          p[s, t-1] + py[s, t-1])                   no symbol in this frame
        ans = p[s_end, t_end]

    Steps from outside the boundary are missing, -inf. Inputs of -inf are normal: such a step is never taken.
    ``log_add(x, y)`` is x where y is NaN, and NaN where x is.

    Arrays are in CPU memory. Inputs may be read-only and strided; strided ones are copied first. ``out`` is
    contiguous. On an error nothing is written.

    Args:
        px: ``[batch, symbols, frames + 1]``, or ``[batch, symbols, frames]``: modified, where a symbol takes
            a frame as well. float32, float64, float16 or bfloat16.
        py: ``[batch, symbols + 1, frames]``, dtype of ``px``.
        boundary: ``[batch, 4]``, int64: s_begin, t_begin, s_end, t_end, positions in p, ends included; the
            whole lattice if None. A position outside ``0 .. symbols`` or ``0 .. frames`` is refused; with
            begin beyond end the lattice is empty and its ``ans`` 0.
        out: where to write: a tuple ``(p, ans)``, with None for what is to be allocated. A ``p`` that is
            given keeps what it has outside the boundary.

    Returns:
        p: ``[batch, symbols + 1, frames + 1]``, float64 beside float64, else float32; -inf outside the
            boundary.
        ans: ``[batch]``, dtype of ``p``.

        Each is the array from ``out``, or a new one: torch tensors when ``px`` is one, else NumPy arrays.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: something that is no array, or no tuple.

    Example:
        >>> half = np.log(np.float32(0.5))
        >>> px = np.array([[[half, half, -np.inf]]], np.float32)  # one symbol, two frames
        >>> py = np.full((1, 2, 2), half, np.float32)
        >>> p, ans = turnout.mutual_information_forward(px, py)
        >>> np.exp(ans).round(4).tolist()  # two ways of three steps: 2 / 2**3
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

    ``safe_exp`` is 0 where its argument or its value is not finite. Outside the boundary gradients are 0.
    With ``ans_grad`` 1 they are the probabilities that the step is taken.

    Args:
        px, py, boundary: those of the forward call.
        p: its first result; what it has outside the boundary is not looked at.
        ans_grad: ``[batch]``, dtype of ``p``: the gradient of each ``ans``.
        overwrite_ans_grad: ``ans_grad`` becomes the gradient that reached the start of its lattice, which
            should be what it was: a check of ``p``. Rows with an empty lattice stay.
        out: where to write: a tuple ``(px_grad, py_grad)``, with None for what is to be allocated.

    Returns:
        px_grad, py_grad: shape and dtype of ``px`` and ``py``: the arrays from ``out``, or new ones.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: something that is no array, no flag, or no tuple.

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
    """Both in one pass, with ``ans_grad`` 1 and without a ``p`` in memory: what training needs.

    The gradients come from the shares of the two ways into each cell, which sum to one, and are more precise
    than those from a rounded ``p``. Those of a lattice whose end cannot be reached, ``ans`` -inf, are 0.

    Args:
        px, py, boundary: as for :func:`mutual_information_forward`.
        out: where to write: a tuple ``(ans, px_grad, py_grad)``, with None for what is to be allocated.

    Returns:
        ans: as from :func:`mutual_information_forward`.
        px_grad, py_grad: shape and dtype of ``px`` and ``py``: the arrays from ``out``, or new ones.

    Raises:
        ValueError: arguments that do not fit together, with a message that names the first one.
        TypeError: something that is no array, or no tuple.

    Example:
        >>> half = np.log(np.float32(0.5))
        >>> px = np.array([[[half, half, -np.inf]]], np.float32)  # one symbol, two frames
        >>> py = np.full((1, 2, 2), half, np.float32)
        >>> ans, px_grad, py_grad = turnout.mutual_information_forward_backward(px, py)
        >>> np.exp(ans).round(4).tolist(), px_grad.round(4).tolist()
        ([0.25], [[[0.5, 0.5, 0.0]]])
    """
    return _core.mutual_information_forward_backward(px, py, boundary, out)
