"""Time against size and threads for each family: the calls of calls.py at four sizes."""

from __future__ import annotations

import calls
from harness import Comparison, Entry, compare, with_threads

import turnout

SCALES = (1 / 64, 1 / 16, 1 / 4, 1)


def run(seconds: float) -> list[Comparison]:
    before = turnout.get_num_threads()
    threads = sorted({1, 2, before})
    done = []
    for family in calls.FAMILIES.values():
        for scale in SCALES:
            for name, size, call in family(scale):
                entries = [with_threads(n, Entry("turnout", call)) for n in threads]
                comparison = compare(f"{name}, size {size}", entries, seconds=seconds / 4)
                comparison.series, comparison.sites = name, size
                done.append(comparison)
    turnout.set_num_threads(before)
    return done
