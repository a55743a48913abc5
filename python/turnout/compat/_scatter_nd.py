"""``scatter_nd``, which both spconv and mmcv have."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def scatter_nd(indices: torch.Tensor, updates: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Zeros of this shape, with ``updates`` where ``indices [..., n]`` says in the first n dimensions.

    Of several updates of one place, any one counts.
    """
    n = indices.shape[-1]
    result = updates.new_zeros(list(shape))
    places = indices.reshape(-1, n).long().unbind(1)
    return result.index_put_(places, updates.reshape(-1, *shape[n:]))
