"""Compares two builds of Turnout, call by call: a revision of before with this one, or this one with a wheel.

Each build runs in a process of its own. The two take turns, one burst of calls each, so that both see the
machine in the same state. A call that is slower by more than the limit is measured again, longer; it counts
only if it is slower again.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

LIMIT = 1.05
BURST = 0.03  # seconds


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
    """Answers questions: a family with the names of its calls, a name with the microseconds of a burst."""
    if folder is not None:
        sys.path.insert(0, folder)
    import calls

    known = {}
    for line in sys.stdin:
        kind, name = json.loads(line)
        if kind == "family":
            try:
                known = {name: call for name, _, call in calls.FAMILIES[name](1)}
            except (AttributeError, TypeError):  # an older build may lack a function or an argument
                known = {}
            answer = list(known)
        else:
            answer = burst(known[name])
        print(json.dumps(answer), flush=True)


def burst(call) -> float:
    call()
    count, start = 0, time.perf_counter()
    while (now := time.perf_counter()) - start < BURST or count < 2:
        call()
        count += 1
    return (now - start) / count * 1e6


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
    """Of builds in these folders, or the installed one. Prints a table; returns how many calls are slower."""
    from rich.console import Console
    from rich.table import Table

    before, after = Build(old), Build(new)
    names = [folder.name if folder else "this build" for folder in (new, old)]
    title = f"new: {names[0]}, old: {names[1]}"
    table = Table("call", "time", "new / old", title=title, title_justify="left")
    slower = []
    for family in families:
        known = before.ask("family", family)
        for name in after.ask("family", family):
            if name not in known:
                table.add_row(name, "", "new")
                continue
            time_us, measured = ratio(before, after, name, seconds)
            if measured > LIMIT:
                time_us, measured = ratio(before, after, name, 4 * seconds)
            if measured > LIMIT:
                slower.append(name)
            table.add_row(name, f"{time_us:,.0f} us", f"{measured:.3f}")
    before.close()
    after.close()
    Console(width=100).print(table)
    if slower:
        print(f"slower by more than {LIMIT - 1:.0%}: {', '.join(slower)}")
    return len(slower)


if __name__ == "__main__" and sys.argv[1:2] == ["--serve"]:
    serve(sys.argv[2] if len(sys.argv) > 2 else None)
