"""spconv's module that removes repeated sites."""

from __future__ import annotations

import torch

from turnout.compat.spconv.core import SparseConvTensor
from turnout.compat.spconv.modules import SparseModule


class RemoveDuplicate(SparseModule):
    """Keeps the first row of each site, in ascending order of the sites. Named pairs are about all rows."""

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        sites, site_of_row = torch.unique(x.indices, dim=0, return_inverse=True)
        rows = torch.arange(len(x.indices))
        first = rows.new_empty(len(sites)).scatter_reduce(0, site_of_row, rows, "amin", include_self=False)
        return x.select_by_index(first)
