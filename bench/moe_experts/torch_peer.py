"""PyTorch in the two ways of transformers: grouped_mm on sorted rows, and a loop over experts."""

from __future__ import annotations

import torch
from harness import Entry
from moe_experts.shapes import EXPERTS, Block

_grouped_mm = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm


def grouped(block: Block) -> Entry:
    x, ids, gates, weights = block.x, block.ids, block.gates, block.weights
    kept: list[torch.Tensor] = []

    def run() -> None:
        order = ids.flatten().argsort()
        offs = torch.bincount(ids.flatten(), minlength=EXPERTS).cumsum(0, dtype=torch.int32)
        rows = x[order // ids.shape[1]]
        gate, up = _grouped_mm(rows, weights.w13.mT, offs=offs).chunk(2, dim=1)
        y = _grouped_mm(torch.nn.functional.silu(gate) * up, weights.w2.mT, offs=offs)
        y *= gates.flatten()[order, None]
        back = torch.empty_like(y)
        back[order] = y
        kept[:] = [back.view(*ids.shape, -1).sum(1)]

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
