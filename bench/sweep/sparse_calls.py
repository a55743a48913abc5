"""The calls of sparse_conv and their torch peers: gather, compute, index_add."""

from __future__ import annotations

import torch
from sparse_conv.convolution_entries import by_torch, gradients_by_torch, lists_of
from sweep.point import Data, case

import turnout
import turnout.torch

SITES = (1, 8, 64, 256, 1024, 4096, 16384, 65536)
CHANNELS = (1, 4, 8, 16, 32, 64, 128)
BATCHES = (1, 2, 8)


def sites(data: Data, rows: int, batch: int = 1) -> tuple[torch.Tensor, tuple[int, int, int]]:
    """Different sites in ascending order, a quarter of a flat grid, and the grid."""
    side = max(2, round((rows / batch) ** 0.5) + 1)
    space = (4, side, side)
    cells = 4 * side * side
    taken = torch.sort(data.shuffled(batch * cells)[:rows])[0]
    parts = taken // cells, taken // (side * side) % 4, taken // side % side, taken % side
    return torch.stack(parts, 1).int(), space


class Layer:
    def __init__(self, data: Data, rows: int, channels: int) -> None:
        self.at, space = sites(data, rows)
        self.subm = {"batch_size": 1, "spatial_shape": space, "subm": True}
        _, self.pairs, self.num = turnout.get_indice_pairs(self.at, **self.subm)
        self.lists = lists_of(self.pairs, self.num)
        self.x, self.grad = data.values(rows, channels), data.values(rows, channels)
        self.filters = data.values(27, channels, channels) / channels**0.5
        self.out, self.theirs = torch.zeros_like(self.x), torch.zeros_like(self.x)
        self.rows, self.channels = rows, channels
        self.index = self.pairs, self.num


@case("f32", rows=SITES)
def get_indice_pairs(data: Data, rows: int):
    layer = Layer(data, rows, 1)
    out = layer.at.clone(), torch.zeros_like(layer.pairs), torch.zeros_like(layer.num)
    _, depth, height, width = 1, *layer.subm["spatial_shape"]
    steps = torch.tensor([(height + 2) * (width + 2), width + 2, 1])
    grid = torch.full(((depth + 2) * (height + 2) * (width + 2),), -1, dtype=torch.int32)
    numbers = torch.arange(rows, dtype=torch.int32)
    pairs, counts = torch.zeros_like(layer.pairs), torch.zeros_like(layer.num)
    offsets = [
        int((torch.tensor([z, y, x]) * steps).sum())
        for z in (1, 0, -1)
        for y in (1, 0, -1)
        for x in (1, 0, -1)
    ]

    def dense_grid():
        cells = ((layer.at[:, 1:] + 1) * steps).sum(1)
        grid[cells] = numbers
        pairs.fill_(-1)
        for k, offset in enumerate(offsets):
            outputs = grid[cells + offset]
            inputs = torch.nonzero(outputs >= 0)[:, 0]
            counts[k] = len(inputs)
            pairs[k, 0, : len(inputs)] = inputs
            pairs[k, 1, : len(inputs)] = outputs[inputs]
        grid[cells] = -1
        return layer.at, pairs, counts

    return lambda: turnout.get_indice_pairs(layer.at, **layer.subm, out=out), {
        "a ready dense grid": dense_grid
    }


@case("f32", share=1.5, rows=SITES, channels=CHANNELS, most=1 << 21)
def indice_convolution_forward(data: Data, rows: int, channels: int):
    layer = Layer(data, rows, channels)

    def own():
        return turnout.indice_convolution_forward(
            layer.x, layer.filters, *layer.index, rows, subm=True, out=layer.out
        )

    return own, {"gather, mm, index_add": lambda: by_torch(layer.lists, layer.x, layer.filters)}


@case("f32", rows=SITES, channels=CHANNELS, most=1 << 21, tolerance=1e-3)
def indice_convolution_backward(data: Data, rows: int, channels: int):
    layer = Layer(data, rows, channels)
    out, of_filters = torch.zeros_like(layer.x), torch.zeros_like(layer.filters)

    def own():
        pairs = layer.index
        turnout.indice_convolution_backward_data(layer.grad, layer.filters, *pairs, rows, subm=True, out=out)
        turnout.indice_convolution_backward_filter(layer.x, layer.grad, *pairs, subm=True, out=of_filters)
        return out, of_filters

    return own, {
        "gather, mm, index_add": lambda: gradients_by_torch(layer.lists, layer.x, layer.filters, layer.grad)
    }


@case("f32", rows=SITES, channels=CHANNELS, most=1 << 21)
def indice_max_pool_forward(data: Data, rows: int, channels: int):
    layer = Layer(data, rows, channels)
    inputs = torch.cat([a for a, _ in layer.lists])
    outputs = torch.cat([b for _, b in layer.lists])[:, None].expand(-1, channels)

    def by_torch():
        return layer.theirs.zero_().scatter_reduce_(0, outputs, layer.x[inputs], "amax")

    def own():
        return turnout.indice_max_pool_forward(layer.x, *layer.index, rows, out=layer.out)

    return own, {"gather, scatter_reduce_": by_torch}


