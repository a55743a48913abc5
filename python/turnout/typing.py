"""Types of arguments and results, for type checkers. Importing Turnout does not run this code.

A function that makes new arrays makes them like one of its arguments, its source: torch tensors for torch
tensors, and NumPy arrays for anything else. A type with a ``contiguous()`` method counts as a torch tensor,
so torch need not be imported.

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
    """An array of a library that supports DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class ArrayApiObject(SupportsDLPack, Protocol):
    """An array that follows the Python array API standard, such as a JAX array."""

    def __array_namespace__(self, *args: Any, **kwargs: Any) -> Any: ...


class TorchTensor(SupportsDLPack, Protocol[T_co]):
    """A torch tensor or a subclass. ``T_co``, which ``contiguous()`` returns, is ``torch.Tensor``."""

    def contiguous(self) -> T_co: ...


NumPyArray = np.ndarray[Any, Any]
Array = NumPyArray | SupportsDLPack

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    # The result type of a function: the type of its source, or of `out` if that is given.
    R = TypeVarWithDefault("R", bound=Array, default=NumPyArray)
    R2 = TypeVarWithDefault("R2", bound=Array, default=NumPyArray)
    R3 = TypeVarWithDefault("R3", bound=Array, default=NumPyArray)
else:
    R = TypeVar("R")

# Not SupportsDLPack: a tensor matches that, too, and mypy could not tell which type the result has.
Source = NumPyArray | ArrayApiObject | TorchTensor[R]

Int = SupportsIndex
Ints = SupportsIndex | Sequence[SupportsIndex] | NumPyArray  # one value for all dimensions, or one each
Numbers = Sequence[SupportsFloat] | Array

ReduceType = Literal["max", "mean", "sum"]
SegmentReduce = Literal["sum", "mean", "min", "max"]
Activation = Literal["tanh", "relu", "none"]
ExpertActivation = Literal["silu", "gelu", "gelu_tanh", "relu", "swigluoai"]
ExpertPrecision = Literal["float32", "bfloat16"]
PoolInit = Literal["zero", "lowest"]
IouMode = Literal["iou", "iof"]
BoxZ = Literal["center", "bottom"]
PoolMethod = Literal["max", "avg"]
NeighborRegion = Literal["cube", "ball"]
VectorPoolMode = Literal["mean", "sum", "first"]
PruneScore = Literal["flow", "steps"]
