"""The comparisons of points: sampling, points within a radius and nearest points, with peers for the CPU."""

from __future__ import annotations

import numpy as np
import torch
from harness import Comparison, Entry, Summary, compare
from points import loops
from points.shapes import room, scan

import turnout

POINTS, SAMPLES, QUERIES, RADIUS, NSAMPLE, KNOWN = 16384, 4096, 2048, 0.8, 32, 4096
CLOUDS = {"scan": scan, "room": room}
TOLERANCE = 1e-4  # scipy computes distances in double


def run(seconds: float) -> list[Comparison]:
    torch.set_num_threads(turnout.get_num_threads())
    summary = Summary()
    done = []
    for name in CLOUDS:
        done += [sampling(name, seconds, summary), balls(name, seconds, summary)]
        done += [nearest(name, 3, seconds, summary), nearest(name, 16, seconds, summary)]
    summary.show()
    return done


def ratios(summary: Summary, comparison: Comparison) -> Comparison:
    first = comparison.rows[0]
    for row in comparison.rows[1:]:
        summary.add(comparison.title, f"{row.name} / {first.name}", row.median_us / first.median_us)
    return comparison


def sampling(name: str, seconds: float, summary: Summary) -> Comparison:
    xyz, idx = CLOUDS[name](POINTS), np.empty(SAMPLES, np.int32)
    entries = [
        Entry("turnout", lambda: turnout.furthest_point_sample(xyz, SAMPLES, out=idx), lambda: idx),
        loops.sample(xyz, SAMPLES),
        loops.sample_by_tensors(xyz, SAMPLES),
    ]
    expected = turnout.furthest_point_sample(xyz, SAMPLES)
    title = f"furthest_point_sample, {name}, {POINTS} to {SAMPLES}"
    return ratios(summary, compare(title, entries, expected=expected, seconds=seconds, least=2))


def balls(name: str, seconds: float, summary: Summary) -> Comparison:
    xyz = CLOUDS[name](POINTS)
    queries = xyz[turnout.furthest_point_sample(xyz, QUERIES)]
    out = np.empty((QUERIES, NSAMPLE), np.int32), np.empty(QUERIES, np.int32)
    entries = [
        Entry("turnout", lambda: turnout.ball_query(xyz, queries, RADIUS, NSAMPLE, out=out), lambda: out[1])
    ]
    if loops.has_tree():
        entries.append(loops.tree_balls(xyz, queries, RADIUS, NSAMPLE))
    expected = turnout.ball_query(xyz, queries, RADIUS, NSAMPLE)[1]
    title = f"ball_query, {name}, {QUERIES} queries, {POINTS} points, {expected.mean():.1f} found"
    return ratios(summary, compare(title, entries, expected=expected, seconds=seconds, least=2))


def nearest(name: str, k: int, seconds: float, summary: Summary) -> Comparison:
    queries = CLOUDS[name](POINTS)
    xyz = queries[turnout.furthest_point_sample(queries, KNOWN)]
    idx, dist2 = np.empty((POINTS, k), np.int32), np.empty((POINTS, k), np.float32)
    if k == 3:
        entry = Entry("turnout", lambda: turnout.three_nn(queries, xyz, out=(dist2, idx)), lambda: dist2)
    else:
        entry = Entry("turnout", lambda: turnout.knn(xyz, queries, k, out=(idx, dist2)), lambda: dist2)
    entries = [entry]
    if loops.has_tree():
        entries.append(loops.tree_nearest(xyz, queries, k))
    expected = turnout.knn(xyz, queries, k)[1]
    title = f"{'three_nn' if k == 3 else f'knn, k {k}'}, {name}, {POINTS} queries, {KNOWN} points"
    compared = compare(title, entries, expected=expected, tolerance=TOLERANCE, seconds=seconds, least=2)
    return ratios(summary, compared)
