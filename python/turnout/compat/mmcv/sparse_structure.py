"""mmcv's sparse tensor."""

from __future__ import annotations

import math
from typing import Any

import torch

from turnout.compat._sparse import scatter_nd as scatter_nd
from turnout.torch.nn import Pairs, SparseTensor
from turnout.torch.nn.tensor import integers


class SparseConvTensor(SparseTensor):
    """mmcv's: all tensors that layers make from one share its ``indice_dict`` and write their pairs there.

    ``spatial_shape`` stays as it is given: a sequence, an array or a tensor. ``grid`` is kept and not used.
    """

    handed_on = ("grid",)

    def __init__(
        self,
        features: torch.Tensor,
        indices: torch.Tensor,
        spatial_shape: Any,
        batch_size: int,
        grid: torch.Tensor | None = None,
    ) -> None:
        super().__init__(features, indices, spatial_shape, batch_size)
        self.grid = grid

    def named(self, name: str, pairs: Pairs) -> dict[str, Pairs]:
        self.indice_dict[name] = pairs
        return self.indice_dict

    def find_indice_pair(self, key: str | None) -> tuple | None:
        """Output sites, input sites, pairs, their counts and the input's spatial shape of that name."""
        pairs = None if key is None else self.indice_dict.get(key)
        if pairs is None:
            return None
        return (
            pairs.out_indices,
            pairs.indices,
            pairs.indice_pairs,
            pairs.indice_num,
            list(pairs.spatial_shape),
        )

    @property
    def spatial_size(self) -> int:
        return math.prod(integers(self.spatial_shape))

    @property
    def sparity(self) -> float:
        """The fraction of sites that are active; the name is mmcv's."""
        return self.indices.shape[0] / self.spatial_size / int(self.batch_size)
