"""Modules for sparse convolutional networks, for 1 to 4 dimensions.

``turnout.compat.mmcv`` and ``turnout.compat.spconv`` are thin layers over these.
"""

from turnout.torch.nn.convolution import SparseConvolution
from turnout.torch.nn.geometry import Geometry, PairCache, Pairs
from turnout.torch.nn.layers import SparseConv, SparseConvTranspose, SparseInverseConv, SubMConv
from turnout.torch.nn.module import SparseModule, SparseSequential
from turnout.torch.nn.pooling import (
    SparseAvgPool,
    SparseGlobalAvgPool,
    SparseGlobalMaxPool,
    SparseMaxPool,
)
from turnout.torch.nn.tensor import SparseTensor

__all__ = [
    "Geometry",
    "PairCache",
    "Pairs",
    "SparseAvgPool",
    "SparseConv",
    "SparseConvTranspose",
    "SparseConvolution",
    "SparseGlobalAvgPool",
    "SparseGlobalMaxPool",
    "SparseInverseConv",
    "SparseMaxPool",
    "SparseModule",
    "SparseSequential",
    "SparseTensor",
    "SubMConv",
]
