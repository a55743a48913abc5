"""The published comparisons of points."""

from __future__ import annotations

import numpy as np
from harness import Entry
from points import loops
from points.scenes import KNOWN, NSAMPLE, POINTS, QUERIES, RADIUS, SAMPLES, TOLERANCE
from points.shapes import scan
from recorded import Case, Programs

import turnout


def cases() -> list[Case]:
    size = f"{POINTS} points of a scan"
    tree = "scipy `cKDTree`"
    return [
        Case(
            *("furthest_point_sample", "furthest_point_sample", f"{size}, {SAMPLES} samples", "f32"),
            *("C++, all points for each sample", "reused", sampling),
            serial_peer=True,
        ),
        Case(
            *("ball_query", "ball_query", f"{size}, {QUERIES} queries, radius {RADIUS}", "f32", tree),
            *("reused", balls),
        ),
        Case(
            *("three_nn", "three_nn", f"{POINTS} queries, {KNOWN} points of a scan", "f32", tree),
            *("reused", three_nearest),
        ),
    ]


def sampling() -> Programs:
    xyz, idx = scan(POINTS), np.empty(SAMPLES, np.int32)
    ours = Entry("turnout", lambda: turnout.furthest_point_sample(xyz, SAMPLES, out=idx), lambda: idx)
    return Programs(ours, loops.sample(xyz, SAMPLES))


def balls() -> Programs:
    xyz = scan(POINTS)
    queries = xyz[turnout.furthest_point_sample(xyz, QUERIES)]
    out = np.empty((QUERIES, NSAMPLE), np.int32), np.empty(QUERIES, np.int32)
    ours = Entry(
        "turnout", lambda: turnout.ball_query(xyz, queries, RADIUS, NSAMPLE, out=out), lambda: out[1]
    )
    return Programs(ours, loops.tree_balls(xyz, queries, RADIUS, NSAMPLE))


def three_nearest() -> Programs:
    queries = scan(POINTS)
    xyz = queries[turnout.furthest_point_sample(queries, KNOWN)]
    out = np.empty((POINTS, 3), np.float32), np.empty((POINTS, 3), np.int32)
    ours = Entry("turnout", lambda: turnout.three_nn(queries, xyz, out=out), lambda: out[0])
    return Programs(ours, loops.tree_nearest(xyz, queries, 3), tolerance=TOLERANCE)
