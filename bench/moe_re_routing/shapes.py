"""Sizes and token counts of the moe_re_routing benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

DTYPES = {"i8": np.int8, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


@dataclass
class Scale:
    dtype: str
    rows: int
    hidden: int
    ranks: int
    experts: int

    @property
    def name(self) -> str:
        return f"{self.dtype} {self.rows}x{self.hidden} N={self.ranks} E={self.experts}"


SCALES = [
    Scale("i8", 16384, 7168, 8, 32),
    Scale("i8", 16384, 7168, 64, 32),
    Scale("bf16", 16384, 4096, 16, 32),
    Scale("f16", 8192, 7168, 16, 16),
    Scale("i8", 16384, 7168, 64, 256),  # runs of 1 to 3 tokens
]


class Arrived:
    """Tokens of random bits, grouped by rank, each for a random expert."""

    def __init__(self, scale: Scale, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.scale = scale
        pairs = scale.ranks * scale.experts
        counts = random.multinomial(scale.rows, np.full(pairs, 1 / pairs))
        self.counts = counts.reshape(scale.ranks, scale.experts).astype(np.int32)
        size = scale.hidden * np.dtype(DTYPES[scale.dtype]).itemsize
        self.bytes = random.integers(0, 256, (scale.rows, size), dtype=np.uint8)
        self.tokens = self.bytes.view(DTYPES[scale.dtype])
        # A stable sort by expert gives the order of the definition.
        experts = np.repeat(np.tile(np.arange(scale.experts), scale.ranks), counts)
        self.order = np.argsort(experts, kind="stable")

    def definition(self) -> np.ndarray:
        """Returns the expected permute_tokens, as bytes."""
        return self.bytes[self.order]
