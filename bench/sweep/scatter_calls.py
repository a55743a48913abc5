"""The calls of dynamic_scatter and their torch peers."""

from __future__ import annotations

import torch
from dynamic_scatter import torch_peer
from sweep.point import ROWS, Data, case

import turnout
import turnout.torch

CHANNELS = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256)
POINTS = (*ROWS, 200_000)
PER_GROUP = (1, 4, 32, 1024, 1 << 18)  # the last one: a single group
NO_SCATTER = float("-inf")


class Grouped:
    def __init__(self, data: Data, rows: int, channels: int, per_group: int) -> None:
        self.groups = max(1, rows // per_group)
        self.src = data.values(rows, channels)
        self.index = data.below(self.groups, rows)
        self.columns = self.index[:, None].expand(-1, channels)
        self.out, self.theirs = (self.src.new_zeros(self.groups, channels) for _ in range(2))
        self.grad = data.values(self.groups, channels)
        self.grad_src, self.their_grad = torch.zeros_like(self.src), torch.zeros_like(self.src)
        self.counts = torch.bincount(self.index, minlength=self.groups).clamp(min=1)


@case("f32 bf16", share=2, rows=POINTS, channels=CHANNELS, per_group=PER_GROUP)
def scatter_sum(data: Data, rows: int, channels: int, per_group: int):
    g = Grouped(data, rows, channels, per_group)
    peers = {
        "index_add_": lambda: g.theirs.zero_().index_add_(0, g.index, g.src),
        "scatter_add_": lambda: g.theirs.zero_().scatter_add_(0, g.columns, g.src),
    }
    if channels == 1 and g.src.dtype == torch.float32:
        weights = g.src[:, 0]
        peers["bincount"] = lambda: torch.bincount(g.index, weights, g.groups).float()[:, None]
    if g.src.dtype == torch.bfloat16:  # torch adds in bf16: a peer of the same precision converts
        wide = torch.zeros(g.out.shape)
        peers = {"index_add_ in f32": lambda: wide.zero_().index_add_(0, g.index, g.src.float()).bfloat16()}
    return lambda: turnout.scatter_sum(g.src, g.index, 0, g.groups, out=g.out), peers


@case("f32", rows=POINTS, channels=CHANNELS, per_group=PER_GROUP)
def scatter_mean(data: Data, rows: int, channels: int, per_group: int):
    g = Grouped(data, rows, channels, per_group)

    def by_torch():
        g.theirs.zero_().index_add_(0, g.index, g.src)
        counts = torch.bincount(g.index, minlength=g.groups).clamp_(min=1)
        return g.theirs.div_(counts[:, None])

    return lambda: turnout.scatter_mean(g.src, g.index, 0, g.groups, out=g.out), {
        "index_add_, div_": by_torch
    }


@case("f32", share=2, rows=POINTS, channels=CHANNELS, per_group=PER_GROUP)
def scatter_max(data: Data, rows: int, channels: int, per_group: int):
    """Without argmax, like the peer; empty groups are 0 in both."""
    g = Grouped(data, rows, channels, per_group)

    def by_torch():
        return g.theirs.zero_().scatter_reduce_(0, g.columns, g.src, "amax", include_self=False)

    return lambda: turnout.scatter_max(g.src, g.index, 0, g.groups, return_arg=False, out=g.out), {
        "scatter_reduce_": by_torch
    }


@case("f32", rows=POINTS, channels=CHANNELS, per_group=PER_GROUP)
def scatter_min(data: Data, rows: int, channels: int, per_group: int):
    """Without argmin, like the peer; empty groups are 0 in both."""
    g = Grouped(data, rows, channels, per_group)

    def by_torch():
        return g.theirs.zero_().scatter_reduce_(0, g.columns, g.src, "amin", include_self=False)

    return lambda: turnout.scatter_min(g.src, g.index, 0, g.groups, return_arg=False, out=g.out), {
        "scatter_reduce_": by_torch
    }


@case("f32 bf16", rows=POINTS, channels=CHANNELS, per_group=PER_GROUP)
def scatter_sum_backward(data: Data, rows: int, channels: int, per_group: int):
    g = Grouped(data, rows, channels, per_group)
    return lambda: turnout.scatter_sum_backward(g.grad, g.index, out=g.grad_src), {
        "index_select": lambda: torch.index_select(g.grad, 0, g.index, out=g.their_grad)
    }


@case("f32", rows=POINTS, channels=CHANNELS, per_group=PER_GROUP)
def scatter_mean_backward(data: Data, rows: int, channels: int, per_group: int):
    g = Grouped(data, rows, channels, per_group)
    shares = torch.zeros_like(g.grad)

    def by_torch():
        counts = torch.bincount(g.index, minlength=g.groups).clamp_(min=1)
        torch.div(g.grad, counts[:, None], out=shares)
        return torch.index_select(shares, 0, g.index, out=g.their_grad)

    return lambda: turnout.scatter_mean_backward(g.grad, g.index, out=g.grad_src), {
        "bincount, div, index_select": by_torch
    }


@case("f32", rows=POINTS, channels=CHANNELS, per_group=PER_GROUP)
def scatter_max_backward(data: Data, rows: int, channels: int, per_group: int):
    g = Grouped(data, rows, channels, per_group)
    _, argmax = turnout.scatter_max(g.src, g.index, 0, g.groups)
    room = torch.zeros(rows + 1, channels)  # the last row takes the gradients of empty groups

    def by_torch():
        return room.zero_().scatter_(0, argmax, g.grad)[:-1]

    return lambda: turnout.scatter_max_backward(g.grad, g.index, argmax, out=g.grad_src), {
        "zero_, scatter_": by_torch
    }


@case("f32", outer=(1, 4, 32), rows=(1, 16, 256, 4096, 65536), channels=(1, 4, 32), per_group=(1, 8, 256))
def scatter_sum_dim1(data: Data, outer: int, rows: int, channels: int, per_group: int):
    groups = max(1, rows // per_group)
    src, index = data.values(outer, rows, channels), data.below(groups, rows)
    columns = index[None, :, None].expand(outer, -1, channels)
    shape = outer, groups, channels
    return lambda: turnout.torch.scatter_sum(src, index, 1, groups), {
        "zeros, index_add_": lambda: torch.zeros(shape).index_add_(1, index, src),
        "zeros, scatter_add_": lambda: torch.zeros(shape).scatter_add_(1, columns, src),
    }


def voxels(data: Data, points: int, per_voxel: int) -> tuple[torch.Tensor, tuple[int, int, int]]:
    side = max(1, round((points / per_voxel) ** 0.5))
    return data.below(side, points, 3, dtype=torch.int32) % torch.tensor([4, side, side]).int(), (
        4,
        side,
        side,
    )


def by_keys(coors: torch.Tensor, grid: tuple[int, int, int]) -> tuple[torch.Tensor, ...]:
    return torch_peer._voxels(coors, grid)


@case("f32", share=1.5, points=POINTS[1:], channels=CHANNELS, per_voxel=(1, 4, 64))
def dynamic_scatter_forward_max(data: Data, points: int, channels: int, per_voxel: int):
    coors, grid = voxels(data, points, per_voxel)
    feats = data.values(points, channels)
    room = torch.zeros(points, channels)

    def by_torch():
        places, map_, count = by_keys(coors, grid)
        found = room[: len(count)].fill_(NO_SCATTER)
        index = map_[:, None].expand(-1, channels)
        return found.scatter_reduce_(0, index, feats, "amax"), places, map_, count

    return lambda: turnout.dynamic_scatter_forward(feats, coors, "max"), {"unique, scatter_reduce_": by_torch}


@case("f32", points=POINTS[1:], channels=CHANNELS, per_voxel=(1, 4, 64))
def dynamic_scatter_forward_mean(data: Data, points: int, channels: int, per_voxel: int):
    coors, grid = voxels(data, points, per_voxel)
    feats = data.values(points, channels)
    room = torch.zeros(points, channels)

    def by_torch():
        places, map_, count = by_keys(coors, grid)
        sums = room[: len(count)].zero_().index_add_(0, map_, feats)
        return sums.div_(count[:, None]), places, map_, count

    return lambda: turnout.dynamic_scatter_forward(feats, coors, "mean"), {"unique, index_add_": by_torch}


@case("f32", points=POINTS[1:], channels=CHANNELS, per_voxel=(1, 4, 64))
def dynamic_scatter_backward_max(data: Data, points: int, channels: int, per_voxel: int):
    coors, _ = voxels(data, points, per_voxel)
    feats = data.values(points, channels)
    most, _, map_, count = turnout.dynamic_scatter_forward(feats, coors, "max")
    grad, out = data.values(len(count), channels), torch.zeros_like(feats)
    rows = map_.long()

    def by_torch():
        return torch.where(feats == most[rows], grad[rows], 0)

    return lambda: turnout.dynamic_scatter_backward(grad, feats, most, map_, count, "max", out=out), {
        "gather, where": by_torch
    }


@case("f32", points=POINTS[1:], channels=CHANNELS, per_voxel=(1, 4, 64))
def dynamic_scatter_backward_mean(data: Data, points: int, channels: int, per_voxel: int):
    coors, _ = voxels(data, points, per_voxel)
    _, _, map_, count = turnout.dynamic_scatter_forward(data.values(points, channels), coors, "mean")
    grad = data.values(len(count), channels)
    out, theirs = (torch.zeros(points, channels) for _ in range(2))
    rows = map_.long()

    def by_torch():
        return torch.index_select(grad / count[:, None], 0, rows, out=theirs)

    return lambda: turnout.dynamic_scatter_backward(grad, None, None, map_, count, "mean", out=out), {
        "div, index_select": by_torch
    }


@case("f32", points=POINTS[1:], per_voxel=(1, 4, 64))
def voxel_index(data: Data, points: int, per_voxel: int):
    coors, grid = voxels(data, points, per_voxel)

    def own():
        index = turnout.VoxelIndex(coors)
        return index.voxel_coors, index.point2voxel_map, index.voxel_points_count

    return own, {"packed unique": lambda: by_keys(coors, grid)}


@case("f32", points=POINTS, features=(3, 4, 5))
def voxelize(data: Data, points: int, features: int):
    cloud = torch.rand(points, features, generator=data.random) * 100
    size, box = [0.5, 0.5, 4.0], [0.0, 0.0, 0.0, 80.0, 80.0, 40.0]
    out = torch.zeros(points, 3, dtype=torch.int32)
    low, step = torch.tensor(box[:3]), torch.tensor(size)
    cells = torch.tensor([160, 160, 10], dtype=torch.int32)

    def by_torch():
        at = ((cloud[:, :3] - low) / step).floor().int()
        inside = ((at >= 0) & (at < cells)).all(1, keepdim=True)
        return torch.where(inside, at, -1).flip(1)

    return lambda: turnout.voxelize(cloud, size, box, out=out), {"floor, where": by_torch}
