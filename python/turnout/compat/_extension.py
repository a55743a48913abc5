"""Compiled modules of other packages: tables of their functions, devices, and checks of their arguments."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

# A function of a compiled module; None: Turnout does not have it.
Table = Mapping[str, Callable[..., Any] | None]
# Finds the function of that name in the compiled module; None: there is no compiled module.
Original = Callable[[str], Callable[..., Any] | None]


def functions_of(module: str, table: Table, original: Original, hint: str) -> dict[str, Callable[..., Any]]:
    """All functions of a stand-in for a compiled module.

    A call with a tensor that is not on the CPU goes to the compiled module. A function that Turnout does not
    have raises NotImplementedError when it is called.

    Args:
        module: the name of the module, for messages.
        original: looked up when the first such call arrives.
        hint: the end of the message about a function that Turnout does not have.
    """
    return {name: _dispatching(module, name, function, original, hint) for name, function in table.items()}


def _dispatching(
    module: str, name: str, function: Callable[..., Any] | None, original: Original, hint: str
) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        for value in (*arguments, *options.values()):
            if isinstance(value, torch.Tensor) and value.device.type != "cpu":
                compiled = original(name)
                if compiled is None:
                    raise NotImplementedError(
                        f"{name}: a tensor is on {value.device}, expected the CPU: {module} is not compiled"
                    )
                return compiled(*arguments, **options)
        if function is None:
            raise NotImplementedError(f"{name}: Turnout does not have this function of {module}; {hint}")
        return function(*arguments, **options)

    if function is not None:
        functools.update_wrapper(call, function)
    call.__name__ = call.__qualname__ = name
    return call


class Checks:
    """Checks the arguments of one call: types raise TypeError, shapes and sizes ValueError.

    Args:
        function: its name, for messages.
        sizes: those that are given as numbers. A tensor must agree with them.
    """

    def __init__(self, function: str, **sizes: Any) -> None:
        self._function = function
        self._sizes = {}
        for name, value in sizes.items():
            try:
                self._sizes[name] = operator.index(value)
            except TypeError:
                raise TypeError(
                    f"{function}: {name} is of type {type(value).__name__}, expected an integer"
                ) from None

    def tensor(self, name: str, value: Any, dims: str, *dtypes: torch.dtype) -> torch.Tensor:
        """The tensor, detached; ``dims`` are numbers and names of sizes, as in "N 7"."""
        if not isinstance(value, torch.Tensor):
            raise TypeError(
                f"{self._function}: {name} is of type {type(value).__name__}, expected a torch.Tensor"
            )
        if value.dtype not in dtypes:
            expected = " or ".join(_plain(dtype) for dtype in dtypes)
            raise TypeError(f"{self._function}: {name} is {_plain(value.dtype)}, expected {expected}")
        wanted = dims.split()
        if value.dim() == len(wanted):
            for dim, extent in zip(wanted, value.shape, strict=True):
                if not dim.isdecimal():
                    self._sizes.setdefault(dim, extent)
        sizes = [self._size(dim) for dim in wanted]
        if list(value.shape) != sizes:
            shape = ", ".join("any" if size is None else str(size) for size in sizes)
            raise ValueError(
                f"{self._function}: {name} has shape {list(value.shape)}, expected [{shape}]: "
                f"[{', '.join(wanted)}]"
            )
        return value.detach()

    def size(self, name: str, value: int) -> None:
        """Sets a size that values determine."""
        self._sizes[name] = value

    def _size(self, dim: str) -> int | None:
        return int(dim) if dim.isdecimal() else self._sizes.get(dim)


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Geometry of 16 bits as float32, which is exact."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
