"""The calls of mutual_information and rnnt_loss; peers are the compiled double loop and torch."""

from __future__ import annotations

import numpy as np
import torch
from mutual_information import loop_peer
from mutual_information.shapes import Lattices, Scale
from rnnt_loss.torch_peer import joint_loss, prune, simple_loss
from sweep.point import Data, case

import turnout
import turnout.torch

LATTICES = {"batch": (1, 4, 32), "symbols": (1, 2, 8, 30, 100), "frames": (1, 2, 16, 100, 500)}
CLASSES = (2, 4, 8, 16, 64, 500)


class Made:
    """Lattices, and the compiled loop over arrays of its own."""

    def __init__(self, batch: int, symbols: int, frames: int) -> None:
        self.lattices = Lattices(Scale(batch, symbols, frames))
        self.px, self.py = (torch.from_numpy(x) for x in (self.lattices.px, self.lattices.py))
        self.p, self.ans = torch.zeros(batch, symbols + 1, frames + 1), torch.zeros(batch)
        self.grads = torch.zeros_like(self.px), torch.zeros_like(self.py)
        self.results = tuple(np.zeros_like(x.numpy()) for x in (self.p, self.ans, *self.grads, self.p))

    def forward(self) -> tuple[np.ndarray, ...]:
        arrays = [self.lattices.px, self.lattices.py, *self.results[:2]]
        loop_peer._call(loop_peer.load().loop_forward, self.lattices, arrays, torch.get_num_threads())
        return self.results[:2]

    def backward(self, p: np.ndarray) -> tuple[np.ndarray, ...]:
        arrays = [self.lattices.px, self.lattices.py, p, np.ones_like(self.ans), *self.results[2:]]
        loop_peer._call(loop_peer.load().loop_backward, self.lattices, arrays, torch.get_num_threads())
        return self.results[2:4]


@case("f32", share=1.5, **LATTICES, most=1 << 20, tolerance=1e-3)
def mutual_information_forward(data: Data, batch: int, symbols: int, frames: int):
    m = Made(batch, symbols, frames)
    return lambda: turnout.mutual_information_forward(m.px, m.py, out=(m.p, m.ans)), {
        "compiled loop": m.forward
    }


@case("f32", **LATTICES, most=1 << 20, tolerance=1e-2)
def mutual_information_backward(data: Data, batch: int, symbols: int, frames: int):
    m = Made(batch, symbols, frames)
    p, ans_grad = torch.from_numpy(m.lattices.p), torch.ones(batch)
    return lambda: turnout.mutual_information_backward(m.px, m.py, p, ans_grad, out=m.grads), {
        "compiled loop": lambda: m.backward(m.lattices.p)
    }


@case("f32", **LATTICES, most=1 << 20, tolerance=1e-2)
def mutual_information_forward_backward(data: Data, batch: int, symbols: int, frames: int):
    m = Made(batch, symbols, frames)

    def loops():
        p, ans = m.forward()
        return ans, *m.backward(p)

    return lambda: turnout.mutual_information_forward_backward(m.px, m.py, out=(m.ans, *m.grads)), {
        "compiled loops": loops
    }


class Spoken:
    def __init__(self, data: Data, batch: int, frames: int, symbols: int, classes: int) -> None:
        self.text = data.below(classes - 1, batch, symbols) + 1
        self.lm, self.am = data.values(batch, symbols + 1, classes), data.values(batch, frames, classes)
        self.boundary = torch.tensor([0, 0, symbols, frames]).repeat(batch, 1)

    def logits(self) -> torch.Tensor:
        return self.am[:, :, None] + self.lm[:, None]


SPOKEN = {"batch": (1, 8), "frames": (1, 4, 32, 200), "symbols": (1, 4, 20), "classes": CLASSES}


