"""mmcv's sparse tensor."""

from __future__ import annotations

import math
from typing import Any

import torch

from turnout.compat._sparse import scatter_nd as scatter_nd
from turnout.torch.nn import Pairs, SparseTensor
from turnout.torch.nn.tensor import integers


class SparseConvTensor(SparseTensor):
    """mmcv's sparse tensor. Tensors that layers make from it share its ``indice_dict`` and store pairs there.

    ``spatial_shape`` keeps the type it was given: a sequence, an array or a tensor. ``grid`` is not used.
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
        """Returns the output sites, input sites, pairs, counts and input shape stored as ``key``."""
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
        """The fraction of sites that are active. mmcv spells the name this way."""
        return self.indices.shape[0] / self.spatial_size / int(self.batch_size)
