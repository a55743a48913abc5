"""Sizes and lattices of the mutual_information benchmarks, and their expected results in float64."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Scale:
    batch: int
    symbols: int
    frames: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.batch, self.symbols, self.frames

    @property
    def name(self) -> str:
        return f"({self.batch}, {self.symbols}, {self.frames})"


SEED = Scale(4, 15, 104)
SPEECH = Scale(32, 50, 500)
LONG = Scale(16, 200, 1500)
ONE = Scale(1, 200, 1500)


def flat(*results: np.ndarray) -> np.ndarray:
    return np.concatenate([np.asarray(x, dtype=np.float64).ravel() for x in results])


class Lattices:
    """Regular lattices without a boundary, float32."""

    def __init__(self, scale: Scale, kind: str = "", seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.scale, self.kind = scale, kind
        batch, symbols, frames = scale.shape
        self.px = random.uniform(-3, 0, (batch, symbols, frames + 1)).astype(np.float32)
        self.py = random.uniform(-3, 0, (batch, symbols + 1, frames)).astype(np.float32)
        if kind == "subnormal gradients":
            # Leaving the first row early costs a factor exp(-95), so nearly all gradients are subnormal.
            self.px[:, 0, : frames - 10] -= 95
        elif kind == "subnormal inputs":
            for x in (self.px, self.py):
                x *= np.float32(1e-39)

    @property
    def name(self) -> str:
        return self.scale.name + (f", {self.kind}" if self.kind else "")

    @cached_property
    def exact_p(self) -> np.ndarray:
        """Computes p in float64, one anti-diagonal of all lattices at a time."""
        _, symbols, frames = self.scale.shape
        px, py = self.px.astype(np.float64), self.py.astype(np.float64)
        p = np.full((len(px), symbols + 1, frames + 1), -np.inf)
        p[:, 0, 0] = 0
        for d in range(1, symbols + frames + 1):
            s = np.arange(max(0, d - frames), min(symbols, d) + 1)
            t = d - s
            up, left = s > 0, t > 0
            terms = np.full((2, len(px), len(s)), -np.inf)
            terms[0][:, up] = p[:, s[up] - 1, t[up]] + px[:, s[up] - 1, t[up]]
            terms[1][:, left] = p[:, s[left], t[left] - 1] + py[:, s[left], t[left] - 1]
            p[:, s, t] = np.logaddexp(*terms)
        return p

    @cached_property
    def exact_grads(self) -> tuple[np.ndarray, np.ndarray]:
        """Computes the gradients for an ans_grad of 1."""
        _, symbols, frames = self.scale.shape
        p = self.exact_p
        x = np.exp(p[:, :-1] - p[:, 1:] + self.px)
        y = np.exp(p[:, :, :-1] - p[:, :, 1:] + self.py)
        g = np.zeros_like(p)
        g[:, symbols, frames] = 1
        for d in range(symbols + frames - 1, -1, -1):
            s = np.arange(max(0, d - frames), min(symbols, d) + 1)
            t = d - s
            down, right = s < symbols, t < frames
            x[:, s[down], t[down]] *= g[:, s[down] + 1, t[down]]
            g[:, s[down], t[down]] += x[:, s[down], t[down]]
            y[:, s[right], t[right]] *= g[:, s[right], t[right] + 1]
            g[:, s[right], t[right]] += y[:, s[right], t[right]]
        return x, y

    @cached_property
    def p(self) -> np.ndarray:
        """The input of the backward operators: the exact p, rounded to float32."""
        return self.exact_p.astype(np.float32)

    @cached_property
    def ans(self) -> np.ndarray:
        return self.p[:, -1, -1].copy()

    def subnormal_share(self) -> float:
        """Returns the fraction of subnormal gradients, from their float64 definition."""
        values = flat(*self.exact_grads)
        return float(np.mean((values > 0) & (values < np.finfo(np.float32).tiny)))
