"""PyTorch: unique of packed keys and scatter_reduce; gradients with a saved or a recomputed argmax."""

from __future__ import annotations

import torch
from dynamic_scatter.shapes import Arrays, Points
from harness import Entry

FILL = {"max": float("-inf"), "mean": 0.0}


def unique(points: Points) -> Entry:
    coors = torch.from_numpy(points.coors)
    kept: list[torch.Tensor] = []

    def run() -> None:
        kept[:] = _voxels(coors, points.scale.grid)

    return Entry("torch, packed, unique, unpacked", run, lambda: _as_int32(kept))


def forward(points: Points, reduce_type: str) -> Entry:
    """Packs coordinates into keys and reuses the output of the features. All points are in the grid."""
    coors, feats = torch.from_numpy(points.coors), torch.from_numpy(points.feats)
    room = torch.ones(points.feats.shape)
    kept: list[torch.Tensor] = []

    def run() -> None:
        voxel_coors, map_, count = _voxels(coors, points.scale.grid)
        voxel_feats = room[: len(count)]
        _reduce(feats, map_, count, voxel_feats, reduce_type)
        kept[:] = voxel_feats, voxel_coors, map_, count

    return Entry("torch, packed unique, scatter_reduce", run, lambda: (kept[0].numpy(), *_as_int32(kept[1:])))


def argmax_given(points: Points) -> Entry:
    """Uses the argmax that the forward pass saved, like torch_scatter."""
    argmax, grad = torch.from_numpy(points.argmax), torch.from_numpy(points.grad_voxel_feats)
    out = torch.ones(points.feats.shape)
    return Entry(
        "torch, zeros.scatter_, argmax given",
        lambda: out.zero_().scatter_(0, argmax, grad),
        lambda: out.numpy(),
    )


def recompute(points: Points) -> Entry:
    """Without a saved argmax: finds the first point that equals its voxel's maximum."""
    n, channels = points.feats.shape
    feats, grad = torch.from_numpy(points.feats), torch.from_numpy(points.grad_voxel_feats)
    voxel_feats = torch.from_numpy(points.reduced("max"))
    map_ = torch.from_numpy(points.map).long()
    numbers, none = torch.arange(n)[:, None], torch.tensor(n)
    of_point, equal = torch.ones_like(feats), torch.ones(n, channels, dtype=torch.bool)
    candidates = torch.ones(n, channels, dtype=torch.int64)
    first = torch.zeros(points.scale.voxels, channels, dtype=torch.int64)
    out = torch.ones(n + 1, channels)  # the last row collects gradients of maxima that no point equals

    def run() -> None:
        torch.index_select(voxel_feats, 0, map_, out=of_point)
        torch.eq(feats, of_point, out=equal)
        torch.where(equal, numbers, none, out=candidates)
        first.fill_(n).scatter_reduce_(0, map_[:, None].expand(-1, channels), candidates, "amin")
        out.zero_().scatter_(0, first, grad)

    return Entry("torch, the first equal point found again", run, lambda: out[:-1].numpy(), every=4)


def mean_backward(points: Points) -> Entry:
    grad, count = torch.from_numpy(points.grad_voxel_feats), torch.from_numpy(points.count)
    map_, share, out = torch.from_numpy(points.map), torch.ones_like(grad), torch.ones(points.feats.shape)

    def run() -> None:
        torch.div(grad, count[:, None], out=share)
        torch.index_select(share, 0, map_, out=out)

    return Entry("torch, index_select of the shares", run, lambda: out.numpy())


def training(points: Points) -> Entry:
    """Forward and gradient with autograd, which divides a gradient among ties, so use it without any."""
    coors, feats = torch.from_numpy(points.coors), torch.from_numpy(points.feats).requires_grad_()
    grad = torch.from_numpy(points.grad_voxel_feats)
    kept: list[torch.Tensor] = []

    def run() -> None:
        _, map_, count = _voxels(coors, points.scale.grid)
        start = torch.full((len(count), feats.shape[1]), FILL["max"])
        index = map_[:, None].expand(-1, feats.shape[1])
        voxel_feats = start.scatter_reduce(0, index, feats, "amax", include_self=True)
        kept[:] = torch.autograd.grad(voxel_feats, feats, grad)

    # Adding 0.0 turns -0.0, which autograd returns in places, into 0.0.
    return Entry("torch, the same by its autograd", run, lambda: kept[0].numpy() + 0.0, every=4)


def _voxels(coors: torch.Tensor, grid: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    """Returns unique voxels in ascending order, the inverse map, and counts."""
    z, y, x = coors.long().unbind(1)
    keys = (z * grid[1] + y) * grid[2] + x
    known, map_, count = torch.unique(keys, return_inverse=True, return_counts=True)
    row = known // grid[2]
    voxel_coors = torch.stack((row // grid[1], row % grid[1], known % grid[2]), dim=1)
    return voxel_coors, map_, count


def _reduce(
    feats: torch.Tensor, map_: torch.Tensor, count: torch.Tensor, out: torch.Tensor, reduce_type: str
) -> None:
    index = map_[:, None].expand(-1, feats.shape[1])  # scatter_reduce_ has a fast path for an expanded index
    out.fill_(FILL[reduce_type])
    if reduce_type == "max":
        out.scatter_reduce_(0, index, feats, "amax")
    else:
        out.scatter_reduce_(0, index, feats, "sum").div_(count[:, None])


def _as_int32(tensors: list[torch.Tensor]) -> Arrays:
    """Converts torch's int64 results to int32, untimed."""
    return tuple(x.to(torch.int32).numpy() for x in tensors)
