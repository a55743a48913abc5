"""torch_scatter's names: ``turnout.compat.torch_scatter``.

Example:
    >>> from turnout.compat.torch_scatter import scatter_max
    >>> out, argmax = scatter_max(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 2, 0]), dim=0)
    >>> out.tolist(), argmax.tolist()  # group 1 has no rows; its argmax is 3, the number of rows
    ([[4.0], [0.0], [2.0]], [[2], [3], [1]])
"""

from __future__ import annotations

from typing import Any

import torch

from turnout import torch as own
from turnout.compat._install import Installation, missing
from turnout.torch.messages import own_messages

__all__ = [
    "gather_coo",
    "gather_csr",
    "install",
    "scatter",
    "scatter_add",
    "scatter_max",
    "scatter_mean",
    "scatter_min",
    "scatter_softmax",
    "scatter_sum",
    "segment_add_coo",
    "segment_add_csr",
    "segment_coo",
    "segment_csr",
    "segment_max_coo",
    "segment_max_csr",
    "segment_mean_coo",
    "segment_mean_csr",
    "segment_min_coo",
    "segment_min_csr",
    "segment_sum_coo",
    "segment_sum_csr",
    "uninstall",
]

__version__ = "2.1.2"  # the release that these functions follow


def _refuse_out(name: str, out: torch.Tensor | None) -> None:
    if out is not None:
        raise NotImplementedError(
            f"{name}: out is given, expected None: Turnout does not accumulate into it; combine the result "
            "with it instead"
        )


