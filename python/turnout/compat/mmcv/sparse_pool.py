"""mmcv's sparse max pooling."""

from __future__ import annotations

from turnout.compat import _sparse
from turnout.compat.mmcv.sparse_modules import SparseModule
from turnout.torch import nn
from turnout.torch.indice_pairs import Ints

__all__ = [
    "SparseMaxPool",
    "SparseMaxPool1d",
    "SparseMaxPool2d",
    "SparseMaxPool3d",
    "SparseMaxPool4d",
]


class SparseMaxPool(nn.SparseMaxPool, SparseModule):
    """The base of mmcv's pools: the stride defaults to 1, and no maximum is below 0."""

    init = "zero"

    def __init__(
        self,
        ndim: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        subm: bool = False,
    ) -> None:
        super().__init__(ndim, kernel_size, stride, padding, dilation, subm=subm)


class _SparseMaxPool(SparseMaxPool):
    def __init__(self, kernel_size: Ints, stride: Ints = 1, padding: Ints = 0, dilation: Ints = 1) -> None:
        super().__init__(self.rank, kernel_size, stride, padding, dilation)

    rank: int


SparseMaxPool1d, SparseMaxPool2d, SparseMaxPool3d, SparseMaxPool4d = _sparse.for_each_rank(_SparseMaxPool)
