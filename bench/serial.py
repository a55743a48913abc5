"""The part of each call that only one thread can do, and the speed-up that it allows on more cores.

Takes both from the log: `us` and `serial_us`. The call is planned for 16 threads, which take turns on one
core, so that the time in shared loops is that of all their work. Prints a table in Markdown.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable

import calls

import turnout

THREADS = 16
CORES = (4, 16, 64)
RUNS = 7
TIMES = re.compile(r" us=([0-9.]+) serial_us=([0-9.]+)$", re.MULTILINE)


def run(families: Iterable[str]) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before the pool starts its threads
    turnout.set_num_threads(THREADS)
    print(f"| call | size | serial | {' | '.join(f'{n} cores' for n in CORES)} |")
    print(f"|---|---|---|{'---|' * len(CORES)}")
    for family in families:
        for name, size, call in calls.FAMILIES[family](1):
            call()
            whole, serial = min(times(call) for _ in range(RUNS))
            share = serial / whole
            bounds = (f"{bound(share, n):.1f}" for n in CORES)
            print(f"| {name} | {size} | {100 * share:.1f} % | {' | '.join(bounds)} |", flush=True)


def bound(share: float, cores: int) -> float:
    """Amdahl's law."""
    return 1 / (share + (1 - share) / cores)


def times(call: Callable[[], object]) -> tuple[float, float]:
    """Microseconds of a call and of its serial part, the sums over all of its log lines."""
    with tempfile.TemporaryFile("w+") as log:
        before = os.dup(2)
        os.dup2(log.fileno(), 2)
        turnout.set_log(1)
        try:
            call()
        finally:
            turnout.set_log(0)
            os.dup2(before, 2)
            os.close(before)
        log.seek(0)
        found = TIMES.findall(log.read())
    if not found:
        sys.exit("the log has no times")
    whole, serial = (sum(map(float, column)) for column in zip(*found, strict=True))
    return whole, serial
