"""RNN-T losses: from logits to the steps of a lattice and back, what prunes a lattice, the best way through.

The losses themselves are in ``turnout.torch``; these are their parts, for NumPy and others.
"""

from __future__ import annotations

from typing import Any

from turnout import _core

__all__ = [
    "rnnt_align",
    "rnnt_logprobs_fused_backward",
    "rnnt_logprobs_fused_forward",
    "rnnt_logprobs_joint_backward",
    "rnnt_logprobs_joint_forward",
    "rnnt_logprobs_pruned_backward",
    "rnnt_logprobs_pruned_forward",
    "rnnt_logprobs_simple_backward",
    "rnnt_logprobs_simple_forward",
    "rnnt_prune_ranges",
    "rnnt_pruning_backward",
    "rnnt_pruning_forward",
]

Array = Any  # of NumPy, torch, or any library that speaks DLPack


def rnnt_logprobs_joint_forward(
    logits: Array,
    symbols: Array,
    termination_symbol: int,
    *,
    boundary: Array | None = None,
    modified: bool = False,
    out: tuple[Array | None, Array | None, Array | None, Array | None] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """The steps of the RNN-T lattice, for :func:`turnout.mutual_information_forward`.

    ::

        n = normalizer[b, t, s] = logsumexp(logits[b, t, s])
        px[b, s, t] = logits[b, t, s, symbols[b, s]] - n       a symbol
        py[b, s, t] = logits[b, t, s, termination_symbol] - n  no symbol in this frame

    Outside the boundary logits and symbols are not read, and the first three results are -inf.

    Args:
        logits: ``[batch, frames, symbols + 1, classes]``, float32, float64, float16 or bfloat16.
        symbols: ``[batch, symbols]``, int32 or int64, within ``0 .. classes - 1`` inside the boundary.
        termination_symbol: the class of the blank.
        boundary: ``[batch, 4]``, int64: s_begin, t_begin, s_end, t_end with begin <= end; everything if None.
        modified: a symbol takes a frame: ``px`` has one column less, and each row of the batch as many
            frames as symbols, or more.
        out: where to write: a tuple of the results, with None for what is to be allocated.

    Returns:
        px: ``[batch, symbols, frames + 1]``, or ``[batch, symbols, frames]`` if modified; float64 beside
            float64, else float32. Column t_end is -inf.
        py: ``[batch, symbols + 1, frames]``.
        normalizer: ``[batch, frames, symbols + 1]``.
        nan_at: ``[batch]``, int64: the first ``t * (symbols + 1) + s`` whose normalizer is not finite, or -1.
            The recursion drops some NaN, so look here.

    Raises:
        ValueError: arguments that do not fit together, with a sentence that names the first one.
        TypeError: something that is no array, no integer, no flag, or no tuple.
    """
    return _core.rnnt_logprobs_joint_forward(
        logits, symbols, termination_symbol, boundary, modified, out, False
    )


def rnnt_logprobs_joint_backward(
    logits: Array,
    symbols: Array,
    normalizer: Array,
    px_grad: Array,
    py_grad: Array,
    termination_symbol: int,
    *,
    boundary: Array | None = None,
    out: Array | None = None,
) -> Array:
    """The gradient of :func:`rnnt_logprobs_joint_forward` for the logits, from those for px and py.

    ::

        logits_grad[b, t, s] = px_grad[b, s, t] onehot(symbol) + py_grad[b, s, t] onehot(termination_symbol)
                               - (px_grad[b, s, t] + py_grad[b, s, t]) softmax(logits[b, t, s])

    Outside the boundary it is 0. ``normalizer`` is what the forward call gave. ``out`` may be ``logits``
    itself, which is overwritten then.
    """
    return _core.rnnt_logprobs_joint_backward(
        logits, symbols, normalizer, px_grad, py_grad, termination_symbol, boundary, out, False
    )


def rnnt_logprobs_pruned_forward(
    logits: Array,
    symbols: Array,
    ranges: Array,
    termination_symbol: int,
    *,
    boundary: Array | None = None,
    modified: bool = False,
    use_hat_loss: bool = False,
    out: tuple[Array | None, Array | None, Array | None, Array | None] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """:func:`rnnt_logprobs_joint_forward` of a lattice of which each frame keeps a few positions.

    Args:
        logits: ``[batch, frames, rows, classes]``: row r of frame t is position ``ranges[b, t, r]``.
        ranges: ``[batch, frames, rows]``, int64: consecutive positions within ``0 .. symbols`` in every frame
            inside the boundary.
        use_hat_loss: the blank, which must be 0, has a probability of its own: ``py = logsigmoid(z)``,
            ``px = logits[symbol] - logsumexp(logits[1:]) + logsigmoid(-z)`` with ``z = logits[0]``. Then no
            symbol is 0.

    The other arguments are those of the joint form.

    Returns:
        px, py: as in the joint form; -inf for positions that a frame does not have.
        normalizer: ``[batch, frames, rows]``.
        nan_at: the first ``t * rows + r``.
    """
    return _core.rnnt_logprobs_pruned_forward(
        logits, symbols, ranges, termination_symbol, boundary, modified, use_hat_loss, out, False
    )


def rnnt_logprobs_pruned_backward(
    logits: Array,
    symbols: Array,
    ranges: Array,
    normalizer: Array,
    px_grad: Array,
    py_grad: Array,
    termination_symbol: int,
    *,
    boundary: Array | None = None,
    use_hat_loss: bool = False,
    out: Array | None = None,
) -> Array:
    """The gradient of :func:`rnnt_logprobs_pruned_forward`; ``out`` may be ``logits`` itself."""
    return _core.rnnt_logprobs_pruned_backward(
        *(logits, symbols, ranges, normalizer, px_grad, py_grad, termination_symbol, boundary),
        *(use_hat_loss, out, False),
    )


def rnnt_logprobs_fused_forward(
    am: Array,
    lm: Array,
    weight: Array,
    bias: Array | None,
    activation: str,
    symbols: Array,
    ranges: Array,
    termination_symbol: int,
    *,
    boundary: Array | None = None,
    modified: bool = False,
    use_hat_loss: bool = False,
    out: tuple[Array | None, Array | None, Array | None, Array | None] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """A joiner and :func:`rnnt_logprobs_pruned_forward` in one, whose logits are never stored as a whole.

    ::

        logits[b, t, r] = weight @ activation(am[b, t] + lm[b, ranges[b, t, r]]) + bias

    Args:
        am: ``[batch, frames, width]``, float32, float64, float16 or bfloat16.
        lm: ``[batch, symbols + 1, width]``, like ``weight`` and ``bias`` of the dtype of ``am``.
        weight: ``[classes, width]``.
        bias: ``[classes]`` or None.
        activation: "tanh", "relu" or "none".

    The other arguments and the results are those of the pruned form.
    """
    return _core.rnnt_logprobs_fused_forward(
        *(am, lm, weight, bias, activation, symbols, ranges, termination_symbol, boundary, modified),
        *(use_hat_loss, out, False),
    )


def rnnt_logprobs_fused_backward(
    am: Array,
    lm: Array,
    weight: Array,
    bias: Array | None,
    activation: str,
    symbols: Array,
    ranges: Array,
    normalizer: Array,
    px_grad: Array,
    py_grad: Array,
    termination_symbol: int,
    *,
    boundary: Array | None = None,
    use_hat_loss: bool = False,
    out: tuple[Array | None, Array | None, Array | None, Array | None] | None = None,
) -> tuple[Array, Array, Array, Array | None]:
    """The gradients of :func:`rnnt_logprobs_fused_forward`: of am, lm, weight and bias, None without bias."""
    return _core.rnnt_logprobs_fused_backward(
        *(am, lm, weight, bias, activation, symbols, ranges, normalizer, px_grad, py_grad),
        *(termination_symbol, boundary, use_hat_loss, out, False),
    )


def rnnt_logprobs_simple_forward(
    lm: Array,
    am: Array,
    symbols: Array,
    termination_symbol: int,
    *,
    boundary: Array | None = None,
    modified: bool = False,
    out: tuple[Array | None, Array | None, Array | None, Array | None] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """:func:`rnnt_logprobs_joint_forward` of ``logits[b, t, s] = am[b, t] + lm[b, s]``, never stored.

    The sums over the classes are a product of matrices of exponentials; where one underflows, the sum is
    computed term by term.

    Args:
        lm: ``[batch, symbols + 1, classes]``.
        am: ``[batch, frames, classes]``, dtype of ``lm``.

    The other arguments are those of the joint form.

    Returns:
        px, py: as in the joint form.
        normalizer: ``[batch, symbols + 1, frames]``.
        nan_at: the first ``s * frames + t``.
    """
    return _core.rnnt_logprobs_simple_forward(
        lm, am, symbols, termination_symbol, boundary, modified, out, False
    )


def rnnt_logprobs_simple_backward(
    lm: Array,
    am: Array,
    symbols: Array,
    normalizer: Array,
    px_grad: Array,
    py_grad: Array,
    termination_symbol: int,
    *,
    boundary: Array | None = None,
    out: tuple[Array | None, Array | None] | None = None,
) -> tuple[Array, Array]:
    """The gradients of :func:`rnnt_logprobs_simple_forward`: ``(lm_grad, am_grad)``."""
    return _core.rnnt_logprobs_simple_backward(
        lm, am, symbols, normalizer, px_grad, py_grad, termination_symbol, boundary, out, False
    )


def rnnt_prune_ranges(
    px_grad: Array,
    py_grad: Array,
    boundary: Array,
    s_range: int,
    *,
    score: str = "flow",
    out: Array | None = None,
) -> Array:
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
    """
    return _core.rnnt_prune_ranges(px_grad, py_grad, boundary, s_range, score, out, False)


def rnnt_pruning_forward(lm: Array, ranges: Array, *, out: Array | None = None) -> Array:
    """``pruned[b, t, r] = lm[b, ranges[b, t, r]]``: ``[batch, frames, rows, width]``.

    ``lm`` is ``[batch, symbols + 1, width]``; every row of ``ranges [batch, frames, rows]`` is consecutive.
    """
    return _core.rnnt_pruning_forward(lm, ranges, out, False)


def rnnt_pruning_backward(
    pruned_grad: Array, ranges: Array, symbols: int, *, out: Array | None = None
) -> Array:
    """The gradient of :func:`rnnt_pruning_forward`: ``[batch, symbols + 1, width]``, summed over frames."""
    return _core.rnnt_pruning_backward(pruned_grad, ranges, symbols, out, False)


def rnnt_align(
    px: Array,
    py: Array,
    *,
    boundary: Array | None = None,
    out: tuple[Array | None, Array | None] | None = None,
) -> tuple[Array, Array]:
    """The best way through each lattice: ``(symbol_frames, score)``.

    The recursion is that of :func:`turnout.mutual_information_forward` with the larger of the two terms, the
    symbol's where they are equal.

    Returns:
        symbol_frames: ``[batch, symbols]``, int64: the frame in which each symbol is taken; -1 outside the
            boundary, and where no way leads through.
        score: ``[batch]``, float64 beside float64, else float32.
    """
    return _core.rnnt_align(px, py, boundary, out, False)
