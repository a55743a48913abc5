"""Compares gradients, combine, slots and the routing of a whole layer with copies, reads and plain torch.

With TURNOUT_NUM_THREADS=1, it measures CPU time, which excludes the work of other processes.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import harness
import numpy as np
import torch
from harness import Comparison, Entry, Summary
from moe_dispatch.shapes import SEED, WIDE, Scale

import turnout
import turnout.check
import turnout.torch

compare = partial(
    harness.compare, clock=time.process_time if turnout.get_num_threads() == 1 else time.perf_counter
)

# With eight choices, the buffers of WIDE would take 2 GB, and torch's copy as much again.
FEWER = replace(WIDE, samples=4096)


class Routing:
    """A random routing ``[samples, choices]`` that keeps all tokens, and buffers for it."""

    def __init__(self, scale: Scale, choices: int, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.choices = choices
        shape = (scale.samples, choices)
        self.indices = random.integers(0, scale.num_experts, shape, dtype=np.int32)
        self.locations, counts = turnout.moe_locations(self.indices, scale.num_experts)
        self.capacity = int(counts.max())
        self.scale = replace(scale, capacity=self.capacity)
        self.rows = self.indices.astype(np.int64) * self.capacity + self.locations
        self.gates = random.random(shape, dtype=np.float32)
        self.tokens = random.random((scale.samples, scale.hidden), dtype=np.float32)
        buffers = (scale.num_experts * self.capacity, scale.hidden)
        self.buffers = random.random(buffers, dtype=np.float32)

    @property
    def name(self) -> str:
        return f"{self.choices} choice{'s' if self.choices > 1 else ''}, f32 {self.scale.name}"

    @property
    def choices_first(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        arrays = (self.gates, self.indices, self.locations)
        return tuple(np.ascontiguousarray(a.T if self.choices > 1 else a[:, 0]) for a in arrays)


def run(seconds: float) -> list[Comparison]:
    torch.set_num_threads(turnout.get_num_threads())
    done, summary = [], Summary()
    for scale in (SEED, WIDE):
        one, two = Routing(scale, 1), Routing(scale, 2)
        done += [sums_of_one(one, seconds, summary), products(one, seconds, summary)]
        done += [both_gradients(r, seconds, summary) for r in (one, two)]
        done.append(combine(two, seconds, summary))
    done += [combine(Routing(scale, 8), seconds, summary) for scale in (SEED, FEWER)]
    done += [locations(choices, seconds, summary) for choices in (1, 2)]
    done.append(whole_layer(seconds, summary))
    summary.show()
    return done


class Gradients:
    def __init__(self, r: Routing) -> None:
        self.gates, indices, locations = r.choices_first
        self.routing, self.sizes = (indices, locations), (r.capacity, r.scale.num_experts)
        self.tokens, self.buffers = r.tokens, r.buffers
        self.grad_input, self.grad_gates = np.full_like(r.tokens, 0), np.full_like(self.gates, 0)

    def data(self) -> np.ndarray:
        return turnout.moe_dispatch_backward_data(
            self.gates, *self.routing, self.buffers, *self.sizes, out=self.grad_input
        )

    def gate(self) -> np.ndarray:
        return turnout.moe_dispatch_backward_gate(
            *self.routing, self.tokens, self.buffers, *self.sizes, out=self.grad_gates
        )

    def in_two_calls(self) -> None:
        self.data()
        self.gate()

    def fused(self) -> None:
        out = (self.grad_input, self.grad_gates)
        turnout.moe_dispatch_backward(
            self.gates, *self.routing, self.tokens, self.buffers, *self.sizes, out=out
        )

    def definition(self) -> tuple[np.ndarray, np.ndarray]:
        return turnout.check.moe_dispatch_backward(
            self.gates, *self.routing, self.tokens, self.buffers, *self.sizes
        )


def sums_of_one(r: Routing, seconds: float, summary: Summary) -> Comparison:
    """With one choice, each row is read once and written once, as in a copy."""
    g, output = Gradients(r), np.full_like(r.tokens, 0)
    indices, slots, gates = (np.ascontiguousarray(a[:, 0]) for a in (r.indices, r.locations, r.gates))

    def combined() -> None:
        turnout.moe_combine(r.buffers, indices, slots, r.capacity, gates, out=output)

    comparison = compare(
        f"moe_dispatch_backward_data and moe_combine, {r.name}",
        [
            harness.copy_floor(r.tokens.reshape(-1)),
            Entry("turnout, moe_dispatch_backward_data", g.data, lambda: g.grad_input),
            Entry("turnout, moe_combine", combined, lambda: output),
        ],
        expected=turnout.check.moe_combine(r.buffers, indices, slots, r.capacity, gates),
        bytes_moved=2 * r.tokens.nbytes,
        seconds=seconds,
    )
    for row in comparison.rows[1:]:
        summary.add(r.name, f"{row.name}: time / copy", row.ratio)
    return comparison


def products(r: Routing, seconds: float, summary: Summary) -> Comparison:
    """The floor is reading both inputs in order: their sums one after the other, or their dot product."""
    g = Gradients(r)
    tokens, buffers = (torch.from_numpy(a.reshape(-1)) for a in (r.tokens, r.buffers[: len(r.tokens)]))
    comparison = compare(
        f"moe_dispatch_backward_gate, {r.name}",
        [
            Entry("torch, sums of both inputs", lambda: (tokens.sum(), buffers.sum())),
            Entry("torch, dot product of both inputs", lambda: torch.dot(tokens, buffers)),
            Entry("turnout", g.gate, lambda: g.grad_gates),
        ],
        expected=g.definition()[1],
        tolerance=1e-5,
        bytes_moved=2 * r.tokens.nbytes,
        seconds=seconds,
        floors=2,
    )
    summary.add(r.name, "turnout, moe_dispatch_backward_gate: time / reading", comparison.rows[-1].ratio)
    return comparison


def both_gradients(r: Routing, seconds: float, summary: Summary) -> Comparison:
    g = Gradients(r)
    comparison = compare(
        f"moe_dispatch_backward, {r.name}",
        [
            Entry("turnout, in two calls", g.in_two_calls, lambda: (g.grad_input, g.grad_gates)),
            Entry("turnout, in one", g.fused, lambda: (g.grad_input, g.grad_gates)),
        ],
        expected=g.definition(),
        tolerance=1e-5,
        seconds=seconds,
    )
    summary.add(r.name, "moe_dispatch_backward: time / two calls", comparison.rows[1].ratio)
    return comparison


def combine(r: Routing, seconds: float, summary: Summary) -> Comparison:
    buffers, rows = torch.from_numpy(r.buffers), torch.from_numpy(r.rows.reshape(-1))
    gates = torch.from_numpy(r.gates)[..., None]
    output, expected = np.full_like(r.tokens, 0), torch.empty(r.tokens.shape)
    gathered = torch.empty(len(rows), r.scale.hidden)

    def own() -> None:
        turnout.moe_combine(r.buffers, r.indices, r.locations, r.capacity, r.gates, out=output)

    def by_torch() -> None:
        torch.index_select(buffers, 0, rows, out=gathered)
        weighted = gathered.view(r.scale.samples, r.choices, -1).mul_(gates)
        torch.sum(weighted, dim=1, out=expected)

    comparison = compare(
        f"moe_combine, {r.name}",
        [
            Entry("turnout", own, lambda: output),
            Entry("torch, index_select(out=), mul_, sum(out=)", by_torch, lambda: expected.numpy()),
        ],
        expected=turnout.check.moe_combine(r.buffers, r.indices, r.locations, r.capacity, r.gates),
        tolerance=1e-5,
        seconds=seconds,
    )
    summary.add(r.name, "moe_combine: torch / turnout", comparison.rows[1].ratio)
    return comparison


def tutel_locations(ids: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes slots as Tutel does: one-hot masks and running sums, choice by choice."""
    slots, base = [], torch.zeros(1, experts, dtype=torch.int64)
    for k in range(ids.shape[1]):
        mask = torch.nn.functional.one_hot(ids[:, k], experts)
        place = torch.cumsum(mask, dim=0) - 1 + base
        slots.append((place * mask).sum(dim=1).int())
        base = base + mask.sum(dim=0, keepdim=True)
    return torch.stack(slots, dim=1), base.squeeze(0)


