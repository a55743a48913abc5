"""Compares scatter_sum, scatter_mean and scatter_max, which reduce rows by index, with torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from dynamic_scatter.shapes import LARGE, SEED, Points
from harness import SETTLE, Comparison, Entry, Summary, compare

import turnout
import turnout.torch

TOLERANCE = 1e-5  # torch adds in another order


def comparisons(seconds: float, summary: Summary) -> list[Comparison]:
    done = []
    for points, order in (
        (Points(SEED), "scan"),
        (Points(LARGE), "scan"),
        (Points(LARGE, "shuffled"), "shuffled"),
        (Points(replace(LARGE, channels=1)), "scan"),
        (Points(LARGE), "ascending"),
    ):
        job = Job(points, order)
        done.append(job.compare("scatter_sum", job.sum_programs(), seconds, summary, tolerance=TOLERANCE))
        done.append(job.compare("scatter_max", job.max_programs(), seconds, summary))
    gradient = job.max_backward_programs()
    done.append(job.compare("gradient of scatter_max", gradient, seconds, summary))
    return done


class Job:
    """Features of a scan and the voxel of each point; torch's functions need an int64 index."""

    def __init__(self, points: Points, order: str = "scan") -> None:
        index = np.sort(points.map) if order == "ascending" else points.map
        self.src, self.index = torch.from_numpy(points.feats), torch.from_numpy(index.astype(np.int64))
        self.name = f"{points.scale.name}, {order}"
        self.groups, self.channels = points.scale.voxels, points.scale.channels
        self.columns = self.index[:, None].expand(-1, self.channels)
        self.out = torch.ones(self.groups, self.channels)

    def entry(self, name: str, run: Callable[[], object]) -> Entry:
        """Returns an entry whose result is ``out`` or the new tensor that run() returns."""
        kept: list[np.ndarray] = []

        def keep() -> None:
            kept[:] = [run()]

        return Entry(name, keep, lambda: kept[0].numpy())

    def sum_programs(self) -> tuple[list[Entry], np.ndarray]:
        expected = np.zeros(self.out.shape, np.float64)
        np.add.at(expected, self.index.numpy(), self.src.numpy().astype(np.float64))
        out, src, index = self.out, self.src, self.index
        entries = [
            self.entry("turnout.torch", lambda: turnout.torch.scatter_sum(src, index, 0, self.groups)),
            self.entry("torch, scatter_add_", lambda: out.zero_().scatter_add_(0, self.columns, src)),
            self.entry("torch, index_add_", lambda: out.zero_().index_add_(0, index, src)),
        ]
        return entries, expected.astype(np.float32)

    def max_programs(self) -> tuple[list[Entry], np.ndarray]:
        expected = np.full(self.out.shape, -np.inf, np.float32)
        np.maximum.at(expected, self.index.numpy(), self.src.numpy())
        out, src, index = self.out, self.src, self.index

        def empty() -> torch.Tensor:
            return out.fill_(-torch.inf)

        entries = [
            self.entry(
                "turnout.torch",
                lambda: turnout.torch.scatter_max(src, index, 0, self.groups, return_arg=False),
            ),
            self.entry(
                "torch, scatter_reduce_", lambda: empty().scatter_reduce_(0, self.columns, src, "amax")
            ),
            self.entry("torch, index_reduce_", lambda: empty().index_reduce_(0, index, src, "amax")),
        ]
        return entries, expected

    def max_backward_programs(self) -> tuple[list[Entry], np.ndarray]:
        _, argmax = turnout.torch.scatter_max(self.src, self.index, 0, self.groups)
        grad = torch.randn(self.out.shape, generator=torch.Generator().manual_seed(1))
        out = torch.ones_like(self.src)
        entries = [
            self.entry(
                "turnout.torch", lambda: torch.ops.turnout.scatter_max_backward(grad, self.index, argmax)
            ),
            self.entry("torch, zeros.scatter_", lambda: out.zero_().scatter_(0, argmax, grad)),
        ]
        return entries, torch.zeros_like(self.src).scatter_(0, argmax, grad).numpy()

    def compare(
        self, what: str, programs: tuple[list[Entry], np.ndarray], seconds: float, summary: Summary, **more
    ) -> Comparison:
        entries, expected = programs
        name = f"{what}, f32 {self.name}, {torch.get_num_threads()} threads"
        comparison = compare(name, entries, expected=expected, seconds=2 * seconds, settle=SETTLE, **more)
        for row in comparison.rows[1:]:
            summary.add(f"{what} {self.name}", f"{row.name} / ours", row.ratio)
        return comparison
