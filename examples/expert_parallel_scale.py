"""Shows what experts on several processes cost: bytes of each step, many simulated ranks, a few measured.

Run alone, it prints the bytes per token and a simulation. Under torchrun, it runs expert_parallel forward and
backward and compares the bytes that each process passes to all_to_all_single with the computed ones.
docs/expert_parallel_scale.md has the output.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from turnout.torch import expert_parallel

COUNT_BYTES = 8  # int64
# The row width, the bytes per element and the number of experts per rank are sent with the counts; the width
# and the bytes of the results are sent before the results.
COMMON_COUNTS = 5


@dataclass
class Shape:
    tokens: int  # per rank
    choices: int
    hidden: int
    inner: int  # inner width of an expert
    experts: int  # on all ranks
    element: int = 4  # bytes

    def rows(self) -> int:
        """Returns how many rows a rank sends, including to itself."""
        return self.tokens * self.choices

    def row_bytes(self) -> int:
        return self.hidden * self.element


# -- on paper ----------------------------------------------------------------------------------------------


def memory_steps(shape: Shape) -> list[tuple[str, int, int]]:
    """Lists each step with the bytes per token that a rank with balanced load reads and writes."""
    row, choices = shape.row_bytes(), shape.choices
    gates = choices * shape.element
    return [
        ("permute", (1 + choices) * row, (choices + 1) * row),
        ("re-route", 2 * choices * row, 2 * choices * row),
        ("experts, without weights", 2 * choices * row, 3 * choices * row),
        ("inverse", 2 * choices * row, 2 * choices * row),
        ("combine", (choices + 1) * row + gates, (2 * choices + 1) * row + 2 * gates),
    ]


def count_bytes(ranks: int, shape: Shape) -> int:
    """Returns the bytes that a rank sends to announce the sizes of its rows and results."""
    return (ranks - 1) * (COMMON_COUNTS + shape.experts // ranks) * COUNT_BYTES


def sent_bytes(rows: np.ndarray, shape: Shape) -> np.ndarray:
    """Returns the bytes each rank sends to others forward and backward, for ``rows[source, destination]``.

    Forward, a rank sends its rows to the experts and returns results for the rows it received. Backward, it
    sends the gradients of the results and returns those of the rows.
    """
    to_others = rows.sum(1) - rows.diagonal()
    from_others = rows.sum(0) - rows.diagonal()
    return 2 * (to_others + from_others) * shape.row_bytes() + count_bytes(len(rows), shape)


def weights_of(experts: int, skew: float) -> np.ndarray:
    """Returns the popularity of each expert: k ** -skew for the k-th, in random order."""
    return np.random.default_rng(0).permutation(np.arange(1, experts + 1) ** -skew)


def chances(weights: np.ndarray, choices: int) -> np.ndarray:
    """Returns how likely each expert is among the distinct choices of a token; the sum is ``choices``.

    Choosing without replacement is a race of clocks with the weights as rates, which ends when ``choices``
    of them have rung. With many experts, its end time hardly varies; this searches for it.
    """
    low, high = 0.0, 1e6 / weights.min()
    for _ in range(200):
        end = (low + high) / 2
        low, high = (end, high) if -np.expm1(-end * weights).sum() < choices else (low, end)
    return -np.expm1(-high * weights)


@dataclass
class Machine:
    gigabytes: float  # per second that a rank can send while it receives as much
    teraflops: float
    microseconds: float  # latency of a message


def simulate(ranks: int, skew: float, shape: Shape, machine: Machine) -> dict[str, float]:
    """Simulates a forward pass of all ranks: bytes sent, the highest load, and the slowest rank's time."""
    likely = chances(weights_of(shape.experts, skew), shape.choices)
    counts = np.random.default_rng(1).multinomial(shape.rows(), likely / likely.sum(), size=ranks)
    rows = counts.reshape(ranks, ranks, -1).sum(2)
    others = rows - np.diag(rows.diagonal())
    busiest = max(others.sum(0).max(), others.sum(1).max()) * shape.row_bytes()
    start = (ranks - 1) * machine.microseconds * 1e-6
    # Exchanges counts, rows, the width of the results, and results; two of the four are pure latency.
    exchange = 4 * start + 2 * busiest / (machine.gigabytes * 1e9)
    work = 4 * rows.sum(0).max() * shape.hidden * shape.inner / (machine.teraflops * 1e12)
    return {
        "sent": 2 * others.sum(1).mean() * shape.row_bytes(),
        "load": rows.sum(0).max() / rows.sum(0).mean(),
        "message": shape.rows() * shape.row_bytes() / ranks,
        "exchange": exchange,
        "latency": 4 * start / exchange,
        "work": work,
    }


def on_paper(options: argparse.Namespace, shape: Shape) -> list[dict[str, float]]:
    print("memory, bytes per token        forward   backward")
    for name, forward, backward in memory_steps(shape):
        print(f"{name:28s} {forward:9d}  {backward:9d}")
    machine = Machine(options.gigabytes, options.teraflops, options.microseconds)
    print()
    print(
        f"{shape.tokens} tokens per rank, {shape.choices} of {shape.experts} experts, rows of "
        f"{shape.row_bytes()} bytes; {machine.gigabytes} GB/s, {machine.teraflops} TFLOP/s, "
        f"{machine.microseconds} us per message; forward"
    )
    print("ranks  skew  sent/rank   per token  worst load  per message   exchange  of it latency    experts")
    results = []
    for ranks in options.ranks:
        for skew in options.skew:
            run = simulate(ranks, skew, shape, machine)
            results.append({"ranks": ranks, "skew": skew, **run})
            print(
                f"{ranks:5d}  {skew:4.1f}  {run['sent'] / 1e6:6.1f} MB  {run['sent'] / shape.tokens:8.0f} B"
                f"  {run['load']:9.2f}x  {run['message'] / 1e3:8.1f} kB  {1e3 * run['exchange']:6.2f} ms"
                f"  {run['latency']:13.0%}  {1e3 * run['work']:6.2f} ms"
            )
    return results


