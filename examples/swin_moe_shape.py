"""The experts of a Swin-MoE block at their real shape: 18432 tokens, 2 experts, capacity factor 1.25.

Runs routing, dispatch, experts and combine, forward and backward. Compares the results with plain torch and
prints the times of both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn import functional

from turnout.compat.tutel import moe

TOKENS, EXPERTS, FACTOR = 18432, 2, 1.25


class Block:
    """Tokens, gate and two expert networks; ``skew`` gives the first expert more tokens than its capacity."""

    def __init__(self, tokens: int, hidden: int, inner: int, skew: float) -> None:
        generator = torch.Generator().manual_seed(0)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator) / shape[-2] ** 0.5

        self.tokens = torch.randn(tokens, hidden, generator=generator).requires_grad_()
        self.gate = random(hidden, EXPERTS).requires_grad_()
        self.bias = torch.tensor([skew, 0.0])
        self.first = random(EXPERTS, hidden, inner).requires_grad_()
        self.second = random(EXPERTS, inner, hidden).requires_grad_()

    def scores(self) -> torch.Tensor:
        return functional.softmax(self.tokens @ self.gate + self.bias, dim=1)

    def experts(self, rows: torch.Tensor) -> torch.Tensor:
        return functional.gelu(rows @ self.first) @ self.second

    def with_turnout(self) -> torch.Tensor:
        critical, _ = moe.extract_critical(self.scores(), 1, capacity_factor=FACTOR)
        return moe.fast_decode(self.experts(moe.fast_encode(self.tokens, critical)), critical)

    def with_torch(self) -> torch.Tensor:
        """Computes the same with one-hot masks, running sums and index operations."""
        scores = self.scores()
        gates, chosen = scores.max(1)
        mask = functional.one_hot(chosen, EXPERTS)
        slot = ((mask.cumsum(0) - 1) * mask).sum(1)
        capacity = int(FACTOR * -(-len(chosen) // EXPERTS))
        kept = (slot < capacity).nonzero()[:, 0]
        row = chosen[kept] * capacity + slot[kept]
        slots = self.tokens.new_zeros(EXPERTS * capacity, self.tokens.shape[1])
        slots = slots.index_copy(0, row, self.tokens[kept])
        results = self.experts(slots.view(EXPERTS, capacity, -1)).flatten(0, 1)
        output = torch.zeros_like(self.tokens)
        return output.index_copy(0, kept, gates[kept, None] * results[row])

    def gradients(self, output: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs = (self.tokens, self.gate, self.first, self.second)
        return torch.autograd.grad(output, inputs, torch.ones_like(output))


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Returns the largest difference, relative to the largest value."""
    return ((a - b).abs().max() / b.abs().max()).item()


def seconds(block: Block, forward: Callable[[], torch.Tensor]) -> tuple[float, float]:
    start = time.perf_counter()
    output = forward()
    middle = time.perf_counter()
    block.gradients(output)
    return middle - start, time.perf_counter() - middle


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--inner", type=int, default=2048, help="inner width of an expert")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a quick trial with hidden 16 and inner 32")
    options = parser.parse_args(arguments)
    if options.small:
        options.hidden, options.inner, options.repeat = 16, 32, 1

    block = Block(TOKENS, options.hidden, options.inner, skew=0.8)
    critical, _ = moe.extract_critical(block.scores(), 1, capacity_factor=FACTOR)
    capacity, counts = critical[4], critical[5].tolist()
    dropped = sum(max(0, count - capacity) for count in counts)
    print(f"{TOKENS} tokens, {EXPERTS} experts, factor {FACTOR}: capacity {capacity}")
    print(f"tokens per expert {counts}, of which {dropped} are dropped")

    ours, plain = block.with_turnout(), block.with_torch()
    worst = difference(ours, plain)
    pairs = zip(block.gradients(ours), block.gradients(plain), strict=True)
    worst_gradient = max(difference(a, b) for a, b in pairs)
    print(f"relative difference from plain torch: output {worst:.1e}, gradients {worst_gradient:.1e}")
    if max(worst, worst_gradient) > 1e-4:
        raise SystemExit("the differences exceed rounding errors: expected at most 1e-4")

    # Alternate, so that other work on the machine affects both.
    runs = [
        (seconds(block, block.with_turnout), seconds(block, block.with_torch)) for _ in range(options.repeat)
    ]
    for i, name in enumerate(("forward", "backward")):
        mine, theirs = (statistics.median(run[who][i] for run in runs) for who in (0, 1))
        print(f"{name:8s}  {1e3 * mine:8.1f} ms, plain torch {1e3 * theirs:8.1f} ms")
    return {"capacity": capacity, "dropped": dropped, "difference": max(worst, worst_gradient)}


if __name__ == "__main__":
    main()
