"""The pairs of input and output sites of sparse convolutions, as a torch operator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from turnout import _core
from turnout.torch.messages import own_messages
from turnout.torch.tracing import Scalars, computed_size, values_of

__all__ = ["get_indice_pairs"]

Ints = int | Sequence[int]  # one for all spatial dimensions, or one for each

_VECTORS = ("kernel_size", "stride", "padding", "dilation", "output_padding")
_MOST_OFFSETS = 2**24  # of a kernel
_pairs = torch.ops.turnout.get_indice_pairs.default


@computed_size("get_indice_pairs")
@own_messages("get_indice_pairs")
def _(bound: Scalars) -> Scalars:
    """Returns the sizes that do not depend on sites, after checking the scalars like a real call."""
    indices, space = bound["indices"], bound["spatial_shape"]
    kernel, stride, padding, dilation, output_padding = (
        bound[name] * len(space) if len(bound[name]) == 1 else bound[name] for name in _VECTORS
    )
    known = [extent for extent in values_of(space) if extent is not None]
    if len(known) == len(space):
        flags = bound["subm"], bound["transpose"]
        _core.indice_pairs_output_shape(known, kernel, stride, padding, dilation, output_padding, *flags)
    volume = math.prod(i if k == -1 else k for k, i in zip(kernel, space, strict=True))
    if isinstance(volume, int) and volume > _MOST_OFFSETS:
        raise ValueError(
            f"get_indice_pairs: kernel_size is {kernel}, expected at most {_MOST_OFFSETS} offsets in all"
        )
    return {"kernel_volume": volume, "num_act_out": indices.shape[0] if bound["subm"] else None}


def _plain(values):
    return values.tolist() if hasattr(values, "tolist") else values  # torch rejects NumPy arrays


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
    :func:`turnout.get_indice_pairs`. With ``subm``, ``padding`` is ignored, as in mmcv and spconv (C and C++
    use it). ``indices`` may be strided.

    Under ``torch.compile`` the number of outputs is a data-dependent size, except with ``subm``; some
    releases of torch require ``torch._dynamo.config.capture_dynamic_output_shape_ops = True`` for that.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> out_sites, pairs, num = turnout.torch.get_indice_pairs(sites, 1, [6], kernel_size=2, stride=2)
        >>> out_sites.tolist(), num.tolist()
        ([[0, 0], [0, 2]], [1, 2])
        >>> pairs[1, :, :2].tolist()  # input rows 1 and 2, output rows 0 and 1
        [[1, 2], [0, 1]]
    """
    vectors = (
        _plain(values) for values in (spatial_shape, kernel_size, stride, padding, dilation, output_padding)
    )
    return _pairs(indices, batch_size, *vectors, subm, transpose)
