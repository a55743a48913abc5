"""The comparisons of convolutions over given pairs: one thread, two threads, growth with the sites."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import lidar
import torch
from harness import SETTLE, Comparison, Entry, Summary, compare, console, fma_peak, median
from sparse_conv import convolution_entries as entries
from sparse_conv import spconv_peer
from sparse_conv.convolution_entries import Layer
from sparse_conv.scenes import SIZES, with_threads
from sparse_conv.shapes import PER_FRAME, Scale, Sites, growing

import turnout

CHANNELS = [16, 32, 64, 128]
TWO_FRAMES = Scale(2 * PER_FRAME, 2, lidar.SPACE, subm=True)
TOLERANCE = 1e-5  # f32 sums against f64 sums; a wrong row causes a larger error
GROWTH_CHANNELS = 32


def run(seconds: float) -> list[Comparison]:
    threads_before = turnout.get_num_threads(), torch.get_num_threads()
    spconv = spconv_peer.load()
    summary = Summary()
    done = []
    torch.set_num_threads(1)
    for order, channels in [*(("sorted", c) for c in CHANNELS), ("scan", 16), ("scan", 64)]:
        done += one_thread(Layer(Sites(TWO_FRAMES, "lidar", order), channels), spconv, seconds, summary)
    for channels in (16, 64):
        done += two_threads(Layer(Sites(TWO_FRAMES, "lidar", "sorted"), channels), seconds, summary)
    torch.set_num_threads(1)
    done += growth(spconv, seconds, summary)
    turnout.set_num_threads(threads_before[0])
    torch.set_num_threads(threads_before[1])
    summary.show()
    return done


def one_thread(layer: Layer, spconv: bool, seconds: float, summary: Summary) -> list[Comparison]:
    """Measures CPU time, which excludes other work on the machine."""
    programs = {"forward": entries.forward(layer), "both gradients": entries.gradients(layer)}
    programs["forward"].append(entries.with_kept_index(layer))
    if spconv:
        for listed, program in zip(programs.values(), entries.with_spconv(layer), strict=True):
            listed.append(program)
    out, *gradients = layer.definition()
    done = []
    for (what, listed), expected, operations in zip(
        programs.items(), ((out,), tuple(gradients)), (layer.operations, 2 * layer.operations), strict=True
    ):
        peaks = [fma_peak()]
        comparison = compare(
            f"{what}, {layer.name}, one thread",
            listed,
            expected=expected,
            tolerance=TOLERANCE,
            seconds=seconds,
            clock=time.process_time,
        )
        peaks.append(fma_peak())
        where, ours = f"{what}, {layer.channels} channels, {layer.sites.order}", median(comparison, "turnout")
        for row in comparison.rows[1:]:
            summary.add(where, f"{row.name} / turnout", row.median_us / ours)
        summary.add(where, "% of the FMA peak", 1e8 * operations / ours / max(peaks))
        done.append(comparison)
    for name, scratch in entries.scratch_bytes(layer).items():
        console.print(
            f"scratch of {name}: {scratch / 2**20:.1f} MB, {scratch / layer.rows:.0f} bytes per site"
        )
        summary.add(
            f"{layer.channels} channels, {layer.sites.order}", f"MB of scratch, {name}", scratch / 2**20
        )
    return done


def two_threads(layer: Layer, seconds: float, summary: Summary) -> list[Comparison]:
    """Compares with the machine's peak, which less than doubles if cores are shared."""
    done = []
    programs = {"forward": entries.forward(layer)[0], "both gradients": entries.gradients(layer)[0]}
    for what, program in programs.items():
        listed = [with_threads(count, program) for count in (1, 2)]
        listed += [peak_entry(count) for count in (1, 2)]
        comparison = compare(f"{what}, {layer.name}, threads", listed, seconds=2 * seconds, settle=SETTLE)
        where = f"{what}, {layer.channels} channels"
        one, two = (median(comparison, entry.name) for entry in listed[:2])
        summary.add(where, "one thread / two threads", one / two)
        one, two = (median(comparison, entry.name) for entry in listed[2:])
        summary.add(where, "FMA peak of two threads / of one", 2 * one / two)
        done.append(comparison)
    return done


def peak_entry(threads: int) -> Entry:
    pool = ThreadPoolExecutor(threads)

    def run() -> None:
        for other in [pool.submit(fma_peak) for _ in range(threads)]:
            other.result()

    return Entry(f"multiply-adds in registers, {threads} thread{'s' if threads > 1 else ''}", run)


def growth(spconv: bool, seconds: float, summary: Summary) -> list[Comparison]:
    """The forward pass on one thread, from 10 thousand to 2 million sites."""
    done = []
    for rows in SIZES:
        layer = Layer(Sites(growing(rows, "lidar"), "lidar", "scan"), GROWTH_CHANNELS)
        listed = entries.forward(layer)
        if spconv:
            listed.append(entries.with_spconv(layer)[0])
        comparison = compare(
            f"growth: forward, {layer.name}, one thread",
            [replace(program, result=None) for program in listed],
            seconds=seconds / 2,
            clock=time.process_time,
            least=3,
        )
        comparison.series, comparison.sites = f"forward, {GROWTH_CHANNELS} channels, one thread", rows
        comparison.scratch_bytes = entries.scratch_bytes(layer)["forward"]
        summary.add(
            f"growth, {rows} sites",
            "ns per pair",
            1e3 * median(comparison, "turnout") / float(layer.num.sum()),
        )
        done.append(comparison)
    return done
