"""Turnout, and the floor: a streamed copy of the same bytes."""

from __future__ import annotations

import harness
import numpy as np
from harness import Entry
from moe_dispatch.shapes import Routed

import turnout


def copy_floor(routed: Routed) -> Entry:
    size = int(routed.kept.sum()) * routed.scale.hidden
    return harness.copy_floor(routed.input.reshape(-1)[:size])


def keep(routed: Routed, name: str = "turnout, rows kept") -> Entry:
    scale = routed.scale
    # np.full maps the pages, unlike np.zeros: all entries must write to the same kind of memory.
    out = np.full((scale.num_experts * scale.capacity, scale.hidden), 0, dtype=np.float32)

    def run() -> None:
        turnout.moe_dispatch_forward(
            routed.gates,
            routed.indices,
            routed.locations,
            routed.input,
            scale.capacity,
            scale.num_experts,
            out=out,
        )

    return Entry(name, run, lambda: out)


def zero(routed: Routed, name: str = "turnout, other rows zeroed") -> Entry:
    scale = routed.scale
    kept: list[np.ndarray] = []

    def run() -> None:
        kept[:] = [
            turnout.moe_dispatch_forward(
                routed.gates,
                routed.indices,
                routed.locations,
                routed.input,
                scale.capacity,
                scale.num_experts,
            )
        ]

    return Entry(name, run, lambda: kept[0])
