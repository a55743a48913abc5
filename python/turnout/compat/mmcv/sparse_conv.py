"""mmcv's sparse convolutions."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from turnout.compat import _sparse
from turnout.compat.mmcv.sparse_modules import SparseModule
from turnout.torch import nn
from turnout.torch.indice_pairs import Ints
from turnout.torch.nn.tensor import integers

__all__ = [
    "SparseConv1d",
    "SparseConv2d",
    "SparseConv3d",
    "SparseConv4d",
    "SparseConvTranspose1d",
    "SparseConvTranspose2d",
    "SparseConvTranspose3d",
    "SparseConvTranspose4d",
    "SparseConvolution",
    "SparseInverseConv1d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SparseInverseConv4d",
    "SubMConv1d",
    "SubMConv2d",
    "SubMConv3d",
    "SubMConv4d",
]


class SparseConvolution(nn.SparseConvolution, SparseModule):
    """The base of mmcv's convolutions, with its weight ``[k..., in_channels, out_channels]``.

    - A kernel of one offset is a matrix product for any stride, and the sites are those of the input.
    - ``indice_key``: the first layer with a name stores its pairs, and all later ones use them, whatever
      their own kernel is. Such a layer has the stored outputs and uses only its first matrices, one for each
      offset of the pairs. Models are trained that way, so nothing is checked.
    """

    def reset_parameters(self) -> None:
        super().reset_parameters()
        # Like mmcv, use the fan-in that torch computes for this layout, although it is not the number of
        # inputs.
        torch.nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def keeps_sites(self) -> bool:
        return math.prod(self.kernel_size) == 1

    def find_pairs(self, x: nn.SparseTensor) -> nn.Pairs:
        pairs = self.named_pairs(x)
        if pairs is None:
            return x.find_pairs(self.geometry)
        volume, fits = math.prod(self.kernel_size), operator.eq if self.inverse else operator.ge
        if not fits(volume, pairs.volume):
            least = "" if self.inverse else " or more"
            raise ValueError(
                f"{type(self).__name__}: kernel_size is {self.kernel_size}, which is {volume} offsets, "
                f"expected {pairs.volume}{least}, those of the pairs named {self.indice_key!r}"
            )
        return pairs

    def filters_along(self, pairs: nn.Pairs) -> torch.Tensor:
        return self.weight.flatten(0, -3)[: pairs.volume]

    def out_sites(self, x: nn.SparseTensor, pairs: nn.Pairs) -> tuple[torch.Tensor, Any]:
        if self.inverse:
            return super().out_sites(x, pairs)
        # The sites belong to the pairs. The shape is computed from this layer, even if another made the
        # pairs.
        shape = x.spatial_shape if self.subm else list(self.geometry.out_shape(integers(x.spatial_shape)))
        return pairs.out_indices.clone(), shape


class _SparseConv(SparseConvolution):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        indice_key: str | None = None,
    ) -> None:
        super().__init__(
            *(self.rank, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias),
            subm=self.kind == "subm",
            transposed=self.kind == "transposed",
            indice_key=indice_key,
        )

    rank: int
    kind = "sparse"


class _SubMConv(_SparseConv):
    kind = "subm"


class _SparseConvTranspose(_SparseConv):
    kind = "transposed"


class _SparseInverseConv(SparseConvolution):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        indice_key: str | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(
            *(self.rank, in_channels, out_channels, kernel_size),
            bias=bias,
            inverse=True,
            indice_key=indice_key,
        )

    rank: int


SparseConv1d, SparseConv2d, SparseConv3d, SparseConv4d = _sparse.for_each_rank(_SparseConv)
SubMConv1d, SubMConv2d, SubMConv3d, SubMConv4d = _sparse.for_each_rank(_SubMConv)
SparseConvTranspose1d, SparseConvTranspose2d, SparseConvTranspose3d, SparseConvTranspose4d = (
    _sparse.for_each_rank(_SparseConvTranspose)
)
SparseInverseConv1d, SparseInverseConv2d, SparseInverseConv3d, SparseInverseConv4d = _sparse.for_each_rank(
    _SparseInverseConv
)
