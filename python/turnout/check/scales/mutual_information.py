"""The scales of mutual information (design document 004) and of the cases that MLU-OPS ships."""

from __future__ import annotations

import numpy as np

import turnout
from turnout import check
from turnout.check.scales.case import Cases, Data

cases = Cases("004")

Boundary = list[tuple[int, int, int, int]] | None


def _lattice(batch: int, symbols: int, frames: int, reach: float) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(6)
    low, high = (-reach, reach) if reach else (-3, 0)
    shapes = (batch, symbols, frames + 1), (batch, symbols + 1, frames)
    px, py = (random.uniform(low, high, shape).astype(np.float32) for shape in shapes)
    return px, py


def _text(batch: int, symbols: int, frames: int, boundary: Boundary) -> str:
    return f"B {batch}, S {symbols}, T {frames}" + (f", boundary {boundary}" if boundary else "")


def _backward(
    batch: int, symbols: int, frames: int, boundary: Boundary = None, reach: float = 0, timed: bool = False
) -> Data:
    """Draws px and py from -reach .. reach, as in the shipped cases, or from -3 .. 0 for a reach of 0.

    The shipped cases also draw p, but then their gradients overflow float32; here p is the forward result.
    """
    px, py = _lattice(batch, symbols, frames, reach)
    options = {"boundary": None if boundary is None else np.array(boundary, np.int64)}
    p = turnout.mutual_information_forward(px, py, **options)[0]
    ans_grad, out = np.ones(batch, np.float32), (np.empty_like(px), np.empty_like(py))

    def run() -> tuple[np.ndarray, ...]:
        reached = ans_grad.copy()
        grads = turnout.mutual_information_backward(
            px, py, p, reached, **options, overwrite_ans_grad=True, out=out
        )
        return *grads, reached

    return Data(
        _text(batch, symbols, frames, boundary),
        run,
        lambda: check.mutual_information_backward(px, py, p, ans_grad, **options),
        {"px_grad": 1e-5, "py_grad": 1e-5, "ans_grad": 1e-5},
        bytes_copied=2 * (px.nbytes + py.nbytes) + p.nbytes if timed else 0,
    )


def _forward(
    batch: int, symbols: int, frames: int, boundary: Boundary = None, reach: float = 0, timed: bool = False
) -> Data:
    px, py = _lattice(batch, symbols, frames, reach)
    options = {"boundary": None if boundary is None else np.array(boundary, np.int64)}
    out = (
        np.full((batch, symbols + 1, frames + 1), -np.inf, np.float32),  # kept outside the boundary
        np.empty(batch, np.float32),
    )
    return Data(
        _text(batch, symbols, frames, boundary),
        lambda: turnout.mutual_information_forward(px, py, **options, out=out),
        lambda: check.mutual_information_forward(px, py, **options),
        {"p": 1e-5, "ans": 1e-5},
        bytes_copied=px.nbytes + py.nbytes + out[0].nbytes if timed else 0,
    )


@cases.add("mutual_information_backward", "B 4, T 104, S 15")
def _mentioned() -> Data:
    return _backward(4, 15, 104, timed=True)


@cases.add("mutual_information_forward", "B 4, T 104, S 15")
def _mentioned_forward() -> Data:
    return _forward(4, 15, 104, timed=True)


def _add_boundary_cases() -> None:
    shapes: dict[str, tuple[int, int, int, Boundary]] = {
        "T = 0": (3, 5, 0, None),
        "S = 0": (3, 0, 5, None),
        "T = 1": (3, 5, 1, None),
        "S = 1": (3, 1, 5, None),
        "begin_symbol = end_symbol": (2, 5, 7, [(2, 1, 2, 6), (0, 0, 5, 7)]),
        "begin_frame = end_frame": (2, 5, 7, [(1, 3, 4, 3), (0, 0, 5, 7)]),
    }
    for name, arguments in shapes.items():
        for op, make in (("forward", _forward), ("backward", _backward)):
            cases.add(f"mutual_information_{op}", f"boundary: {name}")(
                lambda make=make, arguments=arguments: make(*arguments)
            )


_add_boundary_cases()


@cases.add("mutual_information_backward", "MLU-OPS case")
def _shipped_backward() -> Data:
    return _backward(1, 179, 180, [(2, 3, 179, 180)], 2.5, timed=True)


@cases.add("mutual_information_backward", "MLU-OPS case, large S and T")
def _shipped_backward_large() -> Data:
    return _backward(2, 380, 380, [(5, 2, 380, 380), (5, 2, 3, 1)], 1.5, timed=True)


@cases.add("mutual_information_forward", "MLU-OPS case")
def _shipped_forward() -> Data:
    return _forward(1, 178, 179, [(1, 2, 120, 130)], 2.5, timed=True)


@cases.add("mutual_information_forward", "MLU-OPS case, large S and T")
def _shipped_forward_large() -> Data:
    return _forward(2, 380, 380, [(5, 2, 380, 380), (5, 2, 3, 1)], 1.5, timed=True)
