"""The four kinds of sparse convolutions."""

from __future__ import annotations

from turnout.torch.nn.convolution import SparseConvolution
from turnout.torch.sparse_conv import Ints


class SparseConv(SparseConvolution):
    """A sparse convolution: an output is active if any input is in its window."""

    def __init__(
        self,
        ndim: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        *,
        bias: bool = True,
        indice_key: str | None = None,
    ) -> None:
        super().__init__(
            *(ndim, in_channels, out_channels, kernel_size, stride, padding, dilation),
            bias=bias,
            indice_key=indice_key,
        )


class SubMConv(SparseConvolution):
    """A submanifold convolution: its outputs are at the input sites, around which the kernel is centred."""

    def __init__(
        self,
        ndim: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        dilation: Ints = 1,
        *,
        bias: bool = True,
        indice_key: str | None = None,
    ) -> None:
        super().__init__(
            *(ndim, in_channels, out_channels, kernel_size),
            dilation=dilation,
            bias=bias,
            subm=True,
            indice_key=indice_key,
        )


class SparseConvTranspose(SparseConvolution):
    """A transposed convolution: an output is active if any input spreads to it."""

    def __init__(
        self,
        ndim: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        *,
        output_padding: Ints = 0,
        bias: bool = True,
        indice_key: str | None = None,
    ) -> None:
        super().__init__(
            *(ndim, in_channels, out_channels, kernel_size, stride, padding, dilation),
            bias=bias,
            output_padding=output_padding,
            transposed=True,
            indice_key=indice_key,
        )


class SparseInverseConv(SparseConvolution):
    """Goes back along the pairs of the layer that gave them the name ``indice_key``, to its input sites.

    An offset of the kernel has the pairs of the same offset there: the kernel is not flipped.
    """

    def __init__(
        self,
        ndim: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        indice_key: str,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            *(ndim, in_channels, out_channels, kernel_size), bias=bias, inverse=True, indice_key=indice_key
        )
