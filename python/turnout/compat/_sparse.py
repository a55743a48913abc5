"""Functions that spconv and mmcv both have."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnout.torch.nn import Geometry


def scatter_nd(indices: torch.Tensor, updates: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Zeros of this shape, with ``updates`` where ``indices [..., n]`` says in the first n dimensions.

    Of several updates of one place, any one counts.
    """
    n = indices.shape[-1]
    result = updates.new_zeros(list(shape))
    places = indices.reshape(-1, n).long().unbind(1)
    return result.index_put_(places, updates.reshape(-1, *shape[n:]))


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
