"""The calls of moe_dispatch, moe_re_routing and moe_experts, and their torch peers."""

from __future__ import annotations

import torch
from moe_experts.torch_peer import grouped_block, grouped_mm
from sweep.point import CHOICES, COLUMNS, ROWS, Data, case
from torch.nn.functional import embedding_bag

import turnout
import turnout.torch

EXPERTS = 8


class Routed:
    """Tokens with `choices` experts each; `flat` has the row of each choice in the experts' buffers."""

    def __init__(self, data: Data, rows: int, columns: int, choices: int = 1) -> None:
        self.tokens = data.values(rows, columns)
        shape = (rows, choices) if choices > 1 else (rows,)
        self.indices = data.below(EXPERTS, *shape, dtype=torch.int32)
        self.locations, counts = turnout.moe_locations(self.indices, EXPERTS)
        self.capacity = int(counts.max())
        self.flat = (self.indices.long() * self.capacity + self.locations).reshape(-1)
        self.buffers = data.values(EXPERTS * self.capacity, columns)
        self.gates = torch.rand(shape, generator=data.random).to(data.dtype)
        self.weights = self.gates.reshape(rows, choices)
        self.of_choice = torch.arange(rows).repeat_interleave(choices)  # the token of each choice
        self.places = self.indices, self.locations
        self.rows, self.choices, self.columns = rows, choices, columns

    def gathered(self, room: torch.Tensor) -> torch.Tensor:
        torch.index_select(self.buffers, 0, self.flat, out=room)
        return room


@case("f32 bf16", share=2, rows=ROWS, columns=COLUMNS)
def moe_dispatch_forward(data: Data, rows: int, columns: int):
    r = Routed(data, rows, columns)
    out, theirs = torch.zeros_like(r.buffers), torch.zeros_like(r.buffers)
    scaled = torch.empty_like(r.tokens)

    def own():
        return turnout.moe_dispatch_forward(r.gates, *r.places, r.tokens, r.capacity, EXPERTS, out=out)

    def index_copy():
        torch.mul(r.tokens, r.gates[:, None], out=scaled)
        return theirs.index_copy_(0, r.flat, scaled)

    return own, {"mul, index_copy_": index_copy}


@case("f32 bf16", share=2, rows=ROWS, columns=COLUMNS, choices=CHOICES)
def moe_dispatch(data: Data, rows: int, columns: int, choices: int):
    r = Routed(data, rows, columns, choices)
    out, theirs = torch.zeros_like(r.buffers), torch.zeros_like(r.buffers)
    room = r.tokens.new_empty(rows * choices, columns)

    def own():
        return turnout.moe_dispatch(r.tokens, *r.places, r.capacity, EXPERTS, out=out)

    def index_copy():
        tokens = r.tokens if choices == 1 else torch.index_select(r.tokens, 0, r.of_choice, out=room)
        return theirs.index_copy_(0, r.flat, tokens)

    return own, {"index_copy_": index_copy}


@case("f32 bf16", share=2.5, rows=ROWS, columns=COLUMNS, choices=CHOICES)
def moe_combine(data: Data, rows: int, columns: int, choices: int):
    r = Routed(data, rows, columns, choices)
    out, theirs, room = (
        torch.zeros_like(r.tokens),
        torch.zeros_like(r.tokens),
        r.tokens.new_empty(rows * choices, columns),
    )
    bags = r.flat.view(rows, choices)

    def own():
        return turnout.moe_combine(r.buffers, *r.places, r.capacity, r.gates, out=out)

    def bag():
        return embedding_bag(bags, r.buffers, mode="sum", per_sample_weights=r.weights)

    def gather():
        weighted = r.gathered(room).view(rows, choices, -1).mul_(r.weights[..., None])
        return torch.sum(weighted, dim=1, out=theirs)

    return own, {"embedding_bag": bag, "index_select, mul_, sum": gather}


@case("f32 bf16", share=1.5, rows=ROWS, columns=COLUMNS)
def moe_dispatch_backward_data(data: Data, rows: int, columns: int):
    r = Routed(data, rows, columns)
    out, room = torch.zeros_like(r.tokens), torch.zeros_like(r.tokens)

    def own():
        return turnout.moe_dispatch_backward_data(r.gates, *r.places, r.buffers, r.capacity, EXPERTS, out=out)

    return own, {"index_select, mul_": lambda: r.gathered(room).mul_(r.weights)}


@case("f32 bf16", rows=ROWS, columns=COLUMNS, tolerance=1e-3)
def moe_dispatch_backward_gate(data: Data, rows: int, columns: int):
    r = Routed(data, rows, columns)
    out, room, theirs = torch.zeros_like(r.gates), torch.zeros_like(r.tokens), torch.zeros_like(r.gates)

    def own():
        return turnout.moe_dispatch_backward_gate(
            *r.places, r.tokens, r.buffers, r.capacity, EXPERTS, out=out
        )

    return own, {"index_select, mul_, sum": lambda: torch.sum(r.gathered(room).mul_(r.tokens), 1, out=theirs)}


