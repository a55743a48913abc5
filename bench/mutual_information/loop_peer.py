"""The plain double loop in C++ (loop_peer.cc), compiled with -march=native, serial or threaded."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import Entry, console
from mutual_information.shapes import Lattices, flat

SOURCE = Path(__file__).with_suffix(".cc")
LIBRARY = Path("bench/results/loop_peer.so")
FLAGS = ["-O3", "-march=native", "-std=c++20", "-shared", "-fPIC", "-pthread"]
SLOW = 4  # timed in every fourth round


@functools.cache
def load() -> ctypes.CDLL:
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    command = ["g++", *FLAGS, str(SOURCE), "-o", str(LIBRARY)]
    console.print(f"compiling the plain loop: {' '.join(command)}")
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(LIBRARY.resolve()))


def _call(function: Callable, lattices: Lattices, arrays: list[np.ndarray], threads: int) -> None:
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in arrays]
    sizes = [ctypes.c_ssize_t(n) for n in lattices.scale.shape]
    function(*sizes, *pointers, ctypes.c_int(threads))


def _name(threads: int) -> str:
    return "plain loop, serial" if threads == 1 else f"plain loop, batch over {threads} threads"


def forward(lattices: Lattices, threads: int) -> Entry:
    arrays = [lattices.px, lattices.py, np.ones_like(lattices.p), np.ones_like(lattices.ans)]
    call = functools.partial(_call, load().loop_forward, lattices, arrays, threads)
    return Entry(_name(threads), call, lambda: flat(*arrays[2:]), every=SLOW)


def backward(lattices: Lattices, threads: int) -> Entry:
    grads = [np.ones_like(lattices.px), np.ones_like(lattices.py)]
    arrays = [lattices.px, lattices.py, lattices.p, np.ones_like(lattices.ans), *grads]
    arrays.append(np.ones_like(lattices.p))  # the gradient of each cell
    call = functools.partial(_call, load().loop_backward, lattices, arrays, threads)
    return Entry(_name(threads), call, lambda: flat(*grads), every=SLOW)


def both(lattices: Lattices, threads: int) -> Entry:
    first, second = forward(lattices, threads), backward(lattices, threads)

    def run() -> None:
        first.run()
        second.run()

    return Entry(
        _name(threads), run, lambda: flat(first.result()[-len(lattices.ans) :], second.result()), every=SLOW
    )
