"""mmcv's sparse convolutions."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from turnout.compat.mmcv.sparse_modules import SparseModule
from turnout.torch import nn
from turnout.torch.nn.tensor import integers
from turnout.torch.sparse_conv import Ints


class SparseConvolution(nn.SparseConvolution, SparseModule):
    """The base of mmcv's convolutions, with its weight ``[k..., in_channels, out_channels]``.

    - A kernel of one offset is a matrix product, whatever the stride: sites stay those of the input.
    - ``indice_key``: the first layer with a name stores its pairs, and all later ones take these, whatever
      their own kernel is. Such a layer has the stored outputs and uses as many of its matrices as there are
      offsets in the pairs, the first ones. Models are trained that way, so nothing is checked.
    """

    def reset_parameters(self) -> None:
        super().reset_parameters()
        # What torch takes for the number of inputs is another product of the dimensions of this layout.
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
        # Sites come with the pairs; the shape is the layer's own, also where the pairs are another's.
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


class SparseConv1d(_SparseConv):
    rank = 1


class SparseConv2d(_SparseConv):
    rank = 2


class SparseConv3d(_SparseConv):
    rank = 3


class SparseConv4d(_SparseConv):
    rank = 4


class SubMConv1d(_SubMConv):
    rank = 1


class SubMConv2d(_SubMConv):
    rank = 2


class SubMConv3d(_SubMConv):
    rank = 3


class SubMConv4d(_SubMConv):
    rank = 4


class SparseConvTranspose1d(_SparseConvTranspose):
    rank = 1


class SparseConvTranspose2d(_SparseConvTranspose):
    rank = 2


class SparseConvTranspose3d(_SparseConvTranspose):
    rank = 3


class SparseConvTranspose4d(_SparseConvTranspose):
    rank = 4


class SparseInverseConv1d(_SparseInverseConv):
    rank = 1


class SparseInverseConv2d(_SparseInverseConv):
    rank = 2


class SparseInverseConv3d(_SparseInverseConv):
    rank = 3


class SparseInverseConv4d(_SparseInverseConv):
    rank = 4
