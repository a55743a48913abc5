"""Sums, means, maxima, minima and softmax of groups of rows, as torch operators with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, overload

import torch

from turnout.torch.messages import own_messages
from turnout.torch.registration import gradient

__all__ = ["scatter_max", "scatter_mean", "scatter_min", "scatter_softmax", "scatter_sum"]

_sum = torch.ops.turnout.scatter_sum.default
_mean = torch.ops.turnout.scatter_mean.default
_max = torch.ops.turnout.scatter_max.default
_min = torch.ops.turnout.scatter_min.default
_sum_backward = torch.ops.turnout.scatter_sum_backward.default
_mean_backward = torch.ops.turnout.scatter_mean_backward.default
_max_backward = torch.ops.turnout.scatter_max_backward.default


# Each of sum and mean is the derivative of its own gradient.


@gradient("scatter_sum", of="src", saves="index")
def _(saved, grad):
    return {"src": _sum_backward(grad, saved.index)}


@gradient("scatter_sum_backward", of="grad_out", saves="grad_out index")
def _(saved, grad):
    return {"grad_out": _sum(grad, saved.index, saved.grad_out.shape[0])}


@gradient("scatter_mean", of="src", saves="index")
def _(saved, grad):
    return {"src": _mean_backward(grad, saved.index)}


@gradient("scatter_mean_backward", of="grad_out", saves="grad_out index")
def _(saved, grad):
    return {"grad_out": _mean(grad, saved.index, saved.grad_out.shape[0])}


# The gradient of a minimum goes to the row of argmin, as that of a maximum goes to the row of argmax. If the
# call did not return these rows, a second call finds them.
def _extreme_gradient(name: str, arg: str) -> None:
    op = getattr(torch.ops.turnout, name).default
    saves = {True: f"index {arg}", False: "src index"}

    @gradient(name, of="src", saves=saves, by="return_arg", constant=arg, materialize=False)
    def _(saved, grad, _):
        if grad is None:
            return {}
        rows = getattr(saved, arg)
        if not saved.return_arg:
            with torch.no_grad():
                rows = op(saved.src, saved.index, grad.shape[0], True)[1]
        return {"src": _max_backward(grad, saved.index, rows)}


_extreme_gradient("scatter_max", "argmax")
_extreme_gradient("scatter_min", "argmin")


@gradient("scatter_max_backward", of="grad_out", saves="grad_out index argmax")
def _(saved, grad):
    grad_out, index = saved.grad_out, saved.index
    with torch.no_grad():
        is_taken = _max_backward(torch.ones_like(grad_out), index, saved.argmax) != 0
    return {"grad_out": _sum(torch.where(is_taken, grad, 0), index, grad_out.shape[0])}


# -- functions on tensors of any rank ----------------------------------------------------------------------


def _normal_dim(name: str, src: torch.Tensor, dim: int) -> int:
    if not isinstance(dim, int):
        raise TypeError(f"{name}: dim is of type {type(dim).__name__}, expected an integer")
    rank = src.dim()
    if not -rank <= dim < rank:
        raise ValueError(
            f"{name}: dim is {dim}, expected {-rank} .. {rank - 1}"
            if rank
            else f"{name}: src has 0 dimensions, expected at least 1"
        )
    return dim % rank


def _expanded(name: str, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """Expands the index to the shape of ``src``; it may lack trailing dimensions or have extents of 1."""
    missing = src.dim() - index.dim()
    given = index.reshape(index.shape + (1,) * missing) if missing > 0 else index
    if missing < 0 or any(n not in (1, m) for n, m in zip(given.shape, src.shape, strict=True)):
        raise ValueError(
            f"{name}: index has the shape {list(index.shape)}, expected one dimension, or a shape that "
            f"expands to that of src, {list(src.shape)}"
        )
    return given.expand(src.shape)


def _refuse_outside(name: str, index: torch.Tensor, groups: int) -> None:
    outside = (index < 0) | (index >= groups)
    if outside.any():
        position = outside.nonzero()[0].tolist()
        value = index[tuple(position)].item()
        raise ValueError(
            f"{name}: index[{', '.join(map(str, position))}] is {value}, expected 0 .. {groups - 1}"
        )


def _reduced(name: str, op: Callable, src, index, dim, dim_size):
    """Applies ``op``, which reduces rows by one index each, to ``src`` along ``dim``."""
    if index.dim() == 1 and dim == 0:
        return op(src, index, dim_size)
    dim = _normal_dim(name, src, dim)
    if index.dim() == 1:  # swapping two dimensions takes half the time of movedim
        results = op(src.transpose(0, dim), index, dim_size)
        if type(results) is not tuple:
            return results.transpose(0, dim)
        return tuple([result.transpose(0, dim) for result in results])
    rows = src.movedim(dim, 0)
    index = _expanded(name, index, src)
    others = [d for d in range(src.dim()) if d != dim]
    if any(src.shape[d] > 1 and index.stride(d) != 0 for d in others) or 0 in rows.shape[1:]:
        results = _reduced_one_by_one(name, op, rows, index, dim, dim_size)
    else:
        for d in reversed(others):
            index = index.select(d, 0)
        results = op(rows, index, dim_size)
    if isinstance(results, tuple):
        return tuple(result.movedim(0, dim) for result in results)
    return results.movedim(0, dim)


def _reduced_one_by_one(name: str, op: Callable, rows, index, dim, dim_size):
    """Reduces with one index per element: each element is a row, and groups are numbered per column."""
    shape = rows.shape[1:]
    rows = rows.flatten(1) if rows.dim() > 1 else rows.unsqueeze(1)
    channels = rows.shape[1]
    if dim_size is None:
        dim_size = int(index.max()) + 1 if index.numel() else 0
    if not torch.compiler.is_compiling():
        _refuse_outside(name, index, dim_size)
    columns = index.movedim(dim, 0).reshape(rows.shape) * channels
    columns = columns + torch.arange(channels, dtype=index.dtype, device=index.device)
    results = op(rows.reshape(-1, 1), columns.reshape(-1), dim_size * channels)
    shape = (dim_size, *shape)
    if isinstance(results, tuple):
        out, argmax = results
        return out.reshape(shape), argmax.reshape(shape).div(max(channels, 1), rounding_mode="floor")
    return results.reshape(shape)


def _extremes(name: str, op: Callable, src, index, dim, dim_size, return_arg: bool):
    # A recorded gradient needs the rows, too.
    with_arg = return_arg or (src.requires_grad and torch.is_grad_enabled())

    def reduce(rows, index, dim_size):
        results = op(rows, index, dim_size, with_arg)
        return results if return_arg else results[0]

    return _reduced(name, reduce, src, index, dim, dim_size)


@own_messages()
def scatter_sum(
    src: torch.Tensor, index: torch.Tensor, dim: int = 0, dim_size: int | None = None
) -> torch.Tensor:
    """The sum of the rows of each group, those with an equal index.

    The definition is that of :func:`turnout.scatter_sum`: a group without rows is 0, and there are
    ``dim_size`` groups, by default the maximum of ``index`` + 1. ``index`` has one dimension, for the
    dimension ``dim`` of ``src``, or a shape that expands to that of ``src`` as in torch_scatter; it is slower
    if it differs between the elements of a row. Tensors may be strided. ``src`` has gradients of any order.

    Without ``dim_size`` the number of groups is a data-dependent size, which some releases of torch compile
    only with ``torch._dynamo.config.capture_dynamic_output_shape_ops = True``.

    Example:
        >>> src = torch.tensor([[1.0, 9.0], [2.0, 8.0], [4.0, 0.0]], requires_grad=True)
        >>> index = torch.tensor([0, 2, 0])
        >>> turnout.torch.scatter_sum(src, index).tolist()  # group 1 has no rows
        [[5.0, 9.0], [0.0, 0.0], [2.0, 8.0]]
    """
    return _reduced("scatter_sum", _sum, src, index, dim, dim_size)


@own_messages()
def scatter_mean(
    src: torch.Tensor, index: torch.Tensor, dim: int = 0, dim_size: int | None = None
) -> torch.Tensor:
    """The mean of the rows of each group; arguments and gradients are those of :func:`scatter_sum`.

    The definition is that of :func:`turnout.scatter_mean`; a group without rows is 0.

    Example:
        >>> src = torch.tensor([[1.0, 9.0], [2.0, 8.0], [4.0, 0.0]], requires_grad=True)
        >>> index = torch.tensor([0, 2, 0])
        >>> mean = turnout.torch.scatter_mean(src, index, dim_size=4)
        >>> mean.tolist()
        [[2.5, 4.5], [0.0, 0.0], [2.0, 8.0], [0.0, 0.0]]
        >>> mean.sum().backward()
        >>> src.grad.tolist()
        [[0.5, 0.5], [1.0, 1.0], [0.5, 0.5]]
    """
    return _reduced("scatter_mean", _mean, src, index, dim, dim_size)


@overload
def scatter_max(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = 0,
    dim_size: int | None = None,
    return_arg: Literal[True] = True,
) -> tuple[torch.Tensor, torch.Tensor]: ...
@overload
def scatter_max(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = 0,
    dim_size: int | None = None,
    *,
    return_arg: Literal[False],
) -> torch.Tensor: ...
@own_messages()
def scatter_max(
    src: torch.Tensor, index: torch.Tensor, dim: int = 0, dim_size: int | None = None, return_arg: bool = True
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """The maximum of each group, and the rows it comes from; arguments are those of :func:`scatter_sum`.

    Returns out and argmax, int64, or only out without ``return_arg``, which takes less time. The
    definition is that of :func:`turnout.scatter_max`: the first of equal rows counts; where nothing is
    larger than the lowest finite number, as in a group without rows, out is 0 and argmax is
    ``src.shape[dim]``. The whole gradient goes to the row of argmax.

    Example:
        >>> src = torch.tensor([[1.0, 9.0], [2.0, 8.0], [4.0, 0.0]], requires_grad=True)
        >>> index = torch.tensor([0, 2, 0])
        >>> out, argmax = turnout.torch.scatter_max(src, index)
        >>> out.tolist(), argmax.tolist()  # 3, the number of rows, means none
        ([[4.0, 9.0], [0.0, 0.0], [2.0, 8.0]], [[2, 0], [3, 3], [1, 1]])
    """
    return _extremes("scatter_max", _max, src, index, dim, dim_size, return_arg)


@overload
def scatter_min(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = 0,
    dim_size: int | None = None,
    return_arg: Literal[True] = True,
) -> tuple[torch.Tensor, torch.Tensor]: ...
@overload
def scatter_min(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = 0,
    dim_size: int | None = None,
    *,
    return_arg: Literal[False],
) -> torch.Tensor: ...
@own_messages()
def scatter_min(
    src: torch.Tensor, index: torch.Tensor, dim: int = 0, dim_size: int | None = None, return_arg: bool = True
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """The minimum of each group, and the rows it comes from; arguments are those of :func:`scatter_sum`.

    Returns out and argmin, int64, or only out without ``return_arg``, which takes less time. The
    definition is that of :func:`turnout.scatter_min`: the first of equal rows counts; where nothing is
    smaller than the greatest finite number, as in a group without rows, out is 0 and argmin is
    ``src.shape[dim]``. The whole gradient goes to the row of argmin.

    Example:
        >>> src = torch.tensor([[1.0, 9.0], [2.0, 8.0], [4.0, 0.0]], requires_grad=True)
        >>> index = torch.tensor([0, 2, 0])
        >>> out, argmin = turnout.torch.scatter_min(src, index)
        >>> out.tolist(), argmin.tolist()  # 3, the number of rows, means none
        ([[1.0, 0.0], [0.0, 0.0], [2.0, 8.0]], [[0, 2], [3, 3], [1, 1]])
    """
    return _extremes("scatter_min", _min, src, index, dim, dim_size, return_arg)


@own_messages()
def scatter_softmax(
    src: torch.Tensor, index: torch.Tensor, dim: int = 0, dim_size: int | None = None
) -> torch.Tensor:
    """The softmax over the rows of each group: ``exp(src - max) / sum``, with the shape of ``src``.

    Arguments are those of :func:`scatter_sum`; ``src`` has floating-point numbers and gradients of any order.

    Example:
        >>> src = torch.tensor([0.0, 2.0, 0.0])
        >>> turnout.torch.scatter_softmax(src, torch.tensor([0, 2, 0])).tolist()
        [0.5, 1.0, 0.5]
    """
    if not src.is_floating_point():
        dtype = str(src.dtype).removeprefix("torch.")
        raise TypeError(f"scatter_softmax: src has dtype {dtype}, expected floating-point numbers")
    dim = _normal_dim("scatter_softmax", src, dim)
    if index.dim() == 1 and src.dim() > 1:  # the index of dimension `dim`
        index = index.reshape([-1 if d == dim else 1 for d in range(src.dim())])
    with torch.no_grad():  # the result does not depend on what is subtracted
        largest = scatter_max(src, index, dim, dim_size, return_arg=False)
    where = _expanded("scatter_softmax", index, src).long()
    powers = (src - largest.gather(dim, where)).exp()
    return powers / scatter_sum(powers, index, dim, largest.shape[dim]).gather(dim, where)