@case("f32 bf16", rows=ROWS, columns=COLUMNS, tolerance=1e-3)
def moe_dispatch_backward(data: Data, rows: int, columns: int):
    r = Routed(data, rows, columns)
    out = torch.zeros_like(r.tokens), torch.zeros_like(r.gates)
    room, grad = torch.zeros_like(r.tokens), torch.zeros_like(r.tokens)

    def own():
        return turnout.moe_dispatch_backward(
            r.gates, *r.places, r.tokens, r.buffers, r.capacity, EXPERTS, out=out
        )

    def by_torch():
        gathered = r.gathered(room)
        torch.mul(gathered, r.weights, out=grad)
        return grad, gathered.mul_(r.tokens).sum(1)

    return own, {"index_select, mul, sum": by_torch}


@case("f32 bf16", rows=ROWS, columns=COLUMNS, choices=CHOICES, tolerance=1e-3)
def moe_combine_backward(data: Data, rows: int, columns: int, choices: int):
    r = Routed(data, rows, columns, choices)
    out = torch.zeros_like(r.buffers), torch.zeros_like(r.gates)
    buffers, products = (torch.zeros_like(x) for x in out)
    room = r.tokens.new_empty(rows * choices, columns)

    def own():
        return turnout.moe_combine_backward(r.tokens, r.buffers, *r.places, r.gates, r.capacity, out=out)

    def by_torch():
        rows_of = r.gathered(room).view(rows, choices, -1).mul_(r.tokens[:, None])
        torch.sum(rows_of, 2, out=products.view(rows, choices))
        torch.mul(r.tokens[:, None], r.weights[..., None], out=room.view(rows, choices, -1))
        return buffers.index_copy_(0, r.flat, room), products

    return own, {"index_select, mul, sum, index_copy_": by_torch}


@case("f32", rows=ROWS, experts=(2, 8, 64, 256), choices=CHOICES)
def moe_locations(data: Data, rows: int, experts: int, choices: int):
    ids = data.below(experts, rows, choices, dtype=torch.int32)
    out = torch.zeros_like(ids), torch.zeros(experts, dtype=torch.int64)

    def by_sort():
        keys = ids.T.reshape(-1)  # choice by choice
        order = keys.argsort(stable=True)
        counts = torch.bincount(keys, minlength=experts)
        starts = counts.cumsum(0) - counts
        slots = torch.empty_like(order)
        slots[order] = torch.arange(len(order)) - starts.repeat_interleave(counts)
        return slots.view(choices, rows).T, counts

    return lambda: turnout.moe_locations(ids, experts, out=out), {"argsort, bincount": by_sort}


