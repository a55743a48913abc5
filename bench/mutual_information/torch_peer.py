"""PyTorch's fastest formulation: one anti-diagonal of the whole batch at a time, in a skewed layout."""

from __future__ import annotations

import torch
from harness import Entry
from mutual_information.shapes import Lattices, flat

SLOW = 4  # timed in every fourth round
NONE = float("-inf")


def skewed(x: torch.Tensor, rows: int, diagonals: int) -> torch.Tensor:
    """Returns [diagonals, batch, rows]: element (d, b, s) is x[b, s, d - s], or -inf outside of x."""
    length = diagonals + rows  # padded so that no row is shifted beyond its end
    padded = torch.full((len(x), rows, length), NONE)
    padded[:, : x.shape[1], : x.shape[2]] = x
    # One row down and one column left is an offset of length - 1. The previous row's padding is on the left.
    view = padded.as_strided((diagonals, len(x), rows), (1, rows * length, length - 1))
    return view.contiguous()


def straight(x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The inverse of skewed(): [batch, rows, columns]."""
    x = x.permute(1, 2, 0).contiguous()
    diagonals = x.shape[2]
    return x.as_strided((len(x), rows, columns), (x.shape[1] * diagonals, diagonals + 1, 1))


def forward_steps(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Computes p; p, x and y are in the skewed layout."""
    p = torch.full_like(x, NONE)
    p[0, :, 0] = 0
    symbol = torch.full_like(p[0], NONE)
    for d in range(1, len(p)):
        before = p[d - 1]
        torch.add(before[:, :-1], x[d - 1, :, :-1], out=symbol[:, 1:])
        torch.logaddexp(symbol, before + y[d - 1], out=p[d])
    return p


def backward_steps(p: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes the gradients of x and y in the skewed layout, with one exponential of all cells."""
    p = p.clamp(min=-1e30)
    x, y = x.clone(), y.clone()
    x[:-1, :, :-1] += p[:-1, :, :-1] - p[1:, :, 1:]
    y[:-1] += p[:-1] - p[1:]
    x.exp_()
    y.exp_()
    g = torch.zeros_like(p[0])
    g[:, -1] = 1
    for d in range(len(p) - 2, -1, -1):
        x[d, :, :-1] *= g[:, 1:]
        y[d] *= g
        g = x[d] + y[d]
        g[:, -1] = y[d, :, -1]
    return x, y


def _inputs(lattices: Lattices) -> tuple[torch.Tensor, torch.Tensor]:
    _, symbols, frames = lattices.scale.shape
    diagonals = symbols + frames + 1
    px, py = torch.from_numpy(lattices.px), torch.from_numpy(lattices.py)
    return skewed(px, symbols + 1, diagonals), skewed(py, symbols + 1, diagonals)


def forward(lattices: Lattices) -> Entry:
    _, symbols, frames = lattices.scale.shape
    kept: list[torch.Tensor] = []

    def run() -> None:
        p = straight(forward_steps(*_inputs(lattices)), symbols + 1, frames + 1)
        kept[:] = p, p[:, -1, -1]

    return Entry("torch, anti-diagonals", run, lambda: flat(*(x.numpy() for x in kept)), every=SLOW)


def backward(lattices: Lattices) -> Entry:
    _, symbols, frames = lattices.scale.shape
    kept: list[torch.Tensor] = []

    def run() -> None:
        p = skewed(torch.from_numpy(lattices.p), symbols + 1, symbols + frames + 1)
        x, y = backward_steps(p, *_inputs(lattices))
        kept[:] = straight(x, symbols, frames + 1), straight(y, symbols + 1, frames)

    return Entry("torch, anti-diagonals", run, lambda: flat(*(x.numpy() for x in kept)), every=SLOW)


def both(lattices: Lattices) -> Entry:
    """Forward and backward, with px and py skewed only once."""
    _, symbols, frames = lattices.scale.shape
    kept: list[torch.Tensor] = []

    def run() -> None:
        steps = _inputs(lattices)
        p = forward_steps(*steps)
        x, y = backward_steps(p, *steps)
        kept[:] = p[-1, :, -1], straight(x, symbols, frames + 1), straight(y, symbols + 1, frames)

    return Entry("torch, anti-diagonals", run, lambda: flat(*(x.numpy() for x in kept)), every=SLOW)
