"""Large NumPy calls of each family, at sizes that grow with a scale and with reused outputs.

They compare Turnout with itself: two builds (against.py), or sizes and numbers of threads (scaling.py). All
arguments are keywords, so that a build that reorders its arguments still runs the same calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import lidar
import numpy as np

import turnout

Call = Callable[[], object]


def reusing(owner: object, name: str, **arguments: object) -> Call:
    """Returns a call of owner.name that writes its results into those of its first run.

    The name is looked up by each run: a build that lacks one function still has the other calls.
    """
    out = None

    def call() -> None:
        nonlocal out
        out = getattr(owner, name)(**arguments, out=out)

    return call


def moe_dispatch(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    tokens, hidden, experts, choices = int(16384 * scale), 1024, 64, 2
    x = random.standard_normal((tokens, hidden), dtype=np.float32)
    indices = random.random((tokens, experts)).argpartition(choices, axis=1)[:, :choices].astype(np.int32)
    gates = random.random((tokens, choices), dtype=np.float32)
    choice = {"indices": indices, "num_experts": experts}
    slots, counts = turnout.moe_locations(**choice)
    places = {"indices": indices, "locations": slots, "capacity": int(counts.max())}
    dispatch = {"input": x, **places, "num_experts": experts}
    combine = {"expert_output": turnout.moe_dispatch(**dispatch), **places, "gates": gates}
    yield "moe_locations", tokens, reusing(turnout, "moe_locations", **choice)
    yield "moe_dispatch", tokens, reusing(turnout, "moe_dispatch", **dispatch)
    yield "moe_combine", tokens, reusing(turnout, "moe_combine", **combine)
    yield "moe_token_permute", tokens, reusing(turnout, "moe_token_permute", tokens=x, indices=indices)


def moe_re_routing(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    tokens, ranks, experts = int(16384 * scale), 8, 16
    counts = random.multinomial(tokens, [1 / (ranks * experts)] * (ranks * experts)).astype(np.int32)
    x = random.integers(-128, 128, (tokens, 4096), dtype=np.int8)
    arguments = {"tokens": x, "expert_token_num_per_rank": counts.reshape(ranks, experts)}
    yield "moe_re_routing", tokens, reusing(turnout, "moe_re_routing", **arguments)


def sparse_conv(scale: float) -> Iterator[tuple[str, int, Call]]:
    rows = int(60_000 * scale)
    sites = np.insert(lidar.frame(0, rows), 0, 0, axis=1).astype(np.int32)  # batch, z, y, x
    random = np.random.default_rng(0)
    subm = {"indices": sites, "batch_size": 1, "spatial_shape": lidar.SPACE, "subm": True}
    _, pairs, num = turnout.get_indice_pairs(**subm)
    layer = {
        "features": random.standard_normal((rows, 32), dtype=np.float32),
        "filters": random.standard_normal((27, 32, 32), dtype=np.float32) / 30,
        **{"indice_pairs": pairs, "indice_num": num, "num_act_out": rows},
    }
    yield "get_indice_pairs, submanifold", rows, reusing(turnout, "get_indice_pairs", **subm)
    call = reusing(turnout, "indice_convolution_forward", **layer)
    yield "indice_convolution_forward, 32 channels", rows, call


def moe_experts(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    tokens, hidden, inner, experts, choices = max(1, int(64 * scale)), 512, 256, 16, 2
    routed = {
        "hidden_states": random.standard_normal((tokens, hidden), dtype=np.float32),
        "topk_ids": random.random((tokens, experts)).argpartition(choices, axis=1)[:, :choices],
        "topk_weights": random.random((tokens, choices), dtype=np.float32),
    }
    w13 = random.standard_normal((experts, 2 * inner, hidden), dtype=np.float32) / 30
    w2 = random.standard_normal((experts, hidden, inner), dtype=np.float32) / 30
    yield "moe_experts", tokens, reusing(turnout, "moe_experts", **routed, w13=w13, w2=w2)
    quantized = {}
    for name, weight in {"w13": w13, "w2": w2}.items():
        quantized[name], quantized[f"{name}_scale"] = turnout.quantize_experts(weight=weight, bits=8)
    call = reusing(turnout, "moe_experts_quantized", **routed, **quantized)
    yield "moe_experts_quantized, 8 bits", tokens, call


def mutual_information(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    batch, symbols, frames = max(1, int(32 * scale)), 50, 500
    steps = {
        "px": random.uniform(-3, 0, (batch, symbols, frames + 1)).astype(np.float32),
        "py": random.uniform(-3, 0, (batch, symbols + 1, frames)).astype(np.float32),
    }
    cells = batch * symbols * frames
    yield "mutual_information_forward", cells, reusing(turnout, "mutual_information_forward", **steps)
    call = reusing(turnout, "mutual_information_forward_backward", **steps)
    yield "mutual_information_forward_backward", cells, call


def dynamic_scatter(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    points = int(200_000 * scale)
    cloud = random.uniform([0, 0, 0, 0], [80, 80, 4, 1], (points, 4)).astype(np.float32)
    grid = {"points": cloud, "voxel_size": [0.4, 0.4, 4.0], "point_cloud_range": [0, 0, 0, 80, 80, 4]}
    coors = turnout.voxelize(**grid)
    feats = random.standard_normal((points, 64), dtype=np.float32)
    index = turnout.VoxelIndex(coors=coors)
    yield "voxelize", points, reusing(turnout, "voxelize", **grid)
    yield "VoxelIndex", points, lambda: turnout.VoxelIndex(coors=coors)
    yield "VoxelIndex.reduce, max", points, reusing(index, "reduce", feats=feats, reduce_type="max")
    groups = {"index": random.integers(0, points // 5 + 1, points), "dim_size": points // 5 + 1}
    yield "scatter_sum, 64 channels", points, reusing(turnout, "scatter_sum", src=feats, **groups)
    one = np.ascontiguousarray(feats[:, 0])
    yield "scatter_sum, 1 channel", points, reusing(turnout, "scatter_sum", src=one, **groups)
    yield "scatter_max, 64 channels", points, reusing(turnout, "scatter_max", src=feats, **groups)
    ends = {"indptr": np.append(np.sort(random.integers(0, points, points // 5)), points)}
    yield "segment_csr, max", points, reusing(turnout, "segment_csr", src=feats, reduce="max", **ends)
    cells = {"coords": random.integers(0, [180, 180, 1, 1], (points, 4)), "batch": 1, "depth": 1}
    call = reusing(turnout, "bev_pool", feats=feats, **cells, height=180, width=180)
    yield "bev_pool, 64 channels", points, call


def rnnt_loss(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    batch, frames, symbols, classes = max(1, int(8 * scale)), 100, 20, 500
    logits = random.standard_normal((batch, frames, symbols + 1, classes), dtype=np.float32)
    text = {"symbols": random.integers(1, classes, (batch, symbols)), "termination_symbol": 0}
    cells = batch * frames * (symbols + 1)
    call = reusing(turnout, "rnnt_logprobs_joint_forward", logits=logits, **text)
    yield "rnnt_logprobs_joint_forward", cells, call
    lm = random.standard_normal((batch, symbols + 1, classes), dtype=np.float32)
    am = random.standard_normal((batch, frames, classes), dtype=np.float32)
    call = reusing(turnout, "rnnt_logprobs_simple_forward", lm=lm, am=am, **text)
    yield "rnnt_logprobs_simple_forward", cells, call


def boxes(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    count, points = int(4096 * scale), int(200_000 * scale)
    found = random.uniform([-70, -40, -1, 1, 1, 1, -3], [70, 40, 1, 5, 3, 2, 3], (count, 7)).astype(
        np.float32
    )
    scores = random.random(count, dtype=np.float32)
    yield "nms3d", count, reusing(turnout, "nms3d", boxes=found, scores=scores, threshold=0.1)
    rotated = np.ascontiguousarray(found[:, [0, 1, 3, 4, 6]])
    yield "nms_rotated", count, reusing(turnout, "nms_rotated", boxes=rotated, scores=scores, threshold=0.1)
    pairs = {"boxes_a": found[:500], "boxes_b": found[-500:]}
    yield "boxes_iou_bev", 500, reusing(turnout, "boxes_iou_bev", **pairs)
    cloud = random.uniform([-80, -50, -2], [80, 50, 2], (points, 3)).astype(np.float32)
    yield "points_in_boxes", points, reusing(turnout, "points_in_boxes", points=cloud, boxes=found[:100])


def points(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    count = int(16384 * scale)
    xyz = random.uniform([-70, -40, -2], [70, 40, 2], (count, 3)).astype(np.float32)
    samples, queries = max(count // 4, 1), xyz[: count // 8]
    yield "furthest_point_sample", count, reusing(turnout, "furthest_point_sample", xyz=xyz, samples=samples)
    ball = {"xyz": xyz, "new_xyz": queries, "radius": 0.8, "nsample": 32}
    yield "ball_query", count, reusing(turnout, "ball_query", **ball)
    yield "three_nn", count, reusing(turnout, "three_nn", unknown=xyz, known=xyz[:samples])
    yield "knn", count, reusing(turnout, "knn", xyz=xyz, new_xyz=queries, k=16)
    near = {"xyz": xyz, "new_xyz": queries, "radius": 1.6}
    clouds = {"counts": np.array([count]), "new_counts": np.array([len(queries)]), "nsample": 64}
    yield "neighbor_lists", count, reusing(turnout, "neighbor_lists", **near, **clouds)
    rows, starts = turnout.neighbor_lists(**near, **clouds)
    features = random.standard_normal((count, 32), dtype=np.float32)
    lists = {"features": features, "rows": rows, "starts": starts, "grid": [3, 3, 3], "slots": 32}
    yield "vector_pool", count, reusing(turnout, "vector_pool", **near, **lists)


def grouping(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    batch, channels, points, centers, samples = 2, 64, int(16384 * scale), int(1024 * scale), 32
    features = random.standard_normal((batch, channels, points), dtype=np.float32)
    indices = random.integers(0, points, (batch, centers, samples), dtype=np.int32)
    yield "group_points", centers, reusing(turnout, "group_points", features=features, indices=indices)
    grad = random.standard_normal((batch, channels, centers, samples), dtype=np.float32)
    call = reusing(turnout, "group_points_backward", grad_out=grad, indices=indices, rows=points)
    yield "group_points_backward", centers, call
    stacked = random.standard_normal((batch * points, channels), dtype=np.float32)
    arguments = {
        "counts": np.full(batch, points),
        "indices": indices.reshape(batch * centers, samples),
        "index_counts": np.full(batch, centers),
    }
    call = reusing(turnout, "group_points_stacked", features=stacked, **arguments)
    yield "group_points_stacked", centers, call
    near = random.integers(0, points, (batch, centers * 16, 3), dtype=np.int32)
    weights = random.random((batch, centers * 16, 3), dtype=np.float32)
    call = reusing(turnout, "three_interpolate", features=features, indices=near, weights=weights)
    yield "three_interpolate", centers, call


def roi_pooling(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    points, channels, rois = int(16384 * scale), 32, 64
    boxes = random.uniform([-30, -30, -1, 3, 1, 1, -3], [30, 30, 1, 5, 2, 2, 3], (rois, 7)).astype(np.float32)
    cloud = random.uniform([-35, -35, -2], [35, 35, 2], (points, 3)).astype(np.float32)
    features = random.standard_normal((points, channels), dtype=np.float32)
    arguments = {"rois": boxes, "points": cloud, "features": features, "out_size": [8, 8, 8]}
    yield "roiaware_pool3d", points, reusing(turnout, "roiaware_pool3d", **arguments)
    arguments = {"points": cloud[None], "features": features[None], "boxes": boxes[None], "samples": 256}
    yield "roipoint_pool3d", points, reusing(turnout, "roipoint_pool3d", **arguments)


FAMILIES = {
    family.__name__: family
    for family in (
        *(moe_dispatch, moe_re_routing, moe_experts, sparse_conv, mutual_information),
        *(dynamic_scatter, rnnt_loss, boxes, points, grouping, roi_pooling),
    )
}