@case("f32 bf16 i8", share=1.5, rows=ROWS, columns=COLUMNS, choices=CHOICES)
def moe_token_permute(data: Data, rows: int, columns: int, choices: int):
    tokens, ids = data.values(rows, columns), data.below(EXPERTS, rows, choices, dtype=torch.int32)
    out = tokens.new_zeros(rows * choices, columns), torch.zeros(rows * choices, dtype=torch.int32)
    moved, places = tokens.new_zeros(rows * choices, columns), torch.zeros(rows * choices, dtype=torch.int32)

    def by_torch():
        order = ids.view(-1).argsort(stable=True)
        torch.index_select(tokens, 0, order // choices, out=moved)
        places[order] = torch.arange(len(order), dtype=torch.int32)
        return moved, places

    return lambda: turnout.moe_token_permute(tokens, ids, out=out), {"argsort, index_select": by_torch}


@case("f32 bf16", share=1.5, rows=ROWS, columns=COLUMNS, choices=CHOICES)
def moe_token_unpermute(data: Data, rows: int, columns: int, choices: int):
    permuted, places = data.values(rows * choices, columns), data.shuffled(rows * choices)
    probs = torch.rand(rows, choices, generator=data.random).to(permuted.dtype)
    out = permuted.new_zeros(rows, columns)
    bags = places.view(rows, choices)

    def bag():
        return embedding_bag(bags, permuted, mode="sum", per_sample_weights=probs)

    return lambda: turnout.moe_token_unpermute(permuted, places, probs, out=out), {"embedding_bag": bag}


@case("f32 bf16 i8", share=2, rows=ROWS, columns=COLUMNS)
def moe_re_routing(data: Data, rows: int, columns: int):
    ranks, experts = 4, 8
    tokens = data.values(rows, columns)
    counts = torch.bincount(data.below(ranks * experts, rows), minlength=ranks * experts)
    counts = counts.int().view(ranks, experts)
    moved, _, order, _ = turnout.moe_re_routing(tokens, counts)
    out = torch.zeros_like(moved), None, torch.zeros_like(order), torch.zeros(experts, dtype=torch.int32)
    ready, theirs = order.long(), torch.zeros_like(tokens)

    def own():
        return turnout.moe_re_routing(tokens, counts, out=out)[0]

    return own, {"index_select, a ready index": lambda: torch.index_select(tokens, 0, ready, out=theirs)}


@case("f32 bf16 i8", rows=ROWS, columns=COLUMNS)
def moe_re_routing_inverse(data: Data, rows: int, columns: int):
    tokens, order = data.values(rows, columns), data.shuffled(rows)
    out, theirs = torch.zeros_like(tokens), torch.zeros_like(tokens)
    return lambda: turnout.moe_re_routing_inverse(tokens, order.int(), out=out), {
        "index_copy_": lambda: theirs.index_copy_(0, order, tokens)
    }


@case("f32 bf16 i8", rows=ROWS, columns=COLUMNS, chunks=(2, 8, 32))
def sort_chunks_by_idxs(data: Data, rows: int, columns: int, chunks: int):
    tokens, order = data.values(rows, columns), data.shuffled(chunks)
    sizes = torch.bincount(data.below(chunks, rows), minlength=chunks)
    out = torch.zeros_like(tokens), None
    numbers, theirs = order.tolist(), torch.zeros_like(tokens)

    def by_torch():
        parts = tokens.split(sizes.tolist())
        return torch.cat([parts[i] for i in numbers], out=theirs)

    return lambda: turnout.sort_chunks_by_idxs(tokens, sizes, order, out=out)[0], {"split, cat": by_torch}


class Block:
    def __init__(self, data: Data, tokens: int, hidden: int, inner: int) -> None:
        hidden, inner = (
            -(-hidden // 8) * 8,
            -(-inner // 8) * 8,
        )  # torch's grouped_mm needs strides of 16 bytes
        self.x = data.values(tokens, hidden)
        self.ids = data.below(EXPERTS, tokens, 2)
        self.gates = torch.rand(tokens, 2, generator=data.random).to(self.x.dtype)
        self.w13 = data.values(EXPERTS, 2 * inner, hidden) / hidden**0.5
        self.w2 = data.values(EXPERTS, hidden, inner) / inner**0.5
        self.arguments = self.x, self.ids, self.gates, self.w13, self.w2


@case(
    "f32 bf16", most=1 << 24, tokens=(1, 2, 4, 8, 16, 64, 256), hidden=(64, 256, 1024), inner=(64, 256, 768)
)
def moe_experts(data: Data, tokens: int, hidden: int, inner: int):
    b = Block(data, tokens, hidden, inner)
    out = torch.zeros_like(b.x)
    return lambda: turnout.moe_experts(*b.arguments, out=out), {
        "grouped_mm": lambda: grouped_block(*b.arguments)
    }


@case("f32 bf16", most=1 << 24, rows=(1, 8, 64, 512), depth=(64, 256, 1024), columns=(64, 256, 1024))
def grouped_products(data: Data, rows: int, depth: int, columns: int):
    depth, columns = -(-depth // 8) * 8, -(-columns // 8) * 8  # torch's grouped_mm needs strides of 16 bytes
    x, w = data.values(rows, depth), data.values(EXPERTS, depth, columns) / depth**0.5
    offs = torch.sort(data.below(rows + 1, EXPERTS))[0].int()
    offs[-1] = rows
    out = x.new_zeros(rows, columns)
    return lambda: turnout.grouped_mm(x, w, offs=offs, out=out), {
        "grouped_mm": lambda: grouped_mm(x, w, offs=offs)
    }


@case(
    "f32 bf16",
    most=1 << 24,
    rows=(1, 8, 64, 512),
    depth=(64, 256, 1024),
    columns=(64, 256, 1024),
    tolerance=1e-3,
)
def grouped_products_backward(data: Data, rows: int, depth: int, columns: int):
    """The gradient of the weights."""
    depth, columns = -(-depth // 8) * 8, -(-columns // 8) * 8
    x, grad = data.values(rows, depth), data.values(rows, columns)
    inner = torch.sort(data.below(rows + 1, EXPERTS - 1))[0].tolist()
    starts, ends = [0, *inner], [*inner, rows]
    offs = torch.tensor(ends, dtype=torch.int32)
    out, theirs = (x.new_zeros(EXPERTS, depth, columns) for _ in range(2))

    def by_torch():
        for e, (first, last) in enumerate(zip(starts, ends, strict=True)):
            torch.mm(x[first:last].T, grad[first:last], out=theirs[e])
        return theirs

    return lambda: turnout.grouped_mm_backward_weight(x, grad, offs=offs, out=(out,))[0], {
        "mm of each expert": by_torch
    }
