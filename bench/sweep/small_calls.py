"""Calls through turnout.torch, without and with gradients, beside the torch operator that does the same."""

from __future__ import annotations

import torch
from sweep.moe_calls import EXPERTS, Routed
from sweep.point import Data, case
from torch.nn.functional import embedding_bag

import turnout.torch

SMALL = {"rows": (1, 4, 16, 64, 256), "columns": (1, 4, 16, 64, 256)}


@case("f32", **SMALL, tolerance=1e-4)
def torch_scatter_sum(data: Data, rows: int, columns: int):
    src, groups = data.values(rows, columns), max(1, rows // 4)
    index = data.below(groups, rows)
    return lambda: turnout.torch.scatter_sum(src, index, 0, groups), {
        "index_add": lambda: torch.zeros(groups, columns).index_add(0, index, src)
    }


@case("f32", **SMALL)
def torch_scatter_sum_training(data: Data, rows: int, columns: int):
    src, groups = data.values(rows, columns).requires_grad_(), max(1, rows // 4)
    index, grad = data.below(groups, rows), data.values(groups, columns)
    return lambda: torch.autograd.grad(turnout.torch.scatter_sum(src, index, 0, groups), src, grad), {
        "index_add": lambda: torch.autograd.grad(
            torch.zeros(groups, columns).index_add(0, index, src), src, grad
        )
    }


@case("f32", **SMALL)
def torch_moe_dispatch(data: Data, rows: int, columns: int):
    r = Routed(data, rows, columns)
    return lambda: turnout.torch.moe_dispatch(r.tokens, *r.places, r.capacity, EXPERTS), {
        "index_copy": lambda: (
            torch.zeros(r.buffers.shape).index_copy_(0, r.flat, r.tokens).view(EXPERTS, r.capacity, -1)
        )
    }


@case("f32", **SMALL)
def torch_moe_combine(data: Data, rows: int, columns: int):
    r = Routed(data, rows, columns, 2)
    bags = r.flat.view(rows, 2)
    return lambda: turnout.torch.moe_combine(r.buffers, *r.places, r.capacity, r.gates), {
        "embedding_bag": lambda: embedding_bag(bags, r.buffers, mode="sum", per_sample_weights=r.weights)
    }


@case("f32", **SMALL)
def torch_moe_combine_training(data: Data, rows: int, columns: int):
    r = Routed(data, rows, columns, 2)
    bags, grad = r.flat.view(rows, 2), data.values(rows, columns)
    buffers, gates = r.buffers.requires_grad_(), r.weights.requires_grad_()

    def own():
        out = turnout.torch.moe_combine(buffers, *r.places, r.capacity, gates)
        return torch.autograd.grad(out, [buffers, gates], grad)

    def bag():
        out = embedding_bag(bags, buffers, mode="sum", per_sample_weights=gates)
        return torch.autograd.grad(out, [buffers, gates], grad)

    return own, {"embedding_bag": bag}
