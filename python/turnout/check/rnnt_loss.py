"""The definitions of the RNN-T operators, and checks against them."""

from __future__ import annotations

import numpy as np

import turnout

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


def _log_sum_exp(x):
    most = x.max(-1, initial=-np.inf, keepdims=True)
    with np.errstate(all="ignore"):
        return (most + np.log(np.exp(x - most).sum(-1, keepdims=True)))[..., 0]


def _log_sigmoid(z):
    return np.minimum(z, 0) - np.log1p(np.exp(-np.abs(z)))


def _cells(shape, symbols, ranges, boundary):
    """b, t, row, s and the symbol (or -1) of every row of logits inside the boundary."""
    batch, frames, rows = shape
    for b in range(batch):
        box = (0, 0, symbols.shape[1], frames) if boundary is None else boundary[b]
        for t in range(box[1], box[3]):
            for row in range(rows):
                s = row if ranges is None else ranges[b, t, row]
                if box[0] <= s <= box[2]:
                    yield b, t, row, s, symbols[b, s] if s < box[2] else -1


def _forward(logits, symbols, ranges, blank, boundary, modified, use_hat_loss):
    (batch, frames, rows, _), count = logits.shape, symbols.shape[1]
    logits = logits.astype(np.float64)
    px = np.full((batch, count, frames + (not modified)), -np.inf)
    py = np.full((batch, count + 1, frames), -np.inf)
    normalizer = np.full((batch, frames, rows), -np.inf)
    nan_at = np.full(batch, -1)
    for b, t, row, s, symbol in _cells((batch, frames, rows), symbols, ranges, boundary):
        x = logits[b, t, row]
        n = _log_sum_exp(x[1:] if use_hat_loss else x)
        normalizer[b, t, row] = n
        if symbol >= 0:
            px[b, s, t] = x[symbol] - n + (_log_sigmoid(-x[0]) if use_hat_loss else 0)
        py[b, s, t] = _log_sigmoid(x[0]) if use_hat_loss else x[blank] - n
        if nan_at[b] < 0 and not np.isfinite(n):
            nan_at[b] = t * rows + row
    return px, py, normalizer, nan_at


def _backward(logits, symbols, ranges, px_grad, py_grad, blank, boundary, use_hat_loss):
    logits = logits.astype(np.float64)
    grad = np.zeros(logits.shape)
    for b, t, row, s, symbol in _cells(logits.shape[:3], symbols, ranges, boundary):
        x, to = logits[b, t, row], grad[b, t, row]
        gx, gy = px_grad[b, s, t] if symbol >= 0 else 0, py_grad[b, s, t]
        if use_hat_loss:
            to[1:] = -gx * np.exp(x[1:] - _log_sum_exp(x[1:]))
            to[0] = gy * np.exp(_log_sigmoid(-x[0])) - gx * np.exp(_log_sigmoid(x[0]))
        else:
            to[:] = -(gx + gy) * np.exp(x - _log_sum_exp(x))
            to[blank] += gy
        if symbol >= 0:
            to[symbol] += gx
    return grad


def rnnt_logprobs_joint_forward(logits, symbols, termination_symbol, *, boundary=None, modified=False):
    """The definition of ``turnout.rnnt_logprobs_joint_forward``, in float64."""
    return _forward(logits, symbols, None, termination_symbol, boundary, modified, False)


def rnnt_logprobs_joint_backward(
    logits, symbols, normalizer, px_grad, py_grad, termination_symbol, *, boundary=None
):
    """The definition of ``turnout.rnnt_logprobs_joint_backward``, in float64."""
    del normalizer
    return _backward(logits, symbols, None, px_grad, py_grad, termination_symbol, boundary, False)


def rnnt_logprobs_pruned_forward(
    logits, symbols, ranges, termination_symbol, *, boundary=None, modified=False, use_hat_loss=False
):
    """The definition of ``turnout.rnnt_logprobs_pruned_forward``, in float64."""
    return _forward(logits, symbols, ranges, termination_symbol, boundary, modified, use_hat_loss)


def rnnt_logprobs_pruned_backward(
    logits,
    symbols,
    ranges,
    normalizer,
    px_grad,
    py_grad,
    termination_symbol,
    *,
    boundary=None,
    use_hat_loss=False,
):
    """The definition of ``turnout.rnnt_logprobs_pruned_backward``, in float64."""
    del normalizer
    return _backward(logits, symbols, ranges, px_grad, py_grad, termination_symbol, boundary, use_hat_loss)


_ACTIVATIONS = {
    "none": (lambda x: x, lambda h: np.ones_like(h)),
    "tanh": (np.tanh, lambda h: 1 - h * h),
    "relu": (lambda x: np.maximum(x, 0), lambda h: (h > 0).astype(h.dtype)),
}


def _joined(am, lm, weight, bias, activation, ranges):
    """The hidden rows of a joiner and their logits."""
    am, lm, weight = (x.astype(np.float64) for x in (am, lm, weight))
    rows = np.clip(ranges, 0, lm.shape[1] - 1)  # ranges of padding may have any value
    hidden = _ACTIVATIONS[activation][0](am[:, :, None] + rnnt_pruning_forward(lm, rows))
    return hidden, hidden @ weight.T + (0 if bias is None else bias.astype(np.float64))


