"""Trains a pillar encoder for LiDAR points on a CPU: python examples/point_pillars.py [--points N] ...

The encoder is that of PointPillars or, with voxels instead of pillars, the dynamic voxel feature encoder of
MVX-Net: a linear layer for each point and the maximum over the points of each pillar, twice. No point is
dropped and no pillar is padded. The example uses

    voxelize            computes the pillar of each point
    VoxelIndex          groups the points by pillar, once for the three reductions of a scan
    VoxelIndex.reduce   reduces the points of a pillar to one row; autograd computes its gradient

A head classifies pillars as car or not, which gives a loss to train with. The scan is simulated
(turnout.simulate): the part of a street ahead of the sensor. Prints the losses, the times and the accuracy,
and draws build/point_pillars.png. Needs torch and matplotlib.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from street import is_on_car
from torch import nn

import turnout.torch
from turnout.simulate import lidar_scan

PILLAR = [0.16, 0.16, 4.0]  # metres, x, y, z: a pillar is a voxel that spans the whole height
RANGE = [0.0, -39.68, -3.0, 69.12, 39.68, 1.0]  # lower limits of x, y, z, then upper limits


def ahead(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns `count` points of a scan within RANGE, in scan order, and which of them are on a car or van."""
    scan = lidar_scan(seed)
    within = np.all((scan.points[:, :3] >= RANGE[:3]) & (scan.points[:, :3] < RANGE[3:]), axis=1)
    rows = np.flatnonzero(within)
    if len(rows) < count:
        raise SystemExit(f"--points is {count}, expected at most {len(rows)}, the points ahead in the scan")
    rows = np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))
    return torch.from_numpy(scan.points[rows]), torch.from_numpy(is_on_car(scan)[rows])


def layer(inputs: int, outputs: int) -> nn.Sequential:
    # With few steps, the running means need a larger momentum than the default of 0.1.
    norm = nn.BatchNorm1d(outputs, momentum=0.3)
    return nn.Sequential(nn.Linear(inputs, outputs, bias=False), norm, nn.ReLU())


