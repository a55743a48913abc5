"""RoI pooling with masks of torch: no other library has these operators for the CPU."""

from __future__ import annotations

import torch


def inside(boxes: torch.Tensor, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[N, n]: which points are in which boxes, and [N, n, 3] the positions in the boxes' directions."""
    shifted = points[None] - boxes[:, None, :3]
    cosine, sine = torch.cos(boxes[:, 6:]), torch.sin(boxes[:, 6:])
    x = shifted[..., 0] * cosine + shifted[..., 1] * sine
    y = shifted[..., 1] * cosine - shifted[..., 0] * sine
    local = torch.stack([x, y, shifted[..., 2]], -1)
    half = boxes[:, None, 3:6] / 2
    is_inside = (local[..., :2].abs() < half[..., :2] + 1e-5).all(-1) & (local[..., 2].abs() <= half[..., 2])
    return is_inside, local


def pairs(boxes: torch.Tensor, points: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The cell and the point of all pairs, without a limit for the points of a cell."""
    is_inside, local = inside(boxes, points)
    roi, point = is_inside.nonzero(as_tuple=True)
    extents = boxes[roi, 3:6]
    index = ((local[roi, point] + extents / 2) / (extents / size)).long().clamp(0, size - 1)
    return ((roi * size + index[:, 0]) * size + index[:, 1]) * size + index[:, 2], point


def roiaware_max(
    boxes: torch.Tensor, points: torch.Tensor, features: torch.Tensor, size: int
) -> torch.Tensor:
    cell, point = pairs(boxes, points, size)
    pooled = features.new_zeros(len(boxes) * size**3, features.shape[1])
    expanded = cell[:, None].expand(-1, features.shape[1])
    pooled.scatter_reduce_(0, expanded, features[point], "amax", include_self=False)
    return pooled.reshape(len(boxes), size**3, -1)


def roipoint(points: torch.Tensor, features: torch.Tensor, boxes: torch.Tensor, samples: int) -> torch.Tensor:
    """As a loop over boxes: the lists of points have different lengths."""
    rows = torch.cat([points, features], -1)
    pooled = rows.new_zeros(*boxes.shape[:2], samples, rows.shape[-1])
    for b in range(len(points)):
        is_inside, _ = inside(boxes[b], points[b])
        for m in range(boxes.shape[1]):
            found = is_inside[m].nonzero()[:samples, 0]
            if len(found):
                pooled[b, m] = rows[b, found[torch.arange(samples) % len(found)]]
    return pooled
