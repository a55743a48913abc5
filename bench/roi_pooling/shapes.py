"""Boxes, points and features of the benchmarks: the sizes of Part-A2 and PointRCNN."""

from __future__ import annotations

import torch

ROIS, POINTS, CHANNELS, CELLS = 128, 16384, 128, 12
BATCH, BOXES, SAMPLES = 2, 128, 512


def scene(rois: int = ROIS) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Boxes of cars, points of which half are near a box, and features."""
    draw = torch.Generator().manual_seed(0)
    low = torch.tensor([-75.0, -45, -1.2, 3.5, 1.6, 1.4, -3])
    high = torch.tensor([75.0, 45, -0.8, 4.8, 2.0, 1.8, 3])
    boxes = low + (high - low) * torch.rand(rois, 7, generator=draw)
    points = (torch.rand(POINTS, 3, generator=draw) - 0.5) * torch.tensor([150.0, 90, 4])
    near = boxes[torch.randint(0, rois, (POINTS // 2,), generator=draw), :3]
    points[::2] = near + torch.randn(len(near), 3, generator=draw) * torch.tensor([1.5, 1.0, 0.5])
    return boxes, points, torch.randn(POINTS, CHANNELS, generator=draw)
