"""Overlaps, NMS and points in boxes as compiled modules have them: results are written into given tensors.

Each function takes the name of the function that was called, and its tensors in order, under the names that
they have there: both are for messages.
"""

from __future__ import annotations

import torch

from turnout import torch as own
from turnout.compat._extension import Checks, widened

F32 = (torch.float32,)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def write_overlap(function: str, *, iou: bool = False, **tensors: torch.Tensor) -> None:
    """Boxes [N, 7], boxes [M, 7], result [N, M]: overlaps in bird's-eye view, or the IoU."""
    a, b, out = _checked(function, tensors, "N 7", "M 7", "N M")
    out.copy_((own.boxes_iou_bev if iou else own.boxes_overlap_bev)(a, b))


def write_aligned_overlap(function: str, *, iou: bool = False, **tensors: torch.Tensor) -> None:
    """Boxes [N, 7], boxes [N, 7], result [N, 1]: the same of boxes in the same row."""
    a, b, out = _checked(function, tensors, "N 7", "N 7", "N 1")
    out.copy_((own.boxes_iou_bev if iou else own.boxes_overlap_bev)(a, b, aligned=True).view(-1, 1))


def write_nms(function: str, threshold: float, *, normal: bool = False, **tensors: torch.Tensor) -> int:
    """Sorted boxes [N, 7], keep int64 [N], whose beginning gets the kept rows. Returns their number."""
    boxes, keep = _checked(function, tensors, "N 7", "N", out=torch.int64)
    kept = (own.nms3d_normal if normal else own.nms3d)(boxes, None, float(threshold))
    keep[: len(kept)] = kept
    return len(kept)


def write_first_box(
    function: str,
    *,
    z: str,
    margin: float,
    dtypes: tuple[torch.dtype, ...] = F32,
    **tensors: torch.Tensor,
) -> None:
    """Boxes [B, T, 7], points [B, M, 3], result int32 [B, M]: the first box with each point.

    Points in no box leave the result as it is.
    """
    boxes, points, out = _checked(function, tensors, "B T 7", "B M 3", "B M", dtypes=dtypes, out=torch.int32)
    found = [own.points_in_boxes(p, b, z=z, margin=margin) for p, b in zip(points, boxes, strict=True)]
    for row, first in zip(out, found, strict=True):
        row.copy_(torch.where(first >= 0, first, row))


def write_all_boxes(
    function: str,
    *,
    z: str,
    margin: float,
    dtypes: tuple[torch.dtype, ...] = F32,
    **tensors: torch.Tensor,
) -> None:
    """Boxes [B, T, 7], points [B, M, 3], result int32 [B, M, T]: 1 where a box has the point.

    The other elements stay as they are.
    """
    boxes, points, out = _checked(
        function, tensors, "B T 7", "B M 3", "B M T", dtypes=dtypes, out=torch.int32
    )
    found = [
        own.points_in_boxes(p, b, z=z, margin=margin, all=True) for p, b in zip(points, boxes, strict=True)
    ]
    for rows, inside in zip(out, found, strict=True):
        rows.masked_fill_(inside != 0, 1)


def write_points_of_boxes(function: str, *, z: str, margin: float, **tensors: torch.Tensor) -> None:
    """Boxes [T, 7], points [M, 3], result int32 [T, M]: 1 where the box has the point, 0 elsewhere."""
    boxes, points, out = _checked(function, tensors, "T 7", "M 3", "T M", out=torch.int32)
    out.copy_(own.points_in_boxes(points, boxes, z=z, margin=margin, all=True).T)


def _checked(
    function: str,
    tensors: dict[str, torch.Tensor],
    *dims: str,
    dtypes: tuple[torch.dtype, ...] = F32,
    out: torch.dtype = torch.float32,
) -> list[torch.Tensor]:
    """The tensors, the last of which is the result, after all checks."""
    checks = Checks(function)
    kinds = [*[dtypes] * (len(dims) - 1), (out,)]
    found = [
        checks.tensor(name, value, shape, *kind)
        for (name, value), shape, kind in zip(tensors.items(), dims, kinds, strict=True)
    ]
    return [*map(widened, found[:-1]), found[-1]]
