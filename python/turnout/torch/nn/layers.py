"""The four kinds of sparse convolutions."""

from __future__ import annotations

from turnout.torch.indice_pairs import Ints
from turnout.torch.nn.convolution import SparseConvolution


class SparseConv(SparseConvolution):
    """A sparse convolution: an output is active if any input is in its window.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> turnout.torch.nn.SparseConv(1, 1, 16, kernel_size=2, stride=2)(x).indices.tolist()
        [[0, 0], [0, 2]]
    """

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
    """A submanifold convolution: its outputs are at the input sites, around which the kernel is centred.

    Args:
        stride, padding: validated but otherwise ignored, as in spconv and mmcv, whose models pass them.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> turnout.torch.nn.SubMConv(1, 1, 16, kernel_size=3)(x).indices.tolist()
        [[0, 0], [0, 1], [0, 5]]
    """

    def __init__(
        self,
        ndim: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        dilation: Ints = 1,
        *,
        stride: Ints = 1,
        padding: Ints = 0,
        bias: bool = True,
        indice_key: str | None = None,
    ) -> None:
        super().__init__(
            *(ndim, in_channels, out_channels, kernel_size, stride, padding, dilation),
            bias=bias,
            subm=True,
            indice_key=indice_key,
        )


class SparseConvTranspose(SparseConvolution):
    """A transposed convolution: an output is active if any input spreads to it.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> turnout.torch.nn.SparseConvTranspose(1, 1, 16, kernel_size=2, stride=2)(x).indices[:, 1].tolist()
        [0, 1, 2, 3, 10, 11]
    """

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
    """Goes back along the pairs of the layer with the same ``indice_key``, to its input sites.

    Each kernel offset uses the pairs of the same offset of that layer: the kernel is not flipped.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> down = turnout.torch.nn.SparseConv(1, 1, 16, kernel_size=2, stride=2, indice_key="down")
        >>> up = turnout.torch.nn.SparseInverseConv(1, 16, 1, kernel_size=2, indice_key="down")
        >>> up(down(x)).indices.tolist()
        [[0, 0], [0, 1], [0, 5]]
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
