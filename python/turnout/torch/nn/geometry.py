"""The geometry of a layer, its pairs on given sites, and the cache of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from turnout.torch.indice_convolution import indice_convolution_index
from turnout.torch.indice_pairs import get_indice_pairs
from turnout.torch.nn.traced_rows import two_rows_or_more


class Geometry(NamedTuple):
    """The parameters of a layer that determine its pairs; tuples have one number per spatial dimension.

    Example:
        >>> halves = turnout.torch.nn.Geometry((3,), (2,), (1,), (1,), (0,), subm=False, transpose=False)
        >>> halves.out_shape([41])
        (21,)
    """

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    subm: bool
    transpose: bool

    def out_shape(self, spatial_shape: Sequence[int]) -> tuple[int, ...]:
        """Returns the spatial shape of the outputs, like the operator, but in traceable Python."""
        if self.subm:
            return tuple(spatial_shape)
        rows = zip(spatial_shape, *self[:5], strict=True)
        if self.transpose:
            return tuple((i - 1) * s - 2 * p + k + extra for i, k, s, p, _, extra in rows)
        return tuple(1 if k == -1 else (i + 2 * p - d * (k - 1) - 1) // s + 1 for i, k, s, p, d, _ in rows)


@dataclass(eq=False)
class Pairs:
    """The pairs of one geometry on one set of sites, from :func:`turnout.torch.get_indice_pairs`.

    Layers share this object, so sparse tensors get copies of ``indices`` and ``out_indices``, which users may
    modify.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> halves = turnout.torch.nn.Geometry((2,), (2,), (0,), (1,), (0,), subm=False, transpose=False)
        >>> pairs = x.find_pairs(halves)
        >>> pairs.out_indices.tolist(), pairs.indice_num.tolist()
        ([[0, 0], [0, 2]], [1, 2])
    """

    geometry: Geometry
    batch_size: int
    spatial_shape: tuple[int, ...]
    indices: torch.Tensor
    out_spatial_shape: tuple[int, ...]
    out_indices: torch.Tensor
    indice_pairs: torch.Tensor
    indice_num: torch.Tensor
    _indexes: dict[tuple[int, int, bool, bool], torch.Tensor] = field(default_factory=dict, repr=False)

    def index(self, rows: int, out_rows: int, *, inverse: bool, subm: bool) -> torch.Tensor | None:
        """Returns the index of these pairs for convolutions from ``rows`` to ``out_rows`` rows, built once.

        Returns None while a program is traced; the operator then builds one in each call.
        """
        if torch.compiler.is_compiling() or type(self.indice_pairs) is not torch.Tensor:
            return None
        key = rows, out_rows, inverse, subm
        if key not in self._indexes:
            with torch.inference_mode(False):
                self._indexes[key] = indice_convolution_index(
                    self.indice_pairs, self.indice_num, rows, out_rows, inverse=inverse, subm=subm
                )
        return self._indexes[key]

    @classmethod
    def build(
        cls, indices: torch.Tensor, batch_size: int, spatial_shape: tuple[int, ...], geometry: Geometry
    ) -> Pairs:
        """Finds the pairs on these sites, which must not change afterwards."""
        *vectors, subm, transpose = geometry
        out_indices, indice_pairs, indice_num = get_indice_pairs(
            indices, batch_size, spatial_shape, *vectors, subm=subm, transpose=transpose
        )
        if subm:
            out_indices = indices
        elif torch.compiler.is_compiling():
            out_indices = two_rows_or_more(out_indices)
        return cls(
            geometry,
            batch_size,
            spatial_shape,
            indices,
            geometry.out_shape(spatial_shape),
            out_indices,
            indice_pairs,
            indice_num,
        )

    @property
    def volume(self) -> int:
        """The number of kernel offsets."""
        return self.indice_pairs.shape[0]


class _Sites:
    """A private copy of one set of sites, with the pairs found on it."""

    def __init__(self, indices: torch.Tensor, batch_size: int, spatial_shape: tuple[int, ...]) -> None:
        self.indices = indices
        self.grid = batch_size, spatial_shape
        self.pairs: dict[Geometry, Pairs] = {}


class PairCache:
    """The pairs of all sparse tensors that were made from one another; each geometry is built once.

    Sites are compared with a kept copy. For 248 thousand sites that takes 0.4 ms, and building the pairs
    48 ms. Version counters are not enough: tensors of ``torch.inference_mode`` have none, and writes through
    NumPy do not increment them.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> halves = turnout.torch.nn.Geometry((2,), (2,), (0,), (1,), (0,), subm=False, transpose=False)
        >>> x.cache.find(sites, 1, (6,), halves) is x.find_pairs(halves)
        True
    """

    def __init__(self) -> None:
        self._known: list[_Sites] = []

    def find(
        self, indices: torch.Tensor, batch_size: int, spatial_shape: tuple[int, ...], geometry: Geometry
    ) -> Pairs:
        """Returns the cached pairs of ``geometry`` on these sites, or builds them."""
        # A traced tensor has no content to compare.
        if torch.compiler.is_compiling() or type(indices) is not torch.Tensor:
            return Pairs.build(indices.clone(), batch_size, spatial_shape, geometry)
        sites = self._find_sites(indices, batch_size, spatial_shape)
        if sites is not None and geometry in sites.pairs:
            return sites.pairs[geometry]
        with torch.inference_mode(False):  # inference tensors cannot be saved for a later gradient
            if sites is None:
                sites = _Sites(indices.clone(), batch_size, spatial_shape)
            pairs = Pairs.build(sites.indices, batch_size, spatial_shape, geometry)
        if not sites.pairs:  # only after build() has accepted the sites
            self._known.append(sites)
        sites.pairs[geometry] = pairs
        return pairs

    def _find_sites(
        self, indices: torch.Tensor, batch_size: int, spatial_shape: tuple[int, ...]
    ) -> _Sites | None:
        for sites in self._known:
            if (
                sites.grid == (batch_size, spatial_shape)
                and sites.indices.dtype == indices.dtype
                and torch.equal(sites.indices, indices)
            ):
                return sites
        return None
