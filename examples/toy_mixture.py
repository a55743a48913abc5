"""A mixture of experts learns a toy task: points of several kinds, each with its own linear map.

The gate is not told the kind of a point. It learns to send each kind to certain experts, which learn the
maps. Prints the losses and where each kind goes, and draws the loss and the load of each expert over time in
build/toy_mixture.svg. Run alone, this process has all experts. Under torchrun, each process has a part of the
experts and of the points, and the losses are the same.
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from turnout.torch import expert_parallel, grouped_experts

KINDS, EXPERTS, CHOICES, WIDTH, INNER = 6, 8, 2, 16, 32
BALANCE = 0.02  # weight of the loss that balances the load of the experts


class Points:
    """Points around one center per kind, and their images under the map of the kind."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.centers = 2 * torch.randn(KINDS, WIDTH, generator=generator)
        self.maps = 1.5 * torch.randn(KINDS, WIDTH, WIDTH, generator=generator) / math.sqrt(WIDTH)

    def draw(self, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        kinds = torch.randint(KINDS, (count,), generator=self.generator)
        noise = torch.randn(count, WIDTH, generator=self.generator)
        points = self.centers[kinds] + 0.5 * noise
        images = torch.einsum("nw,nwv->nv", noise, self.maps[kinds])
        return kinds, points, images


class Mixture(nn.Module):
    """The gate, which every process has, and this process's experts."""

    def __init__(self, rank: int, processes: int) -> None:
        super().__init__()
        if EXPERTS % processes != 0:
            raise SystemExit(f"there are {processes} processes, expected a divisor of {EXPERTS} experts")
        self.processes = processes
        self.gate = nn.Linear(WIDTH, EXPERTS)
        local = slice(rank * EXPERTS // processes, (rank + 1) * EXPERTS // processes)
        # Draw all experts on every process, so that an expert has the same values wherever it is.
        first = torch.randn(EXPERTS, WIDTH + 1, INNER) / math.sqrt(WIDTH)
        second = torch.randn(EXPERTS, INNER + 1, WIDTH) / math.sqrt(INNER)
        self.first, self.second = nn.Parameter(first[local]), nn.Parameter(second[local])

    def experts(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return grouped_experts(
            rows,
            counts,
            w13=self.first[:, :-1],
            w2=self.second[:, :-1],
            w13_bias=self.first[:, -1],
            w2_bias=self.second[:, -1],
            **{"activation": "relu", "gated": False, "transposed": True},
        )

    def forward(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the results, this process's share of the balance loss, and the load of all experts."""
        scores = self.gate(points).softmax(1)
        gates, indices = scores.topk(CHOICES, dim=1)
        gates = gates / gates.sum(1, keepdim=True)
        results = expert_parallel(points, indices, gates, self.experts, EXPERTS)
        load = torch.bincount(indices.flatten(), minlength=EXPERTS)
        if self.processes > 1:
            dist.all_reduce(load)
        # This process's scores times the total load: the shares of all processes add up to the loss.
        tokens = load.sum() / CHOICES
        balance = EXPERTS * torch.sum(scores.sum(0) / tokens * load / load.sum())
        return results, balance, load

    def add_up_gradients(self) -> None:
        """Sums the gradients of the gate. Those of the experts already include all processes."""
        if self.processes > 1:
            for parameter in self.gate.parameters():
                dist.all_reduce(parameter.grad)


def add_up(value: torch.Tensor, processes: int) -> float:
    value = value.detach().clone()
    if processes > 1:
        dist.all_reduce(value)
    return value.item()


def draw(path: Path, losses: list[float], loads: torch.Tensor) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (curve, load) = pyplot.subplots(1, 2, figsize=(11, 4))
    curve.semilogy(losses)
    curve.set(title="mean squared error", xlabel="step")
    fractions = (loads / loads.sum(1, keepdim=True)).T.numpy()
    names = [f"expert {e}" for e in range(EXPERTS)]
    load.stackplot(range(len(losses)), fractions, labels=names, colors=pyplot.get_cmap("tab10").colors)
    load.set(title="load of the experts", xlabel="step", ylabel="part of all choices", ylim=(0, 1))
    load.margins(x=0)
    load.legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> tuple[list[float], torch.Tensor]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--points", type=int, default=1024, help="points per step, on all processes together")
    parser.add_argument("--out", type=Path, default=Path("build/toy_mixture.svg"))
    parser.add_argument("--small", action="store_true", help="a quick trial: 60 steps of 256 points")
    options = parser.parse_args(arguments)
    if options.small:
        options.steps, options.points = 60, 256

    under_torchrun = "WORLD_SIZE" in os.environ
    if under_torchrun:
        dist.init_process_group("gloo")
    rank, processes = (dist.get_rank(), dist.get_world_size()) if under_torchrun else (0, 1)
    torch.manual_seed(1)
    points_of_all = Points(torch.Generator().manual_seed(2))
    model = Mixture(rank, processes)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses, loads = [], []
    for step in range(options.steps):
        _, points, images = points_of_all.draw(options.points)
        points, images = (part.tensor_split(processes)[rank] for part in (points, images))
        results, balance, load = model(points)
        # This process's share of the loss: shares and gradients are summed over the processes.
        error = (results - images).square().sum() / (options.points * WIDTH)
        optimizer.zero_grad()
        (error + BALANCE * balance).backward()
        model.add_up_gradients()
        optimizer.step()
        losses.append(add_up(error, processes))
        loads.append(load)
        if rank == 0 and (step % max(1, options.steps // 8) == 0 or step == options.steps - 1):
            print(f"step {step:4d}  loss {losses[-1]:.4f}  tokens per expert {load.tolist()}")

    kinds, points, _ = points_of_all.draw(1000)
    if rank == 0:
        chosen = model.gate(points).argmax(1)
        table = torch.zeros(KINDS, EXPERTS, dtype=torch.int64)
        table.index_put_((kinds, chosen), torch.ones_like(kinds), accumulate=True)
        for kind, row in enumerate(table / table.sum(1, keepdim=True)):
            print(f"kind {kind}: {row.max():4.0%} of the points choose first expert {int(row.argmax())}")
        draw(options.out, losses, torch.stack(loads))
        print(f"wrote {options.out}; processes: {processes}")
    if under_torchrun:
        dist.destroy_process_group()
    return losses, torch.stack(loads)


if __name__ == "__main__":
    main()