@own_messages()
def scatter_sum(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """:func:`turnout.torch.scatter_sum` with torch_scatter's arguments; ``out`` must be None."""
    _refuse_out("scatter_sum", out)
    return own.scatter_sum(src, index, dim, dim_size)


@own_messages()
def scatter_add(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """An alias of :func:`scatter_sum`."""
    _refuse_out("scatter_add", out)
    return own.scatter_sum(src, index, dim, dim_size)


@own_messages()
def scatter_mean(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """:func:`turnout.torch.scatter_mean` with torch_scatter's arguments; ``out`` must be None.

    The mean of integers is rounded down.
    """
    _refuse_out("scatter_mean", out)
    if src.is_floating_point():
        return own.scatter_mean(src, index, dim, dim_size)
    sums = own.scatter_sum(src, index, dim, dim_size)
    counts = own.scatter_sum(torch.ones_like(src), index, dim, sums.shape[dim])
    return sums.div(counts.clamp(min=1), rounding_mode="floor")


@own_messages()
def scatter_max(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`turnout.torch.scatter_max` with torch_scatter's arguments; ``out`` must be None."""
    _refuse_out("scatter_max", out)
    return own.scatter_max(src, index, dim, dim_size)


@own_messages()
def scatter_min(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`turnout.torch.scatter_min` with torch_scatter's arguments; ``out`` must be None."""
    _refuse_out("scatter_min", out)
    return own.scatter_min(src, index, dim, dim_size)


@own_messages()
def scatter_softmax(
    src: torch.Tensor, index: torch.Tensor, dim: int = -1, dim_size: int | None = None
) -> torch.Tensor:
    """:func:`turnout.torch.scatter_softmax` with torch_scatter's default of ``dim``."""
    return own.scatter_softmax(src, index, dim, dim_size)


def _refuse_reduce(name: str, reduce: str) -> None:
    expected = "'sum', 'add', 'mean', 'min' or 'max'"
    if reduce == "mul":
        raise NotImplementedError(f"{name}: reduce is '{reduce}', expected {expected}")
    if reduce not in ("sum", "add", "mean", "min", "max"):
        raise ValueError(f"{name}: reduce is {reduce!r}, expected {expected}")


@own_messages()
def scatter(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> torch.Tensor:
    """Reduces by 'sum' or 'add', 'mean', 'min' or 'max'. For 'min' and 'max', returns the values only."""
    _refuse_out("scatter", out)
    _refuse_reduce("scatter", reduce)
    if reduce == "mean":
        return scatter_mean(src, index, dim, None, dim_size)
    if reduce in ("min", "max"):
        extreme = own.scatter_min if reduce == "min" else own.scatter_max
        return extreme(src, index, dim, dim_size, return_arg=False)
    return own.scatter_sum(src, index, dim, dim_size)


# -- segments: consecutive rows ----------------------------------------------------------------------------


@own_messages()
def segment_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None, reduce: str = "sum"
) -> torch.Tensor:
    """:func:`turnout.torch.segment_csr` with torch_scatter's arguments; ``out`` must be None.

    Reduces by 'sum' or 'add', 'mean', 'min' or 'max'; the mean of integers is rounded down.
    """
    _refuse_out("segment_csr", out)
    _refuse_reduce("segment_csr", reduce)
    return _segment_csr(src, indptr, reduce)


def _bounds(indptr: torch.Tensor) -> torch.Tensor:
    """``indptr``, or that of no segments if it is empty, which torch_scatter accepts."""
    is_empty = indptr.dim() > 0 and indptr.shape[-1] == 0
    return indptr.new_zeros((*indptr.shape[:-1], 1)) if is_empty else indptr


def _segment_csr(src: torch.Tensor, indptr: torch.Tensor, reduce: str) -> torch.Tensor:
    kind: Any = "sum" if reduce == "add" else reduce
    indptr = _bounds(indptr)
    if kind != "mean" or src.is_floating_point():
        return own.segment_csr(src, indptr, kind)
    sums = own.segment_csr(src, indptr)
    counts = indptr.diff(dim=-1).clamp(min=1)
    counts = counts.reshape(*counts.shape, *[1] * (sums.dim() - counts.dim()))
    return sums.div(counts, rounding_mode="floor").to(src.dtype)


@own_messages()
def segment_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> torch.Tensor:
    """:func:`turnout.torch.segment_coo` with torch_scatter's arguments; ``out`` must be None."""
    _refuse_out("segment_coo", out)
    _refuse_reduce("segment_coo", reduce)
    return _segment_coo(src, index, dim_size, reduce)


def _segment_coo(src: torch.Tensor, index: torch.Tensor, dim_size: int | None, reduce: str) -> torch.Tensor:
    if reduce == "mean":
        return scatter_mean(src, index, max(index.dim() - 1, 0), None, dim_size)
    kind: Any = "sum" if reduce == "add" else reduce
    return own.segment_coo(src, index, dim_size, kind)


def _csr(name: str, reduce: Any) -> Any:
    """A function ``segment_<reduce>_csr``; those of minima and maxima return their rows, too."""

    @own_messages(name)
    def function(src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None) -> Any:
        _refuse_out(name, out)
        if reduce in ("min", "max"):
            return own.segment_csr(src, _bounds(indptr), reduce, return_arg=True)
        return _segment_csr(src, indptr, reduce)

    return _named(function, name, f":func:`segment_csr` with reduce='{reduce}'", reduce)


def _coo(name: str, reduce: Any) -> Any:
    """A function ``segment_<reduce>_coo``; those of minima and maxima return their rows, too."""

    @own_messages(name)
    def function(
        src: torch.Tensor,
        index: torch.Tensor,
        out: torch.Tensor | None = None,
        dim_size: int | None = None,
    ) -> Any:
        _refuse_out(name, out)
        if reduce in ("min", "max"):
            both = own.scatter_min if reduce == "min" else own.scatter_max
            return both(src, index, max(index.dim() - 1, 0), dim_size)
        return _segment_coo(src, index, dim_size, reduce)

    return _named(function, name, f":func:`segment_coo` with reduce='{reduce}'", reduce)


def _named(function: Any, name: str, meaning: str, reduce: str) -> Any:
    function.__name__ = function.__qualname__ = name
    rows = "; returns also the rows, or the number of rows for none" if reduce in ("min", "max") else ""
    function.__doc__ = f"{meaning}{rows}. ``out`` must be None."
    return function


segment_sum_csr = _csr("segment_sum_csr", "sum")
segment_add_csr = _csr("segment_add_csr", "sum")
segment_mean_csr = _csr("segment_mean_csr", "mean")
segment_min_csr = _csr("segment_min_csr", "min")
segment_max_csr = _csr("segment_max_csr", "max")
segment_sum_coo = _coo("segment_sum_coo", "sum")
segment_add_coo = _coo("segment_add_coo", "sum")
segment_mean_coo = _coo("segment_mean_coo", "mean")
segment_min_coo = _coo("segment_min_coo", "min")
segment_max_coo = _coo("segment_max_coo", "max")


@own_messages()
def gather_csr(src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """:func:`turnout.torch.gather_csr` with torch_scatter's arguments; ``out`` must be None."""
    _refuse_out("gather_csr", out)
    return own.gather_csr(src, _bounds(indptr))


@own_messages()
def gather_coo(src: torch.Tensor, index: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """:func:`turnout.torch.gather_coo` with torch_scatter's arguments; ``out`` must be None."""
    _refuse_out("gather_coo", out)
    return own.gather_coo(src, index)


# -- in torch_scatter's place ------------------------------------------------------------------------------

_functions: dict[str, Any] = {
    name: globals()[name] for name in __all__ if name not in ("install", "uninstall")
}
_MISSING = ("scatter_mul", "scatter_std", "scatter_logsumexp", "scatter_log_softmax")


__getattr__ = missing("torch_scatter", _MISSING, ", ".join(_functions))


def _attribute(name: str) -> Any:
    """Returns the other attributes of the stand-in module."""
    return __version__ if name == "__version__" else __getattr__(name)


install, uninstall = Installation(
    "torch_scatter", {"torch_scatter": _functions}, getattr=_attribute
).functions("from torch_scatter import scatter_max")
