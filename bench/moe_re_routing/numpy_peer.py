"""NumPy: take() with a precomputed index, which is not timed."""

from __future__ import annotations

import numpy as np
from harness import Entry
from moe_re_routing.shapes import Arrived


def entry(arrived: Arrived) -> Entry:
    out = np.ones_like(arrived.tokens)

    def run() -> None:
        np.take(
            arrived.tokens, arrived.order, axis=0, out=out, mode="clip"
        )  # mode="raise" would copy the result again

    return Entry("numpy, take(out=) with a ready index", run, lambda: out)
