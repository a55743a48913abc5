"""The comparisons of RoI pooling, with masks of torch."""

from __future__ import annotations

import torch
from harness import Comparison, Entry, Summary, compare
from roi_pooling import peers
from roi_pooling.shapes import BATCH, BOXES, CELLS, CHANNELS, POINTS, ROIS, SAMPLES, scene

import turnout
import turnout.torch

OPS = torch.ops.turnout
TOLERANCE = 1e-3  # points at borders of cells may be rounded to another one


def run(seconds: float) -> list[Comparison]:
    torch.set_num_threads(turnout.get_num_threads())
    summary = Summary()
    done = [roiaware(seconds), roiaware_gradient(seconds), roipoint(seconds)]
    for comparison in done:
        first = comparison.rows[0]
        for row in comparison.rows[1:]:
            summary.add(comparison.title, f"{row.name} / {first.name}", row.median_us / first.median_us)
    summary.show()
    return done


def program(name: str, function) -> Entry:
    """A program that returns a tensor."""
    made: list[torch.Tensor] = []

    def run_once() -> None:
        made[:] = [function()]

    return Entry(name, run_once, lambda: made[0].numpy())


def roiaware_programs():
    boxes, points, features = scene()
    size = [CELLS] * 3
    return (
        lambda: OPS.roiaware_pool3d(boxes, points, features, size),
        lambda: peers.roiaware_max(boxes, points, features, CELLS),
    )


def roiaware(seconds: float) -> Comparison:
    ours, peer = roiaware_programs()
    pooled = ours()
    target = torch.empty_like(pooled)
    entries = [
        program("turnout", ours),
        program("torch masks, scatter_reduce_", peer),
        Entry("torch, zeros of the same size", target.zero_),
    ]
    title = f"roiaware_pool3d, max, {ROIS} boxes x {CELLS}^3, {POINTS} points x {CHANNELS}"
    return compare(title, entries, expected=peer().numpy(), tolerance=TOLERANCE, seconds=seconds)


def roiaware_gradient(seconds: float) -> Comparison:
    boxes, points, features = scene()
    size = [CELLS] * 3
    grad = torch.randn(ROIS, CELLS**3, CHANNELS, generator=torch.Generator().manual_seed(1))
    cell, point = peers.pairs(boxes, points, CELLS)
    pooled = OPS.roiaware_pool3d(boxes, points, features, size).reshape(-1, CHANNELS)

    def peer():
        """Random features have one maximum each."""
        is_largest = features[point] == pooled[cell]
        parts = torch.where(is_largest, grad.reshape(-1, CHANNELS)[cell], 0)
        return torch.zeros(POINTS, CHANNELS).index_add_(0, point, parts)

    entries = [
        program("turnout", lambda: OPS.roiaware_pool3d_backward(grad, boxes, points, features, size)),
        program("torch with saved pairs, index_add_", peer),
    ]
    title = f"roiaware_pool3d_backward, max, {ROIS} boxes x {CELLS}^3, {POINTS} points x {CHANNELS}"
    return compare(title, entries, expected=peer().numpy(), tolerance=TOLERANCE, seconds=seconds)


def roipoint_programs():
    boxes, points, features = scene(BATCH * BOXES)
    both = points.repeat(BATCH, 1, 1), features.repeat(BATCH, 1, 1), boxes.reshape(BATCH, BOXES, 7)
    return lambda: OPS.roipoint_pool3d(*both, SAMPLES)[0], lambda: peers.roipoint(*both, SAMPLES)


def roipoint(seconds: float) -> Comparison:
    ours, peer = roipoint_programs()
    entries = [program("turnout", ours), program("torch masks, box by box", peer)]
    title = f"roipoint_pool3d, {BATCH} x {BOXES} boxes x {SAMPLES} of {POINTS} points x {CHANNELS}"
    return compare(title, entries, expected=peer().numpy(), tolerance=TOLERANCE, seconds=seconds)
