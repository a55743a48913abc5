"""The comparisons of grouping: grouping, interpolation and their gradients, with torch's operators."""

from __future__ import annotations

import torch
from grouping.shapes import (
    BATCH,
    CENTERS,
    CHANNELS,
    KEY_POINTS,
    KNOWN,
    POINTS,
    SAMPLES,
    STACKED_SAMPLES,
    WIDE,
    generator,
    neighbours,
)
from harness import Comparison, Entry, Summary, compare, copy_floor

import turnout
import turnout.torch
from turnout.typing import Array

OPS = torch.ops.turnout
TOLERANCE = 1e-5


def run(seconds: float) -> list[Comparison]:
    torch.set_num_threads(turnout.get_num_threads())
    summary = Summary()
    done = []
    for scene in (
        group,
        group_gradient,
        group_stacked,
        group_stacked_gradient,
        interpolate,
        interpolate_gradient,
    ):
        done.append(ratios(summary, scene(seconds)))
    done.append(ratios(summary, interpolate_stacked(seconds)))
    done.append(ratios(summary, interpolate_stacked_gradient(seconds)))
    summary.show()
    return done


def ratios(summary: Summary, comparison: Comparison) -> Comparison:
    first = comparison.rows[0]
    for row in comparison.rows[1:]:
        summary.add(comparison.title, f"{row.name} / {first.name}", row.median_us / first.median_us)
    return comparison


def program(name: str, function) -> Entry:
    """A program that returns a tensor."""
    made: list[torch.Tensor] = []

    def run_once() -> None:
        made[:] = [function()]

    return Entry(name, run_once, lambda: made[0].numpy())


def pair(title: str, ours, peer_name: str, peer, seconds: float, *, floor: Array | None = None) -> Comparison:
    entries = [program("turnout", ours), program(peer_name, peer)]
    if floor is not None:
        entries.append(copy_floor(floor))
    return compare(title, entries, expected=peer().numpy(), tolerance=TOLERANCE, seconds=seconds)


def group_programs():
    features = torch.randn(BATCH, CHANNELS, POINTS, generator=generator())
    indices = neighbours(BATCH, CENTERS, SAMPLES)
    expanded = indices.long().reshape(BATCH, 1, -1).expand(BATCH, CHANNELS, -1)
    shape = BATCH, CHANNELS, CENTERS, SAMPLES
    return lambda: OPS.group_points(features, indices), lambda: features.gather(2, expanded).reshape(shape)


def group(seconds: float) -> Comparison:
    ours, peer = group_programs()
    title = f"group_points, {BATCH} x {CHANNELS} x {CENTERS} x {SAMPLES} of {POINTS} points"
    return pair(title, ours, "torch.gather", peer, seconds, floor=ours().numpy())


def group_gradient_programs():
    indices = neighbours(BATCH, CENTERS, SAMPLES)
    expanded = indices.long().reshape(BATCH, 1, -1).expand(BATCH, CHANNELS, -1)
    grad = torch.randn(BATCH, CHANNELS, CENTERS, SAMPLES, generator=generator())

    def peer():
        return torch.zeros(BATCH, CHANNELS, POINTS).scatter_add_(2, expanded, grad.flatten(2))

    return lambda: OPS.group_points_backward(grad, indices, POINTS), peer


def group_gradient(seconds: float) -> Comparison:
    title = f"group_points_backward, {BATCH} x {CHANNELS} x {CENTERS} x {SAMPLES} of {POINTS} points"
    ours, peer = group_gradient_programs()
    return pair(title, ours, "torch.scatter_add_", peer, seconds)


def stacked():
    counts = torch.full((BATCH,), POINTS)
    index_counts = torch.full((BATCH,), KEY_POINTS)
    indices = neighbours(BATCH * KEY_POINTS, STACKED_SAMPLES)
    rows = indices.long() + torch.arange(BATCH).repeat_interleave(KEY_POINTS)[:, None] * POINTS
    return counts, indices, index_counts, rows


def group_stacked_programs():
    counts, indices, index_counts, rows = stacked()
    features = torch.randn(BATCH * POINTS, CHANNELS, generator=generator())

    def peer():
        found = features.index_select(0, rows.reshape(-1))
        return found.reshape(*rows.shape, CHANNELS).transpose(1, 2).contiguous()

    return lambda: OPS.group_points_stacked(features, counts, indices, index_counts), peer


