"""The implemented part of ``spconv.pytorch.functional``: the sum of sparse tensors with different sites."""

from __future__ import annotations

import torch

from turnout.compat import _sparse
from turnout.compat.spconv.core import SparseConvTensor


def sparse_add(*tens: SparseConvTensor) -> SparseConvTensor:
    """Returns the sum at all sites of any of the tensors.

    The rows are those of the tensor with the most rows, followed by the sites it lacks. If it lacks none, its
    named pairs are kept.
    """
    for i, x in enumerate(tens):
        own = x.spatial_shape, int(x.batch_size), x.features.shape[1]
        first = tens[0].spatial_shape, int(tens[0].batch_size), tens[0].features.shape[1]
        if own != first:
            raise ValueError(
                f"sparse_add: tens[{i}] has a spatial shape, batch size and channels of {own}, expected "
                f"{first} as tens[0]"
            )
    most = max(tens, key=lambda x: x.features.shape[0])
    ordered = [most, *(x for x in tens if x is not most)]
    sites = torch.cat([x.indices for x in ordered])
    distinct, site_of_row, first_row = _sparse.distinct_sites(sites)
    order = first_row.argsort()
    number = torch.empty_like(order).scatter(0, order, torch.arange(len(order)))
    features = torch.cat([x.features for x in ordered])
    total = features.new_zeros((len(distinct), features.shape[1])).index_add(0, number[site_of_row], features)
    named = most.indice_dict if len(distinct) == len(most.indices) else {}
    return most.at(total, distinct[order], most.spatial_shape, named)


sparse_add_hash_based = sparse_add
