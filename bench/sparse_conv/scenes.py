"""The comparisons of get_indice_pairs: orders of sites, threads, new memory, growth, small calls."""

from __future__ import annotations

from dataclasses import replace

import torch
from harness import SETTLE, Comparison, Entry, Summary, compare, console, median
from sparse_conv import spconv_peer, torch_peer, turnout_entries
from sparse_conv.shapes import SPARSE, SUBM, Scale, Sites, flat, growing

import turnout

ORDERS = [
    ("lidar", "scan"),
    ("lidar", "shuffled"),
    ("lidar", "sorted"),
    ("uniform", "shuffled"),
    ("uniform", "sorted"),
]
SIZES = [10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000]


def run(seconds: float) -> list[Comparison]:
    torch.set_num_threads(turnout.get_num_threads())
    spconv = spconv_peer.load()
    summary = Summary()
    done = []
    for scale in (SUBM, SPARSE):
        for kind, order in ORDERS:
            done.append(side_by_side(Sites(scale, kind, order), spconv, seconds, summary))
    sites = Sites(SUBM, "lidar", "scan")
    done += [new_memory(sites, spconv, seconds, summary), threads(sites, spconv, seconds)]
    for kind in ("lidar", "uniform"):
        done += growth(kind, spconv, seconds, summary)
    done += small_calls(spconv, seconds)
    summary.show()
    return done


def side_by_side(sites: Sites, spconv: bool, seconds: float, summary: Summary) -> Comparison:
    entries = [
        *turnout_entries.floors(sites),
        turnout_entries.warm(sites),
        turnout_entries.fresh(sites),
        turnout_entries.torch_op(sites),
    ]
    if spconv:
        entries += [spconv_peer.warm(sites), spconv_peer.fresh(sites)]
    if sites.scale.subm and (sites.kind, sites.order) == ORDERS[0]:
        entries.append(torch_peer.dense_grid(sites))
    comparison = compare(
        f"get_indice_pairs {sites.name}, {turnout.get_num_threads()} threads",
        entries,
        expected=flat(sites.definition()),
        bytes_moved=sites.pairs_bytes,
        seconds=3 * seconds,
        floors=2,
        settle=SETTLE,
    )
    note_scratch(comparison, sites)
    ours = median(comparison, "turnout, out=")
    summary.add(sites.name, "turnout, out= / fastest fill", ours / fastest_fill(comparison))
    if spconv:
        summary.add(sites.name, "spconv's loop / turnout, out=", median(comparison, "spconv, its") / ours)
    if spconv and sites.scale.subm:
        fresh = median(comparison, "spconv, new") / median(comparison, "turnout, new")
        summary.add(sites.name, "spconv / turnout, new results", fresh)
    summary.add(sites.name, "MB of scratch memory", comparison.scratch_bytes / 2**20)
    return comparison


def fastest_fill(comparison: Comparison) -> float:
    return min(row.median_us for row in comparison.rows[:2])


def note_scratch(comparison: Comparison, sites: Sites) -> None:
    comparison.sites = sites.scale.rows
    comparison.scratch_bytes = turnout_entries.scratch_bytes(sites)
    console.print(
        f"scratch: {comparison.scratch_bytes / 2**20:.1f} MB,"
        f" {comparison.scratch_bytes / comparison.sites:.0f} bytes per site"
    )


def new_memory(sites: Sites, spconv: bool, seconds: float, summary: Summary) -> Comparison:
    """Results in newly mapped pages on both sides: Turnout's output cache is off."""
    pairs = sites.scale.pairs_shape
    entries = [
        Entry(
            "the pairs made and filled with -1, torch.full", lambda: torch.full(pairs, -1, dtype=torch.int32)
        ),
        turnout_entries.fresh(sites),
    ]
    if spconv:
        entries.append(spconv_peer.fresh(sites))
    limit = turnout._core.output_cache_limit()
    turnout._core.set_output_cache_limit(0)
    comparison = compare(
        f"new memory for each result, {sites.name}",
        entries,
        expected=flat(sites.definition()),
        seconds=2 * seconds,
        settle=SETTLE,
    )
    turnout._core.set_output_cache_limit(limit)
    if spconv:
        ratio = median(comparison, "spconv") / median(comparison, "turnout")
        summary.add(sites.name, "spconv / turnout, new memory", ratio)
    return comparison


def with_threads(count: int, entry: Entry) -> Entry:
    def run() -> None:
        turnout.set_num_threads(count)
        torch.set_num_threads(count)
        entry.run()

    return Entry(f"{entry.name}, {count} thread{'s' if count > 1 else ''}", run, every=entry.every)


def threads(sites: Sites, spconv: bool, seconds: float) -> Comparison:
    before = turnout.get_num_threads(), torch.get_num_threads()
    entries = [turnout_entries.warm(sites), turnout_entries.floors(sites)[0], turnout_entries.torch_op(sites)]
    if spconv:
        entries.append(spconv_peer.fresh(sites))
    entries = [with_threads(count, entry) for entry in entries for count in (1, 2)]
    comparison = compare(f"threads, {sites.name}", entries, seconds=2 * seconds, settle=SETTLE)
    turnout.set_num_threads(before[0])
    torch.set_num_threads(before[1])
    return comparison


def growth(kind: str, spconv: bool, seconds: float, summary: Summary) -> list[Comparison]:
    done = []
    for rows in SIZES:
        scale = growing(rows, kind)
        sites = Sites(scale, kind, "scan" if kind == "lidar" else "shuffled")
        entries = [*turnout_entries.floors(sites), turnout_entries.warm(sites)]
        if spconv:
            entries.append(
                replace(spconv_peer.warm(sites), every=1)
            )  # timed in every round; every=4 would need 20 rounds of seconds each
        comparison = compare(
            f"growth: {sites.name}, batch {scale.batch}",
            entries,
            expected=flat(sites.definition()),
            bytes_moved=sites.pairs_bytes,
            seconds=seconds,
            floors=2,
            settle=SETTLE,
        )
        comparison.series = "LiDAR, more frames" if kind == "lidar" else "uniform, four samples"
        note_scratch(comparison, sites)
        name = f"growth, {kind}, {rows} sites"
        summary.add(name, "MB of scratch memory", comparison.scratch_bytes / 2**20)
        done.append(comparison)
    shares = [f"{1e3 * median(c, 'turnout') / c.sites:.0f}" for c in done]
    console.print(f"{done[0].series}: {', '.join(shares)} ns per site at {', '.join(map(str, SIZES))} sites")
    return done


def small_calls(spconv: bool, seconds: float) -> list[Comparison]:
    done = []
    for rows in (1, 16, 256):
        sites = Sites(Scale(rows, 1, (16, 64, 64), subm=True), "uniform", "shuffled")
        entries = [
            turnout_entries.warm(sites, "turnout, NumPy arrays, out="),
            turnout_entries.fresh(sites),
            turnout_entries.torch_op(sites),
        ]
        if spconv:
            entries += [spconv_peer.warm(sites), spconv_peer.fresh(sites)]
        with torch.inference_mode():
            done.append(
                compare(
                    f"small calls, {rows} sites",
                    entries,
                    expected=flat(sites.definition()),
                    seconds=seconds / 2,
                    calls=100,
                )
            )
    return done
