"""PyTorch: a precomputed dense grid of row numbers, from which each kernel offset gathers."""

from __future__ import annotations

import numpy as np
import torch
from harness import Entry
from sparse_conv.shapes import Sites, flat


def dense_grid(sites: Sites) -> Entry:
    """Submanifold mode. A margin around the grid replaces range checks. 248636 sites take 1.4 GB."""
    scale, indices = sites.scale, torch.from_numpy(sites.indices)
    padded = [size + 2 * p for size, p in zip(scale.space, scale.padding, strict=True)]
    steps = np.array([int(np.prod(padded[d:])) for d in range(len(padded) + 1)])
    grid = torch.full((scale.batch * int(steps[0]),), -1, dtype=torch.int32)
    kernel = [np.array(offset) - scale.padding for offset in np.ndindex(scale.kernel)]
    deltas = [-int((offset * steps[1:]).sum()) for offset in kernel]
    corner = int((np.array(scale.padding) * steps[1:]).sum())
    weights = torch.from_numpy(steps)
    rows = torch.arange(scale.rows, dtype=torch.int32)
    pairs = torch.full(scale.pairs_shape, 0, dtype=torch.int32)
    counts = torch.zeros(scale.volume, dtype=torch.int32)

    def run() -> None:
        cells = (indices * weights).sum(dim=1) + corner
        grid[cells] = rows
        pairs.fill_(-1)
        for k, delta in enumerate(deltas):
            outputs = grid[cells + delta]
            inputs = torch.nonzero(outputs >= 0)[:, 0]
            counts[k] = len(inputs)
            pairs[k, 0, : len(inputs)] = inputs
            pairs[k, 1, : len(inputs)] = outputs[inputs]
        grid[cells] = -1

    return Entry(
        "torch, a ready dense grid",
        run,
        lambda: flat((sites.indices, pairs.numpy(), counts.numpy())),
        every=2,
    )
