"""What there is of ``spconv.pytorch.ops``: the spatial shapes of outputs, and the names of algorithms.

The operators themselves are in ``turnout.torch``: ``get_indice_pairs``, ``indice_convolution``,
``indice_max_pool``.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnout.compat.spconv.core import AlgoHint, ConvAlgo
from turnout.torch.nn import Geometry

__all__ = ["AlgoHint", "ConvAlgo", "get_conv_output_size", "get_deconv_output_size"]


def get_conv_output_size(
    input_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """The spatial shape of a convolution's outputs."""
    zeros = (0,) * len(input_size)
    vectors = (tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation), zeros)
    return list(Geometry(*vectors, subm=False, transpose=False).out_shape(input_size))


def get_deconv_output_size(
    input_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> list[int]:
    """The spatial shape of a transposed convolution's outputs."""
    vectors = (tuple(x) for x in (kernel_size, stride, padding, dilation, output_padding))
    return list(Geometry(*vectors, subm=False, transpose=True).out_shape(input_size))
