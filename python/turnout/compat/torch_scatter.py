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
    "install",
    "scatter",
    "scatter_add",
    "scatter_max",
    "scatter_mean",
    "scatter_sum",
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
def scatter(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> torch.Tensor:
    """Reduces by 'sum' or 'add', 'mean' or 'max'. For 'max', returns the values only."""
    _refuse_out("scatter", out)
    if reduce in ("sum", "add"):
        return own.scatter_sum(src, index, dim, dim_size)
    if reduce == "mean":
        return scatter_mean(src, index, dim, None, dim_size)
    if reduce == "max":
        return own.scatter_max(src, index, dim, dim_size)[0]
    if reduce in ("min", "mul"):
        raise NotImplementedError(f"scatter: reduce is '{reduce}', expected 'sum', 'add', 'mean' or 'max'")
    raise ValueError(f"scatter: reduce is {reduce!r}, expected 'sum', 'add', 'mean' or 'max'")


# -- in torch_scatter's place ------------------------------------------------------------------------------

_functions: dict[str, Any] = {
    f.__name__: f for f in (scatter, scatter_add, scatter_max, scatter_mean, scatter_sum)
}
_REDUCTIONS = ("add", "sum", "mean", "min", "max")
_MISSING = (
    *("scatter_min", "scatter_mul", "scatter_std", "scatter_logsumexp", "scatter_softmax"),
    *("scatter_log_softmax", "segment_csr", "segment_coo", "gather_csr", "gather_coo"),
    *(f"segment_{reduction}_{kind}" for reduction in _REDUCTIONS for kind in ("csr", "coo")),
)


__getattr__ = missing("torch_scatter", _MISSING, ", ".join(_functions))


def _attribute(name: str) -> Any:
    """Returns the other attributes of the stand-in module."""
    return __version__ if name == "__version__" else __getattr__(name)


install, uninstall = Installation(
    "torch_scatter", {"torch_scatter": _functions}, getattr=_attribute
).functions("from torch_scatter import scatter_max")
