"""One line of the demo: an operator at one size, checked, and timed together with a copy and plain NumPy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import turnout

Results = np.ndarray | tuple[np.ndarray, ...]


@dataclass
class Job:
    """One operator at one size. `plain` is the usual NumPy code; if it is absent, the definition is timed."""

    name: str
    scale: str
    run: Callable[[], Results]
    definition: Callable[[], Results]
    bytes_moved: int
    tolerance: float | None = None  # sum of errors / sum of values; None if the bits must be equal
    plain: Callable[[], object] | None = None


@dataclass
class Measured:
    """The seconds of a job: the operator, a streamed copy of as many bytes, and plain NumPy."""

    seconds: float
    copy_seconds: float
    plain_seconds: float
    is_right: bool


def measure(job: Job) -> Measured:
    results, (expected, plain) = job.run(), timed(job.definition)
    right = is_right(results, expected, job.tolerance)
    if job.plain is not None:
        job.plain()
        plain = min(timed(job.plain)[1] for _ in range(2))
    return Measured(*side_by_side(job.run, job.bytes_moved), plain, right)


def timed(function: Callable[[], Results]) -> tuple[Results, float]:
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def arrays(results: Results) -> tuple[np.ndarray, ...]:
    return results if isinstance(results, tuple) else (results,)


def is_right(results: Results, expected: Results, tolerance: float | None) -> bool:
    for actual, wanted in zip(arrays(results), arrays(expected), strict=True):
        if tolerance is None:
            right = actual.tobytes() == wanted.tobytes()
        else:
            right = bool(abs(actual - wanted).sum() <= tolerance * abs(wanted).sum())
        if not right:
            return False
    return True


def side_by_side(run: Callable[[], object], bytes_moved: int, repeats: int = 21) -> tuple[float, float]:
    """Median seconds of `run` and of a streamed copy that moves the same number of bytes; they alternate."""
    source = np.ones(bytes_moved // 2, dtype=np.uint8)  # read once and written once
    target = np.zeros_like(source)
    programs = (run, lambda: turnout._core.stream_copy(target, source))
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for program, times in zip(programs, samples, strict=True):
            start = time.perf_counter()
            program()
            times.append(time.perf_counter() - start)
    return statistics.median(samples[0]), statistics.median(samples[1])
