"""Runs sparse 3-D networks on a CPU, layer by layer: python examples/sparse_encoder.py [--small] ...

Runs CenterPoint's middle encoder and a UNet with inverse convolutions on simulated LiDAR scans: a forward
pass with the time of each layer, and training steps. The example uses

    nn.SparseTensor         features at the sites of a grid
    nn.SubMConv             outputs at the input sites
    nn.SparseConv           with stride 2, outputs at the next level of a network
    nn.SparseInverseConv    outputs at the sites of the level above

Prints tables of layers, and draws the active sites of each stage, seen from above, in
build/sparse_encoder.png. Needs torch, rich and matplotlib.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from networks import UNet, encoder
from rich.console import Console
from rich.table import Table
from street import FEATURES, RANGE, Batch, batch_of, is_on_car

from turnout.torch import nn

console = Console(width=120)


class Layer:
    """A convolution of a network: its name, the size of its work, and the time of each call."""

    def __init__(self, name: str, module: nn.SparseConvolution, clock: Callable[[], float]) -> None:
        self.name, self.module, self.clock = name, module, clock
        self.rows_in = self.rows_out = self.pairs = 0
        self.times: list[float] = []

    def before(self, _module: torch.nn.Module, _arguments: tuple) -> None:
        self.times.append(-self.clock())

    def after(self, module: nn.SparseConvolution, arguments: tuple, out: nn.SparseTensor) -> None:
        self.times[-1] += self.clock()
        (x,) = arguments
        self.rows_in, self.rows_out = len(x.features), len(out.features)
        self.pairs = int(module.find_pairs(x).indice_num.sum())

    @property
    def operations(self) -> int:
        """The number of multiplications and additions in a call."""
        return 2 * self.pairs * self.module.in_channels * self.module.out_channels


@contextmanager
def timed(network: torch.nn.Module, clock: Callable[[], float] = time.perf_counter) -> Iterator[list[Layer]]:
    """While active, the convolutions of the network record their times."""
    layers, hooks = [], []
    for name, module in network.named_modules():
        if isinstance(module, nn.SparseConvolution):
            layers.append(Layer(name, module, clock))
            hooks += [
                module.register_forward_pre_hook(layers[-1].before),
                module.register_forward_hook(layers[-1].after),
            ]
    try:
        yield layers
    finally:
        for hook in hooks:
            hook.remove()


def without_pairs(x: nn.SparseTensor) -> nn.SparseTensor:
    """Returns the same tensor without the pairs that layers have built."""
    return nn.SparseTensor(x.features, x.indices, x.spatial_shape, x.batch_size)


def kind_of(module: nn.SparseConvolution) -> str:
    kind = "submanifold" if module.subm else "inverse" if module.inverse else "sparse"
    stride = "" if set(module.stride) == {1} else " / " + "x".join(map(str, module.stride))
    return f"{kind} {'x'.join(map(str, module.kernel_size))}{stride}"


def show_layers(title: str, network: torch.nn.Module, voxels: nn.SparseTensor) -> list[Layer]:
    """Prints the time of each layer in a forward pass that builds pairs, and in one that reuses them."""
    network.eval()
    warm_up, x = without_pairs(voxels), without_pairs(voxels)
    totals = []
    with torch.inference_mode(), timed(network) as layers:
        network(warm_up)
        for _ in range(2):
            start = time.perf_counter()
            network(x)
            totals.append(1e3 * (time.perf_counter() - start))
    table = Table(title=f"{title}, forward pass, and again with the pairs of the first", title_justify="left")
    for column in ("layer", "kind", "channels", "sites", "pairs", "ms", "ms again", "GFLOP/s"):
        table.add_column(column, justify="left" if column in ("layer", "kind") else "right")
    for layer in layers:
        module, (_, first, again) = layer.module, layer.times
        sites = f"{layer.rows_out}" if module.subm else f"{layer.rows_in} to {layer.rows_out}"
        table.add_row(
            *(layer.name, kind_of(module), f"{module.in_channels} to {module.out_channels}", sites),
            *(
                f"{layer.pairs}",
                f"{1e3 * first:.1f}",
                f"{1e3 * again:.1f}",
                f"{layer.operations / again / 1e9:.0f}",
            ),
        )
    spent = [1e3 * sum(layer.times[i] for layer in layers) for i in (1, 2)]
    others = [total - inside for total, inside in zip(totals, spent, strict=True)]
    table.add_row("normalization, ReLU, sums", *[""] * 4, *(f"{ms:.1f}" for ms in others))
    table.add_section()
    table.add_row("all", *[""] * 4, *(f"{ms:.1f}" for ms in totals))
    console.print(table)
    return layers


def train(
    title: str,
    network: torch.nn.Module,
    voxels: nn.SparseTensor,
    loss_of: Callable[[torch.Tensor | nn.SparseTensor], torch.Tensor],
    steps: int,
) -> list[float]:
    """Prints the times within a training step. Returns the losses."""
    network.train()
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    losses, times = [], []
    for _ in range(steps):
        x = without_pairs(voxels)
        clock = [time.perf_counter()]
        loss = loss_of(network(x))
        clock.append(time.perf_counter())
        optimizer.zero_grad()
        loss.backward()
        clock.append(time.perf_counter())
        optimizer.step()
        clock.append(time.perf_counter())
        losses.append(loss.item())
        times.append(np.diff(clock))
    forward, backward, update = 1e3 * np.median(times, axis=0)
    console.print(
        f"{title}, a training step: forward with pairs {forward:.0f} ms, backward {backward:.0f} ms, "
        f"update {update:.0f} ms; losses {', '.join(f'{loss:.3f}' for loss in losses)}\n"
    )
    return losses


def stages_of(network: torch.nn.Sequential, voxels: nn.SparseTensor) -> dict[str, nn.SparseTensor]:
    stages = {"voxels": voxels}
    with torch.inference_mode():
        for name, part in network.named_children():
            voxels = stages[name] = part(voxels)
    del stages["stem"], stages["stage1"]  # they have the sites of the voxels
    return stages


def from_above(x: nn.SparseTensor) -> torch.Tensor:
    """Returns [y, x]: the number of active sites of the first scan in each column of the grid."""
    sites = x.indices[x.indices[:, 0] == 0].long()
    return torch.zeros(list(x.spatial_shape[1:]), dtype=torch.int64).index_put_(
        (sites[:, 2], sites[:, 3]), torch.tensor(1), accumulate=True
    )


def draw(path: Path, batch: Batch, stages: dict[str, nn.SparseTensor]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 3, figsize=(15, 10), layout="constrained")
    points, cars = batch.scans[0].points, is_on_car(batch.scans[0])
    panels[0, 0].scatter(
        points[:, 0], points[:, 1], c=np.where(cars, 1.0, 0.4), s=0.2, cmap="inferno", vmin=0
    )
    panels[0, 0].set(title=f"{len(points)} points; cars are bright", facecolor="black")
    for panel, (name, x) in zip(panels.flat[1:], stages.items(), strict=True):
        columns = from_above(x)
        extent = (RANGE[0], RANGE[3], RANGE[1], RANGE[4])
        columns = np.ma.masked_equal(columns.numpy(), 0)
        panel.imshow(columns, origin="lower", extent=extent, interpolation="nearest", cmap="viridis", vmin=-1)
        size = " x ".join(map(str, x.spatial_shape))
        panel.set(title=f"{name}: {columns.sum()} of {size} sites", facecolor="black")
    for panel in panels.flat:
        panel.set(xlim=(-50, 50), ylim=(-25, 25), aspect=2, xlabel="x, metres", ylabel="y, metres")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> dict[str, list[float]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scans", type=int, default=4, help="scans in the batch")
    parser.add_argument("--voxels", type=int, default=60_000, help="voxels per scan")
    parser.add_argument("--steps", type=int, default=3, help="training steps per network")
    parser.add_argument("--seed", type=int, default=0, help="seed of the scans and of the weights")
    parser.add_argument("--small", action="store_true", help="use two scans of 1500 voxels and few channels")
    parser.add_argument(
        "--out", type=Path, default=Path("build/sparse_encoder.png"), help="file for the picture"
    )
    options = parser.parse_args(arguments)
    channels = (16, 32, 64, 128)
    if options.small:
        options.scans, options.voxels, channels = 2, 1500, (8, 16, 16, 32)
    torch.manual_seed(options.seed)

    batch = batch_of(options.scans, options.voxels, np.random.default_rng(options.seed))
    voxels = batch.voxels
    console.print(
        f"{options.scans} scans, {len(voxels.features)} voxels in a grid of "
        f"{' x '.join(map(str, voxels.spatial_shape))}, on {torch.get_num_threads()} threads\n"
    )
    network, unet = encoder(inputs=FEATURES, channels=channels), UNet(inputs=FEATURES, channels=channels)
    show_layers("CenterPoint's encoder", network, voxels)
    losses = {
        "encoder": train(
            "CenterPoint's encoder",
            network,
            voxels,
            lambda x: (x.features - 1).square().mean(),
            options.steps,
        )
    }
    show_layers("the UNet", unet, voxels)
    losses["unet"] = train(
        "the UNet, which finds voxels of cars",
        unet,
        voxels,
        lambda logits: torch.nn.functional.cross_entropy(logits, batch.is_car.long()),
        options.steps,
    )
    draw(options.out, batch, stages_of(network, voxels))
    console.print(f"wrote {options.out}")
    return losses


if __name__ == "__main__":
    main()
