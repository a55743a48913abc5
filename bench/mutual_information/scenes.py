"""The comparisons of mutual_information: each direction, both, one lattice, subnormals, small calls."""

from __future__ import annotations

import numpy as np
import torch
from harness import (
    SETTLE,
    Comparison,
    Entry,
    Summary,
    compare,
    console,
    median,
    memcpy_floor,
    with_threads,
)
from mutual_information import loop_peer, torch_peer, turnout_entries
from mutual_information.shapes import LONG, ONE, SEED, SPEECH, Lattices, flat

import turnout

# Sum of errors / sum of values. A float32 loop reaches about 1e-4 in the gradients of long lattices.
TOLERANCE = 1e-3


def run(seconds: float) -> list[Comparison]:
    threads = turnout.get_num_threads()
    torch.set_num_threads(threads)
    loop_peer.load()
    summary = Summary()
    done = []
    for scale in (SPEECH, LONG):
        lattices = Lattices(scale)
        for name in ("forward", "backward"):
            done.append(side_by_side(name, lattices, threads, seconds, summary))
        done.append(both(lattices, threads, seconds))
    done.append(one_lattice(Lattices(ONE), threads, seconds, summary))
    done += subnormals(seconds, summary)
    done.append(small_calls(seconds))
    summary.show()
    return done


def touched(name: str, lattices: Lattices) -> list[np.ndarray]:
    arrays = [lattices.px, lattices.py, lattices.p]
    return (
        arrays if name == "forward" else [*arrays, lattices.px, lattices.py]
    )  # px and py a second time for the gradients, which have the same sizes


def expected_of(name: str, lattices: Lattices) -> np.ndarray:
    results = {
        "forward": lambda: (lattices.exact_p, lattices.exact_p[:, -1, -1]),
        "backward": lambda: lattices.exact_grads,
        "both": lambda: (lattices.exact_p[:, -1, -1], *lattices.exact_grads),
    }
    return flat(*results[name]())


def side_by_side(name: str, lattices: Lattices, threads: int, seconds: float, summary: Summary) -> Comparison:
    ours, floor = getattr(turnout_entries, name)(lattices), memcpy_floor(touched(name, lattices), "memcpy")
    entries = [with_threads(n, entry) for entry in (floor, ours) for n in sorted({1, threads})]
    entries += [getattr(loop_peer, name)(lattices, n) for n in sorted({1, threads})]
    entries.append(getattr(torch_peer, name)(lattices))
    comparison = compare(
        f"mutual_information_{name} f32 {lattices.name}",
        entries,
        expected=expected_of(name, lattices),
        tolerance=TOLERANCE,
        bytes_moved=sum(x.nbytes for x in touched(name, lattices)),
        seconds=3 * seconds,
        settle=SETTLE,
    )
    turnout.set_num_threads(threads)
    where = f"{name} {lattices.name}"
    one = median(comparison, "turnout, 1 ")
    summary.add(
        where, "plain loop / turnout, both on 1 thread", median(comparison, "plain loop, serial") / one
    )
    for n in sorted({1, threads}):
        times = median(comparison, f"turnout, {n} ") / median(comparison, f"memcpy, {n} ")
        summary.add(where, f"turnout / memcpy, threads of both: {n}", times)
    if threads > 1:
        summary.add(where, f"1 thread / {threads} threads", one / median(comparison, f"turnout, {threads} "))
    return comparison


def both(lattices: Lattices, threads: int, seconds: float) -> Comparison:
    entries = [
        turnout_entries.both(lattices),
        turnout_entries.one_after_the_other(lattices),
        turnout_entries.training(lattices),
        loop_peer.both(lattices, threads),
        torch_peer.both(lattices),
    ]
    return compare(
        f"scores and gradients, f32 {lattices.name}, {threads} threads",
        entries,
        expected=expected_of("both", lattices),
        tolerance=TOLERANCE,
        seconds=2 * seconds,
        settle=SETTLE,
    )


def one_lattice(lattices: Lattices, threads: int, seconds: float, summary: Summary) -> Comparison:
    """With a batch of one, the threads work on the same lattice."""
    entries = []
    for name in ("forward", "backward"):
        ours = getattr(turnout_entries, name)(lattices, f"turnout {name}")
        entries += [with_threads(n, ours) for n in sorted({1, threads})]
    comparison = compare(
        f"one lattice, f32 {lattices.name}",
        entries,
        seconds=seconds,
    )
    turnout.set_num_threads(threads)
    if threads > 1:
        for name in ("forward", "backward"):
            times = [median(comparison, f"turnout {name}, {n} ") for n in (1, threads)]
            summary.add(f"{name} {lattices.name}", f"1 thread / {threads} threads", times[0] / times[1])
    return comparison


def subnormals(seconds: float, summary: Summary) -> list[Comparison]:
    """Times subnormal inputs and results, which can cost a CPU a hundred cycles each."""
    done = []
    lattices = [Lattices(SPEECH, kind) for kind in ("", "subnormal inputs", "subnormal gradients")]
    share = lattices[2].subnormal_share()
    console.print(f"{share:.0%} of the gradients of the last kind are subnormal")
    for name in ("forward", "backward"):
        entries = []
        for one in lattices:
            entry = getattr(turnout_entries, name)(one, f"turnout, {one.kind or 'plain numbers'}")
            entry.run()
            error = abs(entry.result() - expected_of(name, one)).sum()
            if not error <= TOLERANCE * abs(expected_of(name, one)).sum() + 1e-30:
                raise SystemExit(f"{entry.name}: its result differs from the definition, so it is not timed")
            entries.append(Entry(entry.name, entry.run))
        comparison = compare(
            f"subnormal numbers, {name} f32 {SPEECH.name}",
            entries,
            seconds=seconds,
        )
        for row in comparison.rows[1:]:
            summary.add(f"{name} {SPEECH.name}", f"{row.name} / plain numbers", row.ratio)
        done.append(comparison)
    return done


def small_calls(seconds: float) -> Comparison:
    lattices = Lattices(SEED)
    entries = [
        turnout_entries.forward(lattices, "turnout, NumPy arrays, out="),
        turnout_entries.fresh(lattices),
        turnout_entries.torch_op(lattices),
        loop_peer.forward(lattices, 1),
        torch_peer.forward(lattices),
    ]
    with torch.inference_mode():
        return compare(
            f"small calls, forward {SEED.name}",
            entries,
            expected=expected_of("forward", lattices),
            tolerance=TOLERANCE,
            seconds=seconds,
            calls=20,
        )
