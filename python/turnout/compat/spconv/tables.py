"""spconv's modules that split a network into branches and join them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from turnout.compat.spconv.core import SparseConvTensor
from turnout.compat.spconv.functional import sparse_add
from turnout.compat.spconv.modules import SparseModule


def _check(table: SparseModule, tensors: Sequence[SparseConvTensor], same_channels: bool) -> None:
    """Checks that the tensors can be combined row by row. Sites are not compared."""
    for i, x in enumerate(tensors):
        for name, own, first in (
            ("a spatial shape of", x.spatial_shape, tensors[0].spatial_shape),
            ("a batch size of", int(x.batch_size), int(tensors[0].batch_size)),
            ("rows:", x.indices.shape[0], tensors[0].indices.shape[0]),
            *([("channels:", x.features.shape[1], tensors[0].features.shape[1])] if same_channels else []),
        ):
            if own != first:
                raise ValueError(
                    f"{type(table).__name__}: input[{i}] has {name} {own}, expected {first} as input[0]"
                )


class ConcatTable(SparseModule):
    """Applies each of its modules to the same tensor and returns the list of results."""

    def add(self, module: torch.nn.Module) -> ConcatTable:
        self.add_module(str(len(self._modules)), module)
        return self

    def forward(self, input: Any) -> list[Any]:
        return [module(input) for module in self._modules.values()]


class AddTable(SparseModule):
    """Adds tensors with the same sites in the same order."""

    def forward(self, input: Sequence[SparseConvTensor]) -> SparseConvTensor:
        _check(self, input, same_channels=True)
        return input[0].with_features(sum(x.features for x in input))


class JoinTable(SparseModule):
    """Concatenates the channels of tensors with the same sites in the same order."""

    def forward(self, input: Sequence[SparseConvTensor]) -> SparseConvTensor:
        _check(self, input, same_channels=False)
        return input[0].with_features(torch.cat([x.features for x in input], 1))


class AddTableMisaligned(SparseModule):
    """:func:`turnout.compat.spconv.functional.sparse_add` as a module."""

    def forward(self, input: Sequence[SparseConvTensor]) -> SparseConvTensor:
        return sparse_add(*input)
