"""Gradients, combine, slots and the routing of a whole layer, beside copies and plain torch."""

from __future__ import annotations

import harness
import numpy as np
import torch
from harness import Comparison, Entry, compare
from moe_dispatch.shapes import SEED, WIDE, Scale

import turnout
import turnout.check
import turnout.torch


class Routing:
    """A random routing ``[samples, choices]`` that keeps all tokens, and buffers for it."""

    def __init__(self, scale: Scale, choices: int, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.scale, self.choices = scale, choices
        shape = (scale.samples, choices)
        self.indices = random.integers(0, scale.num_experts, shape, dtype=np.int32)
        self.locations, counts = turnout.moe_locations(self.indices, scale.num_experts)
        self.capacity = int(counts.max())
        self.rows = self.indices.astype(np.int64) * self.capacity + self.locations
        self.gates = random.random(shape, dtype=np.float32)
        self.tokens = random.random((scale.samples, scale.hidden), dtype=np.float32)
        buffers = (scale.num_experts * self.capacity, scale.hidden)
        self.buffers = random.random(buffers, dtype=np.float32)

    @property
    def row_bytes(self) -> int:
        return self.scale.hidden * 4

    @property
    def choices_first(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        arrays = (self.gates, self.indices, self.locations)
        return tuple(np.ascontiguousarray(a.T if self.choices > 1 else a[:, 0]) for a in arrays)


def run(seconds: float) -> list[Comparison]:
    done = []
    for scale in (SEED, WIDE):
        done += gradients(Routing(scale, 1), seconds)
        done += [combine(Routing(scale, choices), seconds) for choices in (2, 8)]
    return [*done, locations(seconds), whole_layer(seconds)]


def gradients(r: Routing, seconds: float) -> list[Comparison]:
    gates, indices, locations = r.choices_first
    sizes = (r.capacity, r.scale.num_experts)
    grad_input, grad_gates = np.full_like(r.tokens, 0), np.full_like(gates, 0)
    data = Entry(
        "turnout, moe_dispatch_backward_data",
        lambda: turnout.moe_dispatch_backward_data(
            gates, indices, locations, r.buffers, *sizes, out=grad_input
        ),
    )
    gate = Entry(
        "turnout, moe_dispatch_backward_gate",
        lambda: turnout.moe_dispatch_backward_gate(
            indices, locations, r.tokens, r.buffers, *sizes, out=grad_gates
        ),
    )

    def both() -> None:
        data.run()
        gate.run()

    tokens, buffers = torch.from_numpy(r.tokens), torch.from_numpy(r.buffers[: r.scale.samples])
    output = np.full_like(r.tokens, 0)
    fused = Entry(
        "turnout, moe_dispatch_backward",
        lambda: turnout.moe_dispatch_backward(
            gates, indices, locations, r.tokens, r.buffers, *sizes, out=(grad_input, grad_gates)
        ),
    )
    weights, routing = np.ascontiguousarray(r.gates[:, 0]), (r.indices[:, 0].copy(), r.locations[:, 0].copy())
    one = Entry(
        "turnout, moe_combine",
        lambda: turnout.moe_combine(r.buffers, *routing, r.capacity, weights, out=output),
    )
    name, moved = r.scale.name, 2 * r.tokens.nbytes
    return [
        compare(
            f"moe_dispatch_backward_data and moe_combine, one choice, f32 {name}",
            [harness.copy_floor(r.tokens.reshape(-1)), data, one],
            bytes_moved=moved,
            seconds=seconds,
        ),
        compare(
            f"moe_dispatch_backward_gate f32 {name}",
            [Entry("torch, sums of both inputs", lambda: (tokens.sum(), buffers.sum())), gate],
            bytes_moved=moved,
            seconds=seconds,
        ),
        compare(
            f"moe_dispatch_backward f32 {name}",
            [Entry("turnout, both gradients in two calls", both), fused],
            seconds=seconds,
        ),
    ]


def combine(r: Routing, seconds: float) -> Comparison:
    buffers, rows = torch.from_numpy(r.buffers), torch.from_numpy(r.rows.reshape(-1))
    gates = torch.from_numpy(r.gates)[..., None]
    output, expected = np.full_like(r.tokens, 0), torch.empty(r.tokens.shape)
    gathered = torch.empty(len(rows), r.scale.hidden)

    def by_torch() -> None:
        torch.index_select(buffers, 0, rows, out=gathered)
        weighted = gathered.view(r.scale.samples, r.choices, -1).mul_(gates)
        torch.sum(weighted, dim=1, out=expected)

    return compare(
        f"moe_combine, {r.choices} choices, f32 {r.scale.name}",
        [
            Entry(
                "turnout",
                lambda: turnout.moe_combine(
                    r.buffers, r.indices, r.locations, r.capacity, r.gates, out=output
                ),
                lambda: output,
            ),
            Entry("torch, index_select(out=), mul_, sum(out=)", by_torch, lambda: expected.numpy()),
        ],
        expected=turnout.check.moe_combine(r.buffers, r.indices, r.locations, r.capacity, r.gates),
        tolerance=1e-5,
        seconds=seconds,
    )


def tutel_locations(ids: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One-hot masks and running sums, choice by choice."""
    locations, base = [], 0
    for k in range(ids.shape[1]):
        mask = torch.nn.functional.one_hot(ids[:, k], experts)
        place = torch.cumsum(mask, dim=0) - 1 + base
        locations.append((place * mask).sum(dim=1).int())
        base = base + mask.sum(dim=0, keepdim=True)
    return torch.stack(locations, dim=1), base.squeeze(0)


def locations(seconds: float) -> Comparison:
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, 64, (16384, 2)))
    array, kept = ids.numpy(), {}
    expected = turnout.check.moe_locations(array, 64)[0]
    return compare(
        "moe_locations, 16384 tokens, 64 experts, 2 choices",
        [
            Entry("turnout", lambda: kept.update(a=turnout.moe_locations(array, 64)[0]), lambda: kept["a"]),
            Entry(
                "torch, one-hot and cumsum",
                lambda: kept.update(b=tutel_locations(ids, 64)[0]),
                lambda: kept["b"].numpy(),
            ),
        ],
        expected=expected,
        seconds=seconds,
    )


def whole_layer(seconds: float) -> Comparison:
    """All of a layer but its experts: choices, slots, dispatch, combine."""
    samples, hidden, experts, choices = 16384, 4096, 64, 2
    random = torch.Generator().manual_seed(1)
    x = torch.rand(samples, hidden, generator=random)
    scores = torch.rand(samples, experts, generator=random).softmax(1)
    capacity = choices * ((samples + experts - 1) // experts)
    kept: dict[str, torch.Tensor] = {}

    def choose() -> tuple[torch.Tensor, torch.Tensor]:
        gates, ids = torch.topk(scores, choices, dim=1)
        return gates / gates.sum(1, keepdim=True), ids

    def own() -> None:
        gates, ids = choose()
        slots, _ = turnout.torch.moe_locations(ids, experts)
        buffers = turnout.torch.moe_dispatch(x, ids, slots, capacity, experts)
        kept["own"] = turnout.torch.moe_combine(buffers, ids, slots, capacity, gates)

    def by_torch() -> None:
        gates, ids = choose()
        slots, _ = tutel_locations(ids, experts)
        valid = slots < capacity
        rows = torch.where(valid, ids * capacity + slots, 0)
        buffers = torch.zeros(experts * capacity, hidden)
        for k in range(choices):
            buffers.index_add_(0, rows[:, k], x * valid[:, k, None])
        output = torch.zeros(samples, hidden)
        for k in range(choices):
            output += buffers.index_select(0, rows[:, k]) * (gates[:, k] * valid[:, k])[:, None]
        kept["torch"] = output

    by_torch()
    return compare(
        f"routing of a layer, {samples}x{hidden}, {experts} experts, {choices} choices",
        [
            Entry("turnout.torch", own, lambda: kept["own"].numpy()),
            Entry("torch, one-hot, cumsum, index_add_, index_select", by_torch),
        ],
        expected=kept["torch"].numpy().copy(),
        tolerance=1e-5,
        seconds=2 * seconds,
    )
