"""A detector of cars, vans and pedestrians, trained on a CPU: python examples/detect.py [--small] ...

Simulated scans (turnout.simulate) become voxels. They go through sparse convolutions, first in space, then
in the plane seen from above. Each cell of the plane that has points predicts how sure it is to be part of an
object of each class, and the box of that object. Rotated NMS leaves one box for each object.

The program trains the network, writes its weights, and reports the average precision on unseen scenes. For
that it runs the network with NumPy alone (detect_numpy.py). This command made the weights in the repository:

    python examples/detect.py --weights examples/detect_weights.npz

It trains for about a minute on one core, after half a minute in which it simulates the scans. It needs torch,
and matplotlib for the picture.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import detect_numpy
import numpy as np
import torch
from detect_numpy import FEATURES, FLAT, HALF, OUTPUTS, SPACE, UNSEEN, Found
from torch.nn import functional

import turnout.torch
from turnout.simulate import CLASSES, Scan, lidar_scan
from turnout.torch import nn

SCORES = len(CLASSES)


def block(convolution: torch.nn.Module) -> nn.SparseSequential:
    return nn.SparseSequential(convolution, torch.nn.BatchNorm1d(convolution.out_channels), torch.nn.ReLU())


class Detector(torch.nn.Module):
    """Returns the cells (scan, 0, y, x) that have points, and ``[cells, OUTPUTS]``."""

    def __init__(self, channels: Sequence[int] = (16, 24, 32, 32)) -> None:
        super().__init__()
        a, b, c, d = channels
        # In space: voxels of 0.2 m, then of 0.4 m, then all of a column at once.
        self.stem = block(nn.SubMConv(3, FEATURES, a, 3, bias=False))
        self.down = block(nn.SparseConv(3, a, b, 3, stride=2, padding=1, bias=False))
        self.body = block(nn.SubMConv(3, b, b, 3, bias=False))
        self.flatten = block(nn.SparseConv(3, b, c, (HALF[0], 1, 1), bias=False))
        # In the plane: cells of 0.4 m, then of 0.8 m for a wide view, and back.
        self.near = block(nn.SubMConv(3, c, c, FLAT, bias=False))
        self.wide = block(nn.SparseConv(3, c, d, FLAT, (1, 2, 2), (0, 1, 1), bias=False, indice_key="wide"))
        self.far = block(nn.SubMConv(3, d, d, FLAT, bias=False))
        self.farther = block(nn.SubMConv(3, d, d, FLAT, dilation=2, bias=False))
        self.back = block(nn.SparseInverseConv(3, d, c, FLAT, indice_key="wide", bias=False))
        self.merge = block(nn.SubMConv(3, c, c, FLAT, bias=False))
        self.hidden = torch.nn.Linear(c, 64)
        self.head = torch.nn.Linear(64, OUTPUTS)
        torch.nn.init.constant_(self.head.bias[:SCORES], -4.0)  # few cells are in an object

    def forward(self, x: nn.SparseTensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.near(self.flatten(self.body(self.down(self.stem(x)))))
        wide = self.back(self.farther(self.far(self.wide(x))))
        x = self.merge(x.with_features(x.features + wide.features))
        return x.indices, self.head(torch.relu(self.hidden(x.features)))

    def weights(self) -> dict[str, np.ndarray]:
        """The filters and biases of all layers; each has its batch normalization folded into it."""
        weights = {}
        for name, layer in self.named_children():
            if isinstance(layer, torch.nn.Linear):
                filters, bias = layer.weight.T, layer.bias
            else:
                convolution, norm, _ = layer
                scale = norm.weight / (norm.running_var + norm.eps).sqrt()
                filters, bias = convolution.weight * scale, norm.bias - norm.running_mean * scale
            weights[name + ".filters"] = filters.detach().numpy().copy()
            weights[name + ".bias"] = bias.detach().numpy().copy()
        return weights


class Sample(NamedTuple):
    """One scan for training: the voxels, and the boxes with their classes."""

    voxels: nn.SparseTensor
    boxes: np.ndarray
    labels: np.ndarray


def sample_of(scan: Scan, random: np.random.Generator) -> Sample:
    """The scan, mirrored by chance, turned by some degrees and scaled by some percent."""
    points, boxes = scan.points.copy(), scan.boxes.copy()
    for axis, half_turn in ((0, np.pi), (1, 0)):
        if random.random() < 0.5:
            points[:, axis] *= -1
            boxes[:, axis] *= -1
            boxes[:, 6] = half_turn - boxes[:, 6]
    angle, scale = random.normal(0, 0.1), random.uniform(0.95, 1.05)
    cosine, sine = np.cos(angle), np.sin(angle)
    turn = np.array([[cosine, sine], [-sine, cosine]], np.float32)
    for rows in (points, boxes):
        rows[:, :2] = rows[:, :2] @ turn
    boxes[:, 6] += angle
    points[:, :3] *= scale
    boxes[:, :6] *= scale
    features, sites = detect_numpy.voxels_of(points)
    voxels = nn.SparseTensor(torch.from_numpy(features), torch.from_numpy(sites), SPACE, 1)
    return Sample(voxels, *detect_numpy.truth_of(scan._replace(boxes=boxes)))


def loss_of(cells: torch.Tensor, outputs: torch.Tensor, sample: Sample) -> torch.Tensor:
    """Errors of the boxes that cells within an object say, and of the scores: each is to be the box's IoU."""
    # The object of each cell, seen from above; even a pedestrian is as large as a cell.
    footprints = sample.boxes * np.array([1, 1, 0, 1, 1, 1, 1], np.float32)
    footprints[:, 3:5] = np.maximum(footprints[:, 3:5], 0.8)
    middles = detect_numpy.middles_of(cells.numpy())
    object_of = turnout.points_in_boxes(np.pad(middles, ((0, 0), (0, 1))), footprints)
    rows = np.flatnonzero(object_of >= 0)
    object_of = object_of[rows]
    truth, labels = sample.boxes[object_of], sample.labels[object_of]

    said = outputs[rows, SCORES:]
    wanted = torch.from_numpy(detect_numpy.numbers_of(cells[rows].numpy(), truth, labels))
    errors = functional.smooth_l1_loss(said, wanted, beta=0.05, reduction="none").sum(1)
    share = 1 / np.bincount(object_of)[object_of]  # objects with many cells count as much as others
    error = (errors * torch.from_numpy(share).float()).sum()

    boxes = detect_numpy.boxes_of(cells[rows].numpy(), said.detach().numpy(), labels)
    target = np.zeros((len(cells), SCORES), np.float32)
    target[rows, labels] = turnout.boxes_iou_bev(boxes, truth, aligned=True).clip(0, 1)
    logits, target = outputs[:, :SCORES], torch.from_numpy(target)
    surprise = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    surprise = surprise * (target - logits.sigmoid()).square()  # a focal loss: what is easy counts little
    return (error + surprise.sum()) / max(len(sample.boxes), 1)


