"""Features and indices of the benchmarks: the sizes of PointNet++, PV-RCNN and Voxel R-CNN."""

from __future__ import annotations

import torch

BATCH, CHANNELS, POINTS, CENTERS, SAMPLES = 4, 64, 16384, 1024, 32
KEY_POINTS, STACKED_SAMPLES = 2048, 16
KNOWN, WIDE = 1024, 128


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def neighbours(*shape: int, points: int = POINTS) -> torch.Tensor:
    """Indices as of a ball query: the places after the last neighbour repeat the first one."""
    draw = generator()
    found = torch.randint(0, points, shape, generator=draw)
    counts = torch.randint(1, shape[-1] + 1, shape[:-1], generator=draw)
    missing = torch.arange(shape[-1]) >= counts[..., None]
    return torch.where(missing, found[..., :1], found).int()