def group_stacked(seconds: float) -> Comparison:
    ours, peer = group_stacked_programs()
    title = f"group_points_stacked, {BATCH * KEY_POINTS} x {CHANNELS} x {STACKED_SAMPLES}"
    return pair(title, ours, "torch.index_select, transpose", peer, seconds, floor=ours().numpy())


def group_stacked_gradient(seconds: float) -> Comparison:
    counts, indices, index_counts, rows = stacked()
    grad = torch.randn(BATCH * KEY_POINTS, CHANNELS, STACKED_SAMPLES, generator=generator())
    size = BATCH * POINTS

    def peer():
        parts = grad.transpose(1, 2).reshape(-1, CHANNELS)
        return torch.zeros(size, CHANNELS).index_add_(0, rows.reshape(-1), parts)

    def ours():
        return OPS.group_points_stacked_backward(grad, counts, indices, index_counts, size)

    title = f"group_points_stacked_backward, {BATCH * KEY_POINTS} x {CHANNELS} x {STACKED_SAMPLES}"
    return pair(title, ours, "torch transpose, index_add_", peer, seconds)


def interpolate_programs():
    features = torch.randn(BATCH, CHANNELS, KNOWN, generator=generator())
    indices = torch.randint(0, KNOWN, (BATCH, POINTS, 3), generator=generator())
    weights = torch.rand(BATCH, POINTS, 3, generator=generator())
    expanded = indices.reshape(BATCH, 1, -1).expand(BATCH, CHANNELS, -1)

    def peer():
        parts = features.gather(2, expanded).reshape(BATCH, CHANNELS, POINTS, 3)
        return torch.einsum("bcpk,bpk->bcp", parts, weights)

    return lambda: OPS.three_interpolate(features, indices, weights), peer


def interpolate(seconds: float) -> Comparison:
    ours, peer = interpolate_programs()
    title = f"three_interpolate, {BATCH} x {CHANNELS}, {POINTS} of {KNOWN} points"
    return pair(title, ours, "torch.gather, einsum", peer, seconds)


def interpolate_gradient(seconds: float) -> Comparison:
    indices = torch.randint(0, KNOWN, (BATCH, POINTS, 3), generator=generator())
    weights = torch.rand(BATCH, POINTS, 3, generator=generator())
    grad = torch.randn(BATCH, CHANNELS, POINTS, generator=generator())
    expanded = indices.reshape(BATCH, 1, -1).expand(BATCH, CHANNELS, -1)

    def peer():
        parts = (grad[..., None] * weights[:, None]).flatten(2)
        return torch.zeros(BATCH, CHANNELS, KNOWN).scatter_add_(2, expanded, parts)

    title = f"three_interpolate_backward, {BATCH} x {CHANNELS}, {POINTS} of {KNOWN} points"
    return pair(
        title,
        lambda: OPS.three_interpolate_backward(grad, indices, weights, KNOWN),
        "torch product, scatter_add_",
        peer,
        seconds,
    )


def interpolate_stacked(seconds: float) -> Comparison:
    features = torch.randn(BATCH * KNOWN, WIDE, generator=generator())
    indices = torch.randint(0, BATCH * KNOWN, (BATCH * POINTS, 3), generator=generator())
    weights = torch.rand(BATCH * POINTS, 3, generator=generator())

    def peer():
        return torch.nn.functional.embedding_bag(indices, features, per_sample_weights=weights, mode="sum")

    title = f"three_interpolate_stacked, {BATCH * POINTS} of {BATCH * KNOWN} points x {WIDE}"
    return pair(
        title,
        lambda: OPS.three_interpolate_stacked(features, indices, weights),
        "torch.embedding_bag",
        peer,
        seconds,
    )


def interpolate_stacked_gradient(seconds: float) -> Comparison:
    indices = torch.randint(0, BATCH * KNOWN, (BATCH * POINTS, 3), generator=generator())
    weights = torch.rand(BATCH * POINTS, 3, generator=generator())
    grad = torch.randn(BATCH * POINTS, WIDE, generator=generator())

    def peer():
        parts = (grad[:, None] * weights[..., None]).reshape(-1, WIDE)
        return torch.zeros(BATCH * KNOWN, WIDE).index_add_(0, indices.reshape(-1), parts)

    title = f"three_interpolate_stacked_backward, {BATCH * POINTS} of {BATCH * KNOWN} points x {WIDE}"
    return pair(
        title,
        lambda: OPS.three_interpolate_stacked_backward(grad, indices, weights, BATCH * KNOWN),
        "torch product, index_add_",
        peer,
        seconds,
    )
