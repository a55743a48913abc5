"""The comparisons of dynamic_scatter: gradients, reductions, the index, training, voxels, given indices."""

from __future__ import annotations

from dataclasses import replace

import torch
from dynamic_scatter import by_index, numpy_peer, torch_peer, turnout_entries
from dynamic_scatter.shapes import LARGE, NARROW, SEED, WIDE, Hard, Points
from harness import SETTLE, Comparison, Summary, compare, copy_floor, median, with_threads

import turnout

TOLERANCE = 1e-6  # for means, which torch sums in another order


def run(seconds: float) -> list[Comparison]:
    torch.set_num_threads(turnout.get_num_threads())
    summary = Summary()
    done = []
    for scale in (SEED, LARGE):
        for order in ("scan", "shuffled"):
            done.append(max_backward(Points(scale, order), seconds, summary))
    done.append(max_backward(Points(SEED, ties=True), seconds, summary))
    done.append(mean_backward(Points(LARGE), seconds))
    for scale, reduce_type in ((NARROW, "mean"), (WIDE, "max"), (SEED, "max"), (LARGE, "mean")):
        done.append(forward(Points(scale), reduce_type, seconds, summary))
    for order in ("scan", "shuffled"):
        done.append(forward(Points(LARGE, order), "max", seconds, summary))
    for scale in (SEED, LARGE):
        for order in ("scan", "shuffled"):
            done.append(unique(Points(scale, order), seconds, summary))
        done += [threads(Points(scale), seconds), training(Points(scale), seconds)]
    for order in ("scan", "shuffled"):
        done.append(hard(Hard(Points(LARGE, order).points, LARGE, 10, 60_000), order, seconds, summary))
    done += by_index.comparisons(seconds, summary)
    done += small_calls(seconds)
    summary.show()
    return done


def max_backward(points: Points, seconds: float, summary: Summary) -> Comparison:
    entries = [
        copy_floor(points.feats),
        turnout_entries.backward(points, "max"),
        turnout_entries.backward_fresh(points, "max"),
        torch_peer.argmax_given(points),
        torch_peer.recompute(points),
    ]
    comparison = compare(
        f"gradient of max, f32 {points.name}, {turnout.get_num_threads()} threads",
        entries,
        expected=points.backward("max"),
        bytes_moved=2 * points.feats.nbytes,
        seconds=3 * seconds,
        settle=SETTLE,
    )
    where, ours = f"gradient of max {points.name}", median(comparison, turnout_entries.REUSED)
    copy, fresh = median(comparison, "streamed"), median(comparison, "turnout, new")
    summary.add(where, "turnout, out= / copy of feats", ours / copy)
    summary.add(where, "turnout, new result / copy of feats", fresh / copy)
    summary.add(where, "torch, argmax given / turnout, out=", median(comparison, "torch, zeros") / ours)
    summary.add(
        where, "torch, argmax searched / turnout, out=", median(comparison, "torch, the first") / ours
    )
    return comparison


def mean_backward(points: Points, seconds: float) -> Comparison:
    return compare(
        f"gradient of mean, f32 {points.name}, {turnout.get_num_threads()} threads",
        [
            copy_floor(points.feats),
            turnout_entries.backward(points, "mean"),
            torch_peer.mean_backward(points),
        ],
        expected=points.backward("mean"),
        bytes_moved=2 * points.feats.nbytes,
        seconds=2 * seconds,
        settle=SETTLE,
    )


def forward(points: Points, reduce_type: str, seconds: float, summary: Summary) -> Comparison:
    """The whole forward operator: sorted unique voxels, map, counts and reduction."""
    comparison = compare(
        f"forward {reduce_type}, f32 {points.name}, {turnout.get_num_threads()} threads",
        [
            turnout_entries.forward(points, reduce_type),
            turnout_entries.forward_fresh(points, reduce_type),
            turnout_entries.forward_op(points, reduce_type),
            torch_peer.forward(points, reduce_type),
        ],
        expected=points.forward(reduce_type),
        tolerance=None if reduce_type == "max" else TOLERANCE,
        seconds=2 * seconds,
        settle=SETTLE,
    )
    ratio = median(comparison, "torch, packed") / median(comparison, turnout_entries.REUSED)
    summary.add(f"forward {reduce_type} {points.name}", "torch / turnout, out=", ratio)
    return comparison


def unique(points: Points, seconds: float, summary: Summary) -> Comparison:
    """Runs on one thread, like NumPy."""
    before = turnout.get_num_threads(), torch.get_num_threads()
    turnout.set_num_threads(1)
    torch.set_num_threads(1)
    comparison = compare(
        f"unique voxels, map and counts, {points.name}, 1 thread",
        [
            turnout_entries.index(points),
            numpy_peer.unique(points),
            numpy_peer.unique_of_keys(points),
            torch_peer.unique(points),
        ],
        expected=points.index,
        seconds=seconds,
    )
    turnout.set_num_threads(before[0])
    torch.set_num_threads(before[1])
    ours = median(comparison, "turnout")
    where = f"unique {points.name}, 1 thread"
    summary.add(where, "numpy, same results / turnout", median(comparison, "numpy, packed") / ours)
    summary.add(where, "numpy.unique of precomputed keys / turnout", median(comparison, "numpy, u") / ours)
    return comparison


def threads(points: Points, seconds: float) -> Comparison:
    before = turnout.get_num_threads()
    entries = [
        turnout_entries.forward(points, "max", "turnout, forward max"),
        turnout_entries.index(points),
        turnout_entries.reduce(points, "max"),
        turnout_entries.backward(points, "max", "turnout, gradient of max"),
        copy_floor(points.feats),
    ]
    entries = [with_threads(n, entry) for entry in entries for n in sorted({1, before})]
    comparison = compare(f"threads, {points.name}", entries, seconds=2 * seconds)
    turnout.set_num_threads(before)
    return comparison


def training(points: Points, seconds: float) -> Comparison:
    return compare(
        f"max and its gradient, by autograd, f32 {points.name}, {turnout.get_num_threads()} threads",
        [turnout_entries.training(points), torch_peer.training(points)],
        expected=points.backward("max"),
        seconds=2 * seconds,
        settle=SETTLE,
    )


def hard(job: Hard, order: str, seconds: float, summary: Summary) -> Comparison:
    comparison = compare(
        f"hard voxelization, {job.name}, {order}, {turnout.get_num_threads()} threads",
        [turnout_entries.hard(job), numpy_peer.hard(job), turnout_entries.dynamic(job)],
        expected=job.definition(),
        seconds=seconds,
    )
    ratio = median(comparison, "numpy") / median(comparison, turnout_entries.REUSED)
    summary.add(f"hard voxelization, {order}", "numpy / turnout, out=", ratio)
    return comparison


def small_calls(seconds: float) -> list[Comparison]:
    done = []
    for count in (1, 16, 256):
        points = Points(replace(LARGE, points=count, voxels=max(1, count * 4 // 5)))
        with torch.inference_mode():
            done.append(
                compare(
                    f"small calls, forward max, {points.scale.name}",
                    [
                        turnout_entries.forward(points, "max", "turnout, NumPy arrays, out="),
                        turnout_entries.forward_fresh(points, "max"),
                        turnout_entries.forward_op(points, "max"),
                        torch_peer.forward(points, "max"),
                    ],
                    expected=points.forward("max"),
                    seconds=seconds / 2,
                    calls=100,
                )
            )
    return done
