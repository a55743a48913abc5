"""Trains a car detector on a CPU: python examples/sparse_detector.py [--small] [--steps N] ...

The encoder is CenterPoint's (networks.py). Its output, seen from above, goes through a small dense head that
predicts for each cell whether it is the centre of a car, and the box of that car. The scans are simulated
(turnout.simulate), so the boxes are known. There is one batch, which the detector memorizes.

    torchrun --nproc-per-node 2 examples/sparse_detector.py

trains the same detector in two processes, each with its own scans: DistributedDataParallel averages the
gradients. Prints the losses and how many cars are found, and draws build/sparse_detector.png.
Needs torch and matplotlib.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from networks import encoder
from street import FEATURES, RANGE, SPACE, VOXEL, Batch, batch_of, cars_of
from torch import distributed
from torch.nn import functional

from turnout.simulate import Scan
from turnout.torch import nn

STRIDE = 8  # of the encoder's output
CELL = STRIDE * VOXEL[0]  # metres
CELLS = SPACE[1] // STRIDE
# A box: the position of its centre within the cell, the height of the centre, the logarithms of its sizes,
# and the cosine and sine of its heading.
BOX = 8


class Detector(torch.nn.Module):
    """Returns the logits of car centres ``[scans, y, x]`` and the boxes there ``[scans, y, x, BOX]``."""

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__()
        self.encoder = encoder(inputs=FEATURES, channels=channels)
        width = 2 * channels[-1]  # the output is two cells high
        layers = []
        for inputs in (width, 64):
            layers += [torch.nn.Conv2d(inputs, 64, 3, padding=1, bias=False), torch.nn.BatchNorm2d(64)]
            layers += [torch.nn.ReLU()]
        self.shared = torch.nn.Sequential(*layers)
        self.heads = torch.nn.Conv2d(64, 1 + BOX, 1)
        torch.nn.init.constant_(self.heads.bias[:1], -3.0)  # few cells are the centre of a car

    def forward(self, voxels: nn.SparseTensor) -> tuple[torch.Tensor, torch.Tensor]:
        seen = self.encoder(voxels).dense().flatten(1, 2)  # [scans, channels * height, y, x]
        out = self.heads(self.shared(seen)).movedim(1, -1)
        return out[..., 0], out[..., 1:]


def cells_of(cars: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cells (y, x) of the centres of all cars within the range, and their boxes."""
    places = (cars[:, :2] - RANGE[0]) / CELL
    cells = np.floor(places).astype(np.int64)
    inside = np.all((cells >= 0) & (cells < CELLS), axis=1)
    cars, places, cells = cars[inside], places[inside], cells[inside]
    heading = cars[:, 6]
    boxes = np.column_stack(
        (places - cells, cars[:, 2], np.log(cars[:, 3:6]), np.cos(heading), np.sin(heading))
    )
    return cells[:, ::-1], boxes.astype(np.float32)


