"""Turnout's expert block, and its floor: reading the weights that it needs."""

from __future__ import annotations

import torch
from harness import Entry
from moe_experts.shapes import Block

import turnout.torch


def experts(block: Block) -> Entry:
    kept: list[torch.Tensor] = []

    def run() -> None:
        weights = block.weights
        kept[:] = [turnout.torch.moe_experts(block.x, block.ids, block.gates, weights.w13, weights.w2)]

    return Entry("turnout.torch.moe_experts", run, lambda: kept[0].float().numpy())


def quantized(block: Block, bits: int) -> Entry:
    first, second = block.weights.quantized(bits)
    kept: list[torch.Tensor] = []

    def run() -> None:
        kept[:] = [turnout.torch.moe_experts_quantized(block.x, block.ids, block.gates, *first, *second)]

    return Entry(f"turnout.torch.moe_experts_quantized, {bits} bits", run)


def reading(block: Block) -> Entry:
    """The floor for few tokens: torch sums the active weights as if they were float32, on all threads."""
    active = block.ids.unique()
    parts = [
        w[e].view(torch.float32).flatten() for e in active for w in (block.weights.w13, block.weights.w2)
    ]
    return Entry("reading the active weights once", lambda: [part.sum() for part in parts])