@case("f32", rows=SITES, channels=CHANNELS, most=1 << 21)
def indice_avg_pool_forward(data: Data, rows: int, channels: int):
    layer = Layer(data, rows, channels)
    inputs, outputs = (torch.cat([pair[side] for pair in layer.lists]) for side in (0, 1))
    counts = torch.bincount(outputs, minlength=rows)[:, None]

    def by_torch():
        return layer.theirs.zero_().index_add_(0, outputs, layer.x[inputs]).div_(counts)

    def own():
        return turnout.indice_avg_pool_forward(layer.x, *layer.index, rows, out=layer.out)

    return own, {"gather, index_add_, div_": by_torch}


@case("f32", rows=SITES, channels=CHANNELS, most=1 << 21)
def indice_max_pool_backward(data: Data, rows: int, channels: int):
    layer = Layer(data, rows, channels)
    inputs, outputs = (torch.cat([pair[side] for pair in layer.lists]) for side in (0, 1))
    most = turnout.indice_max_pool_forward(layer.x, *layer.index, rows)
    out = torch.zeros_like(layer.x)

    def by_torch():
        shares = torch.where(layer.x[inputs] == most[outputs], layer.grad[outputs], 0)
        return layer.theirs.zero_().index_add_(0, inputs, shares)

    return lambda: turnout.indice_max_pool_backward(layer.x, most, layer.grad, *layer.index, out=out), {
        "gather, where, index_add_": by_torch
    }


@case("f32", rows=SITES, channels=CHANNELS, most=1 << 21)
def indice_avg_pool_backward(data: Data, rows: int, channels: int):
    layer = Layer(data, rows, channels)
    inputs, outputs = (torch.cat([pair[side] for pair in layer.lists]) for side in (0, 1))
    counts, out = torch.bincount(outputs, minlength=rows)[:, None], torch.zeros_like(layer.x)

    def by_torch():
        return layer.theirs.zero_().index_add_(0, inputs, (layer.grad / counts)[outputs])

    return lambda: turnout.indice_avg_pool_backward(layer.grad, *layer.index, rows, out=out), {
        "div, gather, index_add_": by_torch
    }


class Samples:
    """Rows of `batch` samples in ascending order, as the network of a detector has them."""

    def __init__(self, data: Data, rows: int, channels: int, batch: int) -> None:
        self.indices, _ = sites(data, max(rows, batch), batch)
        self.indices[:batch, 0] = torch.arange(batch, dtype=torch.int32)  # every sample has a row
        self.indices = self.indices[self.indices[:, 0].argsort(stable=True)].contiguous()
        self.x = data.values(len(self.indices), channels)
        self.sizes = torch.bincount(self.indices[:, 0], minlength=batch)
        self.out, self.grad = self.x.new_zeros(batch, channels), data.values(batch, channels)
        self.grad_x, self.theirs = torch.zeros_like(self.x), torch.zeros_like(self.x)
        self.samples, self.batch = self.indices[:, 0].long(), batch

    def parts(self) -> tuple[torch.Tensor, ...]:
        return self.x.split(self.sizes.tolist())


@case("f32 bf16", rows=SITES, channels=CHANNELS, batch=BATCHES, most=1 << 24)
def global_max_pool_forward(data: Data, rows: int, channels: int, batch: int):
    s = Samples(data, rows, channels, batch)
    return lambda: turnout.global_max_pool_forward(s.x, s.indices, batch, out=s.out), {
        "split, amax": lambda: torch.stack([part.amax(0) for part in s.parts()])
    }


@case("f32 bf16", rows=SITES, channels=CHANNELS, batch=BATCHES, most=1 << 24)
def global_avg_pool_forward(data: Data, rows: int, channels: int, batch: int):
    s = Samples(data, rows, channels, batch)
    return lambda: turnout.global_avg_pool_forward(s.x, s.indices, batch, out=s.out), {
        "split, mean": lambda: torch.stack([part.mean(0) for part in s.parts()])
    }


@case("f32", rows=SITES, channels=CHANNELS, batch=BATCHES, most=1 << 23)
def global_avg_pool_backward(data: Data, rows: int, channels: int, batch: int):
    s = Samples(data, rows, channels, batch)

    def by_torch():
        return torch.index_select(s.grad / s.sizes[:, None], 0, s.samples, out=s.theirs)

    return lambda: turnout.global_avg_pool_backward(s.grad, s.indices, out=s.grad_x), {
        "div, index_select": by_torch
    }


@case("f32", rows=SITES, channels=CHANNELS, batch=BATCHES, most=1 << 23)
def global_max_pool_backward(data: Data, rows: int, channels: int, batch: int):
    s = Samples(data, rows, channels, batch)
    most = turnout.global_max_pool_forward(s.x, s.indices, batch)

    def by_torch():
        return torch.where(s.x == most[s.samples], s.grad[s.samples], 0)

    return lambda: turnout.global_max_pool_backward(s.x, most, s.grad, s.indices, out=s.grad_x), {
        "gather, where": by_torch
    }
