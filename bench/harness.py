"""Times programs that compute the same result: verifies first, interleaves, reports quartiles."""

from __future__ import annotations

import ctypes
import datetime
import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

import turnout

console = Console(width=120)

SETTLE = 0.01  # seconds after which torch's worker threads have stopped spinning
BURST = 0.02  # length in seconds of a burst of calls of one entry, before the next entry runs

Results = np.ndarray | tuple[np.ndarray, ...]


@dataclass
class Entry:
    """One program in a comparison. `run` does the work once; `result`, if any, returns what to verify."""

    name: str
    run: Callable[[], object]
    result: Callable[[], Results] | None = None
    every: int = 1  # a slow program is timed only in every n-th round


@dataclass
class Row:
    name: str
    median_us: float
    low_us: float
    high_us: float
    ratio: float  # median / median of the baseline: the first entry, or the fastest of the floors
    first_us: float  # median of the first calls of bursts, which find the cache as other programs left it
    gb_per_s: float | None = None


@dataclass
class Comparison:
    title: str
    rows: list[Row] = field(default_factory=list)
    threads: int = 0
    # For a plot of time over size: one line per series and program.
    sites: int = 0
    series: str = ""
    scratch_bytes: int | None = None


def with_threads(count: int, entry: Entry) -> Entry:
    """Runs the entry on `count` Turnout threads. The caller restores the number of threads."""

    def run() -> None:
        turnout.set_num_threads(count)
        entry.run()

    name = f"{entry.name}, {count} thread{'s' if count > 1 else ''}"
    return Entry(name, run, entry.result, every=entry.every)


def copy_floor(source: np.ndarray) -> Entry:
    """The floor of programs that move these bytes: a streamed copy."""
    target = np.ones_like(source)
    return Entry("streamed copy of the same bytes", lambda: turnout._core.stream_copy(target, source))


def on_all_threads(function: Callable, calls: list[tuple], pool: ThreadPoolExecutor) -> None:
    """Runs a libc function once per thread. ctypes releases the GIL, so the calls run in parallel."""
    others = [pool.submit(function, *call) for call in calls[1:]]
    function(*calls[0])
    for other in others:
        other.result()


def parts_of(size: int) -> list[tuple[int, int]]:
    """Returns begin and end of each thread's part of `size` bytes."""
    threads = turnout.get_num_threads()
    ends = [size * t // threads // 64 * 64 for t in range(threads)] + [size]
    return list(itertools.pairwise(ends))


def memcpy_floor(arrays: list[np.ndarray], name: str) -> Entry:
    """Copies as many bytes as these arrays have with libc's memcpy, on all threads."""
    source = np.ones(sum(x.nbytes for x in arrays), dtype=np.uint8)
    target, pool = np.zeros_like(source), ThreadPoolExecutor()
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes, memcpy.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), None

    def run() -> None:
        to, source_at = target.ctypes.data, source.ctypes.data
        parts = parts_of(source.nbytes)
        on_all_threads(memcpy, [(to + a, source_at + a, b - a) for a, b in parts], pool)

    return Entry(name, run)


def fill_floors(target: np.ndarray, what: str) -> list[Entry]:
    """Fills `target` with -1 on all threads, with libc and with torch."""
    import torch

    tensor, pool = torch.from_numpy(target), ThreadPoolExecutor()
    memset = ctypes.CDLL(None).memset
    memset.argtypes, memset.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), None

    def parts() -> None:
        start = target.ctypes.data
        on_all_threads(memset, [(start + a, 255, b - a) for a, b in parts_of(target.nbytes)], pool)

    return [Entry(f"{what}, memset", parts), Entry(f"{what}, torch fill_", lambda: tensor.fill_(-1))]


def verify(entry: Entry, expected: Results, tolerance: float | None) -> None:
    """Exits if the result is wrong, so that no wrong program is timed.

    Without a tolerance, the bits must be equal. With one, for each array of floats, the sum of the errors may
    be at most the tolerance times the sum of the expected values.
    """
    if entry.result is None:
        return
    entry.run()
    for actual, right in zip(arrays(entry.result()), arrays(expected), strict=True):
        if tolerance is None or right.dtype.kind != "f":
            is_right = actual.tobytes() == right.tobytes()
        else:
            is_right = bool(abs(actual - right).sum() <= tolerance * abs(right).sum())
        if not is_right:
            raise SystemExit(f"{entry.name}: its result differs from the definition, so it is not timed")


def arrays(results: Results) -> tuple[np.ndarray, ...]:
    return results if isinstance(results, tuple) else (results,)


