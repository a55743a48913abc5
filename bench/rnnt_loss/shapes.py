"""Sizes and batches of the RNN-T benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch


@dataclass(frozen=True)
class Scale:
    """The sizes of a batch: utterances, frames, symbols, classes, rows of a pruned frame, joiner width."""

    batch: int
    frames: int
    symbols: int
    classes: int
    rows: int = 5
    width: int = 512

    @property
    def name(self) -> str:
        return f"[{self.batch}, {self.frames}, {self.symbols}, {self.classes}]"


RECIPE = Scale(16, 400, 60, 500)
JOINT = Scale(8, 200, 40, 500)


class Utterances:
    """Projections, texts and lengths of one batch. Lengths differ by up to a fifth."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        generator = torch.Generator().manual_seed(1)
        self.lm = torch.randn(scale.batch, scale.symbols + 1, scale.classes, generator=generator)
        self.am = torch.randn(scale.batch, scale.frames, scale.classes, generator=generator)
        self.text = torch.randint(1, scale.classes, (scale.batch, scale.symbols), generator=generator)
        self.hidden_lm = torch.randn(scale.batch, scale.symbols + 1, scale.width, generator=generator)
        self.hidden_am = torch.randn(scale.batch, scale.frames, scale.width, generator=generator)
        self.weight = torch.randn(scale.classes, scale.width, generator=generator) / scale.width**0.5
        self.bias = torch.zeros(scale.classes)
        shorter = torch.linspace(0.8, 1, scale.batch)
        ends = [(n * shorter).long().clamp(min=1) for n in (scale.symbols, scale.frames)]
        self.boundary = torch.stack([torch.zeros_like(ends[0])] * 2 + ends, 1)

    @cached_property
    def logits(self) -> torch.Tensor:
        return self.am.unsqueeze(2) + self.lm.unsqueeze(1)
