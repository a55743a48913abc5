"""Rows reduced by an index: scatter_sum, scatter_mean and scatter_max beside torch's own functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from dynamic_scatter.shapes import LARGE, SEED, Arrays, Points
from harness import SETTLE, Comparison, Entry, Summary, compare, median

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
        index = np.sort(points.map) if order == "ascending" else points.map
        job = Job(points, torch.from_numpy(index.astype(np.int64)), f"{points.scale.name}, {order}")
        done += [job.sum(seconds, summary), job.max(seconds, summary)]
    done.append(job.max_backward(seconds, summary))
    return done


class Job:
    """Features of a scan and the voxel of each point; torch's functions want the index as int64."""

    def __init__(self, points: Points, index: torch.Tensor, name: str) -> None:
        self.src, self.index, self.name = torch.from_numpy(points.feats), index, name
        self.groups, self.channels = points.scale.voxels, points.scale.channels
        self.columns = index[:, None].expand(-1, self.channels)
        self.out = torch.ones(self.groups, self.channels)

    def entry(self, name: str, run: Callable[[], object]) -> Entry:
        """One whose result is in ``out``, or new: what run() returns."""
        kept: list[np.ndarray] = []

        def keep() -> None:
            kept[:] = [run()]

        return Entry(name, keep, lambda: kept[0].numpy())

    def compare(self, what: str, entries: list[Entry], expected: np.ndarray | Arrays, seconds: float, **more):
        name = f"{what}, f32 {self.name}, {torch.get_num_threads()} threads"
        return compare(name, entries, expected=expected, seconds=2 * seconds, settle=SETTLE, **more)

    def sum(self, seconds: float, summary: Summary) -> Comparison:
        expected = np.zeros(self.out.shape, np.float64)
        np.add.at(expected, self.index.numpy(), self.src.numpy().astype(np.float64))
        comparison = self.compare(
            "scatter_sum",
            [
                self.entry(
                    "turnout.torch",
                    lambda: turnout.torch.scatter_sum(self.src, self.index, 0, self.groups),
                ),
                self.entry(
                    "torch, scatter_add_", lambda: self.out.zero_().scatter_add_(0, self.columns, self.src)
                ),
                self.entry("torch, index_add_", lambda: self.out.zero_().index_add_(0, self.index, self.src)),
            ],
            expected.astype(np.float32),
            seconds,
            tolerance=TOLERANCE,
        )
        ours = median(comparison, "turnout.torch")
        for peer in ("scatter_add_", "index_add_"):
            summary.add(
                f"scatter_sum {self.name}", f"{peer} / ours", median(comparison, f"torch, {peer}") / ours
            )
        return comparison

    def max(self, seconds: float, summary: Summary) -> Comparison:
        """Those of torch give the maximum alone, ours also the rows that it comes from."""
        expected = np.full(self.out.shape, -np.inf, np.float32)
        np.maximum.at(expected, self.index.numpy(), self.src.numpy())
        comparison = self.compare(
            "scatter_max",
            [
                self.entry(
                    "turnout.torch, with argmax",
                    lambda: turnout.torch.scatter_max(self.src, self.index, 0, self.groups)[0],
                ),
                self.entry(
                    "torch, scatter_reduce_",
                    lambda: self.out.fill_(-torch.inf).scatter_reduce_(0, self.columns, self.src, "amax"),
                ),
                self.entry(
                    "torch, index_reduce_",
                    lambda: self.out.fill_(-torch.inf).index_reduce_(0, self.index, self.src, "amax"),
                ),
            ],
            expected,
            seconds,
        )
        ours = median(comparison, "turnout.torch")
        for peer in ("scatter_reduce_", "index_reduce_"):
            summary.add(
                f"scatter_max {self.name}", f"{peer} / ours", median(comparison, f"torch, {peer}") / ours
            )
        return comparison

    def max_backward(self, seconds: float, summary: Summary) -> Comparison:
        _, argmax = turnout.torch.scatter_max(self.src, self.index, 0, self.groups)
        grad = torch.randn(self.out.shape, generator=torch.Generator().manual_seed(1))
        out = torch.ones_like(self.src)
        comparison = self.compare(
            "gradient of scatter_max",
            [
                self.entry(
                    "turnout.torch", lambda: torch.ops.turnout.scatter_max_backward(grad, self.index, argmax)
                ),
                self.entry("torch, zeros.scatter_", lambda: out.zero_().scatter_(0, argmax, grad)),
            ],
            torch.zeros_like(self.src).scatter_(0, argmax, grad).numpy(),
            seconds,
        )
        ratio = median(comparison, "torch, zeros") / median(comparison, "turnout.torch")
        summary.add(f"gradient of scatter_max {self.name}", "zeros.scatter_ / ours", ratio)
        return comparison
