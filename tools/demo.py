"""Runs each operator at a realistic size, checks its result against the definition, and times it.

python tools/demo.py; ./dev demo installs and builds first. Needs NumPy and rich, no PyTorch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import demo_moe
import numpy as np
from demo_job import Job, Results
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

import turnout
import turnout.check

console = Console(width=118)


def turns() -> np.ndarray:
    """Points (z, y, x) of a simulated LiDAR scan, 64 beams, two turns: a yard with walls around it."""
    azimuth = np.linspace(0, 2 * np.pi, 4096, endpoint=False).reshape(-1, 2).T.reshape(-1, 1)
    slope = np.tan(np.radians(np.linspace(2, -24.8, 64)))
    wall = (20 + 4 * np.sin(9 * azimuth)) / np.maximum(abs(np.cos(azimuth)), abs(np.sin(azimuth)))
    reach = np.minimum(wall, np.where(slope < 0, -1.84 / np.minimum(slope, -1e-9), np.inf))
    points = np.stack((reach * slope, reach * np.sin(azimuth), reach * np.cos(azimuth)), axis=-1)
    points += np.random.default_rng(0).normal(0, 0.02, points.shape)
    return points.reshape(-1, 3)


def scan(sites: int) -> np.ndarray:
    """The first `sites` different voxels of that scan, in scan order."""
    voxels = ((turns() + np.array((5, 54, 54))) / (0.2, 0.075, 0.075)).astype(np.int32)
    _, first = np.unique(voxels, axis=0, return_index=True)
    return voxels[np.sort(first)[:sites]]


def indice_pairs(subm: bool) -> Job:
    batch, space, stride = 4, np.array((41, 1440, 1440)), 1 if subm else 2
    sites = scan(62159)
    indices = np.concatenate([np.insert(sites, 0, n, axis=1) for n in range(batch)]).astype(np.int32)
    out_space = (space - 1) // stride + 1
    options = {"kernel_size": 3, "stride": stride, "padding": 1, "subm": subm}

    def definition() -> tuple[np.ndarray, ...]:
        """The definition: one kernel offset at a time; a dictionary maps each output site to its row."""
        full = (batch, *out_space)
        keys = []
        for offset in np.ndindex(3, 3, 3):
            shifted = indices[:, 1:] + 1 - np.array(offset)
            valid = np.all((shifted >= 0) & (shifted % stride == 0) & (shifted // stride < out_space), axis=1)
            outputs = np.where(valid[:, None], shifted // stride, 0)
            keys.append(np.where(valid, np.ravel_multi_index((indices[:, 0], *outputs.T), full), -1))
        active = np.ravel_multi_index(indices.T, full) if subm else np.unique(keys)
        active = active[active >= 0]
        row_of = {key: row for row, key in enumerate(active.tolist())}
        pairs = np.full((27, 2, len(indices)), -1, dtype=np.int32)
        counts = np.zeros(27, dtype=np.int32)
        for k in range(27):
            found = [(i, row_of[key]) for i, key in enumerate(keys[k].tolist()) if key in row_of]
            counts[k] = len(found)
            pairs[k, :, : len(found)] = np.array(found).T
        return np.stack(np.unravel_index(active, full), axis=1).astype(np.int32), pairs, counts

    out = tuple(x.copy() for x in turnout.get_indice_pairs(indices, batch, space, **options))
    return Job(
        "get_indice_pairs, " + ("submanifold" if subm else "stride 2"),
        f"{len(indices)} sites, {batch}x{'x'.join(map(str, space))}, kernel 3x3x3",
        lambda: turnout.get_indice_pairs(indices, batch, space, **options, out=out),
        definition,
        indices.nbytes + sum(x.nbytes for x in out),
    )


VOXEL, RANGE = (0.075, 0.075, 0.2), (-54, -54, -5, 54, 54, 3)  # metres: x, y, z; lower limits, upper limits


def cloud() -> np.ndarray:
    """The points of the scan as (x, y, z)."""
    return np.ascontiguousarray(turns()[:, ::-1], dtype=np.float32)


def voxelize() -> Job:
    points = cloud()
    out = np.empty((len(points), 3), dtype=np.int32)
    return Job(
        "voxelize",
        f"{len(points)} points, voxels of {' x '.join(map(str, VOXEL))} m",
        lambda: turnout.voxelize(points, VOXEL, RANGE, out=out),
        lambda: turnout.check.voxelize(points, VOXEL, RANGE),
        points.nbytes + out.nbytes,
    )


def dynamic_scatter(backward: bool) -> Job:
    """The maximum over the points of each voxel, as in the last layer of a voxel feature encoder."""
    count, channels = 17176, 128
    coors = turnout.voxelize(cloud()[:count], VOXEL, RANGE)
    random = np.random.default_rng(0)
    # As after a ReLU: half of the values are 0, so many voxels have several points with the maximum.
    feats = np.maximum(random.standard_normal((count, channels), dtype=np.float32), 0)
    out = turnout.dynamic_scatter_forward(feats, coors)
    voxel_feats, _, *index = out
    scale = f"{count} points x {channels} float32, {len(voxel_feats)} voxels"
    if not backward:
        return Job(
            "dynamic_scatter_forward, max",
            scale,
            lambda: turnout.dynamic_scatter_forward(feats, coors, out=out),
            lambda: turnout.check.dynamic_scatter_forward(feats, coors),
            feats.nbytes + coors.nbytes + sum(x.nbytes for x in out),
        )
    grad = random.standard_normal(voxel_feats.shape, dtype=np.float32)
    arguments = grad, feats, voxel_feats, *index
    grad_feats = np.empty_like(feats)
    return Job(
        "dynamic_scatter_backward, max",
        scale,
        lambda: turnout.dynamic_scatter_backward(*arguments, out=grad_feats),
        lambda: turnout.check.dynamic_scatter_backward(*arguments),
        sum(x.nbytes for x in arguments) + grad_feats.nbytes,
    )


def utterances() -> tuple[np.ndarray, np.ndarray]:
    """px and py of 32 utterances of 50 symbols in 500 frames. Each symbol is likely near its own frame."""
    batch, symbols, frames = 32, 50, 500
    random = np.random.default_rng(2)
    centre = np.sort(random.uniform(0, frames, (batch, symbols, 1)), axis=1)
    width = random.uniform(3, 40, centre.shape)
    emit = 0.002 + 0.5 * np.exp(-(((np.arange(frames) - centre) / width) ** 2))
    px = np.full((batch, symbols, frames + 1), -np.inf, dtype=np.float32)  # no symbol after the last frame
    px[:, :, :-1] = np.log(emit)
    py = np.zeros((batch, symbols + 1, frames), dtype=np.float32)
    py[:, :-1] = np.log1p(-emit)
    return px, py


def lattice(px: np.ndarray, py: np.ndarray) -> np.ndarray:
    """The definition of p in float64: one cell at a time, for all utterances at once."""
    p = np.full((px.shape[1] + 1, py.shape[2] + 1, len(px)), -np.inf)
    x, y = (a.astype(np.float64).transpose(1, 2, 0) for a in (px, py))
    p[0, 0] = 0
    for s, t in list(np.ndindex(p.shape[:2]))[1:]:
        up = p[s - 1, t] + x[s - 1, t] if s > 0 else -np.inf
        left = p[s, t - 1] + y[s, t - 1] if t > 0 else -np.inf
        p[s, t] = np.logaddexp(up, left)
    return p.transpose(2, 0, 1)


def mutual_information(with_gradients: bool) -> Job:
    px, py = utterances()
    batch, symbols, _ = px.shape
    frames = py.shape[2]
    shape = (batch, symbols + 1, frames + 1)
    ans = np.empty(batch, dtype=np.float32)

    def gradients() -> tuple[np.ndarray, ...]:
        p = lattice(px, py)
        px_grad = np.exp(p[:, :-1] - p[:, 1:] + px)
        py_grad = np.exp(p[:, :, :-1] - p[:, :, 1:] + py)
        g = np.zeros(shape)
        g[:, -1, -1] = 1
        for s, t in list(np.ndindex(shape[1:]))[-2::-1]:
            if s < symbols:
                px_grad[:, s, t] *= g[:, s + 1, t]
                g[:, s, t] += px_grad[:, s, t]
            if t < frames:
                py_grad[:, s, t] *= g[:, s, t + 1]
                g[:, s, t] += py_grad[:, s, t]
        return p[:, -1, -1], px_grad, py_grad

    scale = f"{batch} utterances, {symbols} symbols, {frames} frames"
    if with_gradients:
        out = ans, np.empty_like(px), np.empty_like(py)
        return Job(
            "mutual_information, both ways",
            scale,
            lambda: turnout.mutual_information_forward_backward(px, py, out=out),
            gradients,
            2 * (px.nbytes + py.nbytes),
            tolerance=1e-4,
        )
    p = np.empty(shape, dtype=np.float32)
    return Job(
        "mutual_information_forward",
        scale,
        lambda: turnout.mutual_information_forward(px, py, out=(p, ans))[0],
        lambda: lattice(px, py),
        px.nbytes + py.nbytes + p.nbytes,
        tolerance=1e-5,
    )


def show(title: str, values: np.ndarray) -> None:
    """Prints values between 0 and 1, one character each."""
    shades, colors = " .:░▒▓█", (16, 17, 54, 90, 161, 208, 226)
    console.print(f"\n{title}")
    for row in values:
        text = Text()
        for level in np.minimum((row * len(shades)).astype(int), len(shades) - 1):
            text.append(shades[level], style=f"color({colors[level]})")
        console.print(text)


def occupation() -> np.ndarray:
    """[symbols + 1, frames + 1]: the probability that the alignment of one utterance passes each cell."""
    px, py = (x[:1] for x in utterances())
    _, px_grad, py_grad = turnout.mutual_information_forward_backward(px, py)
    cells = np.zeros((px.shape[1] + 1, py.shape[2] + 1))
    cells[:-1] += px_grad[0]
    cells[:, :-1] += py_grad[0]
    cells[-1, -1] = 1
    return cells


def show_occupation(width: int = 100, height: int = 26) -> None:
    rows = np.array_split(occupation(), height)
    blocks = np.array([[part.max() for part in np.array_split(row, width, axis=1)] for row in rows])
    show(
        "alignment of an utterance: symbols down, frames to the right; denser is more likely", np.sqrt(blocks)
    )


def yard(width: int, height: int) -> np.ndarray:
    """The scan from above, [height, width]: the z of the highest point of each pillar; NaN without points."""
    points = cloud()
    size = 30 / np.array((width / 2, height / 2))
    coors = turnout.voxelize(points, (*size, 8), (-30, -30, -5, 30, 30, 3))
    highest, pillars, _, _ = turnout.dynamic_scatter_forward(points[:, 2:].copy(), coors, "max")
    canvas = np.full((height, width), np.nan)
    canvas[pillars[:, 1], pillars[:, 2]] = highest[:, 0]
    return canvas


def show_yard(width: int = 100, height: int = 26) -> None:
    shades = np.nan_to_num(np.interp(yard(width, height), (-2, 1), (0.2, 1)))
    show("a LiDAR scan from above: the highest point of each pillar; denser is higher", shades)


def arrays(results: Results) -> tuple[np.ndarray, ...]:
    return results if isinstance(results, tuple) else (results,)


def is_right(results: Results, expected: Results, tolerance: float | None) -> bool:
    for actual, wanted in zip(arrays(results), arrays(expected), strict=True):
        if tolerance is None:
            right = actual.tobytes() == wanted.tobytes()
        else:
            right = bool(abs(actual - wanted).sum() <= tolerance * abs(wanted).sum())
        if not right:
            return False
    return True


def side_by_side(run: Callable[[], object], bytes_moved: int, repeats: int = 21) -> tuple[float, float]:
    """Median seconds of `run` and of a streamed copy that moves the same number of bytes; they alternate."""
    source = np.ones(bytes_moved // 2, dtype=np.uint8)  # read once and written once
    target = np.zeros_like(source)
    programs = (run, lambda: turnout._core.stream_copy(target, source))
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for program, times in zip(programs, samples, strict=True):
            start = time.perf_counter()
            program()
            times.append(time.perf_counter() - start)
    return statistics.median(samples[0]), statistics.median(samples[1])


def main() -> None:
    turnout.show_config()
    console.print()
    jobs = [
        demo_moe.moe_dispatch("float32", False),
        demo_moe.moe_dispatch("float32", True),
        demo_moe.moe_dispatch("float16", False),
        demo_moe.moe_dispatch_backward(),
        demo_moe.moe_locations(),
        demo_moe.moe_combine(),
        demo_moe.moe_token_permute(back=False),
        demo_moe.moe_token_permute(back=True),
        demo_moe.moe_re_routing(),
        indice_pairs(subm=True),
        indice_pairs(subm=False),
        mutual_information(with_gradients=False),
        mutual_information(with_gradients=True),
        voxelize(),
        dynamic_scatter(backward=False),
        dynamic_scatter(backward=True),
    ]
    table = Table(
        title="each result is checked against its definition; `copy` is a streamed copy of as many bytes"
    )
    for column in ("operator", "size", "checked", "ms", "GB/s", "copy / time"):
        table.add_column(column, justify="left" if column in ("operator", "size", "checked") else "right")
    wrong = 0
    for job in track(jobs, description="running", console=console, transient=True):
        right = is_right(job.run(), job.definition(), job.tolerance)
        wrong += not right
        measure = "equal bits" if job.tolerance is None else f"to {job.tolerance:.0e}"
        seconds, copy_seconds = side_by_side(job.run, job.bytes_moved)
        table.add_row(
            job.name,
            job.scale,
            measure if right else "[red]WRONG[/red]",
            f"{seconds * 1e3:.2f}",
            f"{job.bytes_moved / seconds / 1e9:.1f}",
            f"{copy_seconds / seconds:.0%}",
        )
    console.print(table)
    show_occupation()
    show_yard()
    if wrong:
        raise SystemExit(f"{wrong} results differ from their definition")


if __name__ == "__main__":
    main()
