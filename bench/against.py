"""Compares two builds of Turnout, call by call: a revision with this build, or this build with a wheel.

Each build runs in its own process. The processes alternate, one burst of calls each, so that both see the
machine in the same state. A call that is slower by more than the limit is measured again, for longer, and
counts only if it is slower again. A call that runs in only one build is a failure; otherwise a changed
signature would hide every call of its function.
"""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

LIMIT = 1.05
BURST = 0.03  # seconds
SLICE = 0.001  # seconds of a burst, or one call if that takes longer
HAS_TORCH = importlib.util.find_spec("torch") is not None


class Build:
    """A process with one build, which runs bursts on demand."""

    def __init__(self, folder: Path | None) -> None:
        command = [sys.executable, __file__, "--serve", *([str(folder)] if folder else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *question: object) -> object:
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the build in {self.process.args[-1]} ended with {self.process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def serve(folder: str | None) -> None:
    """Answers "family" with the names and errors of load(), and "run" with the microseconds of a burst."""
    if folder is not None:
        sys.path.insert(0, folder)
    known: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        kind, name = json.loads(line)
        if kind == "family":
            known, errors = load(name)
            answer = [list(known), errors]
        else:
            answer = burst(known[name])
        print(json.dumps(answer), flush=True)


def load(family: str) -> tuple[dict[str, Callable[[], object]], dict[str, str]]:
    """Runs every call of a family once. Returns those that ran, and the errors of the others by name."""
    known, errors = {}, {}
    try:
        for name, call in calls_of(family):
            try:
                call()
                known[name] = call
            except Exception as error:
                errors[name] = f"{type(error).__name__}: {error}"
    except Exception as error:  # from the preparation of arguments: the calls after it are missing
        errors[f"arguments of {family}"] = f"{type(error).__name__}: {error}"
    return known, errors


def calls_of(family: str) -> Iterator[tuple[str, Callable[[], object]]]:
    import calls
    import small_calls

    for name, _, call in calls.FAMILIES[family](1):
        yield name, call
    for small in small_calls.FAMILIES[family]():
        yield from small.numpy_calls()
        if HAS_TORCH:
            yield from small.torch_calls()


def burst(call: Callable[[], object]) -> float:
    """Returns the microseconds of a call in the fastest slice, which other processes disturbed least."""
    call()
    slices, end = [], time.perf_counter() + BURST
    while (start := time.perf_counter()) < end or len(slices) < 2:
        count, now = 0, start
        while count == 0 or now - start < SLICE:
            call()
            count, now = count + 1, time.perf_counter()
        slices.append((now - start) / count * 1e6)
    return min(slices)


def ratio(before: Build, after: Build, name: str, seconds: float) -> tuple[float, float]:
    """Median of the new build's time in microseconds, and of new / old over the rounds."""
    times, ratios = [], []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(ratios) < 7:
        pair = [(before, after), (after, before)][len(ratios) % 2]  # neither is always first
        measured = {build: build.ask("run", name) for build in pair}
        times.append(measured[after])
        ratios.append(measured[after] / measured[before])
    return statistics.median(times), statistics.median(ratios)


def compare(old: Path | None, new: Path | None, families: list[str], seconds: float) -> int:
    """Compares the builds in these folders; None is the installed build. Prints a table.

    Returns 0 if every call runs in both builds and none is slower.
    """
    from rich.console import Console
    from rich.table import Table

    before, after = Build(old), Build(new)
    names = [folder.name if folder else "this build" for folder in (new, old)]
    title = f"new: {names[0]}, old: {names[1]}"
    table = Table("call", "time", "new / old", title=title, title_justify="left")
    slower, failures = [], []
    for family in families:
        (old_calls, old_errors), (new_calls, new_errors) = (b.ask("family", family) for b in (before, after))
        for name in new_calls:
            if name not in old_calls:
                continue
            time_us, measured = ratio(before, after, name, seconds)
            if measured > LIMIT:
                time_us, measured = ratio(before, after, name, 4 * seconds)
            if measured > LIMIT:
                slower.append(name)
            table.add_row(name, duration(time_us), f"{measured:.3f}")
        failures += [f"{name}: runs in the new build only" for name in new_calls if name not in old_calls]
        failures += [f"{name}: runs in the old build only" for name in old_calls if name not in new_calls]
        failures += [f"{name}, old build: {error}" for name, error in old_errors.items()]
        failures += [f"{name}, new build: {error}" for name, error in new_errors.items()]
    before.close()
    after.close()
    Console(width=100).print(table)
    if not HAS_TORCH:
        print("PyTorch is not installed: calls through turnout.torch are skipped")
    if slower:
        print(f"slower by more than {LIMIT - 1:.0%}: {', '.join(slower)}")
    if failures:
        print("calls that do not run in both builds:\n  " + "\n  ".join(failures))
    return len(slower) + len(failures)


def duration(time_us: float) -> str:
    """Formats a time with at least three digits: 2.47 us, 24.7 us, 2,470 us."""
    return f"{time_us:,.{max(0, 2 - int(math.log10(max(time_us, 1))))}f} us"


if __name__ == "__main__" and sys.argv[1:2] == ["--serve"]:
    serve(sys.argv[2] if len(sys.argv) > 2 else None)