def train(detector: Detector, scans: Sequence[Scan], steps: int, seed: int) -> list[float]:
    """Returns the losses of all steps; a step has one scan."""
    random = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(detector.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=steps, pct_start=0.2)
    losses = []
    for step in range(steps):
        sample = sample_of(scans[random.integers(len(scans))], random)
        loss = loss_of(*detector(sample.voxels), sample)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 50 == 49 or step == steps - 1:
            print(f"  step {step + 1:3}: loss {np.mean(losses[-50:]):.3f}")
    return losses


def report(found: Sequence[Found], scans: Sequence[Scan]) -> dict[str, float]:
    """Prints the average precision of each class; returns those at IoU 0.5 from above."""
    print("  class         boxes  AP at IoU 0.5   at 0.7   at 0.5 in 3-D")
    result = {}
    for label, name in enumerate(CLASSES):
        count = sum(int((detect_numpy.truth_of(scan)[1] == label).sum()) for scan in scans)
        result[name], strict, in_space = (
            detect_numpy.average_precision(found, scans, label, *how)
            for how in ((0.5,), (0.7,), (0.5, turnout.boxes_iou3d))
        )
        print(f"  {name:12} {count:6} {result[name]:14.2f} {strict:8.2f} {in_space:15.2f}")
    return result


def main(arguments: list[str] | None = None) -> tuple[list[float], dict[str, float]]:
    """Returns the losses and the average precisions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scans", type=int, default=48, help="scans for training")
    parser.add_argument("--steps", type=int, default=800, help="training steps")
    parser.add_argument("--unseen", type=int, default=10, help="scans for the average precision")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and of the order of scans")
    parser.add_argument("--small", action="store_true", help="2 coarse scans, 24 steps, 1 unseen scan")
    parser.add_argument(
        "--weights", type=Path, default=Path("build/detect_weights.npz"), help="where to write"
    )
    parser.add_argument("--out", type=Path, default=Path("build/detect.png"), help="picture, also as .svg")
    options = parser.parse_args(arguments)
    azimuths = 2048
    if options.small:
        options.scans, options.steps, options.unseen, azimuths = 2, 24, 1, 512

    start = time.perf_counter()
    scans = [lidar_scan(seed, azimuths=azimuths) for seed in range(options.scans)]
    print(f"{len(scans)} scans simulated in {time.perf_counter() - start:.0f} s")
    torch.set_num_threads(1)  # sums of torch round differently with more, which would give other weights
    torch.manual_seed(options.seed)
    detector = Detector()
    start = time.perf_counter()
    losses = train(detector, scans, options.steps, options.seed)
    print(f"trained in {time.perf_counter() - start:.0f} s")
    options.weights.parent.mkdir(parents=True, exist_ok=True)
    halves = {name: values.astype(np.float16) for name, values in detector.weights().items()}
    np.savez_compressed(options.weights, **halves)
    print(f"weights in {options.weights}, {options.weights.stat().st_size} bytes")

    weights = detect_numpy.load_weights(options.weights)
    unseen = [lidar_scan(UNSEEN + number, azimuths=azimuths) for number in range(options.unseen)]
    start = time.perf_counter()
    found = [detect_numpy.detect(scan.points, weights) for scan in unseen]
    print(f"{len(unseen)} unseen scans, {1e3 * (time.perf_counter() - start) / len(unseen):.0f} ms each:")
    precisions = report(found, unseen)
    for path in (options.out, options.out.with_suffix(".svg")):
        detect_numpy.draw(path, unseen[0], found[0])
    print(f"drawn in {options.out}")
    return losses, precisions


if __name__ == "__main__":
    main()