@case("f32", share=1.5, **SPOKEN, most=1 << 22)
def rnnt_logprobs_joint_forward(data: Data, batch: int, frames: int, symbols: int, classes: int):
    s = Spoken(data, batch, frames, symbols, classes)
    logits, index = s.logits(), s.text[:, None, :, None].expand(-1, frames, -1, -1)
    out = turnout.rnnt_logprobs_joint_forward(logits, s.text, 0)

    def own():
        px, py, normalizer, _ = turnout.rnnt_logprobs_joint_forward(logits, s.text, 0, out=out)
        return px[:, :, :-1], py, normalizer

    def by_torch():
        n = logits.logsumexp(3)
        px = (logits[:, :, :-1].gather(3, index).squeeze(3) - n[:, :, :-1]).transpose(1, 2)
        return px, (logits[..., 0] - n).transpose(1, 2), n

    return own, {"logsumexp, gather": by_torch}


@case("f32", share=1.5, **SPOKEN, most=1 << 22, tolerance=1e-3)
def rnnt_loss(data: Data, batch: int, frames: int, symbols: int, classes: int):
    """The loss and its gradient through torch; the peer has Turnout's recursion, as k2 has its own."""
    s = Spoken(data, batch, frames, symbols, classes)
    logits = s.logits().requires_grad_()

    def own():
        loss = turnout.torch.rnnt_loss(logits, s.text, 0, s.boundary, reduction="sum")
        return loss.detach(), *torch.autograd.grad(loss, logits)

    def by_torch():
        loss = joint_loss(logits, s.text, s.boundary)
        return loss.detach(), *torch.autograd.grad(loss, logits)

    return own, {"logsumexp, gather, autograd": by_torch}


@case("f32", **SPOKEN, most=1 << 22, tolerance=1e-3)
def rnnt_loss_simple(data: Data, batch: int, frames: int, symbols: int, classes: int):
    s = Spoken(data, batch, frames, symbols, classes)
    lm, am = s.lm.requires_grad_(), s.am.requires_grad_()

    def own():
        loss = turnout.torch.rnnt_loss_simple(lm, am, s.text, 0, s.boundary, reduction="sum")
        return loss.detach(), *torch.autograd.grad(loss, [lm, am])

    def by_torch():
        loss, _ = simple_loss(lm, am, s.text, s.boundary)
        return loss.detach(), *torch.autograd.grad(loss, [lm, am])

    return own, {"exp, matmul, autograd": by_torch}


PRUNED = {"batch": (1, 8), "frames": (1, 16, 200), "rows": (2, 5), "width": (1, 4, 16, 64, 512)}


def bands(batch: int, frames: int, rows: int) -> torch.Tensor:
    """The positions of each frame: a band of `rows` that moves on by 30 of 40 positions."""
    ranges = torch.arange(frames)[None, :, None] * 30 // frames + torch.arange(rows)
    return ranges.expand(batch, -1, -1).contiguous()


@case("f32", **PRUNED)
def rnnt_pruning(data: Data, batch: int, frames: int, rows: int, width: int):
    lm, am = data.values(batch, 40, width), data.values(batch, frames, width)
    ranges = bands(batch, frames, rows)
    out = torch.zeros(batch, frames, rows, width)
    return lambda: turnout.rnnt_pruning_forward(lm, ranges, out=out), {
        "gather": lambda: prune(am, lm, ranges)[1]
    }


@case("f32", **PRUNED)
def rnnt_pruning_backward(data: Data, batch: int, frames: int, rows: int, width: int):
    ranges, grad = bands(batch, frames, rows), data.values(batch, frames, rows, width)
    wide = ranges.view(batch, -1, 1).expand(-1, -1, width)
    out, theirs = torch.zeros(batch, 40, width), torch.zeros(batch, 40, width)
    return lambda: turnout.rnnt_pruning_backward(grad, ranges, 39, out=out), {
        "scatter_add_": lambda: theirs.zero_().scatter_add_(1, wide, grad.view(batch, -1, width))
    }
