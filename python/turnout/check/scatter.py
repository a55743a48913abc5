"""The definitions of the scatter functions, and checks against them."""

from __future__ import annotations

import numpy as np

import turnout
from turnout.check.lanes import wide_type

__all__ = [
    "scatter_max",
    "scatter_max_backward",
    "scatter_mean",
    "scatter_mean_backward",
    "scatter_sum",
    "scatter_sum_backward",
]


def _groups(src, index, dim, dim_size):
    """Returns ``src`` with its rows first, and the rows of each group."""
    if dim_size is None:
        dim_size = int(index.max()) + 1 if len(index) else 0
    return np.moveaxis(src, dim, 0), [np.flatnonzero(index == g) for g in range(dim_size)]


def scatter_sum(src, index, dim=0, dim_size=None):
    """The definition of ``turnout.scatter_sum``."""
    rows, groups = _groups(src, index, dim, dim_size)
    wide = wide_type(src.dtype) if src.dtype.kind == "f" else src.dtype.type
    out = np.zeros((len(groups), *rows.shape[1:]), wide)
    with np.errstate(all="ignore"):
        for g, members in enumerate(groups):
            for i in members:
                out[g] += rows[i].astype(wide)
        return np.moveaxis(out.astype(src.dtype), 0, dim)


def scatter_mean(src, index, dim=0, dim_size=None):
    """The definition of ``turnout.scatter_mean``."""
    wide = wide_type(src.dtype)
    sums = np.moveaxis(scatter_sum(src.astype(wide), index, dim, dim_size), dim, 0)
    count = np.maximum(np.bincount(index, minlength=len(sums)), 1).astype(wide)
    with np.errstate(all="ignore"):
        means = sums / count.reshape(-1, *[1] * (sums.ndim - 1))
        return np.moveaxis(means.astype(src.dtype), 0, dim)


def scatter_max(src, index, dim=0, dim_size=None):
    """The definition of ``turnout.scatter_max``."""
    rows, groups = _groups(src, index, dim, dim_size)
    least = (np.finfo if src.dtype.kind == "f" else np.iinfo)(src.dtype).min
    out = np.full((len(groups), *rows.shape[1:]), least, src.dtype)
    argmax = np.full(out.shape, len(rows), np.int64)
    for g, members in enumerate(groups):
        for i in members:
            is_larger = rows[i] > out[g]  # false for NaN
            out[g] = np.where(is_larger, rows[i], out[g])
            argmax[g] = np.where(is_larger, i, argmax[g])
    out[argmax == len(rows)] = 0
    return np.moveaxis(out, 0, dim), np.moveaxis(argmax, 0, dim)


def scatter_sum_backward(grad_out, index):
    """The definition of ``turnout.scatter_sum_backward``."""
    return grad_out[index]


def scatter_mean_backward(grad_out, index):
    """The definition of ``turnout.scatter_mean_backward``."""
    wide = wide_type(grad_out.dtype)
    count = np.bincount(index, minlength=len(grad_out))[index].astype(wide)
    with np.errstate(all="ignore"):
        grads = grad_out[index].astype(wide) / count.reshape(-1, *[1] * (grad_out.ndim - 1))
        return grads.astype(grad_out.dtype)


def scatter_max_backward(grad_out, index, argmax):
    """The definition of ``turnout.scatter_max_backward``."""
    row = np.arange(len(index)).reshape(-1, *[1] * (grad_out.ndim - 1))
    return np.where(argmax[index] == row, grad_out[index], grad_out.dtype.type(0))


def _cases(rng: np.random.Generator):
    """Yields rows with equal elements and an index, sorted and not, that leaves some groups empty."""
    for index in (rng.integers(0, 12, 60), np.sort(rng.integers(0, 12, 60))):
        yield rng.integers(-3, 4, (60, 19)).astype(np.float32), index, 0, 15


def _same(actual, expected) -> None:
    if not isinstance(actual, tuple):
        actual, expected = (actual,), (expected,)
    for one, wanted in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, wanted)


def _check_scatter_sum(rng: np.random.Generator) -> None:
    for case in _cases(rng):
        _same(turnout.scatter_sum(*case), scatter_sum(*case))


def _check_scatter_mean(rng: np.random.Generator) -> None:
    for case in _cases(rng):
        _same(turnout.scatter_mean(*case), scatter_mean(*case))


def _check_scatter_max(rng: np.random.Generator) -> None:
    for case in _cases(rng):
        _same(turnout.scatter_max(*case), scatter_max(*case))


def _grads(rng: np.random.Generator):
    for src, index, _, groups in _cases(rng):
        yield rng.standard_normal((groups, src.shape[1])).astype(np.float32), index, src


def _check_scatter_sum_backward(rng: np.random.Generator) -> None:
    for grad, index, _ in _grads(rng):
        _same(turnout.scatter_sum_backward(grad, index), scatter_sum_backward(grad, index))


def _check_scatter_mean_backward(rng: np.random.Generator) -> None:
    for grad, index, _ in _grads(rng):
        _same(turnout.scatter_mean_backward(grad, index), scatter_mean_backward(grad, index))


def _check_scatter_max_backward(rng: np.random.Generator) -> None:
    for grad, index, src in _grads(rng):
        _, argmax = turnout.scatter_max(src, index, 0, len(grad))
        arguments = grad, index, argmax
        _same(turnout.scatter_max_backward(*arguments), scatter_max_backward(*arguments))


CHECKS = {
    "scatter_sum": _check_scatter_sum,
    "scatter_mean": _check_scatter_mean,
    "scatter_max": _check_scatter_max,
    "scatter_sum_backward": _check_scatter_sum_backward,
    "scatter_mean_backward": _check_scatter_mean_backward,
    "scatter_max_backward": _check_scatter_max_backward,
}
