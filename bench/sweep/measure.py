"""Measures points: verifies the results of all programs, then times them in alternating bursts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from harness import SETTLE
from sweep.point import Point, Program

import turnout
import turnout.torch

ROUNDS = 5
BURST = 0.006  # seconds
SLICE = 0.0005  # seconds of a burst, or one call if that takes longer
PATIENCE = 2.0  # seconds, after which a point gets no more rounds
THREADS = (1, 2)
LOSS = 1.10  # two threads lose if they take this many times as long as one thread, in two measurements


@dataclass
class Measured:
    """A point on a number of threads: microseconds of Turnout and of the fastest peer."""

    point: str
    threads: int
    elements: int
    us: float
    peer: str
    peer_us: float

    @property
    def ratio(self) -> float:
        return self.peer_us / self.us

    @property
    def excused(self) -> bool:
        """Whether a slower call is one of less than 5 us that takes at most 3 us more than the peer."""
        return self.peer_us < 5 and self.us <= self.peer_us + 3


class WrongResultError(Exception):
    pass


def measure(point: Point, rounds: int = ROUNDS, least: float = BURST) -> list[Measured]:
    """Times a point on one and on two threads. Raises WrongResultError if a peer's result differs."""
    own, peers = point.programs()
    for threads in THREADS:
        use(threads)
        for name, peer in peers.items():
            verify(point, name, own(), peer())
    programs = {"": own, **peers}
    times = {(threads, name): [] for threads in THREADS for name in programs}
    end = time.perf_counter() + PATIENCE
    for number in range(rounds):
        if number >= 2 and time.perf_counter() > end:
            break
        for threads in THREADS:
            use(threads)
            for name, program in programs.items():
                if threads > 1:
                    time.sleep(SETTLE)  # until torch's workers have stopped spinning
                times[threads, name].append(burst(program, least))
    use(1)
    best = {key: min(samples) for key, samples in times.items()}
    done = []
    for threads in THREADS:
        peer = min(peers, key=lambda name: best[threads, name])
        one = (point.name, threads, point.elements, best[threads, ""], peer, best[threads, peer])
        done.append(Measured(*one))
    return done


def use(threads: int) -> None:
    turnout.set_num_threads(threads)
    torch.set_num_threads(threads)


def burst(call: Program, seconds: float) -> float:
    """Returns the microseconds of a call in the fastest slice, which other processes disturbed least."""
    call()
    slices, end = [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end or len(slices) < 2:
        count, now = 0, start
        while count == 0 or now - start < SLICE:
            call()
            count, now = count + 1, time.perf_counter()
        slices.append((now - start) / count * 1e6)
    return min(slices)


def verify(point: Point, peer: str, actual: object, expected: object) -> None:
    """Raises WrongResultError if the sum of errors exceeds the tolerance times that of expected values."""
    pairs = list(zip(tensors(actual), tensors(expected), strict=True))
    for number, (ours, theirs) in enumerate(pairs):
        is_float = ours.is_floating_point()
        tolerance = point.case.tolerance if ours.dtype != torch.bfloat16 else 2e-2
        a, b = ours.double(), theirs.double()
        if a.shape != b.shape:
            raise WrongResultError(
                f"{point.name}: result {number} is {list(a.shape)}, {peer}: {list(b.shape)}"
            )
        same = torch.equal(a, b)
        close = is_float and float((a - b).abs().sum()) <= tolerance * float(b.abs().sum())
        if not (same or close):
            raise WrongResultError(f"{point.name}: result {number} differs from that of {peer}")


def tensors(results: object) -> list[torch.Tensor]:
    results = results if isinstance(results, (tuple, list)) else (results,)
    return [x if isinstance(x, torch.Tensor) else torch.from_numpy(x) for x in results if x is not None]


def lost(one: Measured, two: Measured) -> bool:
    """Whether a second thread made the call slower, by more than a microsecond or two of noise."""
    return two.us > LOSS * one.us and two.us > one.us + 3


def sweep(
    points: Sequence[Point], seconds: float, report: Callable[[str], None]
) -> tuple[list[Measured], list[str], list[str]]:
    """Measures points until `seconds` have passed. Returns times, wrong results and lost second threads."""
    done: list[Measured] = []
    wrong, losses = [], []
    end = time.perf_counter() + seconds
    for number, point in enumerate(points):
        if time.perf_counter() > end:
            report(f"out of time after {number} of {len(points)} calls")
            break
        try:
            one, two = measure(point)
            if lost(one, two):
                one, two = measure(point, 2 * ROUNDS, 2 * BURST)
                if lost(one, two):
                    losses.append(f"{point.name}: {one.us:.1f} us on one thread, {two.us:.1f} us on two")
        except WrongResultError as error:
            wrong.append(str(error))
            report(str(error))
            continue
        done += [one, two]
        if number % 50 == 49:
            report(f"{number + 1} of {len(points)} calls")
    return done, wrong, losses
