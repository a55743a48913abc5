"""mmcv's function that finds the pairs of a sparse convolution."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnout import torch as own
from turnout.torch.sentences import own_sentences


@own_sentences(kernel_size="ksize", output_padding="out_padding")
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
    """:func:`turnout.torch.get_indice_pairs` with the arguments of mmcv's function of this name.

    Returns outids, indice_pairs and indice_pair_num, in a fixed order: outputs ascending, the pairs of an
    offset in ascending input row. Stride and dilation may both differ from 1, and dilated submanifold kernels
    keep their centre. ``grid``, a buffer for mmcv, is not used.
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
