"""The definitions of mutual information, and checks against them."""

from __future__ import annotations

import numpy as np

import turnout

__all__ = ["mutual_information_backward", "mutual_information_forward", "mutual_information_forward_backward"]


def _log_add(x, y):
    if x < y:
        x, y = y, x
    return x + np.log1p(np.exp(y - x)) if y - x >= np.log(np.finfo(np.float64).eps) else x


def _boxes(px, py, boundary):
    if boundary is None:
        boundary = [(0, 0, px.shape[1], py.shape[2])] * len(px)
    for b, row in enumerate(boundary):
        s_begin, t_begin, s_end, t_end = map(int, row)
        if s_begin <= s_end and t_begin <= t_end:
            yield b, s_begin, t_begin, s_end, t_end


def mutual_information_forward(px, py, *, boundary=None):
    """The definition of ``turnout.mutual_information_forward``, in float64."""
    px, py = px.astype(np.float64), py.astype(np.float64)
    off = px.shape[2] == py.shape[2]  # modified: a symbol takes a frame as well
    p = np.full((len(px), px.shape[1] + 1, py.shape[2] + 1), -np.inf)
    ans = np.zeros(len(px))
    with np.errstate(all="ignore"):
        for b, s_begin, t_begin, s_end, t_end in _boxes(px, py, boundary):
            for s in range(s_begin, s_end + 1):
                for t in range(t_begin, t_end + 1):
                    symbol = blank = -np.inf
                    if s > s_begin and t - off >= t_begin:
                        symbol = p[b, s - 1, t - off] + px[b, s - 1, t - off]
                    if t > t_begin:
                        blank = p[b, s, t - 1] + py[b, s, t - 1]
                    is_start = s == s_begin and t == t_begin
                    p[b, s, t] = 0 if is_start else _log_add(symbol, blank)
            ans[b] = p[b, s_end, t_end]
    return p, ans


def mutual_information_backward(px, py, p, ans_grad, *, boundary=None):
    """The definition of ``turnout.mutual_information_backward``, in float64; also returns new ans_grad."""
    lowest, largest = p.dtype.type(-1e30).astype(np.float64), np.finfo(p.dtype).max
    px, py, p = (x.astype(np.float64) for x in (px, py, p))
    off = px.shape[2] == py.shape[2]
    px_grad, py_grad = np.zeros_like(px), np.zeros_like(py)
    reached = ans_grad.astype(np.float64)
    p = np.where(p < lowest, lowest, p)

    def weight(start, step, end):
        """Between two unreachable cells the order of additions matters, because -1e30 absorbs the step."""
        sum_ = start + step - end if start == end == lowest else start - end + step
        value = np.exp(sum_)
        return value if np.isfinite(sum_) and value <= largest else 0.0

    with np.errstate(all="ignore"):
        for b, s_begin, t_begin, s_end, t_end in _boxes(px, py, boundary):
            g = np.zeros(p.shape[1:])
            for s in range(s_end, s_begin - 1, -1):
                for t in range(t_end, t_begin - 1, -1):
                    if s == s_end and t == t_end:
                        g[s, t] = reached[b]
                    if s < s_end and t + off <= t_end:
                        term = weight(p[b, s, t], px[b, s, t], p[b, s + 1, t + off])
                        px_grad[b, s, t] = g[s + 1, t + off] * term
                        g[s, t] += px_grad[b, s, t]
                    if t < t_end:
                        term = weight(p[b, s, t], py[b, s, t], p[b, s, t + 1])
                        py_grad[b, s, t] = g[s, t + 1] * term
                        g[s, t] += py_grad[b, s, t]
            reached[b] = g[s_begin, t_begin]
    return px_grad, py_grad, reached


def mutual_information_forward_backward(px, py, *, boundary=None):
    """The definition of ``turnout.mutual_information_forward_backward``, in float64.

    The shares of the two steps into a cell sum to one; both are 0 if p is not finite.
    """
    p, ans = mutual_information_forward(px, py, boundary=boundary)
    px, py = px.astype(np.float64), py.astype(np.float64)
    off = px.shape[2] == py.shape[2]
    px_grad, py_grad = np.zeros_like(px), np.zeros_like(py)
    with np.errstate(all="ignore"):
        for b, s_begin, t_begin, s_end, t_end in _boxes(px, py, boundary):
            g = np.zeros(p.shape[1:])
            g[s_end, t_end] = 1
            for s in range(s_end, s_begin - 1, -1):
                for t in range(t_end, t_begin - 1, -1):
                    has_symbol, has_blank = s > s_begin and t - off >= t_begin, t > t_begin
                    symbol = p[b, s - 1, t - off] + px[b, s - 1, t - off] if has_symbol else -np.inf
                    blank = p[b, s, t - 1] + py[b, s, t - 1] if has_blank else -np.inf
                    if np.isnan(blank):  # log_add ignores it
                        blank = -np.inf
                    if not np.isfinite(p[b, s, t]):
                        continue
                    if has_symbol:
                        px_grad[b, s - 1, t - off] = g[s, t] / (1 + np.exp(blank - symbol))
                        g[s - 1, t - off] += px_grad[b, s - 1, t - off]
                    if has_blank:
                        py_grad[b, s, t - 1] = g[s, t] / (1 + np.exp(symbol - blank))
                        g[s, t - 1] += py_grad[b, s, t - 1]
    return ans, px_grad, py_grad


def _lattices(rng: np.random.Generator):
    """Arguments of both modes, with boundaries (one of them empty) and with -inf."""
    for columns in (12, 11):
        px, py = (rng.uniform(-3, 0, shape).astype(np.float32) for shape in ((3, 6, columns), (3, 7, 11)))
        px[0, :, :4] = -np.inf
        yield (px, py), {"boundary": np.array([(0, 0, 6, 11), (1, 2, 5, 9), (3, 1, 2, 8)])}


def _check_mutual_information_forward(rng: np.random.Generator) -> None:
    for arguments, options in _lattices(rng):
        results = turnout.mutual_information_forward(*arguments, **options)
        for actual, expected in zip(results, mutual_information_forward(*arguments, **options), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def _check_mutual_information_backward(rng: np.random.Generator) -> None:
    for arguments, options in _lattices(rng):
        p = turnout.mutual_information_forward(*arguments, **options)[0]
        ans_grad = rng.standard_normal(3).astype(np.float32)
        expected = mutual_information_backward(*arguments, p, ans_grad, **options)
        results = turnout.mutual_information_backward(
            *arguments, p, ans_grad, **options, overwrite_ans_grad=True
        )
        for actual, wanted in zip((*results, ans_grad), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-6)


def _check_mutual_information_forward_backward(rng: np.random.Generator) -> None:
    for arguments, options in _lattices(rng):
        results = turnout.mutual_information_forward_backward(*arguments, **options)
        expected = mutual_information_forward_backward(*arguments, **options)
        for actual, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-6)


CHECKS = {
    "mutual_information_forward": _check_mutual_information_forward,
    "mutual_information_backward": _check_mutual_information_backward,
    "mutual_information_forward_backward": _check_mutual_information_forward_backward,
}
