"""One operator at one named scale of the design documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Data:
    """The arguments of a case, as two functions that use them, and what the results are compared by."""

    sizes: str
    run: Callable[[], Any]  # an array, or a tuple of arrays
    definition: Callable[[], Any]
    # For each result its name and limit: 0 for equal values, else the largest diff1 and diff2.
    limits: dict[str, float]
    # What the work is compared with: one of these, or neither if the call has nothing to do.
    bytes_moved: int = 0  # a streamed copy that reads and writes as many bytes
    bytes_copied: int = 0  # a memcpy of that many bytes
    operations: int = 0  # the peak rate of fused multiply-adds
    # Makes a program that computes the first result with torch, for `turnout bench --peers`.
    torch: Callable[[], Callable[[], np.ndarray]] | None = None


@dataclass(frozen=True)
class Case:
    op: str
    document: str
    name: str
    make: Callable[[], Data] = field(repr=False)


class Cases:
    """The cases of a module, in their order there."""

    def __init__(self, document: str) -> None:
        self.document = document
        self.cases: list[Case] = []

    def add(self, op: str, name: str) -> Callable[[Callable[[], Data]], Callable[[], Data]]:
        """Decorates the function that makes the data of a case."""

        def keep(make: Callable[[], Data]) -> Callable[[], Data]:
            self.cases.append(Case(op, self.document, name, make))
            return make

        return keep


def arrays_of(results: Any) -> Arrays:
    return tuple(results) if isinstance(results, tuple) else (results,)
