"""All calls of the sweep."""

from sweep import (  # noqa: F401
    box_calls,
    lattice_calls,
    moe_calls,
    point_calls,
    scatter_calls,
    small_calls,
    sparse_calls,
)
from sweep.point import CASES

__all__ = ["CASES"]
