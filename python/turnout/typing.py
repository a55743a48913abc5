"""The types of arguments and results, for type checkers; nothing here runs when Turnout is imported.

A function that makes new arrays makes them like one of its arguments, its source: torch tensors for torch
tensors, NumPy arrays for everything else. A tensor is known by its ``contiguous()``, without an import of
torch.

Example:
    >>> from turnout.typing import Array
    >>> def group_sizes(index: Array) -> Array:
    ...     return turnout.scatter_sum(np.ones((3, 1), np.int32), index)
    ...
    >>> group_sizes(np.array([0, 2, 0])).ravel().tolist()
    [2, 0, 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsFloat, SupportsIndex, TypeVar

import numpy as np

__all__ = [
    "Array",
    "ArrayApiObject",
    "Int",
    "Ints",
    "NumPyArray",
    "Numbers",
    "Source",
    "SupportsDLPack",
    "TorchTensor",
]

T_co = TypeVar("T_co", covariant=True)


class SupportsDLPack(Protocol):
    """An array of a library that speaks DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class ArrayApiObject(SupportsDLPack, Protocol):
    """An array of the Python array API standard, such as that of JAX."""

    def __array_namespace__(self, *args: Any, **kwargs: Any) -> Any: ...


class TorchTensor(SupportsDLPack, Protocol[T_co]):
    """A torch tensor, or one of a subclass: ``T_co``, which ``contiguous()`` returns, is ``torch.Tensor``."""

    def contiguous(self) -> T_co: ...


NumPyArray = np.ndarray[Any, Any]
Array = NumPyArray | SupportsDLPack

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # What a function returns: the kind of its source, or the type of an `out` that is given.
    R = TypeVarWithDefault("R", bound=Array, default=NumPyArray)
    R2 = TypeVarWithDefault("R2", bound=Array, default=NumPyArray)
    R3 = TypeVarWithDefault("R3", bound=Array, default=NumPyArray)
else:
    R = TypeVar("R")

# No SupportsDLPack: a tensor would be one as well, and mypy would not know which kind the result has.
Source = NumPyArray | ArrayApiObject | TorchTensor[R]

Int = SupportsIndex
Ints = SupportsIndex | Sequence[SupportsIndex] | NumPyArray  # one for all dimensions, or one for each
Numbers = Sequence[SupportsFloat] | Array

ReduceType = Literal["max", "mean", "sum"]
Activation = Literal["tanh", "relu", "none"]
ExpertActivation = Literal["silu", "gelu", "gelu_tanh", "relu", "swigluoai"]
PoolInit = Literal["zero", "lowest"]
IouMode = Literal["iou", "iof"]
BoxZ = Literal["center", "bottom"]
PruneScore = Literal["flow", "steps"]
