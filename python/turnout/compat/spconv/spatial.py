"""spconv's module that removes repeated sites."""

from __future__ import annotations

from turnout.compat import _sparse
from turnout.compat.spconv.core import SparseConvTensor
from turnout.compat.spconv.modules import SparseModule


class RemoveDuplicate(SparseModule):
    """Keeps the first row of each site, in ascending order of sites, and drops named pairs."""

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        return x.select_by_index(_sparse.distinct_sites(x.indices)[2])
