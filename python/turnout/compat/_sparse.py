"""Code that the stand-ins for spconv and mmcv share: classes per number of dimensions, and functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike

from turnout.torch.nn import Geometry

T = TypeVar("T")


def for_each_rank(base: type[T], most: int = 4) -> tuple[type[T], ...]:
    """Derives the classes ``<name>1d``, ``<name>2d`` and so on, up to ``most`` dimensions, from ``_<name>``.

    ``base`` finds its number of dimensions in ``self.rank``. The caller must assign the classes to their
    names in the module of ``base``, where pickle looks for them.
    """
    name = base.__name__.removeprefix("_")
    return tuple(
        type(f"{name}{rank}d", (base,), {"__module__": base.__module__, "rank": rank})
        for rank in range(1, most + 1)
    )


def scatter_nd(indices: torch.Tensor, updates: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Returns zeros with ``updates`` where ``indices [..., n]`` point in the first n dimensions of ``shape``.

    If a position is repeated, any one of its updates is stored.
    """
    n = indices.shape[-1]
    result = updates.new_zeros(list(shape))
    places = indices.reshape(-1, n).long().unbind(1)
    return result.index_put_(places, updates.reshape(-1, *shape[n:]))


def distinct_sites(indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the distinct sites in ascending order, the site of each row, and the first row of each site."""
    sites, site_of_row = torch.unique(indices, dim=0, return_inverse=True)
    rows = torch.arange(len(indices))
    first_row = rows.new_empty(len(sites)).scatter_reduce(0, site_of_row, rows, "amin", include_self=False)
    return sites, site_of_row, first_row


def voxel_grid_size(voxel_size: ArrayLike, ends: ArrayLike) -> list[int]:
    """Returns the number of voxels per direction between the first half of ``ends`` and the second.

    Halves are rounded away from zero, as in the operator; NumPy rounds them to even.
    """
    size = np.asarray(voxel_size, np.float32)
    begin, end = np.asarray(ends, np.float32).reshape(2, -1)
    return [int(x) for x in np.floor(((end - begin) / size).astype(np.float64) + 0.5)]


def get_conv_output_size(
    input_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """Returns the spatial shape of a convolution's outputs."""
    zeros = (0,) * len(input_size)
    vectors = map(tuple, (kernel_size, stride, padding, dilation, zeros))
    return list(Geometry(*vectors, subm=False, transpose=False).out_shape(input_size))


def get_deconv_output_size(
    input_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> list[int]:
    """Returns the spatial shape of a transposed convolution's outputs."""
    vectors = map(tuple, (kernel_size, stride, padding, dilation, output_padding))
    return list(Geometry(*vectors, subm=False, transpose=True).out_shape(input_size))
