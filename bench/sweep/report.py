"""What a sweep found: shares, the worst points, a comparison with an earlier sweep, and the map."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sweep.measure import Measured

SLOWER = 1.05


def summary(done: Sequence[Measured]) -> str:
    ratios = [m.ratio for m in done]
    behind = sum(ratio < 1 for ratio in ratios)
    low = sum(ratio < 0.8 for ratio in ratios)
    unexcused = sum(m.ratio < 0.8 and not m.excused for m in done)
    return (
        f"{len(done)} points; the peer is faster in {share(behind, done)}, below 0.8 in {share(low, done)} "
        f"({share(unexcused, done)} without calls of less than 5 us within 3 us of the peer); "
        f"median ratio {statistics.median(ratios):.2f}"
    )


def share(count: int, of: Sequence[object]) -> str:
    return f"{100 * count / max(len(of), 1):.1f} %"


def by_case(done: Sequence[Measured]) -> str:
    """One line for each call: points, share behind, share below 0.8, lowest and median ratio."""
    cases: dict[str, list[Measured]] = {}
    for m in done:
        cases.setdefault(m.point.partition(",")[0], []).append(m)
    lines = [f"{'call':38} points  behind   < 0.8  lowest  median"]
    for name, points in sorted(cases.items()):
        ratios = [m.ratio for m in points]
        low = sum(m.ratio < 0.8 and not m.excused for m in points)
        behind = share(sum(ratio < 1 for ratio in ratios), points)
        shown = f"{name:38} {len(points):6} {behind:>7} {share(low, points):>7}"
        lines.append(f"{shown} {min(ratios):7.2f} {statistics.median(ratios):7.2f}")
    return "\n".join(lines)


def worst(done: Sequence[Measured], count: int = 20) -> str:
    """The lowest ratios, each with the command that repeats it."""
    lines = []
    for m in sorted(done, key=lambda m: (m.excused, m.ratio))[:count]:
        times = f"{m.us:.1f} us, {m.peer} {m.peer_us:.1f} us"
        lines.append(
            f"{m.ratio:.2f}  {m.threads} threads  {times}\n      ./dev bench sweep --point {m.point}"
        )
    return "\n".join(lines)


def save(path: Path, done: Sequence[Measured], machine: dict, command: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine, "command": command, "points": [asdict(m) for m in done]}
    path.write_text(json.dumps(content, indent=0))


def load(path: Path) -> list[Measured]:
    return [Measured(**m) for m in json.loads(path.read_text())["points"]]


def compared(before: Sequence[Measured], after: Sequence[Measured]) -> str:
    """Compares the points of two sweeps by their ratios: the peer's time shows the state of the machine."""
    old = {(m.point, m.threads): m for m in before}
    pairs = [(old[m.point, m.threads], m) for m in after if (m.point, m.threads) in old]
    if not pairs:
        return "no common points"
    gains = [(new.ratio / was.ratio, new) for was, new in pairs]
    slower = sum(gain < 1 / SLOWER for gain, _ in gains)
    faster = sum(gain > SLOWER for gain, _ in gains)
    lines = [
        f"{len(pairs)} common points: {share(slower, pairs)} slower by more than {SLOWER - 1:.0%}, "
        f"{share(faster, pairs)} faster; median gain {statistics.median(gain for gain, _ in gains):.2f}"
    ]
    for gain, m in sorted(gains, key=lambda pair: pair[0])[:10]:
        lines.append(f"{gain:.2f}  {m.threads} threads, {m.us:.1f} us: ./dev bench sweep --point {m.point}")
    return "\n".join(lines)


def draw(done: Sequence[Measured], path: Path, title: str) -> None:
    """Draws the map: calls over elements; the colour is the ratio, a mark above the line is one thread."""
    import plot  # noqa: F401  sets the colours of all figures
    from matplotlib import pyplot
    from matplotlib.colors import TwoSlopeNorm

    names = sorted({m.point.partition(",")[0] for m in done}, reverse=True)
    figure, axes = pyplot.subplots(figsize=(10, 0.8 + 0.24 * len(names)), layout="constrained")
    at = {name: y for y, name in enumerate(names)}
    shown = sorted(done, key=lambda m: -m.ratio)  # the lowest ratios on top
    marks = axes.scatter(
        [m.elements for m in shown],
        [at[m.point.partition(",")[0]] + (0.2 if m.threads == 1 else -0.2) for m in shown],
        c=[max(-3, min(3, math.log2(m.ratio))) for m in shown],
        norm=TwoSlopeNorm(0, -3, 3),
        **{"cmap": "RdYlGn", "marker": "|", "s": 26, "linewidths": 2},
    )
    axes.set_xscale("log")
    axes.set_xlabel("product of the sizes")
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.spines[["top", "right"]].set_visible(False)
    bar = figure.colorbar(marks, ticks=range(-3, 4), pad=0.01)
    bar.set_ticklabels(["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    bar.set_label("time of the fastest peer / time of Turnout")
    figure.suptitle(title, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
