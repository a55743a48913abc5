"""RNN-T losses: converts logits to the steps of a lattice, and computes their gradients.

The losses themselves are in ``turnout.torch``; these are their parts, for NumPy and other libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import Activation, Array, Int, R, Source

__all__ = [
    "rnnt_logprobs_fused_backward",
    "rnnt_logprobs_fused_forward",
    "rnnt_logprobs_joint_backward",
    "rnnt_logprobs_joint_forward",
    "rnnt_logprobs_pruned_backward",
    "rnnt_logprobs_pruned_forward",
    "rnnt_logprobs_simple_backward",
    "rnnt_logprobs_simple_forward",
]


def rnnt_logprobs_joint_forward(
    logits: Source[R],
    symbols: Array,
    termination_symbol: Int,
    *,
    boundary: Array | None = None,
    modified: bool = False,
    out: tuple[R | None, R | None, R | None, R | None] | None = None,
) -> tuple[R, R, R, R]:
    """The steps of the RNN-T lattice, for :func:`turnout.mutual_information_forward`.

    ::

        n = normalizer[b, t, s] = logsumexp(logits[b, t, s])
        px[b, s, t] = logits[b, t, s, symbols[b, s]] - n       a symbol
        py[b, s, t] = logits[b, t, s, termination_symbol] - n  a blank: on to the next frame

    Outside the boundary, logits and symbols are not read, and the first three results are -inf.

    Args:
        logits: ``[batch, frames, symbols + 1, classes]``, float32, float64, float16 or bfloat16.
        symbols: ``[batch, symbols]``, int32 or int64, within ``0 .. classes - 1`` inside the boundary.
        termination_symbol: the class of the blank.
        boundary: ``[batch, 4]``, int64: s_begin, t_begin, s_end, t_end, begin <= end; None means everything.
        modified: whether a symbol takes a frame. ``px`` then has one column less, and each row of the batch
            must have at least as many frames as symbols.
        out: tuple of output arrays; None allocates that result.

    Returns:
        px: ``[batch, symbols, frames + 1]``, or ``[batch, symbols, frames]`` if modified; float64 if the
            logits are float64, otherwise float32. Column t_end is -inf.
        py: ``[batch, symbols + 1, frames]``.
        normalizer: ``[batch, frames, symbols + 1]``.
        nan_at: ``[batch]``, int64: the first ``t * (symbols + 1) + s`` whose normalizer is not finite, or -1.
            Check it, because the recursion ignores some NaNs.

    Raises:
        ValueError: if arguments are inconsistent; the message names the first one.
        TypeError: if an argument is not an array, an integer, a flag, or a tuple.

    Example:
        >>> logits = np.zeros((1, 2, 2, 4), np.float32)  # two frames, one symbol, four equally likely classes
        >>> symbols = np.array([[3]])
        >>> px, py, normalizer, nan_at = turnout.rnnt_logprobs_joint_forward(logits, symbols, 0)
        >>> np.exp(px).round(4).tolist(), np.exp(py).round(4).tolist()
        ([[[0.25, 0.25, 0.0]]], [[[0.25, 0.25], [0.25, 0.25]]])
        >>> nan_at.tolist()
        [-1]
    """
    return _core.rnnt_logprobs_joint_forward(logits, symbols, termination_symbol, boundary, modified, out)


def rnnt_logprobs_joint_backward(
    logits: Source[R],
    symbols: Array,
    normalizer: Array,
    px_grad: Array,
    py_grad: Array,
    termination_symbol: Int,
    *,
    boundary: Array | None = None,
    out: R | None = None,
) -> R:
    """The gradient of :func:`rnnt_logprobs_joint_forward` for the logits, given those for px and py.

    ::

        logits_grad[b, t, s] = px_grad[b, s, t] onehot(symbol) + py_grad[b, s, t] onehot(termination_symbol)
                               - (px_grad[b, s, t] + py_grad[b, s, t]) softmax(logits[b, t, s])

    Outside the boundary it is 0. ``normalizer`` is the result of the forward call. ``out`` may be ``logits``,
    which is then overwritten.

    Example:
        >>> logits = np.zeros((1, 2, 2, 4), np.float32)  # two frames, one symbol, four equally likely classes
        >>> symbols = np.array([[3]])
        >>> px, py, normalizer, _ = turnout.rnnt_logprobs_joint_forward(logits, symbols, 0)
        >>> _, px_grad, py_grad = turnout.mutual_information_forward_backward(px, py)
        >>> grad = turnout.rnnt_logprobs_joint_backward(logits, symbols, normalizer, px_grad, py_grad, 0)
        >>> grad[0, 0, 0].round(4).tolist()  # frame 0 takes class 0 or 3, each with probability 1/2
        [0.25, -0.25, -0.25, 0.25]
    """
    return _core.rnnt_logprobs_joint_backward(
        logits, symbols, normalizer, px_grad, py_grad, termination_symbol, boundary, out
    )


def rnnt_logprobs_pruned_forward(
    logits: Source[R],
    symbols: Array,
    ranges: Array,
    termination_symbol: Int,
    *,
    boundary: Array | None = None,
    use_hat_loss: bool = False,
    modified: bool = False,
    out: tuple[R | None, R | None, R | None, R | None] | None = None,
) -> tuple[R, R, R, R]:
    """:func:`rnnt_logprobs_joint_forward` for a lattice whose frames keep only a few positions.

    Args:
        logits: ``[batch, frames, rows, classes]``: row r of frame t is position ``ranges[b, t, r]``.
        ranges: ``[batch, frames, rows]``, int64: consecutive positions within ``0 .. symbols`` in every frame
            inside the boundary.
        use_hat_loss: gives the blank a separate probability: ``py = logsigmoid(z)``,
            ``px = logits[symbol] - logsumexp(logits[1:]) + logsigmoid(-z)`` with ``z = logits[0]``. The blank
            must be 0, and no symbol may be 0.

    The other arguments are those of the joint form.

    Returns:
        px, py: as in the joint form; -inf for positions that a frame does not have.
        normalizer: ``[batch, frames, rows]``.
        nan_at: the first ``t * rows + r``.

    Example:
        >>> logits = np.zeros((1, 2, 2, 4), np.float32)  # two frames that keep two positions, four classes
        >>> symbols, ranges = np.array([[3]]), np.array([[[0, 1], [0, 1]]])
        >>> px, py, normalizer, nan_at = turnout.rnnt_logprobs_pruned_forward(logits, symbols, ranges, 0)
        >>> np.exp(px).round(4).tolist()
        [[[0.25, 0.25, 0.0]]]
    """
    return _core.rnnt_logprobs_pruned_forward(
        logits, symbols, ranges, termination_symbol, boundary, use_hat_loss, modified, out
    )


def rnnt_logprobs_pruned_backward(
    logits: Source[R],
    symbols: Array,
    ranges: Array,
    normalizer: Array,
    px_grad: Array,
    py_grad: Array,
    termination_symbol: Int,
    *,
    boundary: Array | None = None,
    use_hat_loss: bool = False,
    out: R | None = None,
) -> R:
    """The gradient of :func:`rnnt_logprobs_pruned_forward`; ``out`` may be ``logits``.

    Example:
        >>> logits = np.zeros((1, 2, 2, 4), np.float32)  # two frames that keep two positions, four classes
        >>> symbols, ranges = np.array([[3]]), np.array([[[0, 1], [0, 1]]])
        >>> px, py, normalizer, _ = turnout.rnnt_logprobs_pruned_forward(logits, symbols, ranges, 0)
        >>> _, px_grad, py_grad = turnout.mutual_information_forward_backward(px, py)
        >>> grads = normalizer, px_grad, py_grad
        >>> grad = turnout.rnnt_logprobs_pruned_backward(logits, symbols, ranges, *grads, 0)
        >>> grad[0, 0, 0].round(4).tolist()
        [0.25, -0.25, -0.25, 0.25]
    """
    return _core.rnnt_logprobs_pruned_backward(
        *(logits, symbols, ranges, normalizer, px_grad, py_grad, termination_symbol, boundary),
        *(use_hat_loss, out),
    )


def rnnt_logprobs_fused_forward(
    am: Source[R],
    lm: Array,
    weight: Array,
    symbols: Array,
    ranges: Array,
    activation: Activation,
    termination_symbol: Int,
    *,
    bias: Array | None = None,
    boundary: Array | None = None,
    use_hat_loss: bool = False,
    modified: bool = False,
    out: tuple[R | None, R | None, R | None, R | None] | None = None,
) -> tuple[R, R, R, R]:
    """A joiner fused with :func:`rnnt_logprobs_pruned_forward`; the logits are never stored as a whole.

    ::

        logits[b, t, r] = weight @ activation(am[b, t] + lm[b, ranges[b, t, r]]) + bias

    Args:
        am: ``[batch, frames, width]``, float32, float64, float16 or bfloat16.
        lm: ``[batch, symbols + 1, width]``; it, ``weight`` and ``bias`` have the dtype of ``am``.
        weight: ``[classes, width]``.
        activation: "tanh", "relu" or "none".
        bias: ``[classes]`` or None.

    The other arguments and the results are those of the pruned form.

    Example:
        >>> am, lm = np.zeros((1, 2, 5), np.float32), np.zeros((1, 2, 5), np.float32)
        >>> weight = np.ones((4, 5), np.float32)
        >>> symbols, ranges = np.array([[3]]), np.array([[[0, 1], [0, 1]]])
        >>> px, py, normalizer, nan_at = turnout.rnnt_logprobs_fused_forward(
        ...     am, lm, weight, symbols, ranges, "tanh", termination_symbol=0
        ... )
        >>> np.exp(px).round(4).tolist()  # tanh(0) gives equal logits for all four classes
        [[[0.25, 0.25, 0.0]]]
    """
    return _core.rnnt_logprobs_fused_forward(
        *(am, lm, weight, symbols, ranges, activation, termination_symbol, bias, boundary),
        *(use_hat_loss, modified, out),
    )


def rnnt_logprobs_fused_backward(
    am: Source[R],
    lm: Array,
    weight: Array,
    symbols: Array,
    ranges: Array,
    normalizer: Array,
    px_grad: Array,
    py_grad: Array,
    activation: Activation,
    termination_symbol: Int,
    *,
    bias: Array | None = None,
    boundary: Array | None = None,
    use_hat_loss: bool = False,
    out: tuple[R | None, R | None, R | None, R | None] | None = None,
) -> tuple[R, R, R, R | None]:
    """The gradients of :func:`rnnt_logprobs_fused_forward` for am, lm, weight and bias (None without bias).

    Example:
        >>> am, lm = np.zeros((1, 2, 5), np.float32), np.zeros((1, 2, 5), np.float32)
        >>> weight = np.ones((4, 5), np.float32)
        >>> symbols, ranges = np.array([[3]]), np.array([[[0, 1], [0, 1]]])
        >>> px, py, normalizer, nan_at = turnout.rnnt_logprobs_fused_forward(
        ...     am, lm, weight, symbols, ranges, "tanh", termination_symbol=0
        ... )
        >>> _, px_grad, py_grad = turnout.mutual_information_forward_backward(px, py)
        >>> am_grad, lm_grad, weight_grad, bias_grad = turnout.rnnt_logprobs_fused_backward(
        ...     am, lm, weight, symbols, ranges, normalizer, px_grad, py_grad, "tanh", 0
        ... )
        >>> am_grad.shape, weight_grad.shape, bias_grad
        ((1, 2, 5), (4, 5), None)
    """
    return _core.rnnt_logprobs_fused_backward(
        *(am, lm, weight, symbols, ranges, normalizer, px_grad, py_grad, activation),
        *(termination_symbol, bias, boundary, use_hat_loss, out),
    )


def rnnt_logprobs_simple_forward(
    lm: Source[R],
    am: Array,
    symbols: Array,
    termination_symbol: Int,
    *,
    boundary: Array | None = None,
    modified: bool = False,
    out: tuple[R | None, R | None, R | None, R | None] | None = None,
) -> tuple[R, R, R, R]:
    """:func:`rnnt_logprobs_joint_forward` for ``logits[b, t, s] = am[b, t] + lm[b, s]``, never stored.

    The sums over the classes are a product of matrices of exponentials; if one underflows, the sum is
    computed term by term.

    Args:
        lm: ``[batch, symbols + 1, classes]``.
        am: ``[batch, frames, classes]``, dtype of ``lm``.

    The other arguments are those of the joint form.

    Returns:
        px, py: as in the joint form.
        normalizer: ``[batch, symbols + 1, frames]``.
        nan_at: the first ``s * frames + t``.

    Example:
        >>> lm = am = np.zeros((1, 2, 4), np.float32)  # one symbol, two frames, four classes
        >>> px, py, normalizer, nan_at = turnout.rnnt_logprobs_simple_forward(lm, am, np.array([[3]]), 0)
        >>> np.exp(px).round(4).tolist()
        [[[0.25, 0.25, 0.0]]]
    """
    return _core.rnnt_logprobs_simple_forward(lm, am, symbols, termination_symbol, boundary, modified, out)


def rnnt_logprobs_simple_backward(
    lm: Source[R],
    am: Array,
    symbols: Array,
    normalizer: Array,
    px_grad: Array,
    py_grad: Array,
    termination_symbol: Int,
    *,
    boundary: Array | None = None,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]:
    """The gradients of :func:`rnnt_logprobs_simple_forward`: ``(lm_grad, am_grad)``.

    Example:
        >>> lm = am = np.zeros((1, 2, 4), np.float32)  # one symbol, two frames, four classes
        >>> symbols = np.array([[3]])
        >>> px, py, normalizer, _ = turnout.rnnt_logprobs_simple_forward(lm, am, symbols, 0)
        >>> _, px_grad, py_grad = turnout.mutual_information_forward_backward(px, py)
        >>> grads = normalizer, px_grad, py_grad
        >>> lm_grad, am_grad = turnout.rnnt_logprobs_simple_backward(lm, am, symbols, *grads, 0)
        >>> am_grad[0, 0].round(4).tolist()
        [0.625, -0.375, -0.375, 0.125]
    """
    return _core.rnnt_logprobs_simple_backward(
        lm, am, symbols, normalizer, px_grad, py_grad, termination_symbol, boundary, out
    )
