"""Which site meets which: the geometry of a layer, its pairs on given sites, and where they are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from turnout.torch.indice_convolution import indice_convolution_index
from turnout.torch.indice_pairs import get_indice_pairs
from turnout.torch.nn.traced_rows import two_rows_or_more


class Geometry(NamedTuple):
    """What of a layer decides its pairs; a tuple has one number for each spatial dimension.

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
        """The spatial shape of the outputs: that of the operator, in Python so that it can be traced."""
        if self.subm:
            return tuple(spatial_shape)
        rows = zip(spatial_shape, *self[:5], strict=True)
        if self.transpose:
            return tuple((i - 1) * s - 2 * p + k + extra for i, k, s, p, _, extra in rows)
        return tuple(1 if k == -1 else (i + 2 * p - d * (k - 1) - 1) // s + 1 for i, k, s, p, d, _ in rows)


@dataclass(eq=False)
class Pairs:
    """The pairs of one geometry on one set of sites: what :func:`turnout.torch.get_indice_pairs` finds.

    Layers share an object, so ``indices`` and ``out_indices`` are its own: sparse tensors get copies of them,
    which their users may change.

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
        """The index of these pairs for convolutions from ``rows`` to ``out_rows`` rows, built once.

        None while a program is traced: there the operator builds it in each call.
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
        """The pairs on these sites, which must not change afterwards."""
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
        """How many kernel offsets have pairs."""
        return self.indice_pairs.shape[0]


class _Sites:
    """One set of sites, as a copy that nobody else can change, with the pairs found on it."""

    def __init__(self, indices: torch.Tensor, batch_size: int, spatial_shape: tuple[int, ...]) -> None:
        self.indices = indices
        self.grid = batch_size, spatial_shape
        self.pairs: dict[Geometry, Pairs] = {}


class PairCache:
    """The pairs of all sparse tensors that were made from one: each geometry is built once.

    Sites are known by their content: they are compared with a kept copy. At 248 thousand sites that takes
    0.4 ms, and the pairs 48 ms. Version counters would not do: tensors of ``torch.inference_mode`` have none,
    and writes through NumPy do not count.

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
        """The pairs of ``geometry`` on these sites: kept ones, or new ones."""
        # A tensor that is traced has no content.
        if torch.compiler.is_compiling() or type(indices) is not torch.Tensor:
            return Pairs.build(indices.clone(), batch_size, spatial_shape, geometry)
        sites = self._find_sites(indices, batch_size, spatial_shape)
        if sites is not None and geometry in sites.pairs:
            return sites.pairs[geometry]
        with torch.inference_mode(False):  # whose tensors could not be saved for a gradient later
            if sites is None:
                sites = _Sites(indices.clone(), batch_size, spatial_shape)
            pairs = Pairs.build(sites.indices, batch_size, spatial_shape, geometry)
        if not sites.pairs:  # only now: of what the operator refuses nothing is kept
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
