"""The calls on points, groups and segments, and what a user would write in torch."""

from __future__ import annotations

import torch
from sweep.point import Data, case

import turnout

CLOUD = (1, 4, 16, 64, 256, 1024, 4096, 16384)
CHANNELS = (1, 3, 16, 64, 256)
SEGMENTS = (1, 16, 256, 4096, 65536, 200_000)


def cloud(data: Data, count: int) -> torch.Tensor:
    return torch.rand(count, 3, generator=data.random) * torch.tensor([20.0, 20.0, 4.0])


def distances(queries: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Squared distances in the order that the definition adds them."""
    dx, dy, dz = (queries[:, None] - points[None]).unbind(2)
    return (dx * dx + dy * dy) + dz * dz


@case("f32", points=CLOUD, samples=(1, 16, 256, 1024), most=1 << 24)
def furthest_point_sample(data: Data, points: int, samples: int):
    xyz, samples = cloud(data, points), min(samples, points)
    out = torch.zeros(samples, dtype=torch.int32)

    def by_torch():
        nearest, last = torch.full((points,), 1e10), 0
        theirs = torch.zeros(samples, dtype=torch.int32)
        for i in range(1, samples):
            nearest = torch.minimum(nearest, distances(xyz[last : last + 1], xyz)[0])
            last = int(nearest.argmax())
            theirs[i] = last
        return theirs

    return lambda: turnout.furthest_point_sample(xyz, samples, out=out), {"minimum, argmax": by_torch}


@case("f32", points=CLOUD, queries=(1, 16, 256, 2048), nsample=(4, 16, 64), most=1 << 24)
def ball_query(data: Data, points: int, queries: int, nsample: int):
    xyz, new_xyz = cloud(data, points), cloud(data, queries)
    radius = torch.tensor(1.0)
    rows = torch.arange(points, dtype=torch.int32)

    def by_torch():
        rank = torch.where(distances(new_xyz, xyz) < radius * radius, rows, points)
        found = rank.sort(1)[0][:, :nsample]
        found = torch.where(found == points, found[:, :1], found)
        found = torch.nn.functional.pad(found, (0, nsample - found.shape[1]), value=points)
        return torch.where(found == points, torch.where(found[:, :1] == points, 0, found[:, :1]), found)

    return lambda: turnout.ball_query(xyz, new_xyz, 1.0, nsample)[0], {"distances, sort": by_torch}


@case("f32", points=CLOUD[2:], queries=(1, 16, 256, 2048, 16384), most=1 << 25)
def three_nn(data: Data, points: int, queries: int):
    known, unknown = cloud(data, points), cloud(data, queries)

    def by_torch():
        found, rows = distances(unknown, known).topk(3, 1, largest=False)
        return found, rows.int()

    return lambda: turnout.three_nn(unknown, known), {"distances, topk": by_torch}


@case("f32", points=CLOUD[2:], queries=(1, 16, 256, 2048), k=(1, 8, 16), most=1 << 24)
def knn(data: Data, points: int, queries: int, k: int):
    xyz, new_xyz, k = cloud(data, points), cloud(data, queries), min(k, points)

    def by_torch():
        found, rows = distances(new_xyz, xyz).topk(k, 1, largest=False)
        return rows.int(), found

    return lambda: turnout.knn(xyz, new_xyz, k), {"distances, topk": by_torch}


@case("f32", points=(1, 16, 256, 1024, 2048), samples=(1, 16, 256, 1024), most=1 << 21)
def furthest_point_sample_by_distances(data: Data, points: int, samples: int):
    xyz, samples = cloud(data, points), min(samples, points)
    matrix, out = distances(xyz, xyz), torch.zeros(samples, dtype=torch.int32)

    def by_torch():
        nearest, last = torch.full((points,), 1e10), 0
        theirs = torch.zeros(samples, dtype=torch.int32)
        for i in range(1, samples):
            nearest = torch.minimum(nearest, matrix[last])
            last = int(nearest.argmax())
            theirs[i] = last
        return theirs

    return lambda: turnout.furthest_point_sample_by_distances(matrix, samples, out=out), {
        "minimum, argmax": by_torch
    }


@case("f32 bf16", channels=CHANNELS, points=CLOUD, places=CLOUD, share=1.5)
def gather_points(data: Data, channels: int, points: int, places: int):
    features = data.values(2, channels, points)
    index = data.below(points, 2, places)
    rows = index.int()
    wide = index[:, None].expand(-1, channels, -1)
    out, theirs = features.new_zeros(2, channels, places), features.new_zeros(2, channels, places)
    return lambda: turnout.gather_points(features, rows, out=out), {
        "gather": lambda: torch.gather(features, 2, wide, out=theirs)
    }


@case("f32", channels=CHANNELS, points=CLOUD, places=CLOUD)
def gather_points_backward(data: Data, channels: int, points: int, places: int):
    grad, index = data.values(2, channels, places), data.below(points, 2, places)
    rows = index.int()
    wide = index[:, None].expand(-1, channels, -1)
    out, theirs = torch.zeros(2, channels, points), torch.zeros(2, channels, points)
    return lambda: turnout.gather_points_backward(grad, rows, points, out=out), {
        "scatter_add_": lambda: theirs.zero_().scatter_add_(2, wide, grad)
    }


@case("f32 bf16", channels=CHANNELS, points=CLOUD, places=CLOUD, nsample=(4, 16, 64))
def group_points(data: Data, channels: int, points: int, places: int, nsample: int):
    features = data.values(1, channels, points)
    index = data.below(points, 1, places, nsample)
    rows, wide = index.int(), index.view(1, 1, -1).expand(-1, channels, -1)
    out, theirs = (features.new_zeros(1, channels, places, nsample) for _ in range(2))
    flat = theirs.view(1, channels, -1)

    def by_torch():
        torch.gather(features, 2, wide, out=flat)
        return theirs

    return lambda: turnout.group_points(features, rows, out=out), {"gather": by_torch}


@case("f32", channels=CHANNELS, points=CLOUD, places=CLOUD, nsample=(4, 16, 64))
def group_points_backward(data: Data, channels: int, points: int, places: int, nsample: int):
    grad, index = data.values(1, channels, places, nsample), data.below(points, 1, places, nsample)
    rows, wide = index.int(), index.view(1, 1, -1).expand(-1, channels, -1)
    out, theirs = torch.zeros(1, channels, points), torch.zeros(1, channels, points)
    flat = grad.view(1, channels, -1)
    return lambda: turnout.group_points_backward(grad, rows, points, out=out), {
        "scatter_add_": lambda: theirs.zero_().scatter_add_(2, wide, flat)
    }


@case("f32", channels=CHANNELS, points=CLOUD, places=CLOUD)
def three_interpolate(data: Data, channels: int, points: int, places: int):
    features = data.values(1, channels, points)
    index, weights = data.below(points, 1, places, 3), torch.rand(1, places, 3, generator=data.random)
    wide, rows = index.view(1, 1, -1).expand(-1, channels, -1), index.int()
    out = torch.zeros(1, channels, places)

    def by_torch():
        return (features.gather(2, wide).view(1, channels, places, 3) * weights[:, None]).sum(3)

    return lambda: turnout.three_interpolate(features, rows, weights, out=out), {"gather, mul, sum": by_torch}


@case("f32", channels=CHANNELS, points=CLOUD, places=CLOUD)
def three_interpolate_backward(data: Data, channels: int, points: int, places: int):
    grad = data.values(1, channels, places)
    index, weights = data.below(points, 1, places, 3), torch.rand(1, places, 3, generator=data.random)
    wide, rows = index.view(1, 1, -1).expand(-1, channels, -1), index.int()
    out, theirs = torch.zeros(1, channels, points), torch.zeros(1, channels, points)

    def by_torch():
        shares = (grad[..., None] * weights[:, None]).view(1, channels, -1)
        return theirs.zero_().scatter_add_(2, wide, shares)

    return lambda: turnout.three_interpolate_backward(grad, rows, weights, points, out=out), {
        "mul, scatter_add_": by_torch
    }


def ends(data: Data, rows: int, per_segment: int) -> torch.Tensor:
    """Where segments begin, and the number of rows."""
    inner = torch.sort(data.below(rows + 1, max(1, rows // per_segment) - 1))[0]
    return torch.cat([torch.tensor([0]), inner, torch.tensor([rows])])


@case("f32", rows=SEGMENTS, channels=CHANNELS, per_segment=(1, 8, 256))
def segment_csr_sum(data: Data, rows: int, channels: int, per_segment: int):
    src, indptr = data.values(rows, channels), ends(data, rows, per_segment)
    out = src.new_zeros(len(indptr) - 1, channels)
    return lambda: turnout.segment_csr(src, indptr, out=out), {
        "segment_reduce": lambda: torch.segment_reduce(src, "sum", offsets=indptr, axis=0)
    }


@case("f32", rows=SEGMENTS, channels=CHANNELS, per_segment=(1, 8, 256))
def segment_csr_mean(data: Data, rows: int, channels: int, per_segment: int):
    src, indptr = data.values(rows, channels), ends(data, rows, per_segment)
    out = src.new_zeros(len(indptr) - 1, channels)
    is_empty = (indptr.diff() == 0)[:, None]

    def by_torch():
        return torch.segment_reduce(src, "mean", offsets=indptr, axis=0).masked_fill_(is_empty, 0)

    return lambda: turnout.segment_csr(src, indptr, "mean", out=out), {"segment_reduce": by_torch}


@case("f32", rows=SEGMENTS, channels=CHANNELS, per_segment=(1, 8, 256))
def segment_csr_min(data: Data, rows: int, channels: int, per_segment: int):
    src, indptr = data.values(rows, channels), ends(data, rows, per_segment)
    out = src.new_zeros(len(indptr) - 1, channels)
    is_empty = (indptr.diff() == 0)[:, None]

    def by_torch():
        return torch.segment_reduce(src, "min", offsets=indptr, axis=0).masked_fill_(is_empty, 0)

    return lambda: turnout.segment_csr(src, indptr, "min", out=out), {"segment_reduce": by_torch}


@case("f32", rows=SEGMENTS, channels=CHANNELS, per_segment=(1, 8, 256))
def segment_csr_max(data: Data, rows: int, channels: int, per_segment: int):
    src, indptr = data.values(rows, channels), ends(data, rows, per_segment)
    out = src.new_zeros(len(indptr) - 1, channels)
    is_empty = (indptr.diff() == 0)[:, None]

    def by_torch():
        return torch.segment_reduce(src, "max", offsets=indptr, axis=0).masked_fill_(is_empty, 0)

    return lambda: turnout.segment_csr(src, indptr, "max", out=out), {"segment_reduce": by_torch}


@case("f32 bf16", rows=SEGMENTS, channels=CHANNELS, per_segment=(1, 8, 256))
def gather_csr(data: Data, rows: int, channels: int, per_segment: int):
    indptr = ends(data, rows, per_segment)
    src = data.values(len(indptr) - 1, channels)
    out = src.new_zeros(rows, channels)
    return lambda: turnout.gather_csr(src, indptr, rows, out=out), {
        "repeat_interleave": lambda: src.repeat_interleave(indptr.diff(), 0, output_size=rows)
    }


@case("f32", rows=SEGMENTS, per_group=(1, 8, 256))
def ingroup_indices(data: Data, rows: int, per_group: int):
    groups = data.below(max(1, rows // per_group), rows)
    out = torch.zeros_like(groups)

    def by_sort():
        order = groups.argsort(stable=True)
        counts = torch.bincount(groups)
        starts = (counts.cumsum(0) - counts).repeat_interleave(counts)
        ranks = torch.empty_like(order)
        ranks[order] = torch.arange(rows) - starts
        return ranks

    return lambda: turnout.ingroup_indices(groups, out=out), {"argsort, bincount": by_sort}


@case("f32", rows=SEGMENTS, channels=CHANNELS, side=(4, 32, 180))
def bev_pool(data: Data, rows: int, channels: int, side: int):
    feats = data.values(rows, channels)
    coords = torch.stack([data.below(side, rows), data.below(side, rows), *torch.zeros(2, rows).long()], 1)
    sums = torch.zeros(side * side, channels)
    out, theirs = torch.zeros(1, channels, 1, side, side), torch.zeros(1, channels, 1, side, side)

    def by_torch():
        grid = sums.zero_().index_add_(0, coords[:, 0] * side + coords[:, 1], feats)
        return theirs.copy_(grid.view(1, 1, side, side, channels).permute(0, 4, 1, 2, 3))

    return lambda: turnout.bev_pool(feats, coords, 1, 1, side, side, out=out), {
        "index_add_, permute": by_torch
    }


@case("f32", rows=SEGMENTS, channels=CHANNELS, side=(4, 32, 180))
def bev_pool_backward(data: Data, rows: int, channels: int, side: int):
    grad = data.values(1, channels, 1, side, side)
    coords = torch.stack([data.below(side, rows), data.below(side, rows), *torch.zeros(2, rows).long()], 1)
    out, theirs = torch.zeros(rows, channels), torch.zeros(rows, channels)

    def by_torch():
        cells = coords[:, 0] * side + coords[:, 1]
        return torch.index_select(grad.view(channels, -1).T.contiguous(), 0, cells, out=theirs)

    return lambda: turnout.bev_pool_backward(grad, coords, out=out), {"transpose, index_select": by_torch}
