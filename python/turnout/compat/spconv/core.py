"""spconv's sparse tensor, what it keeps of a layer's pairs, and the names of spconv's algorithms."""

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
    """spconv's algorithms. They decide where max pooling starts, and nothing else here."""

    Native = 0
    MaskImplicitGemm = 1
    MaskSplitImplicitGemm = 2


class AlgoHint(enum.Enum):
    """spconv's hints for its choice of kernels; they have no effect here. The second name is spconv's."""

    NoHint = 0b000
    Fowrard = 0b001
    BackwardInput = 0b010
    BackwardWeight = 0b100


def expand_nd(ndim: int, val: Any) -> list[int]:
    """One integer for each of ``ndim`` dimensions; a single one is for all."""
    return per_dimension("expand_nd", "val", val, ndim)


def default_algo(volume: int, most: int) -> ConvAlgo:
    """What spconv takes for a kernel of so many offsets where it has all of its algorithms."""
    return ConvAlgo.MaskImplicitGemm if volume <= most else ConvAlgo.Native


class IndiceData(Pairs):
    """The pairs that a layer gave a name, with spconv's names for the parts.

    ``indice_pairs`` is ``[offsets, 2, rows]`` with all pairs of all offsets, those of submanifold layers too.
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
    """spconv's: a layer that names its pairs adds them to a copy of ``indice_dict``, which its output has.

    Args:
        features: ``[rows, channels]``. May be assigned, and :meth:`replace_feature` makes another tensor.
        indices: ``[rows, 1 + dims]`` int32: batch element, then coordinates.
        spatial_shape: the extents of the grid, in any sequence; kept as a list.
        batch_size: how many batch elements there are.
        indice_dict: names of pairs, from another tensor.
        grid, voxel_num, benchmark, force_algo: kept, and not used.
        permanent_thrust_allocator, enable_timer: accepted, and not used.
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
        """The pairs of that name, if there are any."""
        return None if key is None else self.indice_dict.get(key)

    def replace_feature(self, feature: torch.Tensor) -> SparseConvTensor:
        """A tensor with other features. Rows are not compared with the sites, so these may be set next."""
        return self.with_features(feature)

    def shadow_copy(self) -> SparseConvTensor:
        return self.with_features(self.features)

    def select_by_index(self, valid_indices: torch.Tensor) -> SparseConvTensor:
        """The rows that these indices select. Named pairs are about all rows, so there are none."""
        return self.at(self.features[valid_indices], self.indices[valid_indices], self.spatial_shape, {})

    def minus(self) -> SparseConvTensor:
        return self.with_features(-self.features)

    @classmethod
    def from_dense(cls, x: torch.Tensor) -> SparseConvTensor:
        """The sites of ``x [batch_size, *spatial_shape, channels]`` that are not zero in all channels."""
        sites = (x != 0).any(-1).nonzero()
        return cls(x[sites.unbind(1)], sites.int(), x.shape[1:-1], x.shape[0])

    def __add__(self, other: Any) -> SparseConvTensor:
        """With the features of ``other``, a sparse tensor with the same sites, or with a tensor."""
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
    """What spconv checks. Rows are not compared."""
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
