"""Reduces rows by an index: sums, means, maxima and minima of groups, with the results of torch_scatter."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, overload

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import Array, Int, R, Source

__all__ = [
    "scatter_max",
    "scatter_max_backward",
    "scatter_mean",
    "scatter_mean_backward",
    "scatter_min",
    "scatter_sum",
    "scatter_sum_backward",
]


def scatter_sum(
    src: Source[R], index: Array, dim: Int = 0, dim_size: Int | None = None, *, out: R | None = None
) -> R:
    """The sum of the rows of each group.

    ::

        out[g] = 0 + src[i] + ..        over all i with index[i] == g, ascending

    A group without rows is 0. Integers wrap around; 16-bit floats are added in float32 and rounded once.
    Results have the same bits for any number of threads. The index may be in any order; an ascending one is
    faster.

    Arrays must be in CPU memory. Inputs may be read-only or strided (strided ones are copied first); ``out``
    must be contiguous. A failing call writes nothing.

    Args:
        src: ``[rows, ...]`` for ``dim`` 0; float32, float64, float16, bfloat16, int32 or int64.
        index: ``[rows]``, int32 or int64, each 0 or more: the group of each row.
        dim: the dimension of ``src`` that ``index`` applies to.
        dim_size: the number of groups; None means the maximum of ``index`` + 1.
        out: the array to write to, for ``dim`` 0; without ``dim_size``, its rows are the number of groups.

    Returns:
        out: the shape of ``src`` with the groups in dimension ``dim``, dtype of ``src``: ``out`` or a new
        array, a torch tensor if ``src`` is one, otherwise a NumPy array.

    Raises:
        ValueError: an argument has an invalid shape, dtype or value, or an index is out of range; the message
            names the first one.
        TypeError: an argument is not an array or an integer where one is expected.

    Example:
        >>> src = np.array([[1.0, 9.0], [2.0, 8.0], [4.0, 0.0]], np.float32)
        >>> index = np.array([0, 2, 0])
        >>> turnout.scatter_sum(src, index).tolist()  # group 1 has no rows
        [[5.0, 9.0], [0.0, 0.0], [2.0, 8.0]]
    """
    result: R = _reduced("scatter_sum", _core.scatter_sum, src, index, dim, dim_size, out)
    return result


def scatter_mean(
    src: Source[R], index: Array, dim: Int = 0, dim_size: Int | None = None, *, out: R | None = None
) -> R:
    """The mean of the rows of each group: :func:`scatter_sum`, divided by the number of rows.

    A group without rows is 0. ``src`` is float32, float64, float16 or bfloat16.

    Example:
        >>> src = np.array([[1.0, 9.0], [2.0, 8.0], [4.0, 0.0]], np.float32)
        >>> index = np.array([0, 2, 0])
        >>> turnout.scatter_mean(src, index, dim_size=4).tolist()
        [[2.5, 4.5], [0.0, 0.0], [2.0, 8.0], [0.0, 0.0]]
    """
    result: R = _reduced("scatter_mean", _core.scatter_mean, src, index, dim, dim_size, out)
    return result


@overload
def scatter_max(
    src: Source[R],
    index: Array,
    dim: Int = 0,
    dim_size: Int | None = None,
    return_arg: Literal[True] = True,
    *,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]: ...
@overload
def scatter_max(
    src: Source[R],
    index: Array,
    dim: Int = 0,
    dim_size: Int | None = None,
    *,
    return_arg: Literal[False],
    out: R | None = None,
) -> R: ...
def scatter_max(
    src: Source[R],
    index: Array,
    dim: Int = 0,
    dim_size: Int | None = None,
    return_arg: bool = True,
    *,
    out: R | tuple[R | None, R | None] | None = None,
) -> R | tuple[R, R]:
    """The elementwise maximum of the rows of each group, and the rows that it comes from.

    ::

        out[g, c] = the largest src[i, c] over all i with index[i] == g
        argmax[g, c] = its i, the first of equal ones

    As in torch_scatter, the maximum starts at the lowest finite number of the dtype and only larger values
    replace it, so NaN and -inf are never taken. Where nothing is taken, as in a group without rows, ``out``
    is 0 and ``argmax`` is ``src.shape[dim]``.

    Arguments are those of :func:`scatter_sum`; ``out`` is a tuple of ``out`` and ``argmax``, with None to
    allocate one. Without ``return_arg`` the call finds the maxima only, which takes less time; ``out`` and
    the result are then a single array.

    Returns:
        out: as for :func:`scatter_sum`.
        argmax: with ``return_arg``, the same shape, int64.

    Example:
        >>> src = np.array([[1.0, 9.0], [2.0, 8.0], [4.0, 0.0]], np.float32)
        >>> index = np.array([0, 2, 0])
        >>> out, argmax = turnout.scatter_max(src, index)
        >>> out.tolist(), argmax.tolist()  # 3, the number of rows, means none
        ([[4.0, 9.0], [0.0, 0.0], [2.0, 8.0]], [[2, 0], [3, 3], [1, 1]])
    """
    function = _core.scatter_max
    result: R | tuple[R, R] = _extremes("scatter_max", function, src, index, dim, dim_size, return_arg, out)
    return result


@overload
def scatter_min(
    src: Source[R],
    index: Array,
    dim: Int = 0,
    dim_size: Int | None = None,
    return_arg: Literal[True] = True,
    *,
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]: ...
@overload
def scatter_min(
    src: Source[R],
    index: Array,
    dim: Int = 0,
    dim_size: Int | None = None,
    *,
    return_arg: Literal[False],
    out: R | None = None,
) -> R: ...
def scatter_min(
    src: Source[R],
    index: Array,
    dim: Int = 0,
    dim_size: Int | None = None,
    return_arg: bool = True,
    *,
    out: R | tuple[R | None, R | None] | None = None,
) -> R | tuple[R, R]:
    """The elementwise minimum of the rows of each group, and the rows that it comes from.

    It mirrors :func:`scatter_max`: the minimum starts at the greatest finite number of the dtype and only
    smaller values replace it, so NaN and inf are never taken. Where nothing is taken, as in a group without
    rows, ``out`` is 0 and ``argmin`` is ``src.shape[dim]``. :func:`scatter_max_backward` with ``argmin`` is
    its gradient.

    Returns:
        out: as for :func:`scatter_sum`.
        argmin: with ``return_arg``, the same shape, int64.

    Example:
        >>> src = np.array([[1.0, 9.0], [2.0, 8.0], [4.0, 0.0]], np.float32)
        >>> index = np.array([0, 2, 0])
        >>> out, argmin = turnout.scatter_min(src, index)
        >>> out.tolist(), argmin.tolist()  # 3, the number of rows, means none
        ([[1.0, 0.0], [0.0, 0.0], [2.0, 8.0]], [[0, 2], [3, 3], [1, 1]])
    """
    function = _core.scatter_min
    result: R | tuple[R, R] = _extremes("scatter_min", function, src, index, dim, dim_size, return_arg, out)
    return result


def _reduced(
    name: str, function: Callable[..., Any], src: Any, index: Array, dim: Int, dim_size: Int | None, out: Any
) -> Any:
    if type(dim) is int and dim == 0:
        return function(src, index, dim_size, out)
    try:
        wanted = operator.index(dim)
    except TypeError:
        raise TypeError(f"{name}: dim is of type {type(dim).__name__}, expected an integer") from None
    rank = len(src.shape) if hasattr(src, "shape") else 0
    if rank == 0:
        return function(src, index, dim_size, out)  # raises the error about src
    if not -rank <= wanted < rank:
        raise ValueError(f"{name}: dim is {wanted}, expected {-rank} .. {rank - 1}")
    if wanted % rank == 0:
        return function(src, index, dim_size, out)
    if out is not None:
        raise ValueError(f"{name}: out is given with dim = {wanted}, expected dim = 0 with it")
    results = function(_moved(src, wanted, 0), index, dim_size)
    if isinstance(results, tuple):
        return tuple(_moved(result, 0, wanted) for result in results)
    return _moved(results, 0, wanted)


def _extremes(
    name: str,
    function: Callable[..., Any],
    src: Any,
    index: Array,
    dim: Int,
    dim_size: Int | None,
    return_arg: bool,
    out: Any,
) -> Any:
    if return_arg:
        return _reduced(
            name, lambda s, i, n, o=None: function(s, i, n, True, o), src, index, dim, dim_size, out
        )

    def values(src: Any, index: Array, dim_size: Int | None, out: Any = None) -> Any:
        return function(src, index, dim_size, False, None if out is None else (out,))[0]

    return _reduced(name, values, src, index, dim, dim_size, out)


def _moved(array: Any, source: int, destination: int) -> Any:
    if hasattr(array, "movedim"):  # a torch tensor
        return array.movedim(source, destination)
    import numpy as np  # here, so that importing turnout does not import NumPy

    return np.moveaxis(np.asarray(array), source, destination)


def scatter_sum_backward(grad_out: Source[R], index: Array, *, out: R | None = None) -> R:
    """The gradient of :func:`scatter_sum` with respect to ``src``, for ``dim`` 0.

    ``grad_src[i] = grad_out[index[i]]`` for each row of ``index``. ``grad_out`` is float32, float64, float16
    or bfloat16.

    Example:
        >>> grad = np.array([[0.5], [0.25], [2.0]], np.float32)
        >>> turnout.scatter_sum_backward(grad, np.array([0, 2, 0])).tolist()
        [[0.5], [2.0], [0.5]]
    """
    result: R = _core.scatter_sum_backward(grad_out, index, out)
    return result


def scatter_mean_backward(grad_out: Source[R], index: Array, *, out: R | None = None) -> R:
    """The gradient of :func:`scatter_mean` with respect to ``src``, for ``dim`` 0.

    ``grad_src[i] = grad_out[g] / n``, where g is ``index[i]`` and n is the number of rows of that group.

    Example:
        >>> grad = np.array([[0.5], [0.25], [2.0]], np.float32)
        >>> turnout.scatter_mean_backward(grad, np.array([0, 2, 0])).tolist()
        [[0.25], [2.0], [0.25]]
    """
    result: R = _core.scatter_mean_backward(grad_out, index, out)
    return result


def scatter_max_backward(grad_out: Source[R], index: Array, argmax: Array, *, out: R | None = None) -> R:
    """The gradient of :func:`scatter_max` with respect to ``src``, for ``dim`` 0.

    ``grad_src[i, c] = grad_out[g, c]`` where g is ``index[i]`` and ``argmax[g, c]`` is i, otherwise 0.

    Example:
        >>> src = np.array([[1.0, 9.0], [2.0, 8.0], [4.0, 0.0]], np.float32)
        >>> index = np.array([0, 2, 0])
        >>> _, argmax = turnout.scatter_max(src, index)
        >>> turnout.scatter_max_backward(np.ones((3, 2), np.float32), index, argmax).tolist()
        [[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]
    """
    result: R = _core.scatter_max_backward(grad_out, index, argmax, out)
    return result
