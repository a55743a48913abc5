"""The published comparisons of sparse convolutions and of their index pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import lidar
import torch
from harness import Entry
from recorded import Case, Programs
from sparse_conv import convolution_entries, encoders, spconv_peer, turnout_entries
from sparse_conv.convolution_entries import Layer
from sparse_conv.convolutions import TOLERANCE, TWO_FRAMES
from sparse_conv.shapes import SPARSE, SUBM, Scale, Sites, flat

import turnout.torch

SPCONV = "spconv 2.3.8"
TORCH = "PyTorch `index_select`, `mm`, `index_add_` along the same pairs"
SMALL = Scale(16, 1, (16, 64, 64), subm=True)
DEEP = Scale(20_000, 1, lidar.SPACE, subm=True)
LAYER = "indice_convolution_forward", "indice_convolution, both gradients"
ENCODER = "CenterPoint's encoder"
SCAN = f"{encoders.FRAME.rows} voxels, with their pairs"


def cases() -> list[Case]:
    found = []
    if spconv_peer.load():
        for name, scale, call in (
            ("submanifold", SUBM, "get_indice_pairs, submanifold 3x3x3"),
            ("strided", SPARSE, "get_indice_pairs, stride 2"),
            ("tiny", SMALL, "torch.ops.turnout.get_indice_pairs, submanifold"),
        ):
            case = f"get_indice_pairs-{name}", call, f"{scale.rows} voxels", "int32", SPCONV, "new"
            found.append(Case(*case, partial(pairs, scale), serial_peer=True))
        for channels in (16, 64):
            for part, call in enumerate(LAYER):
                case = f"convolution-{channels}-{('forward', 'gradients')[part]}", call, size_of(channels)
                make = partial(beside_spconv, channels, part)
                found.append(Case(*case, "f32", SPCONV, "new", make, threads=1))
        case = "encoder-forward", ENCODER, SCAN, "f32", f"{SPCONV}, pairs shared by name", "new"
        found.append(Case(*case, encoder_forward, threads=1))
    for dtype, channels, scale in (("f32", 64, TWO_FRAMES), ("bf16", 256, DEEP)):
        case = f"convolution-{channels}-{dtype}", LAYER[0], size_of(channels, scale), dtype, TORCH, "new"
        found.append(Case(*case, partial(beside_torch, dtype, channels, scale)))
    case = "encoder-step", f"{ENCODER}, training step", SCAN, "f32", TORCH, "new"
    found.append(Case(*case, encoder_step))
    for name, peer in (("avg", "mean"), ("max", "amax")):
        case = f"global_{name}_pool", f"global_{name}_pool", "100000 voxels x 64, batch 1", "f32"
        found.append(Case(*case, f"PyTorch `{peer}`", "new", partial(pool, name, peer)))
    return found


def size_of(channels: int, scale: Scale = TWO_FRAMES) -> str:
    return f"{scale.rows} voxels, {channels} to {channels} channels"


def pairs(scale: Scale) -> Programs:
    sites = Sites(scale, *(("uniform", "shuffled") if scale is SMALL else ("lidar", "scan")))
    ours = turnout_entries.torch_op(sites) if scale is SMALL else turnout_entries.fresh(sites)
    options = {"calls": 100} if scale is SMALL else {}
    return Programs(ours, spconv_peer.fresh(sites), flat(sites.definition()), options=options)


def layer_of(scale: Scale, channels: int, dtype: torch.dtype = torch.float32) -> Layer:
    return Layer(Sites(scale, "lidar", "sorted"), channels, dtype)


def beside_spconv(channels: int, part: int) -> Programs:
    layer = layer_of(TWO_FRAMES, channels)
    ours = (convolution_entries.forward, convolution_entries.gradients)[part](layer)[0]
    out, *gradients = layer.definition()
    expected = ((out,), tuple(gradients))[part]
    return Programs(ours, convolution_entries.with_spconv(layer)[part], expected, TOLERANCE)


def beside_torch(dtype: str, channels: int, scale: Scale) -> Programs:
    layer = layer_of(scale, channels, {"f32": torch.float32, "bf16": torch.bfloat16}[dtype])
    expected = layer.definition()[:1]
    return Programs(*convolution_entries.forward(layer), expected, TOLERANCE if dtype == "f32" else 2e-2)


def encoder_forward() -> Programs:
    scene = encoders.Scene()
    ours = encoders.forward_entry("turnout", scene.network(encoders.TURNOUT).eval(), scene.tensor)
    peer = encoders.spconv_forward("spconv", scene, share=True)
    return Programs(ours, peer, scene.exact(), encoders.TOLERANCE)


def encoder_step() -> Programs:
    scene = encoders.Scene()
    networks = scene.network(encoders.TURNOUT), scene.network(encoders.TORCH)
    entries = (encoders.step_entry("step", network, scene.tensor) for network in networks)
    return Programs(*entries, scene.exact_step(), encoders.STEP_TOLERANCE)


def pool(name: str, peer: str) -> Programs:
    features = torch.randn(100_000, 64, generator=torch.Generator().manual_seed(1))
    indices = torch.zeros(len(features), 4, dtype=torch.int32)
    operator = getattr(turnout.torch, f"global_{name}_pool")

    def entry(name: str, call: Callable[[], torch.Tensor]) -> Entry:
        kept: list[torch.Tensor] = []

        def run() -> None:
            kept[:] = [call()]

        return Entry(name, run, lambda: kept[0].numpy())

    return Programs(
        entry("turnout", lambda: operator(features, indices, 1)),
        entry("torch", lambda: getattr(features, peer)(0, keepdim=True)),
        tolerance=1e-3,  # a mean of numbers with both signs
    )
