"""mmcv's operators: the pairs of a sparse convolution, and convolution and pooling over them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnout import torch as own
from turnout.compat._sparse import get_conv_output_size, get_deconv_output_size
from turnout.torch.messages import own_messages

__all__ = [
    "fused_indice_conv",
    "get_conv_output_size",
    "get_deconv_output_size",
    "get_indice_pairs",
    "indice_conv",
    "indice_conv_backward",
    "indice_maxpool",
    "indice_maxpool_backward",
]


@own_messages(kernel_size="ksize", output_padding="out_padding")
def get_indice_pairs(
    indices: torch.Tensor,
    batch_size: int,
    spatial_shape: Sequence[int],
    ksize: int | Sequence[int] = 3,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    out_padding: int | Sequence[int] = 0,
    subm: bool = False,
    transpose: bool = False,
    grid: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """:func:`turnout.torch.get_indice_pairs` with the arguments of mmcv's function.

    Returns outids, indice_pairs and indice_pair_num in a fixed order: outputs ascend, and so do the input
    rows of each offset's pairs. Stride and dilation may both differ from 1, and dilated submanifold kernels
    stay centred. ``grid``, which mmcv uses as a buffer, is ignored.
    """
    del grid
    return own.get_indice_pairs(
        indices,
        batch_size,
        spatial_shape,
        ksize,
        stride,
        padding,
        dilation,
        out_padding,
        subm=subm,
        transpose=transpose,
    )


@own_messages(indice_num="indice_pair_num", num_act_out="num_activate_out")
def indice_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
    inverse: bool = False,
    subm: bool = False,
) -> torch.Tensor:
    """:func:`turnout.torch.indice_convolution` without a bias. Supports gradients of any order."""
    return own.indice_convolution(
        *(features, filters, indice_pairs, indice_pair_num, int(num_activate_out)),
        inverse=bool(inverse),
        subm=bool(subm),
    )


@own_messages(indice_num="indice_pair_num", num_act_out="num_activate_out")
def fused_indice_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    bias: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
    inverse: bool,
    subm: bool,
) -> torch.Tensor:
    """:func:`indice_conv` with a bias."""
    return own.indice_convolution(
        *(features, filters, indice_pairs, indice_pair_num, int(num_activate_out)),
        bias=bias,
        inverse=bool(inverse),
        subm=bool(subm),
    )


@own_messages(indice_num="indice_pair_num", output_grad="out_bp")
def indice_conv_backward(
    features: torch.Tensor,
    filters: torch.Tensor,
    out_bp: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    inverse: bool = False,
    subm: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the gradients of ``features`` and ``filters`` for ``out_bp``, that of the output."""
    pairs, kind = (indice_pairs, indice_pair_num), (bool(inverse), bool(subm))
    matrices = filters.flatten(0, -3)
    of_features = torch.ops.turnout.indice_convolution_backward_data(
        out_bp, matrices, *pairs, features.shape[0], None, *kind
    )
    of_filters = torch.ops.turnout.indice_convolution_backward_filter(features, out_bp, *pairs, *kind)
    return of_features, of_filters.reshape(filters.shape)


@own_messages(indice_num="indice_pair_num", num_act_out="num_activate_out")
def indice_maxpool(
    features: torch.Tensor, indice_pairs: torch.Tensor, indice_pair_num: torch.Tensor, num_activate_out: int
) -> torch.Tensor:
    """:func:`turnout.torch.indice_max_pool`; no maximum is below 0. Supports gradients of any order."""
    return own.indice_max_pool(features, indice_pairs, indice_pair_num, int(num_activate_out))


@own_messages(indice_num="indice_pair_num", features_out="out_features", output_grad="out_bp")
def indice_maxpool_backward(
    features: torch.Tensor,
    out_features: torch.Tensor,
    out_bp: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
) -> torch.Tensor:
    """Returns the gradient of ``features`` for ``out_bp``, that of the output."""
    return torch.ops.turnout.indice_max_pool_backward(
        features, out_features, out_bp, indice_pairs, indice_pair_num
    )
