"""One line of the demo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Results = np.ndarray | tuple[np.ndarray, ...]


@dataclass
class Job:
    """One operator at one size."""

    name: str
    scale: str
    run: Callable[[], Results]
    definition: Callable[[], Results]
    bytes_moved: int
    tolerance: float | None = None  # sum of errors / sum of values; None: bits must be equal
