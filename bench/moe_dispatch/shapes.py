"""Sizes and routing of the moe_dispatch benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Scale:
    samples: int
    hidden: int
    num_experts: int
    capacity: int

    @property
    def name(self) -> str:
        return f"{self.samples}x{self.hidden} E={self.num_experts} C={self.capacity}"


SEED = Scale(18432, 512, 2, 11520)
WIDE = Scale(16384, 4096, 64, 288)


class Routed:
    """Random routing. Each expert takes its tokens in order and drops those beyond its capacity."""

    def __init__(self, scale: Scale, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.scale = scale
        self.gates = random.random(scale.samples, dtype=np.float32)
        self.indices = random.integers(0, scale.num_experts, scale.samples, dtype=np.int32)
        self.locations = np.zeros(scale.samples, dtype=np.int32)
        for expert in range(scale.num_experts):
            mine = self.indices == expert
            self.locations[mine] = np.arange(mine.sum(), dtype=np.int32)
        self.input = random.random((scale.samples, scale.hidden), dtype=np.float32)
        self.kept = self.locations < scale.capacity
        self.rows = self.indices.astype(np.int64)[self.kept] * scale.capacity + self.locations[self.kept]

    @property
    def row_bytes(self) -> int:
        return self.scale.hidden * 4

    def definition(self) -> np.ndarray:
        """Returns the expected dispatch buffer, with zeros in rows without a token."""
        out = np.zeros((self.scale.num_experts * self.scale.capacity, self.scale.hidden), dtype=np.float32)
        out[self.rows] = self.gates[self.kept, None] * self.input[self.kept]
        return out
