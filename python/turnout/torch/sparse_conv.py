"""Sparse convolution, which input site meets which output site, as a torch operator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from turnout import _core
from turnout.torch.library import define


def _pairs_cpu(
    indices,
    batch_size,
    spatial_shape,
    kernel_size=(3,),
    stride=(1,),
    padding=(0,),
    dilation=(1,),
    output_padding=(0,),
    subm=False,
    transpose=False,
):
    # torch's way: a list of one value is for all dimensions.
    vectors = (
        values[0] if len(values) == 1 else values
        for values in (kernel_size, stride, padding, dilation, output_padding)
    )
    return _core.get_indice_pairs(
        indices.contiguous(), batch_size, spatial_shape, *vectors, subm, transpose, None, True
    )


def _pairs_fake(
    indices,
    batch_size,
    spatial_shape,
    kernel_size=(3,),
    stride=(1,),
    padding=(0,),
    dilation=(1,),
    output_padding=(0,),
    subm=False,
    transpose=False,
):
    dims = len(spatial_shape)
    kernel = kernel_size * dims if len(kernel_size) == 1 else kernel_size
    if len(kernel) != dims:
        raise ValueError(f"get_indice_pairs: kernel_size has {len(kernel)} elements, expected dims = {dims}")
    volume = math.prod(i if k == -1 else k for k, i in zip(kernel, spatial_shape, strict=True))
    rows, columns = indices.shape
    outputs = rows if subm else torch.library.get_ctx().new_dynamic_size()
    return (
        indices.new_empty((outputs, columns)),
        indices.new_empty((volume, 2, rows), dtype=torch.int32),
        indices.new_empty((volume,), dtype=torch.int32),
    )


_pairs = define(
    "get_indice_pairs(Tensor indices, SymInt batch_size, SymInt[] spatial_shape, int[1] kernel_size=3, "
    "int[1] stride=1, int[1] padding=0, int[1] dilation=1, int[1] output_padding=0, bool subm=False, "
    "bool transpose=False) -> (Tensor, Tensor, Tensor)",
    _pairs_cpu,
    _pairs_fake,
)


def _plain(values):
    return values.tolist() if hasattr(values, "tolist") else values  # of NumPy, whose arrays torch refuses


# The signature that users of mmcv know.
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
    """The pairs of input and output sites of a sparse convolution, for each offset of its kernel.

    Returns outids, indice_pairs and indice_pair_num. The definition is that of
    :func:`turnout.get_indice_pairs`; arguments are those of mmcv's function of this name, whose results this
    has in a fixed order: outputs ascending, the pairs of an offset in ascending input row. Stride and
    dilation may both differ from 1, and dilated submanifold kernels keep their centre; with ``subm``,
    ``padding`` is ignored, as mmcv and spconv do (C and C++ obey it). ``grid``, a buffer for mmcv, is not
    used. ``indices`` may be strided.

    Under ``torch.compile`` the number of outputs is a size that depends on data, except with ``subm``; some
    releases of torch want ``torch._dynamo.config.capture_dynamic_output_shape_ops = True`` for that.
    """
    del grid
    vectors = (_plain(values) for values in (spatial_shape, ksize, stride, padding, dilation, out_padding))
    return _pairs(indices, batch_size, *vectors, subm, transpose)
