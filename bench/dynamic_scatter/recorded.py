"""The published comparisons of dynamic_scatter, voxelize and scatter_*."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dynamic_scatter import numpy_peer, torch_peer, turnout_entries
from dynamic_scatter.by_index import TOLERANCE, Job
from dynamic_scatter.scenes import TOLERANCE as MEANS
from dynamic_scatter.shapes import LARGE, NARROW, SEED, Hard, Points, Scale
from recorded import Case, Programs

UNIQUE = "PyTorch `unique` of packed keys, `scatter_reduce_`"
SMALL = replace(LARGE, points=16, voxels=12)


def size_of(scale: Scale) -> str:
    return f"{scale.points} points x {scale.channels}, {scale.voxels} voxels"


def cases() -> list[Case]:
    found = []
    for kind, scale in (("mean", NARROW), ("max", SEED), ("max", LARGE), ("mean", LARGE)):
        case = f"dynamic_scatter-{kind}-{scale.points}", f"dynamic_scatter_forward, {kind}", size_of(scale)
        found.append(Case(*case, "f32", UNIQUE, "reused", partial(forward, scale, kind)))
    saved = "PyTorch `zero_`, `scatter_` with a saved argmax"
    step = f"{UNIQUE.replace('reduce_', 'reduce')} and its autograd"
    gradient, both = "dynamic_scatter_backward, max", "dynamic_scatter, max, and its gradient"
    found += [
        Case(*("dynamic_scatter-gradient", gradient, size_of(LARGE), "f32", saved, "reused", backward)),
        Case(*("dynamic_scatter-both", both, size_of(LARGE), "f32", step, "new", training)),
        Case(
            *("dynamic_scatter-tiny", "torch.ops.turnout.dynamic_scatter_forward, max", size_of(SMALL)),
            *("f32", UNIQUE, "new, reused", tiny),
        ),
        Case(
            *("voxelize", "voxelize", f"{LARGE.points} points, 10 in each of 60000 voxels"),
            *("f32", "NumPy, one sort", "reused", hard),
        ),
    ]
    for channels in (1, 4, LARGE.channels):
        scale = replace(LARGE, channels=channels)
        case = f"scatter_sum-{channels}", "scatter_sum", size_of(scale), "f32"
        make = partial(by_index, scale, Job.sum_programs, 2)
        found.append(Case(*case, "PyTorch `zero_`, `index_add_`", "new, reused", make))
    case, make = ("scatter_max", size_of(LARGE), "f32"), partial(by_index, LARGE, Job.max_programs, 1)
    found.append(
        Case("scatter_max-forward", *case, "PyTorch `fill_`, `scatter_reduce_`", "new, reused", make)
    )
    case = "scatter_max-gradient", "gradient of scatter_max", size_of(LARGE), "f32", saved, "new, reused"
    found.append(Case(*case, partial(by_index, LARGE, Job.max_backward_programs, 1)))
    return found


def forward(scale: Scale, kind: str) -> Programs:
    points = Points(scale)
    programs = turnout_entries.forward(points, kind), torch_peer.forward(points, kind)
    return Programs(*programs, points.forward(kind), None if kind == "max" else MEANS)


def backward() -> Programs:
    points = Points(LARGE)
    programs = turnout_entries.backward(points, "max"), torch_peer.argmax_given(points)
    return Programs(*programs, points.backward("max"))


def training() -> Programs:
    points = Points(LARGE)
    return Programs(turnout_entries.training(points), torch_peer.training(points), points.backward("max"))


def tiny() -> Programs:
    points = Points(SMALL)
    programs = turnout_entries.forward_op(points, "max"), torch_peer.forward(points, "max")
    return Programs(*programs, points.forward("max"), options={"calls": 100})


def hard() -> Programs:
    job = Hard(Points(LARGE).points, LARGE, 10, 60_000)
    return Programs(turnout_entries.hard(job), numpy_peer.hard(job), job.definition())


def by_index(scale: Scale, programs: Callable, peer: int) -> Programs:
    entries, expected = programs(Job(Points(scale)))
    return Programs(entries[0], entries[peer], expected, TOLERANCE)
