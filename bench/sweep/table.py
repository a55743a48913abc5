"""All calls of the sweep."""

from sweep import box_calls, lattice_calls, moe_calls, scatter_calls, small_calls, sparse_calls  # noqa: F401
from sweep.point import CASES

__all__ = ["CASES"]
