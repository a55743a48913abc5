"""The published comparisons of RoI pooling."""

from __future__ import annotations

from recorded import Case, Programs
from roi_pooling import scenes
from roi_pooling.shapes import BATCH, BOXES, CELLS, CHANNELS, POINTS, ROIS, SAMPLES


def cases() -> list[Case]:
    cells = f"{ROIS} boxes x {CELLS}^3, {POINTS} points x {CHANNELS}"
    rows = f"{BATCH} x {BOXES} boxes x {SAMPLES} of {POINTS} points x {CHANNELS}"
    return [
        Case(
            *("roiaware_pool3d", "roiaware_pool3d, max", cells, "f32"),
            *("PyTorch masks, `scatter_reduce_`", "new", lambda: programs(scenes.roiaware_programs)),
        ),
        Case(
            *("roipoint_pool3d", "roipoint_pool3d", rows, "f32", "PyTorch masks, box by box", "new"),
            lambda: programs(scenes.roipoint_programs),
        ),
    ]


def programs(make) -> Programs:
    ours, peer = make()
    return Programs(
        scenes.program("turnout", ours), scenes.program("torch", peer), tolerance=scenes.TOLERANCE
    )