def rnnt_logprobs_fused_forward(
    am,
    lm,
    weight,
    symbols,
    ranges,
    activation,
    termination_symbol,
    *,
    bias=None,
    boundary=None,
    modified=False,
    use_hat_loss=False,
):
    """The definition of ``turnout.rnnt_logprobs_fused_forward``, in float64."""
    _, logits = _joined(am, lm, weight, bias, activation, ranges)
    return _forward(logits, symbols, ranges, termination_symbol, boundary, modified, use_hat_loss)


def rnnt_logprobs_fused_backward(
    am,
    lm,
    weight,
    symbols,
    ranges,
    normalizer,
    px_grad,
    py_grad,
    activation,
    termination_symbol,
    *,
    bias=None,
    boundary=None,
    use_hat_loss=False,
):
    """The definition of ``turnout.rnnt_logprobs_fused_backward``, in float64."""
    del normalizer
    hidden, logits = _joined(am, lm, weight, bias, activation, ranges)
    grad = _backward(logits, symbols, ranges, px_grad, py_grad, termination_symbol, boundary, use_hat_loss)
    rows = grad @ weight.astype(np.float64) * _ACTIVATIONS[activation][1](hidden)
    lm_grad = rnnt_pruning_backward(rows, np.clip(ranges, 0, lm.shape[1] - 1), lm.shape[1] - 1)
    weight_grad = np.einsum("btrc,btrj->cj", grad, hidden)
    return rows.sum(2), lm_grad, weight_grad, None if bias is None else grad.sum((0, 1, 2))


def rnnt_logprobs_simple_forward(lm, am, symbols, termination_symbol, *, boundary=None, modified=False):
    """The definition of ``turnout.rnnt_logprobs_simple_forward``, in float64."""
    logits = am.astype(np.float64)[:, :, None] + lm.astype(np.float64)[:, None]
    px, py, n, nan_at = _forward(logits, symbols, None, termination_symbol, boundary, modified, False)
    rows, frames = lm.shape[1], am.shape[1]
    nan_at = np.where(nan_at < 0, -1, nan_at % rows * frames + nan_at // rows)
    return px, py, n.transpose(0, 2, 1), nan_at


def rnnt_logprobs_simple_backward(
    lm, am, symbols, normalizer, px_grad, py_grad, termination_symbol, *, boundary=None
):
    """The definition of ``turnout.rnnt_logprobs_simple_backward``, in float64."""
    del normalizer
    logits = am.astype(np.float64)[:, :, None] + lm.astype(np.float64)[:, None]
    grad = _backward(logits, symbols, None, px_grad, py_grad, termination_symbol, boundary, False)
    return grad.sum(1), grad.sum(2)


def rnnt_prune_ranges(px_grad, py_grad, boundary, s_range, *, score="flow"):
    """The definition of ``turnout.rnnt_prune_ranges``."""
    (batch, symbols, columns), frames = px_grad.shape, py_grad.shape[2]
    regular = columns > frames
    rows = s_range
    if regular and score == "flow":
        rows = max([rows, 2, *((int((s - 1) / t) + 2) for _, _, s, t in boundary if t > 0)])
    rows = min(rows, symbols + 1)
    px, py = px_grad.astype(np.float64)[:, :, :frames], py_grad.astype(np.float64)
    windows = np.stack([py[:, s : s + rows].sum(1) for s in range(symbols + 2 - rows)], 1)
    if score == "flow":
        windows[:, 1:] -= px[:, : symbols + 1 - rows]
    else:
        windows += np.stack([px[:, s : s + rows].sum(1) for s in range(symbols + 2 - rows)], 1)
    starts = windows.argmax(1) if frames else np.zeros((batch, 0), np.int64)
    t = np.arange(frames)
    for b, (_, _, s_end, t_end) in enumerate(boundary):
        starts[b, t >= t_end - 1] = max(s_end - rows + 1, 0)

    def never_falling(x):
        return np.minimum.accumulate(x[:, ::-1], 1)[:, ::-1]

    step = rows - 1 if regular else 1
    left = np.maximum(never_falling(step * t - never_falling(starts)), 0)
    return (step * t - left)[:, :, None] + np.arange(rows)


def rnnt_pruning_forward(lm, ranges):
    """The definition of ``turnout.rnnt_pruning_forward``."""
    return np.stack([lm[b][ranges[b]] for b in range(len(lm))])


def rnnt_pruning_backward(pruned_grad, ranges, symbols):
    """The definition of ``turnout.rnnt_pruning_backward``, in float64."""
    grad = np.zeros((len(ranges), symbols + 1, pruned_grad.shape[3]))
    for b in range(len(ranges)):
        np.add.at(grad[b], ranges[b], pruned_grad[b])
    return grad


def rnnt_align(px, py, *, boundary=None):
    """The definition of ``turnout.rnnt_align``, in float64."""
    (batch, symbols, columns), frames = px.shape, py.shape[2]
    off = int(columns == frames)
    symbol_frames, score = np.full((batch, symbols), -1), np.zeros(batch)
    for b in range(batch):
        s_begin, t_begin, s_end, t_end = (0, 0, symbols, frames) if boundary is None else boundary[b]
        best = {(s_begin, t_begin): (0.0, ())}
        for s in range(s_begin, s_end + 1):
            for t in range(t_begin, t_end + 1):
                ways = [best[s, t]] if (s, t) in best else []
                if s > s_begin and t - off >= t_begin:
                    value, way = best[s - 1, t - off]
                    ways.append((value + px[b, s - 1, t - off], (*way, t - off)))
                if t > t_begin:
                    value, way = best[s, t - 1]
                    ways.append((value + py[b, s, t - 1], way))
                best[s, t] = max(ways, key=lambda way: way[0], default=(-np.inf, ()))
        score[b], way = best[s_end, t_end]
        if score[b] > -np.inf:
            symbol_frames[b, s_begin:s_end] = way
    return symbol_frames, score


def _batch(rng: np.random.Generator):
    """Returns logits, lm, am, symbols, boundary, ranges and gradients of the steps."""
    logits = rng.standard_normal((2, 5, 4, 7)).astype(np.float32)
    lm, am = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 7), (2, 5, 7)))
    symbols = rng.integers(1, 7, (2, 3))
    boundary = np.array([(0, 0, 3, 5), (1, 1, 2, 4)])
    ranges = rng.integers(0, 3, (2, 5, 1)) + np.arange(2)
    grads = tuple(rng.random(shape).astype(np.float32) for shape in ((2, 3, 6), (2, 4, 5)))
    return logits, lm, am, symbols, boundary, ranges, grads


