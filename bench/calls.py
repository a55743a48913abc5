"""Calls of each family at sizes that grow by a scale, with outputs that are reused: NumPy and turnout alone.

For comparisons of Turnout with itself: two builds (against.py), sizes and numbers of threads (scaling.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import lidar
import numpy as np

import turnout

Call = Callable[[], object]


def reusing(function: Callable, *arguments: object, **keywords: object) -> Call:
    """A call that writes its results into those of a first call."""
    out = function(*arguments, **keywords)
    return lambda: function(*arguments, **keywords, out=out)


def moe_dispatch(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    tokens, hidden, experts, choices = int(16384 * scale), 1024, 64, 2
    x = random.standard_normal((tokens, hidden), dtype=np.float32)
    indices = random.random((tokens, experts)).argpartition(choices, axis=1)[:, :choices].astype(np.int32)
    gates = random.random((tokens, choices), dtype=np.float32)
    slots, counts = turnout.moe_locations(indices, experts)
    capacity = int(counts.max())
    buffers = turnout.moe_dispatch(x, indices, slots, capacity, experts)
    yield "moe_locations", tokens, reusing(turnout.moe_locations, indices, experts)
    yield "moe_dispatch", tokens, reusing(turnout.moe_dispatch, x, indices, slots, capacity, experts)
    yield "moe_combine", tokens, reusing(turnout.moe_combine, buffers, indices, slots, capacity, gates)
    yield "moe_token_permute", tokens, reusing(turnout.moe_token_permute, x, indices)


def moe_re_routing(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    tokens, ranks, experts = int(16384 * scale), 8, 16
    counts = random.multinomial(tokens, [1 / (ranks * experts)] * (ranks * experts)).astype(np.int32)
    x = random.integers(-128, 128, (tokens, 4096), dtype=np.int8)
    call = reusing(turnout.moe_re_routing, x, counts.reshape(ranks, experts))
    yield "moe_re_routing", tokens, call


def sparse_conv(scale: float) -> Iterator[tuple[str, int, Call]]:
    rows = int(60_000 * scale)
    sites = np.insert(lidar.frame(0, rows), 0, 0, axis=1).astype(np.int32)  # batch, z, y, x
    random = np.random.default_rng(0)
    subm = {"batch_size": 1, "spatial_shape": lidar.SPACE, "subm": True}
    _, pairs, num = turnout.get_indice_pairs(sites, **subm)
    x = random.standard_normal((rows, 32), dtype=np.float32)
    filters = random.standard_normal((27, 32, 32), dtype=np.float32) / 30
    convolution = turnout.indice_convolution_forward
    yield "get_indice_pairs, submanifold", rows, reusing(turnout.get_indice_pairs, sites, **subm)
    yield "indice_convolution_forward, 32 channels", rows, reusing(convolution, x, filters, pairs, num, rows)


def moe_experts(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    tokens, hidden, inner, experts, choices = max(1, int(64 * scale)), 512, 256, 16, 2
    x = random.standard_normal((tokens, hidden), dtype=np.float32)
    ids = random.random((tokens, experts)).argpartition(choices, axis=1)[:, :choices]
    weights = random.random((tokens, choices), dtype=np.float32)
    w13 = random.standard_normal((experts, 2 * inner, hidden), dtype=np.float32) / 30
    w2 = random.standard_normal((experts, hidden, inner), dtype=np.float32) / 30
    yield "moe_experts", tokens, reusing(turnout.moe_experts, x, ids, weights, w13, w2)
    quantized = [part for w in (w13, w2) for part in turnout.quantize_experts(w, bits=8)]
    yield (
        "moe_experts_quantized, 8 bits",
        tokens,
        reusing(turnout.moe_experts_quantized, x, ids, weights, *quantized),
    )


def mutual_information(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    batch, symbols, frames = max(1, int(32 * scale)), 50, 500
    px = random.uniform(-3, 0, (batch, symbols, frames + 1)).astype(np.float32)
    py = random.uniform(-3, 0, (batch, symbols + 1, frames)).astype(np.float32)
    cells = batch * symbols * frames
    yield "mutual_information_forward", cells, reusing(turnout.mutual_information_forward, px, py)
    both = turnout.mutual_information_forward_backward
    yield "mutual_information_forward_backward", cells, reusing(both, px, py)


def dynamic_scatter(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    points = int(200_000 * scale)
    cloud = random.uniform([0, 0, 0, 0], [80, 80, 4, 1], (points, 4)).astype(np.float32)
    arguments = [0.4, 0.4, 4.0], [0, 0, 0, 80, 80, 4]
    coors = turnout.voxelize(cloud, *arguments)
    feats = random.standard_normal((points, 64), dtype=np.float32)
    index = turnout.VoxelIndex(coors)
    yield "voxelize", points, reusing(turnout.voxelize, cloud, *arguments)
    yield "VoxelIndex", points, lambda: turnout.VoxelIndex(coors)
    yield "VoxelIndex.reduce, max", points, reusing(index.reduce, feats, "max")


def rnnt_loss(scale: float) -> Iterator[tuple[str, int, Call]]:
    random = np.random.default_rng(0)
    batch, frames, symbols, classes = max(1, int(8 * scale)), 100, 20, 500
    logits = random.standard_normal((batch, frames, symbols + 1, classes), dtype=np.float32)
    text = random.integers(1, classes, (batch, symbols))
    cells = batch * frames * (symbols + 1)
    joint = turnout.rnnt_logprobs_joint_forward
    yield "rnnt_logprobs_joint_forward", cells, reusing(joint, logits, text, 0)
    lm = random.standard_normal((batch, symbols + 1, classes), dtype=np.float32)
    am = random.standard_normal((batch, frames, classes), dtype=np.float32)
    simple = turnout.rnnt_logprobs_simple_forward
    yield "rnnt_logprobs_simple_forward", cells, reusing(simple, lm, am, text, 0)


FAMILIES = {
    family.__name__: family
    for family in (
        *(moe_dispatch, moe_re_routing, moe_experts, sparse_conv, mutual_information),
        *(dynamic_scatter, rnnt_loss),
    )
}
