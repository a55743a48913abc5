"""The published comparisons of the documentation: two programs each, measured by the harness.

Each family lists its cases in bench/<family>/recorded.py. `./dev bench --record` measures all of them and
writes docs/speed.json; `./dev bench --pick ID` measures and prints some.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import harness
import torch
from harness import SETTLE, Entry, Results, Row

import turnout

FILE = Path(__file__).resolve().parents[1] / "docs/speed.json"


@dataclass
class Programs:
    """Both programs and their expected results, by default those of the peer."""

    ours: Entry
    peer: Entry
    expected: Results | None = None
    tolerance: float | None = None
    options: dict = field(default_factory=dict)  # for harness.compare()


@dataclass
class Case:
    id: str  # the argument of --pick
    call: str
    size: str
    dtype: str
    peer: str
    outputs: str  # "reused" or "new"; "new, reused" if Turnout's are new and the peer's are reused
    make: Callable[[], Programs]
    threads: int | None = None  # of both programs; None means one per CPU
    serial_peer: bool = False  # whether the peer always uses one thread


def cases(families: list[str], wanted: str = "") -> Iterator[tuple[str, Case]]:
    """Yields the cases of these families. `wanted` selects one family, one id or the ids with that prefix."""
    for family in families:
        for case in importlib.import_module(f"{family}.recorded").cases():
            if not wanted or any(f"{name}-".startswith(f"{wanted}-") for name in (family, case.id)):
                yield family, case


def measure(family: str, case: Case, seconds: float) -> dict:
    before = turnout.get_num_threads(), torch.get_num_threads()
    count = case.threads or before[0]
    turnout.set_num_threads(count)
    torch.set_num_threads(count)
    programs = case.make()
    expected = programs.expected
    if expected is None:
        programs.peer.run()
        expected = programs.peer.result()
    comparison = harness.compare(
        f"{case.id}: {case.call}, {case.dtype}, {case.size}",
        [programs.ours, programs.peer],
        expected=expected,
        tolerance=programs.tolerance,
        seconds=seconds,
        **{"settle": SETTLE, "least": 3, **programs.options},
    )
    turnout.set_num_threads(before[0])
    torch.set_num_threads(before[1])
    ours, peer = comparison.rows
    return {
        **{"id": case.id, "family": family, "call": case.call, "size": case.size, "dtype": case.dtype},
        **{"threads": [count, 1 if case.serial_peer else count], "outputs": case.outputs},
        **{"peer": case.peer, "turnout_us": _quartiles(ours), "peer_us": _quartiles(peer)},
        "command": f"./dev bench --pick {case.id}",
    }


def _quartiles(row: Row) -> list[float]:
    return [float(f"{value:.4g}") for value in (row.low_us, row.median_us, row.high_us)]


def run(families: list[str], wanted: str, seconds: float) -> list[dict]:
    return [measure(family, case, seconds) for family, case in cases(families, wanted)]


def busy_share() -> float:
    """Measures for a second which share of the CPU time other programs use."""

    def ticks() -> list[int]:
        return [int(value) for value in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]

    before = ticks()
    time.sleep(1)
    passed = [after - start for start, after in zip(before, ticks(), strict=True)]
    idle = passed[3] + passed[4]  # idle and iowait
    return 1 - idle / sum(passed)


def record(families: list[str], seconds: float, command: str) -> None:
    busy = [busy_share()]
    rows = run(families, "", seconds)
    busy.append(busy_share())
    write(rows, command, round(max(busy), 2))


def write(rows: list[dict], command: str, busy: float, path: Path = FILE) -> None:
    """Writes machine, date, the CPU share of other programs, and one line per comparison."""
    info = turnout._core.info()
    about = {
        **{"cpu": harness.cpu_name(), "cpus": os.cpu_count(), "instruction_set": info["isa"]},
        **{"date": datetime.date.today().isoformat(), "torch": torch.__version__, "command": command},
        "busy": busy,
    }
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in about.items())
    path.write_text(f'{{\n{head},\n "comparisons": [\n{lines}\n ]\n}}\n')
    harness.console.print(f"wrote {path}")