def _assert_close(actual, expected) -> None:
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)


def _check_logprobs(rng: np.random.Generator) -> None:
    logits, lm, am, symbols, boundary, ranges, grads = _batch(rng)
    few = logits[:, :, :2].copy()
    for kind, tensors, more, options in (
        ("joint", (logits,), (), {}),
        ("simple", (lm, am), (), {}),
        ("pruned", (few,), (ranges,), {}),
        ("pruned", (few,), (ranges,), {"use_hat_loss": True}),
    ):
        options = {"boundary": boundary, **options}
        forward, backward = (f"rnnt_logprobs_{kind}_{way}" for way in ("forward", "backward"))
        arguments = (*tensors, symbols, *more)
        steps = getattr(turnout, forward)(*arguments, 0, **options)
        _assert_close(steps, globals()[forward](*arguments, 0, **options))
        results = [
            module(*arguments, steps[2], *grads, 0, **options)
            for module in (getattr(turnout, backward), globals()[backward])
        ]
        _assert_close(*(result if isinstance(result, tuple) else (result,) for result in results))


def _check_fused(rng: np.random.Generator) -> None:
    _, lm, am, symbols, boundary, ranges, grads = _batch(rng)
    weight, bias = rng.standard_normal((9, 7)).astype(np.float32), rng.standard_normal(9).astype(np.float32)
    for activation in _ACTIVATIONS:
        arguments, options = (am, lm, weight, symbols, ranges), {"bias": bias, "boundary": boundary}
        steps = turnout.rnnt_logprobs_fused_forward(*arguments, activation, 0, **options)
        _assert_close(steps, rnnt_logprobs_fused_forward(*arguments, activation, 0, **options))
        _assert_close(
            *(
                module(*arguments, steps[2], *grads, activation, 0, **options)
                for module in (turnout.rnnt_logprobs_fused_backward, rnnt_logprobs_fused_backward)
            )
        )


def _check_pruning(rng: np.random.Generator) -> None:
    logits, lm, _, _, boundary, ranges, grads = _batch(rng)
    for score in ("flow", "steps"):
        actual = turnout.rnnt_prune_ranges(*grads, boundary, 2, score=score)
        np.testing.assert_array_equal(actual, rnnt_prune_ranges(*grads, boundary, 2, score=score))
    np.testing.assert_array_equal(turnout.rnnt_pruning_forward(lm, ranges), rnnt_pruning_forward(lm, ranges))
    grad = logits[:, :, :2].copy()
    _assert_close([turnout.rnnt_pruning_backward(grad, ranges, 3)], [rnnt_pruning_backward(grad, ranges, 3)])


def _check_align(rng: np.random.Generator) -> None:
    *_, boundary, _, (px, py) = _batch(rng)
    for options in ({}, {"boundary": boundary}):
        for steps in (px, px[:, :, :5].copy()):
            _assert_close(turnout.rnnt_align(steps, py, **options), rnnt_align(steps, py, **options))


CHECKS = {
    **{
        f"rnnt_logprobs_{kind}_{way}": _check_logprobs
        for kind in ("joint", "pruned", "simple")
        for way in ("forward", "backward")
    },
    "rnnt_logprobs_fused_forward": _check_fused,
    "rnnt_logprobs_fused_backward": _check_fused,
    "rnnt_prune_ranges": _check_pruning,
    "rnnt_pruning_forward": _check_pruning,
    "rnnt_pruning_backward": _check_pruning,
    "rnnt_align": _check_align,
}
