"""CenterPoint's whole encoder beside spconv and torch: forward, a training step, and each layer."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import lidar
import numpy as np
import torch
from harness import SETTLE, Comparison, Entry, Results, Summary, compare, console, fma_peak
from rich.table import Table
from sparse_conv import spconv_peer
from sparse_conv.convolution_entries import lists_of
from sparse_conv.scenes import with_threads
from sparse_conv.shapes import PER_FRAME, Scale, Sites

import turnout
from turnout.torch import nn

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from networks import TURNOUT, Layers, encoder
from sparse_encoder import timed

FRAME = Scale(PER_FRAME, 1, lidar.SPACE, subm=True)
INPUTS = 5  # channels of a voxel
TOLERANCE = 1e-4  # 21 layers in f32, against f64
STEP_TOLERANCE = 1e-2  # the stem's gradient passes 21 normalized layers


class ByTorch(nn.SparseConvolution):
    """gather + mm + index_add in torch, over the pairs that Turnout finds."""

    def forward(self, x: nn.SparseTensor) -> nn.SparseTensor:
        pairs = self.find_pairs(x)
        if not hasattr(pairs, "lists"):  # once for all layers that share the pairs
            pairs.lists = lists_of(pairs.indice_pairs, pairs.indice_num)
        out = x.features.new_zeros(pairs.out_indices.shape[0], self.out_channels)
        for (inputs, outputs), matrix in zip(pairs.lists, self.filters().flatten(0, 2), strict=True):
            out.index_add_(0, outputs, x.features.index_select(0, inputs) @ matrix)
        features = out if self.bias is None else out + self.bias
        return x.at(features, *self.out_sites(x, pairs), x.indice_dict)


class SubMByTorch(ByTorch, nn.SubMConv):
    pass


class SparseByTorch(ByTorch, nn.SparseConv):
    pass


TORCH = Layers(
    nn.SparseSequential,
    lambda *a, **k: SubMByTorch(3, *a, **k),
    lambda *a, **k: SparseByTorch(3, *a, **k),
    inverse=None,
)


class Scene:
    """Sites, features and weights that all networks share."""

    def __init__(self) -> None:
        self.indices = torch.from_numpy(Sites(FRAME, "lidar", "sorted").indices)
        random = torch.Generator().manual_seed(1)
        self.features = torch.randn(len(self.indices), INPUTS, generator=random)
        torch.manual_seed(1)
        self.weights = encoder(inputs=INPUTS).state_dict()

    def network(self, layers: Layers) -> torch.nn.Module:
        made = encoder(layers, INPUTS)
        made.load_state_dict(self.weights)
        return made

    def tensor(self, dtype: torch.dtype = torch.float32) -> nn.SparseTensor:
        """Returns a new tensor, whose pairs are not built yet."""
        return nn.SparseTensor(self.features.to(dtype), self.indices, FRAME.space, FRAME.batch)

    def exact(self) -> np.ndarray:
        with torch.inference_mode():
            made = self.network(TORCH).double().eval()(self.tensor(torch.float64))
        return by_site(made.indices, made.features)

    def exact_step(self) -> tuple[np.ndarray, ...]:
        made = step_entry("f64", self.network(TORCH).double(), lambda: self.tensor(torch.float64))
        made.run()
        return made.result()


def run(seconds: float) -> list[Comparison]:
    threads_before = turnout.get_num_threads(), torch.get_num_threads()
    scene, summary = Scene(), Summary()
    spconv = spconv_peer.load()
    done = forward(scene, spconv, seconds, summary) + training_step(scene, spconv, seconds, summary)
    show_layers(scene, summary)
    turnout.set_num_threads(threads_before[0])
    torch.set_num_threads(threads_before[1])
    summary.show()
    return done


def by_site(indices: torch.Tensor, features: torch.Tensor) -> np.ndarray:
    """Sorts rows by site, because spconv and Turnout have different orders."""
    return features.numpy()[np.lexsort(indices.numpy().T[::-1])]


def forward_entry(name: str, network: torch.nn.Module, tensor: Callable) -> Entry:
    kept = []

    def run() -> None:
        with torch.inference_mode():
            kept[:] = [network(tensor())]

    return Entry(name, run, lambda: by_site(kept[0].indices, kept[0].features))


def spconv_forward(name: str, scene: Scene, share: bool) -> Entry:
    network, kind = spconv_peer.network(
        lambda layers: encoder(layers, INPUTS, share=share), Layers, scene.weights
    )
    space = list(FRAME.space)
    return forward_entry(name, network, lambda: kind(scene.features, scene.indices, space, FRAME.batch))


def forward(scene: Scene, spconv: bool, seconds: float, summary: Summary) -> list[Comparison]:
    """Every call builds the pairs, as a new scan requires."""
    ours = forward_entry("turnout", scene.network(TURNOUT).eval(), scene.tensor)
    others = [forward_entry("torch along turnout's pairs", scene.network(TORCH).eval(), scene.tensor)]
    if spconv:
        others += [
            spconv_forward("spconv", scene, share=False),
            spconv_forward("spconv, pairs shared by name", scene, share=True),
        ]
    # spconv's results are correct on one thread only.
    on_two = [with_result(2, ours), with_result(1, ours), with_result(2, others[0])]
    on_two += [with_result(1, other) for other in others[1:]]
    return side_by_side(
        "encoder, forward",
        [with_result(1, entry) for entry in (ours, *others)],
        on_two,
        scene.exact(),
        TOLERANCE,
        seconds,
        summary,
    )


def side_by_side(
    what: str,
    on_one: list[Entry],
    on_two: list[Entry],
    expected: Results,
    tolerance: float,
    seconds: float,
    summary: Summary,
) -> list[Comparison]:
    """Uses CPU time, which excludes other work, for one thread and wall-clock time for two."""
    done = []
    for threads, listed in (("one thread", on_one), ("two threads", on_two)):
        title = f"CenterPoint's {what}, {FRAME.rows} sites, {threads}"
        clock = time.process_time if listed is on_one else time.perf_counter
        comparison = compare(
            title,
            listed,
            expected=expected,
            tolerance=tolerance,
            seconds=seconds,
            settle=SETTLE,
            clock=clock,
            least=3,
        )
        first, *others = comparison.rows
        for row in others:
            summary.add(f"{what}, {threads}", f"{row.name} / {first.name}", row.median_us / first.median_us)
        done.append(comparison)
    return done


def with_result(threads: int, entry: Entry) -> Entry:
    made = with_threads(threads, entry)
    made.result = entry.result
    return made


def step_entry(
    name: str, network: torch.nn.Module, tensor: Callable, ours: Callable = lambda grad: grad
) -> Entry:
    """Builds pairs, runs forward and backward; the results are gradients of the first and last weights.

    ``ours`` converts a gradient to Turnout's layout.
    """
    network.train()
    weights = [network.stem[0].weight, network.final[0].weight]

    def run() -> None:
        network.zero_grad()
        network(tensor()).features.square().mean().backward()

    return Entry(name, run, lambda: tuple(ours(weight.grad).numpy() for weight in weights))


def spconv_step(scene: Scene) -> Entry:
    spconv_peer.works_without_driver()
    network, kind = spconv_peer.network(lambda layers: encoder(layers, INPUTS), Layers, scene.weights)
    tensor = partial(kind, scene.features, scene.indices, list(FRAME.space), FRAME.batch)
    return step_entry("spconv", network, tensor, lambda grad: grad.movedim(0, -1))


def training_step(scene: Scene, spconv: bool, seconds: float, summary: Summary) -> list[Comparison]:
    listed = [
        step_entry("turnout", scene.network(TURNOUT), scene.tensor),
        step_entry("torch along turnout's pairs", scene.network(TORCH), scene.tensor),
    ]
    on_one = [*listed, spconv_step(scene)] if spconv else listed  # spconv is correct on one thread only
    return side_by_side(
        "encoder, training step",
        [with_result(1, entry) for entry in on_one],
        [with_result(2, entry) for entry in listed],
        scene.exact_step(),
        STEP_TOLERANCE,
        seconds,
        summary,
    )


def show_layers(scene: Scene, summary: Summary) -> None:
    """Prints each convolution's speed on one thread, with existing pairs, as a fraction of the FMA peak."""
    torch.set_num_threads(1)
    network, x = scene.network(TURNOUT).eval(), scene.tensor()
    peaks = []
    with torch.inference_mode(), timed(network, time.process_time) as layers:
        for _ in range(4):
            network(x)
            peaks.append(fma_peak())
    table = Table(title="CenterPoint's encoder, one thread, pairs kept", title_justify="left")
    for column in ("layer", "channels", "sites", "pairs", "ms", "% of the FMA peak"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    for layer in layers:
        least = min(layer.times[1:])
        module, share = layer.module, 100 * layer.operations / least / max(peaks)
        channels = f"{module.in_channels} to {module.out_channels}"
        table.add_row(
            *(layer.name, channels, f"{layer.rows_out}", f"{layer.pairs}", f"{1e3 * least:.1f}"),
            f"{share:.0f}",
        )
        summary.add(f"encoder, {layer.name}, {channels}", "% of the FMA peak", share)
    console.print(table)
