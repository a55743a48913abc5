"""Sparse convolution, which input site meets which output site, as a torch operator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from turnout import _core
from turnout.torch.messages import own_messages
from turnout.torch.registration import define
from turnout.torch.tracing import Scalars, unknown_size, value_of, values_of

__all__ = ["get_indice_pairs"]

Ints = int | Sequence[int]  # one for each spatial dimension; or one for all

_VECTORS = ("kernel_size", "stride", "padding", "dilation", "output_padding")


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
    kernel = kernel_size * len(spatial_shape) if len(kernel_size) == 1 else kernel_size
    volume = math.prod(i if k == -1 else k for k, i in zip(kernel, spatial_shape, strict=True))
    rows, columns = indices.shape
    outputs = rows if subm else unknown_size("get_indice_pairs", "outputs")
    return (
        indices.new_empty((outputs, columns)),
        indices.new_empty((volume, 2, rows), dtype=torch.int32),
        indices.new_empty((volume,), dtype=torch.int32),
    )


@own_messages("get_indice_pairs")
def _scalars(bound: Scalars) -> Scalars:
    """Those of the signature: one value for each dimension, and the output shape."""
    indices, space = bound["indices"], values_of(bound["spatial_shape"])
    dims, columns = len(space), value_of(indices.shape[1]) if indices.dim() == 2 else None
    if columns is not None and columns != dims + 1:  # which the check of the signature refuses
        return {"spatial_shape": space, **dict.fromkeys((*_VECTORS[:-1], "output_shape"), ())}
    vectors = {name: bound[name] * dims if len(bound[name]) == 1 else bound[name] for name in _VECTORS}
    output_shape: tuple[int | None, ...] = (None,) * dims
    known = [extent for extent in space if extent is not None]
    if len(known) == dims:
        kernel_size, stride, padding, dilation, output_padding = vectors.values()
        output_shape = _core.indice_pairs_output_shape(
            *(known, kernel_size, stride, padding, dilation, output_padding),
            *(bound["subm"], bound["transpose"]),
        )
    kernel = [extent if k == -1 else k for k, extent in zip(vectors["kernel_size"], space, strict=True)]
    if bound["subm"]:
        vectors["padding"] = [0] * dims  # whatever was given
    return {
        "batch_size": bound["batch_size"],
        "spatial_shape": space,
        **{name: vectors[name] for name in _VECTORS[:-1]},
        "kernel_size": kernel,
        "output_shape": output_shape,
    }


_pairs = define(
    "get_indice_pairs(Tensor indices, SymInt batch_size, SymInt[] spatial_shape, int[1] kernel_size=3, "
    "int[1] stride=1, int[1] padding=0, int[1] dilation=1, int[1] output_padding=0, bool subm=False, "
    "bool transpose=False) -> (Tensor, Tensor, Tensor)",
    _pairs_cpu,
    _pairs_fake,
    scalars=_scalars,
)


def _plain(values):
    return values.tolist() if hasattr(values, "tolist") else values  # of NumPy, whose arrays torch refuses


@own_messages()
def get_indice_pairs(
    indices: torch.Tensor,
    batch_size: int,
    spatial_shape: Ints,
    kernel_size: Ints = 3,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    output_padding: Ints = 0,
    *,
    subm: bool = False,
    transpose: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The pairs of input and output sites of a sparse convolution, for each offset of its kernel.

    Returns out_indices, indice_pairs and indice_num. The definition is that of
    :func:`turnout.get_indice_pairs`. With ``subm``, ``padding`` is ignored, as mmcv and
    spconv do (C and C++ obey it). ``indices`` may be strided.

    Under ``torch.compile`` the number of outputs is a size that depends on data, except with ``subm``; some
    releases of torch want ``torch._dynamo.config.capture_dynamic_output_shape_ops = True`` for that.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> out_sites, pairs, num = turnout.torch.get_indice_pairs(sites, 1, [6], kernel_size=2, stride=2)
        >>> out_sites.tolist(), num.tolist()
        ([[0, 0], [0, 2]], [1, 2])
        >>> pairs[1, :, :2].tolist()  # input rows 1 and 2 meet output rows 0 and 1
        [[1, 2], [0, 1]]
    """
    vectors = (
        _plain(values) for values in (spatial_shape, kernel_size, stride, padding, dilation, output_padding)
    )
    return _pairs(indices, batch_size, *vectors, subm, transpose)