# -- measured ----------------------------------------------------------------------------------------------


class Meter:
    """Counts the bytes that all_to_all_single sends to other ranks, and the time spent waiting."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks, self.sent, self.seconds = rank, ranks, 0, 0.0
        self.original = dist.all_to_all_single

    def __enter__(self) -> Meter:
        dist.all_to_all_single = self
        return self

    def __exit__(self, *_: object) -> None:
        dist.all_to_all_single = self.original

    def __call__(self, output, input, output_splits=None, input_splits=None, **options):
        splits = input_splits or [len(input) // self.ranks] * self.ranks
        row = input.element_size() * (input.numel() // max(1, len(input)))
        self.sent += (sum(splits) - splits[self.rank]) * row
        self.work = self.original(output, input, output_splits, input_splits, **options)
        return self

    def wait(self, timeout) -> None:
        start = time.perf_counter()
        self.work.wait(timeout)
        self.seconds += time.perf_counter() - start


def loopback_bytes() -> int:
    """Returns the bytes that all programs have sent over the loopback interface; 0 if unknown."""
    table = Path("/proc/net/dev")
    lines = table.read_text().splitlines() if table.exists() else []
    return sum(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


class Layer:
    """The experts of this rank, and tokens that choose experts with a given skew."""

    def __init__(self, shape: Shape, skew: float, rank: int, ranks: int) -> None:
        self.shape, self.ranks = shape, ranks
        self.weights = torch.from_numpy(weights_of(shape.experts, skew)).expand(shape.tokens, -1)
        torch.manual_seed(rank)
        local = shape.experts // ranks
        self.first = (torch.randn(local, shape.hidden, shape.inner) / shape.hidden**0.5).requires_grad_()
        self.second = (torch.randn(local, shape.inner, shape.hidden) / shape.inner**0.5).requires_grad_()

    def experts(self, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        parts = rows.split(counts.tolist())
        return torch.cat([torch.relu(part @ self.first[e]) @ self.second[e] for e, part in enumerate(parts)])

    def draw(self) -> np.ndarray:
        """Draws new tokens. Returns how many rows each rank has for each other rank."""
        self.tokens = torch.randn(self.shape.tokens, self.shape.hidden, requires_grad=True)
        self.indices = torch.multinomial(self.weights, self.shape.choices)
        self.gates = torch.rand(self.indices.shape, requires_grad=True)
        counts = torch.bincount(self.indices.flatten(), minlength=self.shape.experts)
        gathered = [torch.empty_like(counts) for _ in range(self.ranks)]
        dist.all_gather(gathered, counts)
        return torch.stack(gathered).view(self.ranks, self.ranks, -1).sum(2).numpy()

    def step(self) -> None:
        output = expert_parallel(self.tokens, self.indices, self.gates, self.experts, self.shape.experts)
        output.square().sum().backward()


def measure(options: argparse.Namespace, shape: Shape) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for skew in options.skew:
        layer = Layer(shape, skew, rank, ranks)
        measured, computed, loads, ratios, waits = 0, 0, [], [], []
        for _ in range(options.repeat):
            rows = layer.draw()
            dist.barrier()
            on_loopback = loopback_bytes()
            start = time.perf_counter()
            with Meter(rank, ranks) as meter:
                layer.step()
            waits.append(meter.seconds / (time.perf_counter() - start))
            dist.barrier()
            sent = sent_bytes(rows, shape)
            ratios.append((loopback_bytes() - on_loopback) / sent.sum())
            loads.append(rows.sum(0)[rank] / rows.sum(0).mean())
            measured, computed = measured + meter.sent, computed + int(sent[rank])
        if measured != computed:
            raise SystemExit(f"rank {rank} sent {measured} bytes, expected {computed}")
        for turn in range(ranks):
            dist.barrier()
            if turn == rank:
                print(
                    f"skew {skew:3.1f}  rank {rank} of {ranks}  load {statistics.median(loads):4.2f}x  sent "
                    f"{measured} B, computed {computed} B  waits {statistics.median(waits):3.0%} of the time"
                    f"  on the loopback {statistics.median(ratios):.2f}x what all ranks sent",
                    flush=True,
                )
    dist.destroy_process_group()


def main(arguments: list[str] | None = None) -> list[dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4096, help="tokens per rank")
    parser.add_argument("--choices", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--inner", type=int, default=2048, help="inner width of an expert")
    parser.add_argument("--experts", type=int, default=512)
    parser.add_argument("--element", type=int, default=2, help="bytes per element; 4 if measured")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32, 128, 512])
    parser.add_argument("--skew", type=float, nargs="+", default=[0.0, 0.5, 1.0])
    parser.add_argument("--gigabytes", type=float, default=25.0, help="GB/s per rank and direction")
    parser.add_argument("--teraflops", type=float, default=100.0)
    parser.add_argument("--microseconds", type=float, default=5.0, help="latency of a message")
    parser.add_argument("--repeat", type=int, default=5, help="number of measured steps")
    options = parser.parse_args(arguments)
    sizes = (options.tokens, options.choices, options.hidden, options.inner, options.experts)
    if "WORLD_SIZE" in os.environ:
        measure(options, Shape(*sizes))
        return []
    return on_paper(options, Shape(*sizes, options.element))


if __name__ == "__main__":
    main()
