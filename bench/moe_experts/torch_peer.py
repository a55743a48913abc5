"""PyTorch with transformers' two implementations: grouped_mm on sorted rows, and a loop over experts."""

from __future__ import annotations

import torch
from harness import Entry
from moe_experts.shapes import Block

grouped_mm = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm


def grouped_block(
    x: torch.Tensor, ids: torch.Tensor, gates: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor
) -> torch.Tensor:
    order = ids.flatten().argsort()
    offs = torch.bincount(ids.flatten(), minlength=len(w13)).cumsum(0, dtype=torch.int32)
    rows = x[order // ids.shape[1]]
    gate, up = grouped_mm(rows, w13.mT, offs=offs).chunk(2, dim=1)
    y = grouped_mm(torch.nn.functional.silu(gate) * up, w2.mT, offs=offs)
    y = y * gates.flatten()[order, None]
    return torch.empty_like(y).index_copy(0, order, y).view(*ids.shape, -1).sum(1)


def grouped(block: Block) -> Entry:
    arguments = block.x, block.ids, block.gates, block.weights.w13, block.weights.w2
    kept: list[torch.Tensor] = []

    def run() -> None:
        kept[:] = [grouped_block(*arguments)]

    return Entry("torch, grouped_mm", run, lambda: kept[0].float().numpy())


def loop(block: Block) -> Entry:
    x, ids, gates, weights = block.x, block.ids, block.gates, block.weights
    kept: list[torch.Tensor] = []

    def run() -> None:
        out = torch.zeros_like(x)
        for expert in ids.unique().tolist():
            tokens, choices = torch.where(ids == expert)
            gate, up = torch.nn.functional.linear(x[tokens], weights.w13[expert]).chunk(2, dim=1)
            y = torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, weights.w2[expert])
            out.index_add_(0, tokens, y * gates[tokens, choices, None])
        kept[:] = [out]

    return Entry("torch, loop over experts", run, lambda: kept[0].float().numpy())
