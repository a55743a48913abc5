"""The published comparisons of the expert block."""

from __future__ import annotations

from functools import cache, partial

import torch
from harness import Entry
from moe_experts import torch_peer, turnout_entries
from moe_experts.shapes import CHOICES, DTYPES, EXPERTS, HIDDEN, INNER, Block, Weights
from recorded import Case, Programs

import turnout.torch

TOKENS = {"f32": (1, 16, 512), "bf16": (1, 16, 512, 2048)}
TOLERANCE = {"f32": 1e-5, "bf16": 2e-2}
TRAINED = 16  # experts in a training step; gradients take as much memory as weights
PEER = "PyTorch `grouped_mm` on sorted rows, as transformers"


def size_of(tokens: int, experts: int = EXPERTS) -> str:
    what = "1 token" if tokens == 1 else f"{tokens} tokens"
    return f"{what}, {experts} experts of {HIDDEN} x {INNER}, {CHOICES} choices"


def cases() -> list[Case]:
    found = []
    for dtype, counts in TOKENS.items():
        for tokens in counts:
            case = f"moe_experts-{dtype}-{tokens}", "moe_experts", size_of(tokens), dtype, PEER, "new"
            found.append(Case(*case, partial(forward, dtype, tokens)))
    step = "moe_experts and its gradients", size_of(256, TRAINED), "f32", PEER, "new"
    found.append(Case("moe_experts-step", *step, partial(training, 256)))
    for rows in (64, 4096):
        size = f"{rows} rows, {EXPERTS} experts of {HIDDEN} x {2 * INNER}"
        case = f"grouped_mm-{rows}", "grouped_mm", size, "bf16", "PyTorch `grouped_mm`", "new"
        found.append(Case(*case, partial(products, rows)))
    return found


@cache
def weights_of(dtype: str, experts: int = EXPERTS) -> Weights:
    return Weights(dtype, experts)


def forward(dtype: str, tokens: int) -> Programs:
    block = Block(weights_of(dtype), tokens)
    programs = turnout_entries.experts(block), torch_peer.grouped(block)
    return Programs(*programs, block.definition().numpy(), TOLERANCE[dtype])


def training(tokens: int) -> Programs:
    block = Block(weights_of("f32", TRAINED), tokens)
    inputs = [x.detach().clone().requires_grad_() for x in (block.x, block.weights.w13, block.weights.w2)]

    def entry(name: str, call) -> Entry:
        kept: list[torch.Tensor] = []

        def run() -> None:
            x, w13, w2 = inputs
            kept[:] = torch.autograd.grad(call(x, block.ids, block.gates, w13, w2).sum(), inputs)

        return Entry(name, run, lambda: tuple(x.numpy() for x in kept))

    ours, peer = entry("turnout", turnout.torch.moe_experts), entry("torch", torch_peer.grouped_block)
    return Programs(ours, peer, tolerance=1e-4)


def products(rows: int) -> Programs:
    """Multiplies rows that are spread evenly over the experts."""
    weight = weights_of("bf16").w13.mT
    x = torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(1)).to(DTYPES["bf16"])
    offs = torch.arange(1, EXPERTS + 1, dtype=torch.int32) * (rows // EXPERTS)

    def entry(name: str, call) -> Entry:
        kept: list[torch.Tensor] = []

        def run() -> None:
            kept[:] = [call(x, weight, offs=offs)]

        return Entry(name, run, lambda: kept[0].float().numpy())

    ours, peer = entry("turnout", turnout.torch.grouped_mm), entry("torch", torch_peer.grouped_mm)
    return Programs(ours, peer, tolerance=TOLERANCE["bf16"])
