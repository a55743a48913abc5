"""The base class of convolutions and pools: window parameters and the geometry of their pairs."""

from __future__ import annotations

from typing import Any

from turnout.torch.indice_pairs import Ints
from turnout.torch.nn.geometry import Geometry
from turnout.torch.nn.module import SparseModule
from turnout.torch.nn.tensor import integers


def per_dimension(
    module: str, name: str, values: Any, dims: int, *, least: int | None = None, odd: bool = False
) -> list[int]:
    """Returns one number for each spatial dimension; a single number applies to all.

    Args:
        least: the smallest number that is accepted.
        odd: accept only positive odd numbers, the sizes of kernels that have a centre.
    """
    given = integers(values) if hasattr(values, "__len__") else (int(values),) * dims
    if len(given) != dims:
        raise ValueError(f"{module}: {name} has {len(given)} elements, expected 1 or {dims}")
    for i, value in enumerate(given):
        if odd and (value < 1 or value % 2 == 0):
            raise ValueError(f"{module}: {name}[{i}] is {value}, expected an odd number in submanifold mode")
        if least is not None and value < least:
            raise ValueError(f"{module}: {name}[{i}] is {value}, expected {least} or more")
    return list(given)


class WindowModule(SparseModule):
    """The base class of modules in which each output sees a window of the grid.

    Stride and padding of submanifold modules are validated but otherwise ignored.
    """

    def __init__(
        self,
        ndim: int,
        kernel_size: Ints,
        stride: Ints,
        padding: Ints,
        dilation: Ints,
        output_padding: Ints = 0,
        subm: bool = False,
        transposed: bool = False,
        indice_key: str | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if not 1 <= ndim <= 4:
            raise ValueError(f"{name}: ndim is {ndim}, expected 1 .. 4")
        self.ndim = ndim
        self.kernel_size = per_dimension(name, "kernel_size", kernel_size, ndim, odd=subm)
        self.stride = per_dimension(name, "stride", stride, ndim, least=1)
        self.padding = per_dimension(name, "padding", padding, ndim, least=0)
        self.dilation = per_dimension(name, "dilation", dilation, ndim, least=1)
        self.output_padding = per_dimension(name, "output_padding", output_padding, ndim, least=0)
        self.subm = subm
        self.transposed = transposed
        self.indice_key = indice_key

    @property
    def geometry(self) -> Geometry:
        ones, zeros = (1,) * self.ndim, (0,) * self.ndim
        return Geometry(
            tuple(self.kernel_size),
            ones if self.subm else tuple(self.stride),
            zeros if self.subm else tuple(self.padding),
            tuple(self.dilation),
            tuple(self.output_padding) if self.transposed else zeros,
            self.subm,
            self.transposed,
        )
