"""The published comparisons of grouping."""

from __future__ import annotations

from grouping import scenes
from grouping.shapes import BATCH, CENTERS, CHANNELS, KEY_POINTS, KNOWN, POINTS, SAMPLES, STACKED_SAMPLES
from recorded import Case, Programs


def cases() -> list[Case]:
    grouped = f"{BATCH} x {CHANNELS} x {CENTERS} x {SAMPLES} of {POINTS} points"
    stacked = f"{BATCH * KEY_POINTS} x {CHANNELS} x {STACKED_SAMPLES}"
    interpolated = f"{BATCH} x {CHANNELS}, {POINTS} of {KNOWN} points"
    return [
        Case(
            *("group_points", "group_points", grouped, "f32", "PyTorch `gather`", "new"),
            lambda: programs(scenes.group_programs),
        ),
        Case(
            *("group_points-gradient", "gradient of group_points", grouped, "f32"),
            *("PyTorch `scatter_add_`", "new", lambda: programs(scenes.group_gradient_programs)),
        ),
        Case(
            *("group_points_stacked", "group_points_stacked", stacked, "f32"),
            *("PyTorch `index_select`, `transpose`", "new", lambda: programs(scenes.group_stacked_programs)),
        ),
        Case(
            *("three_interpolate", "three_interpolate", interpolated, "f32"),
            *("PyTorch `gather`, `einsum`", "new", lambda: programs(scenes.interpolate_programs)),
        ),
    ]


def programs(make) -> Programs:
    ours, peer = make()
    return Programs(
        scenes.program("turnout", ours), scenes.program("torch", peer), tolerance=scenes.TOLERANCE
    )