class Targets:
    """The expected output of the detector for a batch."""

    def __init__(self, scans: list[Scan]) -> None:
        self.heat = torch.zeros(len(scans), CELLS, CELLS)
        cells, boxes = [], []
        y, x = np.mgrid[:CELLS, :CELLS]
        for number, one in enumerate(scans):
            sites, numbers = cells_of(cars_of(one))
            for row, column in sites:  # a bump of two cells around each centre
                bump = np.exp(-((y - row) ** 2 + (x - column) ** 2) / 2)
                self.heat[number] = torch.maximum(self.heat[number], torch.from_numpy(bump))
            cells.append(np.insert(sites, 0, number, axis=1))
            boxes.append(numbers)
        self.cells = torch.from_numpy(np.concatenate(cells)).unbind(1)
        self.boxes = torch.from_numpy(np.concatenate(boxes))

    def loss(self, logits: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        """Returns the focal loss of the centres, per car, plus three times the mean error of the boxes."""
        sure = torch.sigmoid(logits)
        of_middle = functional.logsigmoid(logits) * (1 - sure) ** 2
        of_others = functional.logsigmoid(-logits) * sure**2 * (1 - self.heat) ** 4
        focal = -torch.where(self.heat == 1, of_middle, of_others).sum() / len(self.boxes)
        return focal + 3 * (boxes[self.cells] - self.boxes).abs().mean()


def train(detector: torch.nn.Module, batch: Batch, steps: int, verbose: bool) -> list[float]:
    targets = Targets(batch.scans)
    optimizer = torch.optim.AdamW(detector.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=steps)
    losses = []
    for step in range(steps):
        start = time.perf_counter()
        loss = targets.loss(*detector(batch.voxels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if verbose and (step % 5 == 0 or step == steps - 1):
            print(f"  step {step:3}: loss {losses[-1]:.3f}, {1e3 * (time.perf_counter() - start):.0f} ms")
    return losses


def found(logits: torch.Tensor, boxes: torch.Tensor, least: float = 0.3) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the boxes of one scan, at the local maxima of the probability, and their probabilities."""
    sure = torch.sigmoid(logits)
    highest = functional.max_pool2d(sure[None], 3, stride=1, padding=1)[0]
    rows, columns = torch.where((sure == highest) & (sure > least))
    numbers = boxes[rows, columns]
    middles = (torch.stack((columns, rows), dim=1) + numbers[:, :2]) * CELL + RANGE[0]
    heading = torch.atan2(numbers[:, 7], numbers[:, 6])[:, None]
    return torch.cat((middles, numbers[:, 2:3], numbers[:, 3:6].exp(), heading), dim=1), sure[rows, columns]


def count_found(boxes: torch.Tensor, scan: Scan) -> tuple[int, int]:
    """Returns how many cars have a box within a metre of their centre, and how many cars there are."""
    cars = torch.from_numpy(cars_of(scan)[:, :2])
    cars = cars[(cars.abs() < RANGE[3]).all(dim=1)]
    if len(boxes) == 0:
        return 0, len(cars)
    return int((torch.cdist(cars, boxes[:, :2]).min(dim=1).values < 1).sum()), len(cars)


def draw(path: Path, scan: Scan, boxes: torch.Tensor, losses: list[float]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (above, course) = plt.subplots(2, 1, figsize=(14, 11), layout="constrained", height_ratios=(2, 1))
    above.scatter(scan.points[:, 0], scan.points[:, 1], c=scan.points[:, 2], s=0.3, cmap="viridis")
    for kind, color, width in ((cars_of(scan), "white", 3), (boxes.numpy(), "red", 1)):
        for x, y, _, length, wide, _, heading in kind:
            outline = plt.Rectangle((x - length / 2, y - wide / 2), length, wide, fill=False)
            outline.set(angle=np.degrees(heading), color=color, linewidth=width)
            outline.rotation_point = "center"
            above.add_patch(outline)
    above.set(title="cars (white) and predicted boxes (red)", facecolor="black", aspect="equal")
    above.set(xlim=(-52, 52), ylim=(-22, 22), xlabel="x, metres", ylabel="y, metres")
    course.plot(losses, marker=".")
    course.set(title="loss", xlabel="step", yscale="log")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scans", type=int, default=2, help="scans per process")
    parser.add_argument("--voxels", type=int, default=10_000, help="voxels per scan")
    parser.add_argument("--steps", type=int, default=50, help="training steps")
    parser.add_argument("--seed", type=int, default=0, help="seed of the scans and of the weights")
    parser.add_argument("--small", action="store_true", help="one scan of 1500 voxels, few channels, 8 steps")
    parser.add_argument(
        "--out", type=Path, default=Path("build/sparse_detector.png"), help="file for the picture"
    )
    options = parser.parse_args(arguments)
    channels = (16, 32, 64, 128)
    if options.small:
        options.scans, options.voxels, options.steps, channels = 1, 1500, 8, (4, 8, 8, 16)

    torch.manual_seed(options.seed)
    detector = Detector(channels)
    rank = int(os.environ.get("RANK", "0"))  # torchrun sets it
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
        detector = torch.nn.parallel.DistributedDataParallel(detector)
    batch = batch_of(options.scans, options.voxels, np.random.default_rng([options.seed, rank]))
    processes = distributed.get_world_size() if distributed.is_initialized() else 1
    if rank == 0:
        print(f"{processes} x {options.scans} scans, {len(batch.voxels.features)} voxels in this process")
    losses = train(detector, batch, options.steps, verbose=rank == 0)

    detector.eval()
    with torch.inference_mode():
        logits, boxes = detector(batch.voxels)
    results = [found(*one)[0] for one in zip(logits, boxes, strict=True)]
    right, cars = np.sum([count_found(*one) for one in zip(results, batch.scans, strict=True)], axis=0)
    if rank == 0:
        print(f"found {right} of {cars} cars, with {sum(map(len, results))} boxes")
        draw(options.out, batch.scans[0], results[0], losses)
        print(f"wrote {options.out}")
    if distributed.is_initialized():
        distributed.destroy_process_group()
    return losses


if __name__ == "__main__":
    main()