def locations(choices: int, seconds: float, summary: Summary) -> Comparison:
    samples, experts = 16384, 64
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, experts, (samples, choices)))
    out = (np.full((samples, choices), 0, np.int32), np.full(experts, 0, np.int64))
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def by_torch() -> None:
        kept[:] = [tutel_locations(ids, experts)]

    name = f"{samples} tokens, {experts} experts, {choices} choice{'s' if choices > 1 else ''}"
    comparison = compare(
        f"moe_locations, {name}",
        [
            Entry("turnout", lambda: turnout.moe_locations(ids.numpy(), experts, out=out), lambda: out),
            Entry("torch, one-hot and cumsum", by_torch, lambda: tuple(x.numpy() for x in kept[0])),
        ],
        expected=turnout.check.moe_locations(ids.numpy(), experts),
        seconds=seconds,
    )
    summary.add(name, "moe_locations: torch / turnout", comparison.rows[1].ratio)
    return comparison


class Layer:
    """The forward pass of a layer without its experts: choices, slots, dispatch, combine; reuses buffers.

    A token beyond the capacity of its expert is dropped, as with a capacity factor of 1 in Tutel.
    """

    def __init__(self) -> None:
        self.samples, self.hidden, self.experts, self.choices = 16384, 4096, 64, 2
        random = torch.Generator().manual_seed(1)
        self.x = torch.rand(self.samples, self.hidden, generator=random)
        self.scores = torch.rand(self.samples, self.experts, generator=random).softmax(1)
        self.capacity = self.choices * -(-self.samples // self.experts)
        self.buffers = torch.zeros(self.experts * self.capacity, self.hidden)
        self.output, self.weighted = (torch.zeros(self.samples, self.hidden) for _ in range(2))

    def choose(self) -> tuple[torch.Tensor, torch.Tensor]:
        gates, ids = torch.topk(self.scores, self.choices, dim=1)
        return gates / gates.sum(1, keepdim=True), ids

    def definition(self) -> torch.Tensor:
        """Without experts, the output is the token times its gates, unless it is dropped."""
        gates, ids = self.choose()
        slots, _ = turnout.check.moe_locations(ids.numpy(), self.experts)
        kept = torch.from_numpy(slots < self.capacity)
        return self.x * (gates * kept).sum(1, keepdim=True)

    def own(self) -> None:
        gates, ids = self.choose()
        slots, _ = turnout.moe_locations(ids, self.experts)
        routing = (ids, slots, self.capacity)
        turnout.moe_dispatch(self.x, *routing, self.experts, out=self.buffers)
        turnout.moe_combine(self.buffers, *routing, gates, out=self.output)

    def by_torch(self) -> None:
        """Like Tutel: masks and running sums, tokens added to zeros, a weighted sum of gathered rows."""
        gates, ids = self.choose()
        slots, _ = tutel_locations(ids, self.experts)
        valid = slots < self.capacity
        rows = torch.where(valid, ids * self.capacity + slots, 0)
        self.buffers.zero_()
        for k in range(self.choices):
            torch.mul(self.x, valid[:, k, None], out=self.weighted)
            self.buffers.index_add_(0, rows[:, k], self.weighted)
        for k in range(self.choices):
            to = self.output if k == 0 else self.weighted
            torch.index_select(self.buffers, 0, rows[:, k], out=to)
            to.mul_((gates[:, k] * valid[:, k])[:, None])
            if k > 0:
                self.output += to


def whole_layer(seconds: float, summary: Summary) -> Comparison:
    layer = Layer()
    name = f"{layer.samples}x{layer.hidden}, {layer.experts} experts, {layer.choices} choices"
    comparison = compare(
        f"routing of a layer, {name}",
        [
            Entry("turnout", layer.own, layer.output.numpy),
            Entry("torch, one-hot, cumsum, index_add_, index_select", layer.by_torch, layer.output.numpy),
        ],
        expected=layer.definition().numpy(),
        tolerance=1e-5,
        seconds=2 * seconds,
    )
    summary.add(name, "routing of a layer: turnout / torch", 1 / comparison.rows[1].ratio)
    return comparison