class PillarEncoder(nn.Module):
    """Computes one row of features for each pillar from the points and their pillars."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.first, self.second = layer(9, half), layer(2 * half, channels)

    def forward(self, points: torch.Tensor, coors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pillars = turnout.torch.VoxelIndex(coors)
        row_of = pillars.point2voxel_map.long()
        means = pillars.reduce(points[:, :3], "mean")
        corner, size = points.new_tensor(RANGE[:2]), points.new_tensor(PILLAR[:2])
        centres = (coors[:, [2, 1]] + 0.5) * size + corner  # coors are z, y, x
        feats = torch.cat(
            (points, points[:, :3] - means.index_select(0, row_of), points[:, :2] - centres), dim=1
        )
        feats = self.first(feats)
        pooled = pillars.reduce(feats, "max")
        feats = self.second(torch.cat((feats, pooled.index_select(0, row_of)), dim=1))
        return pillars.reduce(feats, "max"), pillars.voxel_coors


def canvas_of(rows: torch.Tensor, pillars: torch.Tensor) -> torch.Tensor:
    """Returns [y, x, channels]: the pillars at their positions seen from above, zeros elsewhere."""
    width, height = (round((RANGE[3 + d] - RANGE[d]) / PILLAR[d]) for d in (0, 1))
    canvas = rows.new_zeros(height, width, rows.shape[1])
    canvas[pillars[:, 1].long(), pillars[:, 2].long()] = rows
    return canvas


def colors_of(rows: torch.Tensor) -> torch.Tensor:
    """Maps the first three principal components of the rows to colors between 0.15 and 1."""
    centred = rows - rows.mean(dim=0)
    _, directions = torch.linalg.eigh(centred.T @ centred)
    colors = centred @ directions[:, -3:]
    low, high = colors.quantile(0.02, dim=0), colors.quantile(0.98, dim=0)
    return 0.15 + 0.85 * ((colors - low) / (high - low + 1e-9)).clamp(0, 1)


def draw(
    path: Path, points: torch.Tensor, colors: torch.Tensor, cars: torch.Tensor, losses: list[float]
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    def show(panel: plt.Axes, canvas: torch.Tensor, **options: object) -> None:
        # Each pillar is drawn three cells wide to be visible.
        wide = nn.functional.max_pool2d(canvas.permute(2, 0, 1), 3, stride=1, padding=1).permute(1, 2, 0)
        extent = (RANGE[0], RANGE[3], RANGE[1], RANGE[4])
        panel.imshow(wide.numpy(), origin="lower", extent=extent, interpolation="nearest", **options)

    figure, ((above, canvas), (said, course)) = plt.subplots(2, 2, figsize=(14, 9.5), layout="constrained")
    above.scatter(points[:, 0], points[:, 1], c=points[:, 2], s=1, cmap="viridis")
    above.set(title=f"{len(points)} points, colored by height", facecolor="black", aspect="equal")
    show(canvas, colors)
    canvas.set(title="canvas: the first three principal components")
    show(said, cars, cmap="inferno", vmin=0, vmax=1)
    said.set(title="predicted probability of a car")
    for panel in (above, canvas, said):
        panel.set(xlim=(0, 52), ylim=(-18, 18), xlabel="x, metres ahead", ylabel="y, metres to the left")
    course.plot(losses, marker=".")
    course.set(title="loss", xlabel="step", yscale="log")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def train(
    encoder: nn.Module, head: nn.Module, cloud: tuple[torch.Tensor, ...], is_car: torch.Tensor, steps: int
) -> list[float]:
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=5e-3)
    losses = []
    for step in range(steps):
        rows, _ = encoder(*cloud)
        loss = nn.functional.binary_cross_entropy_with_logits(head(rows), is_car)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 5 == 0 or step == steps - 1:
            print(f"  step {step:3}: loss {losses[-1]:.4f}")
    return losses


def milliseconds(function: Callable[[], object]) -> float:
    times = []
    for _ in range(9):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def show_times(coors: torch.Tensor, channels: int) -> None:
    """Prints the time per step that the last layer spends in Turnout."""
    feats = torch.randn(len(coors), channels, requires_grad=True)
    pillars = turnout.torch.VoxelIndex(coors)
    most = pillars.reduce(feats, "max")
    grad = torch.randn_like(most)
    index = milliseconds(lambda: turnout.torch.VoxelIndex(coors))
    forward = milliseconds(lambda: pillars.reduce(feats, "max"))
    backward = milliseconds(lambda: torch.autograd.grad(most, feats, grad, retain_graph=True))
    print(
        f"of which VoxelIndex of {len(coors)} points {index:.2f} ms, the maximum of {channels} channels in "
        f"{pillars.voxels} rows {forward:.2f} ms, its gradient {backward:.2f} ms, "
        f"on {torch.get_num_threads()} threads"
    )


def main(arguments: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=17176, help="number of points")
    parser.add_argument("--channels", type=int, default=128, help="channels per pillar")
    parser.add_argument("--steps", type=int, default=30, help="training steps")
    parser.add_argument("--seed", type=int, default=0, help="seed of the scan and of the weights")
    parser.add_argument(
        "--out", type=Path, default=Path("build/point_pillars.png"), help="file for the picture"
    )
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)

    points, on_car = ahead(options.points, options.seed)
    # Without max_points and max_voxels, voxelize only computes the pillar of each point.
    coors = turnout.torch.voxelize(points, PILLAR, RANGE)
    # A pillar is on a car if any of its points is, so take the maximum.
    is_car, pillars = turnout.torch.dynamic_scatter(on_car[:, None].float(), coors, "max")
    print(f"{len(points)} points in {len(pillars)} pillars, {int(is_car.sum())} of them on cars")

    encoder, head = PillarEncoder(options.channels), nn.Linear(options.channels, 1)
    start = time.perf_counter()
    losses = train(encoder, head, (points, coors), is_car, options.steps)
    each = (time.perf_counter() - start) / max(1, options.steps)
    print(f"{options.steps} steps, {each * 1e3:.1f} ms each")
    show_times(coors, options.channels)

    encoder.eval()
    with torch.inference_mode():
        rows, pillars = encoder(points, coors)
        predicted = torch.sigmoid(head(rows))
        right = ((predicted > 0.5) == (is_car > 0.5)).float().mean()
        canvas = canvas_of(rows, pillars)
        print(f"canvas {list(canvas.shape)}; {right:.1%} of the pillars are classified correctly")
        draw(options.out, points, canvas_of(colors_of(rows), pillars), canvas_of(predicted, pillars), losses)
    print(f"wrote {options.out}")
    return losses


if __name__ == "__main__":
    main()