def compare(
    title: str,
    entries: list[Entry],
    *,
    expected: Results | None = None,
    tolerance: float | None = None,
    bytes_moved: int | None = None,
    seconds: float = 2.0,
    calls: int = 1,
    floors: int = 1,
    settle: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
    least: int = 5,
) -> Comparison:
    """Times the entries in rounds of one burst each, until `seconds` have passed.

    A burst is about 20 ms of calls of one entry. Its first call, which warms up caches and threads, is
    recorded separately. `settle` adds a pause of that many seconds between bursts, until the workers of
    another library have stopped spinning. A sample is the mean of `calls` calls. The first `floors` entries
    are alternatives for the same work; the fastest is the baseline of the ratios. If all entries run on one
    thread, `clock` may be time.process_time, which excludes the work of other processes. Each entry gets at
    least `least` samples.
    """
    for entry in entries:
        if expected is not None:
            verify(entry, expected, tolerance)
        entry.run()
    firsts, times = ([[] for _ in entries] for _ in range(2))
    end = time.perf_counter() + seconds
    with Progress(transient=True, console=console) as progress:
        task = progress.add_task(title, total=seconds)
        rounds = itertools.count()
        while time.perf_counter() < end or min(map(len, times)) < least:
            number = next(rounds)
            for entry, first, warm in zip(entries, firsts, times, strict=True):
                if number % entry.every != 0:
                    continue
                if settle:
                    time.sleep(settle)
                first_of_burst, *others = burst_of(entry, calls, clock)
                first.append(first_of_burst)
                warm += others
            progress.update(task, completed=seconds - (end - time.perf_counter()))
    comparison = Comparison(title, threads=turnout.get_num_threads())
    floor = min(statistics.median(samples) for samples in times[:floors])
    for entry, first, warm in zip(entries, firsts, times, strict=True):
        low, median, high = np.percentile(warm, [25, 50, 75])
        speed = bytes_moved / median / 1e3 if bytes_moved else None
        comparison.rows.append(
            Row(entry.name, median, low, high, median / floor, statistics.median(first), speed)
        )
    show(comparison, "the first" if floors == 1 else "the fastest floor")
    return comparison


def burst_of(entry: Entry, calls: int, clock: Callable[[], float]) -> list[float]:
    """Returns the samples of one burst, at least two, in microseconds per call."""
    samples: list[float] = []
    end = time.perf_counter() + BURST
    while len(samples) < 2 or time.perf_counter() < end:
        start = clock()
        for _ in range(calls):
            entry.run()
        samples.append((clock() - start) / calls * 1e6)
    return samples


def show(comparison: Comparison, beside: str = "the first") -> None:
    table = Table(title=comparison.title, title_justify="left")
    for column in ("", "median us", "quartiles", "first of a burst", "GB/s", f"times {beside}"):
        table.add_column(column, justify="left" if not column else "right")
    for row in comparison.rows:
        table.add_row(
            escape(row.name),  # rich reads brackets as markup
            f"{row.median_us:,.1f}",
            f"{row.low_us:,.1f} .. {row.high_us:,.1f}",
            f"{row.first_us:,.1f}",
            f"{row.gb_per_s:.1f}" if row.gb_per_s else "",
            f"{row.ratio:.2f}",
        )
    console.print(table)


def fma_peak() -> float:
    """Measures this thread's peak of floating-point operations per second."""
    return turnout._core.fma_peak()


def record(comparisons: list[Comparison], path: Path, command: str) -> None:
    """Writes all numbers with machine, date and command as JSON, the input of the plots."""
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {"cpu": cpu_name(), "cpus": os.cpu_count(), "python": platform.python_version()}
    machine |= {key: str(value) for key, value in turnout._core.info().items()}
    made = {"machine": machine, "date": datetime.date.today().isoformat(), "command": command}
    path.write_text(json.dumps(made | {"comparisons": [asdict(c) for c in comparisons]}, indent=1))
    console.print(f"wrote {path}")


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


class Summary:
    """The ratios that the READMEs quote, printed as one table at the end."""

    def __init__(self) -> None:
        self.table = Table(title="summary", title_justify="left")
        for column in ("comparison", "what", "value"):
            self.table.add_column(column, justify="right" if column == "value" else "left")

    def add(self, where: str, what: str, value: float) -> None:
        self.table.add_row(escape(where), escape(what), f"{value:.2f}")

    def show(self) -> None:
        console.print(self.table)


def median(comparison: Comparison, name: str) -> float:
    return next(row.median_us for row in comparison.rows if row.name.startswith(name))
