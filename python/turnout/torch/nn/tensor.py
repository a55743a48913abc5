"""A sparse tensor: features at the active sites of a grid."""

from __future__ import annotations

from typing import Any, TypeVar

import torch

from turnout.torch.nn.geometry import Geometry, PairCache, Pairs

T = TypeVar("T", bound="SparseTensor")


def integers(values: Any) -> tuple[int, ...]:
    """Returns the values of a sequence, an array or a tensor as Python integers."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    return tuple(int(value) for value in values)


class SparseTensor:
    """Features at the active sites of a batch of grids; all other sites are zero.

    Args:
        features: ``[rows, channels]``.
        indices: ``[rows, 1 + dims]`` int32: the number of the batch element and the coordinates, which are in
            the order of ``spatial_shape``. Rows may be in any order.
        spatial_shape: the extents of the grid.
        batch_size: the number of batch elements; some may have no sites.

    ``features`` and ``indices`` may be assigned and modified in place. Tensors that layers make from this one
    inherit its ``indice_dict``, the pairs that layers have named, and share its ``cache``, all pairs that
    were built for any of them. The pairs live as long as the last of the tensors.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> x
        SparseTensor(rows=3, channels=1, spatial_shape=[6], batch_size=1, dtype=torch.float32)
        >>> x.dense().tolist()
        [[[1.0, 2.0, 0.0, 0.0, 0.0, 3.0]]]
    """

    # Attributes of a subclass that are copied to tensors made from this one.
    handed_on: tuple[str, ...] = ()

    def __init__(
        self, features: torch.Tensor, indices: torch.Tensor, spatial_shape: Any, batch_size: int
    ) -> None:
        self.features = features
        self.indices = indices
        self.spatial_shape = spatial_shape
        self.batch_size = batch_size
        self.indice_dict: dict[str, Pairs] = {}
        self.cache = PairCache()

    def with_features(self: T, features: torch.Tensor) -> T:
        """Returns a tensor with the same sites and other features."""
        return self.at(features, self.indices, self.spatial_shape, self.indice_dict)

    def at(
        self: T,
        features: torch.Tensor,
        indices: torch.Tensor,
        spatial_shape: Any,
        indice_dict: dict[str, Pairs],
    ) -> T:
        """Returns a tensor at other sites of the same batch, which shares the cache of pairs."""
        made = type(self)(features, indices, spatial_shape, self.batch_size)
        made.indice_dict = indice_dict
        made.cache = self.cache
        for name in self.handed_on:
            setattr(made, name, getattr(self, name))
        return made

    def find_pairs(self, geometry: Geometry) -> Pairs:
        """Returns the pairs of a geometry on these sites; builds them unless the cache has them."""
        return self.cache.find(self.indices, int(self.batch_size), integers(self.spatial_shape), geometry)

    def named(self, name: str, pairs: Pairs) -> dict[str, Pairs]:
        """Returns a copy of ``indice_dict`` with named pairs, for the output of a layer."""
        return {**self.indice_dict, name: pairs}

    def dense(self, channels_first: bool = True) -> torch.Tensor:
        """Returns ``[batch_size, channels, *spatial_shape]``, or with the channels last; 0 elsewhere.

        If a site is repeated, any one of its rows is used.
        """
        shape, channels = integers(self.spatial_shape), self.features.shape[1]
        ends = (channels, *shape) if channels_first else (*shape, channels)
        full = self.features.new_zeros((int(self.batch_size), *ends))
        at_sites = full.movedim(1, -1) if channels_first else full
        at_sites.index_put_(self.indices.long().unbind(1), self.features)
        return full

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "cache": PairCache()}  # the cache can be rebuilt

    def __repr__(self) -> str:
        rows, channels = self.features.shape
        return (
            f"{type(self).__name__}(rows={rows}, channels={channels}, "
            f"spatial_shape={list(integers(self.spatial_shape))}, batch_size={int(self.batch_size)}, "
            f"dtype={self.features.dtype})"
        )
