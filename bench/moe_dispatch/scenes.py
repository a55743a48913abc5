"""The comparisons of moe_dispatch: large sizes, threads, a busy core, calls after torch, small calls."""

from __future__ import annotations

import multiprocessing
import time

import numpy as np
import torch
from harness import Comparison, Entry, compare, console
from moe_dispatch import numpy_peer, torch_peer, turnout_entries
from moe_dispatch.shapes import SEED, WIDE, Routed, Scale

import turnout
import turnout.torch


def run(seconds: float) -> list[Comparison]:
    torch.set_num_threads(turnout.get_num_threads())
    done = []
    for scale in (SEED, WIDE):
        routed = Routed(scale)
        done += [side_by_side(routed, seconds), threads(routed, seconds)]
    routed = Routed(SEED)
    done += [busy_core(routed, seconds), after_torch(routed, seconds)]
    done += small_calls(seconds)
    return done


def side_by_side(routed: Routed, seconds: float) -> Comparison:
    entries = [
        turnout_entries.copy_floor(routed),
        turnout_entries.keep(routed),
        turnout_entries.zero(routed),
        torch_peer.index_select(routed),
        torch_peer.index_copy(routed),
        numpy_peer.entry(routed),
    ]
    return compare(
        f"moe_dispatch_forward f32 {routed.scale.name}, {turnout.get_num_threads()} threads",
        entries,
        expected=routed.definition(),
        bytes_moved=2 * int(routed.kept.sum()) * routed.row_bytes,
        seconds=3 * seconds,
    )


def with_threads(count: int, entry: Entry, name: str) -> Entry:
    def run() -> None:
        turnout.set_num_threads(count)
        entry.run()

    return Entry(name, run)


def threads(routed: Routed, seconds: float) -> Comparison:
    dispatch, copy = turnout_entries.keep(routed), turnout_entries.copy_floor(routed)
    before = turnout.get_num_threads()
    entries = [
        with_threads(1, dispatch, "turnout, 1 thread"),
        with_threads(2, dispatch, "turnout, 2 threads"),
        with_threads(1, copy, "streamed copy, 1 thread"),
        with_threads(2, copy, "streamed copy, 2 threads"),
    ]
    title = f"threads, {routed.scale.name}"
    comparison = compare(title, entries, seconds=seconds)
    turnout.set_num_threads(before)
    return comparison


def _spin(stop) -> None:
    while not stop.is_set():
        for _ in range(100000):
            pass


def busy_core(routed: Routed, seconds: float) -> Comparison:
    """Compares two threads while another process uses one of the cores with one thread on an idle machine."""
    dispatch = turnout_entries.keep(routed)
    before = turnout.get_num_threads()
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    hog = context.Process(target=_spin, args=(stop,))
    alone = compare(
        f"one thread alone, {routed.scale.name}",
        [with_threads(1, dispatch, "turnout, 1 thread")],
        seconds=seconds / 2,
    )
    hog.start()
    time.sleep(1.0)
    entries = [
        with_threads(2, dispatch, "turnout, 2 threads"),
        with_threads(1, dispatch, "turnout, 1 thread"),
    ]
    title = f"while another process uses a core, {routed.scale.name}"
    comparison = compare(title, entries, seconds=2 * seconds)
    stop.set()
    hog.join()
    comparison.rows.append(alone.rows[0])
    comparison.rows[-1].name = "turnout, 1 thread, without that process"
    ratio = comparison.rows[0].median_us / alone.rows[0].median_us
    console.print(f"2 threads with that process / 1 thread without it: {ratio:.2f}")
    turnout.set_num_threads(before)
    return comparison


def after_torch(routed: Routed, seconds: float) -> Comparison:
    """Runs directly after a torch operator on two threads, while torch's workers still spin."""
    scale = routed.scale
    tensors = [torch.from_numpy(x) for x in (routed.gates, routed.indices, routed.locations, routed.input)]
    a, b = torch.ones(4_000_000), torch.ones(4_000_000)
    rows: dict[str, list[float]] = {"alone": [], "right after a torch operator": []}
    end = time.perf_counter() + 2 * seconds
    while time.perf_counter() < end:
        for name, samples in rows.items():
            if name == "alone":
                time.sleep(0.02)  # until torch's workers sleep
            else:
                torch.add(a, b, out=b)
            start = time.perf_counter()
            turnout.torch.moe_dispatch_forward(*tensors, scale.capacity, scale.num_experts)
            samples.append((time.perf_counter() - start) * 1e6)
    return from_samples(f"turnout.torch right after torch, {scale.name}", rows)


def from_samples(title: str, rows: dict[str, list[float]]) -> Comparison:
    from harness import Row, show

    comparison = Comparison(title, threads=turnout.get_num_threads())
    first = float(np.median(next(iter(rows.values()))))
    for name, samples in rows.items():
        low, median, high = (float(x) for x in np.percentile(samples, [25, 50, 75]))
        # Each burst is one call, so every call is a first call.
        comparison.rows.append(Row(f"turnout.torch, {name}", median, low, high, median / first, median))
    show(comparison)
    return comparison


def small_calls(seconds: float) -> list[Comparison]:
    done = []
    for samples in (1, 16, 256):
        routed = Routed(Scale(samples, 64, 8, 64))
        scale = routed.scale
        tensors = [
            torch.from_numpy(x) for x in (routed.gates, routed.indices, routed.locations, routed.input)
        ]
        out = torch.zeros(scale.num_experts * scale.capacity, scale.hidden)
        op = torch.ops.turnout.moe_dispatch_forward
        entries = [
            turnout_entries.keep(routed, "turnout, NumPy arrays, out="),
            Entry(
                "turnout, torch tensors, out=",
                lambda t=tensors, o=out: turnout.moe_dispatch_forward(*t, 64, 8, out=o),
            ),
            turnout_entries.zero(routed, "turnout, NumPy arrays, new result"),
            Entry("torch.ops.turnout", lambda t=tensors, op=op: op(*t, 64, 8)),
            torch_peer.index_copy(routed),
        ]
        title = f"small calls, {samples} tokens of 64"
        with torch.inference_mode():
            done.append(compare(title, entries, seconds=seconds / 2, calls=200))
    return done
