"""spconv's pooling layers: over the windows of a grid, and over whole batch elements."""

from __future__ import annotations

import math

from turnout.compat import _sparse
from turnout.compat.spconv.core import ConvAlgo, default_algo
from turnout.compat.spconv.core import IndiceData as IndiceData
from turnout.compat.spconv.core import expand_nd as expand_nd
from turnout.compat.spconv.modules import SparseModule, VoxelCounter
from turnout.torch import nn
from turnout.torch.indice_pairs import Ints
from turnout.torch.nn.pooling import SparsePool

__all__ = [
    "SparseAvgPool1d",
    "SparseAvgPool2d",
    "SparseAvgPool3d",
    "SparseGlobalAvgPool",
    "SparseGlobalMaxPool",
    "SparseMaxPool1d",
    "SparseMaxPool2d",
    "SparseMaxPool3d",
    "SparseMaxPool4d",
]


class _Pool(SparsePool, VoxelCounter):
    """A pool that may count its outputs. If it has an ``indice_key``, that must be new."""

    def __init__(
        self,
        ndim: int,
        kernel_size: Ints = 3,
        stride: Ints | None = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        indice_key: str | None = None,
        subm: bool = False,
        algo: ConvAlgo | None = None,
        record_voxel_count: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(ndim, kernel_size, stride, padding, dilation, indice_key, subm)
        self.name = name
        self.algo = algo or default_algo(math.prod(self.kernel_size), 128)
        self.record_voxel_count = record_voxel_count
        if record_voxel_count and not subm:
            self.count_voxels()

    def forward(self, input: nn.SparseTensor) -> nn.SparseTensor:
        if self.indice_key is not None and self.indice_key in input.indice_dict:
            raise ValueError(
                f"{type(self).__name__}: indice_key {self.indice_key!r} names the pairs of an earlier layer, "
                "expected a new name"
            )
        out = super().forward(input)
        self.record_voxels(out.features.shape[0])
        return out


class SparseMaxPool(_Pool, nn.SparseMaxPool):
    """The base of spconv's max pools.

    ``algo`` decides where the maximum starts. With ``ConvAlgo.Native``, no maximum is below 0, as in spconv
    on a CPU; otherwise it starts below all numbers, as in spconv on a GPU. The default is spconv's choice on
    a GPU, where kernels of up to 128 offsets are not native.
    """

    @property
    def init(self) -> str:
        return "zero" if self.algo is ConvAlgo.Native else "lowest"


class SparseAvgPool(_Pool, nn.SparseAvgPool):
    """The base of spconv's average pools: the mean over the active sites of each window."""


class _OfRank:
    """The constructor of a pool with a fixed rank. The stride defaults to the kernel size."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        record_voxel_count: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            *(self.rank, kernel_size, stride, padding, dilation, indice_key),
            algo=algo,
            record_voxel_count=record_voxel_count,
            name=name,
        )

    rank: int


class _SparseMaxPool(_OfRank, SparseMaxPool):
    pass


class _SparseAvgPool(_OfRank, SparseAvgPool):
    pass


SparseMaxPool1d, SparseMaxPool2d, SparseMaxPool3d, SparseMaxPool4d = _sparse.for_each_rank(_SparseMaxPool)
SparseAvgPool1d, SparseAvgPool2d, SparseAvgPool3d = _sparse.for_each_rank(_SparseAvgPool, most=3)


class SparseGlobalMaxPool(nn.SparseGlobalMaxPool, SparseModule):
    """``[batch_size, channels]``: the maximum over each batch element's active sites, or 0 if it has none."""


class SparseGlobalAvgPool(nn.SparseGlobalAvgPool, SparseModule):
    """``[batch_size, channels]``: the mean over each batch element's active sites, or 0 if it has none."""
