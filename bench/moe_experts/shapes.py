"""Sizes, weights and routings of the benchmarks of the expert block."""

from __future__ import annotations

import functools

import torch

import turnout.torch

# A block of Qwen3-30B-A3B, with half of its experts to fit a small machine in float32.
HIDDEN, INNER, EXPERTS, CHOICES = 2048, 768, 64, 8
TOKENS = (1, 4, 16, 64, 512)
DECODING = 16  # up to this many tokens, reading the weights dominates
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Weights:
    def __init__(self, dtype: str, experts: int = EXPERTS) -> None:
        random = torch.Generator().manual_seed(1)

        def values(rows: int, depth: int) -> torch.Tensor:
            made = torch.empty(experts, rows, depth, dtype=DTYPES[dtype])
            for expert in made:  # one by one, to avoid a second copy in float32
                expert.copy_(torch.randn(rows, depth, generator=random) / depth**0.5)
            return made

        self.dtype, self.experts = dtype, experts
        self.w13, self.w2 = values(2 * INNER, HIDDEN), values(HIDDEN, INNER)

    @functools.cache  # noqa: B019  there are two of these, for the whole run
    def quantized(self, bits: int) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        return tuple(turnout.torch.quantize_experts(w, bits=bits) for w in (self.w13, self.w2))


class Block:
    def __init__(self, weights: Weights, tokens: int) -> None:
        random = torch.Generator().manual_seed(tokens)
        self.weights = weights
        self.x = torch.randn(tokens, HIDDEN, generator=random).to(DTYPES[weights.dtype])
        scores = torch.rand(tokens, weights.experts, generator=random)
        gates, self.ids = scores.softmax(1).topk(CHOICES)
        self.gates = (gates / gates.sum(1, keepdim=True)).to(self.x.dtype)

    @property
    def active_bytes(self) -> int:
        """Returns the bytes of all weights that any token needs."""
        experts = len(self.ids.unique())
        return experts * 3 * INNER * HIDDEN * self.x.element_size()

    def definition(self) -> torch.Tensor:
        """Computes in float32, which is precise enough to detect a wrong program."""
        out = torch.zeros(self.x.shape)
        for expert in self.ids.unique().tolist():
            tokens, choices = (self.ids == expert).nonzero(as_tuple=True)
            gate, up = (self.x[tokens].float() @ self.weights.w13[expert].float().T).chunk(2, dim=1)
            y = (torch.nn.functional.silu(gate) * up) @ self.weights.w2[expert].float().T
            out.index_add_(0, tokens, y * self.gates[tokens, choices, None].float())
        return out
