"""Measures how fast a call is, and its floor: the shortest time that this machine allows for the same work.

Both are CPU times of one thread, measured alternately, so that other work on the machine slows both or
neither.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

import turnout
from turnout import _core

# A measurement repeats a call for at least this many seconds and at least this many times.
_SECONDS, _CALLS = 0.2, 5


@dataclass(frozen=True)
class Speed:
    seconds: float  # median CPU time of a call
    rate: float  # bytes or floating-point operations per second
    unit: str  # "GB/s" or "GFLOP/s"
    efficiency: float  # the floor's time / seconds
    floor: str  # what was measured as the floor


@contextmanager
def one_thread() -> Iterator[None]:
    """Limits calls to one thread, so that the CPU time is the time of the call."""
    before = turnout.get_num_threads()
    turnout.set_num_threads(1)
    try:
        yield
    finally:
        turnout.set_num_threads(before)


def medians(*programs: Callable[[], object]) -> list[float]:
    """Returns the median CPU seconds of each program. Their calls alternate."""
    for program in programs:
        program()
    samples: list[list[float]] = [[] for _ in programs]
    end = time.process_time() + _SECONDS * len(programs)
    while time.process_time() < end or len(samples[0]) < _CALLS:
        for program, times in zip(programs, samples, strict=True):
            start = time.process_time()
            program()
            times.append(time.process_time() - start)
    return [max(statistics.median(times), 1e-9) for times in samples]


def streamed_copy(size: int) -> Callable[[], object]:
    """Copies past the cache; reads and writes add up to `size` bytes."""
    source = np.ones(max(size // 2, 1), np.uint8)
    target = np.zeros_like(source)
    return lambda: _core.stream_copy(target, source)


def plain_copy(size: int) -> Callable[[], object]:
    source = np.ones(size, np.uint8)
    target = np.zeros_like(source)
    return lambda: np.copyto(target, source)


def speed(
    run: Callable[[], object], *, bytes_moved: int = 0, bytes_copied: int = 0, operations: int = 0
) -> Speed | None:
    """Measures a call on one thread against the floor of its kind. Returns None if there is no work."""
    with one_thread():
        if operations:
            peaks = [_core.fma_peak()]
            (seconds,) = medians(run)
            peaks.append(_core.fma_peak())
            floor = operations / max(peaks)
            return Speed(seconds, operations / seconds, "GFLOP/s", floor / seconds, "FMA peak")
        if bytes_moved:
            seconds, floor = medians(run, streamed_copy(bytes_moved))
            return Speed(seconds, bytes_moved / seconds, "GB/s", floor / seconds, "streamed copy")
        if bytes_copied:
            seconds, floor = medians(run, plain_copy(bytes_copied))
            return Speed(seconds, bytes_copied / seconds, "GB/s", floor / seconds, "memcpy of its arrays")
    return None
