"""Turnout with reused and with new results, called with NumPy arrays and with torch tensors."""

from __future__ import annotations

import numpy as np
import torch
from harness import Entry
from moe_re_routing.shapes import Arrived
from moe_re_routing.torch_peer import tokens_of

import turnout
import turnout.torch


def reused(arrived: Arrived, name: str = "turnout, out= reused") -> Entry:
    scale = arrived.scale
    out = (
        np.ones_like(arrived.tokens),
        None,
        np.zeros(scale.rows, dtype=np.int32),
        np.zeros(scale.experts, dtype=np.int32),
    )

    def run() -> None:
        turnout.moe_re_routing(arrived.tokens, arrived.counts, out=out)

    return Entry(name, run, lambda: out[0])


def fresh(arrived: Arrived) -> Entry:
    kept: list[np.ndarray] = []

    def run() -> None:
        kept[:] = [turnout.moe_re_routing(arrived.tokens, arrived.counts)[0]]

    return Entry("turnout, new results", run, lambda: kept[0])


def torch_reused(arrived: Arrived) -> Entry:
    tokens, counts = tokens_of(arrived), torch.from_numpy(arrived.counts)
    out = tuple(None if x is None else torch.ones_like(x) for x in turnout.moe_re_routing(tokens, counts))

    def run() -> None:
        turnout.moe_re_routing(tokens, counts, out=out)

    return Entry("turnout, torch tensors, out=", run, lambda: out[0].view(torch.uint8).numpy())


def torch_op(arrived: Arrived) -> Entry:
    tokens, counts = tokens_of(arrived), torch.from_numpy(arrived.counts)
    op = torch.ops.turnout.moe_re_routing
    kept: list[torch.Tensor] = []

    def run() -> None:
        kept[:] = op(tokens, counts)

    return Entry("torch.ops.turnout", run, lambda: kept[0].view(torch.uint8).numpy())
