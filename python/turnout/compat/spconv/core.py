"""spconv's sparse tensor, the pairs that layers store in it, and the names of spconv's algorithms."""

from __future__ import annotations

import enum
import math
from typing import Any

import torch

from turnout.compat._sparse import scatter_nd as scatter_nd
from turnout.torch.nn import Pairs, SparseTensor
from turnout.torch.nn.tensor import integers
from turnout.torch.nn.window import per_dimension


class ConvAlgo(enum.Enum):
    """spconv's algorithms. Here they only decide where max pooling starts."""

    Native = 0
    MaskImplicitGemm = 1
    MaskSplitImplicitGemm = 2


class AlgoHint(enum.Enum):
    """spconv's hints for choosing kernels, which have no effect here. ``Fowrard`` is spconv's spelling."""

    NoHint = 0b000
    Fowrard = 0b001
    BackwardInput = 0b010
    BackwardWeight = 0b100


def expand_nd(ndim: int, val: Any) -> list[int]:
    """Returns one integer per dimension; a single ``val`` applies to all ``ndim``."""
    return per_dimension("expand_nd", "val", val, ndim)


def default_algo(volume: int, most: int) -> ConvAlgo:
    """Returns spconv's choice for a kernel of ``volume`` offsets if all of its algorithms are available."""
    return ConvAlgo.MaskImplicitGemm if volume <= most else ConvAlgo.Native


class IndiceData(Pairs):
    """Pairs that a layer stored under its ``indice_key``, with spconv's attribute names.

    ``indice_pairs`` is ``[offsets, 2, rows]`` with all pairs of all offsets, also for submanifold layers.
    """

    algo = ConvAlgo.Native

    @classmethod
    def of(cls, pairs: Pairs) -> IndiceData:
        return pairs if isinstance(pairs, cls) else cls(**vars(pairs))

    @property
    def indice_pair_num(self) -> torch.Tensor:
        return self.indice_num

    @property
    def is_subm(self) -> bool:
        return self.geometry.subm

    @property
    def ksize(self) -> list[int]:
        return list(self.geometry.kernel_size)

    @property
    def stride(self) -> list[int]:
        return list(self.geometry.stride)

    @property
    def padding(self) -> list[int]:
        return list(self.geometry.padding)

    @property
    def dilation(self) -> list[int]:
        return list(self.geometry.dilation)


class SparseConvTensor(SparseTensor):
    """spconv's sparse tensor. A layer adds its named pairs to its output's copy of ``indice_dict``.

    Args:
        features: ``[rows, channels]``. May be assigned; :meth:`replace_feature` returns a new tensor.
        indices: ``[rows, 1 + dims]`` int32: batch element, then coordinates.
        spatial_shape: the extents of the grid, any sequence; kept as a list.
        batch_size: the number of batch elements.
        indice_dict: named pairs, from another tensor.
        grid, voxel_num, benchmark, force_algo: kept but not used.
        permanent_thrust_allocator, enable_timer: accepted but ignored.
    """

    handed_on = ("grid", "voxel_num", "benchmark", "benchmark_record", "force_algo")

    def __init__(
        self,
        features: torch.Tensor,
        indices: torch.Tensor,
        spatial_shape: Any,
        batch_size: int,
        grid: torch.Tensor | None = None,
        voxel_num: torch.Tensor | None = None,
        indice_dict: dict[str, Pairs] | None = None,
        benchmark: bool = False,
        permanent_thrust_allocator: bool = False,
        enable_timer: bool = False,
        force_algo: ConvAlgo | None = None,
    ) -> None:
        del permanent_thrust_allocator, enable_timer
        spatial_shape = list(integers(spatial_shape))
        _check(features, indices, spatial_shape, batch_size)
        super().__init__(features, indices, spatial_shape, batch_size)
        if indice_dict is not None:
            self.indice_dict = indice_dict
        self.grid = grid
        self.voxel_num = voxel_num
        self.benchmark = benchmark
        self.benchmark_record: dict[str, Any] = {}
        self.force_algo = force_algo

    def named(self, name: str, pairs: Pairs) -> dict[str, Pairs]:
        return super().named(name, IndiceData.of(pairs))

    def find_indice_pair(self, key: str | None) -> IndiceData | None:
        """Returns the pairs with this name, or None."""
        return None if key is None else self.indice_dict.get(key)

    def replace_feature(self, feature: torch.Tensor) -> SparseConvTensor:
        """Returns a tensor with other features. Their rows are not checked, so sites may be set later."""
        return self.with_features(feature)

    def shadow_copy(self) -> SparseConvTensor:
        return self.with_features(self.features)

    def select_by_index(self, valid_indices: torch.Tensor) -> SparseConvTensor:
        """Returns the selected rows, without named pairs, because those refer to all rows."""
        return self.at(self.features[valid_indices], self.indices[valid_indices], self.spatial_shape, {})

    def minus(self) -> SparseConvTensor:
        return self.with_features(-self.features)

    @classmethod
    def from_dense(cls, x: torch.Tensor) -> SparseConvTensor:
        """Keeps the sites of ``x [batch_size, *spatial_shape, channels]`` that are nonzero in any channel."""
        sites = (x != 0).any(-1).nonzero()
        return cls(x[sites.unbind(1)], sites.int(), x.shape[1:-1], x.shape[0])

    def __add__(self, other: Any) -> SparseConvTensor:
        """Adds a tensor, or the features of a sparse tensor with the same sites."""
        if not isinstance(other, (SparseTensor, torch.Tensor)):
            return NotImplemented
        return self.with_features(self.features + getattr(other, "features", other))

    __radd__ = __add__

    @property
    def spatial_size(self) -> int:
        return math.prod(self.spatial_shape)

    @property
    def is_quantized(self) -> bool:
        return self.features.is_quantized


def _check(features: torch.Tensor, indices: torch.Tensor, spatial_shape: list[int], batch_size: int) -> None:
    """Checks what spconv checks. The numbers of rows are not compared."""
    for name, tensor in (("features", features), ("indices", indices)):
        if tensor.dim() != 2:
            raise ValueError(f"SparseConvTensor: {name} has {tensor.dim()} dimensions, expected 2")
    if indices.dtype != torch.int32:
        raise ValueError(f"SparseConvTensor: indices has dtype {indices.dtype}, expected torch.int32")
    if len(spatial_shape) != indices.shape[1] - 1:
        raise ValueError(
            f"SparseConvTensor: spatial_shape has {len(spatial_shape)} elements, expected "
            f"{indices.shape[1] - 1}, one less than the columns of indices"
        )
    if batch_size <= 0:
        raise ValueError(f"SparseConvTensor: batch_size is {int(batch_size)}, expected 1 or more")
