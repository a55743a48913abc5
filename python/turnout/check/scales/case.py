"""One operator at one named scale of the design documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Data:
    """Two functions that compute a case, and how to compare and time their results."""

    sizes: str
    run: Callable[[], Any]  # returns an array or a tuple of arrays
    definition: Callable[[], Any]
    # Maps each result's name to its limit: 0 requires equal values, others bound diff1 and diff2.
    limits: dict[str, float]
    # The work that the time is compared with. At most one is set; none if the call has nothing to do.
    bytes_moved: int = 0  # as a streamed copy that reads and writes this many bytes in total
    bytes_copied: int = 0  # as a memcpy of this many bytes
    operations: int = 0  # at the peak rate of fused multiply-adds
    # Returns a program that computes the first result with torch, for `turnout bench --peers`.
    torch: Callable[[], Callable[[], np.ndarray]] | None = None


@dataclass(frozen=True)
class Case:
    op: str
    document: str
    name: str
    make: Callable[[], Data] = field(repr=False)


class Cases:
    """The cases of a module, in source order."""

    def __init__(self, document: str) -> None:
        self.document = document
        self.cases: list[Case] = []

    def add(self, op: str, name: str) -> Callable[[Callable[[], Data]], Callable[[], Data]]:
        """Decorates a function that makes the data of a case."""

        def keep(make: Callable[[], Data]) -> Callable[[], Data]:
            self.cases.append(Case(op, self.document, name, make))
            return make

        return keep


def arrays_of(results: Any) -> Arrays:
    return tuple(results) if isinstance(results, tuple) else (results,)
