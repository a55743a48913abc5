"""Turnout, called with NumPy arrays and with torch tensors."""

from __future__ import annotations

import numpy as np
import torch
from harness import Entry
from mutual_information.shapes import Lattices, flat

import turnout
import turnout.torch


def forward(lattices: Lattices, name: str = "turnout") -> Entry:
    px, py = lattices.px, lattices.py
    out = np.ones_like(lattices.p), np.ones_like(lattices.ans)
    return Entry(name, lambda: turnout.mutual_information_forward(px, py, out=out), lambda: flat(*out))


def backward(lattices: Lattices, name: str = "turnout") -> Entry:
    arguments = lattices.px, lattices.py, lattices.p, np.ones_like(lattices.ans)
    out = np.ones_like(lattices.px), np.ones_like(lattices.py)
    return Entry(name, lambda: turnout.mutual_information_backward(*arguments, out=out), lambda: flat(*out))


def both(lattices: Lattices, name: str = "turnout, both in one pass") -> Entry:
    px, py = lattices.px, lattices.py
    out = np.ones_like(lattices.ans), np.ones_like(px), np.ones_like(py)
    return Entry(
        name, lambda: turnout.mutual_information_forward_backward(px, py, out=out), lambda: flat(*out)
    )


def one_after_the_other(lattices: Lattices) -> Entry:
    first, second = forward(lattices), backward(lattices)

    def run() -> None:
        first.run()
        second.run()

    return Entry(
        "turnout, forward, then backward",
        run,
        lambda: flat(first.result()[-len(lattices.ans) :], second.result()),
    )


def training(lattices: Lattices) -> Entry:
    """mutual_information_recursion and its gradients with autograd, with new tensors in each call."""
    px, py = (torch.from_numpy(x).requires_grad_() for x in (lattices.px, lattices.py))
    kept: list[torch.Tensor] = []

    def run() -> None:
        scores = turnout.torch.mutual_information_recursion(px, py)
        kept[:] = scores.detach(), *torch.autograd.grad(scores.sum(), (px, py))

    return Entry("turnout.torch, recursion and autograd", run, lambda: flat(*(x.numpy() for x in kept)))


def torch_op(lattices: Lattices) -> Entry:
    px, py = torch.from_numpy(lattices.px), torch.from_numpy(lattices.py)
    op = torch.ops.turnout.mutual_information_forward
    kept: list[torch.Tensor] = []

    def run() -> None:
        kept[:] = op(px, py)

    return Entry("torch.ops.turnout, new results", run, lambda: flat(*(x.numpy() for x in kept)))


def fresh(lattices: Lattices) -> Entry:
    kept: list[np.ndarray] = []

    def run() -> None:
        kept[:] = turnout.mutual_information_forward(lattices.px, lattices.py)

    return Entry("turnout, new results", run, lambda: flat(*kept))
