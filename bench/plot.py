"""Plots a recorded benchmark, one panel per comparison, and time against size: plot.py results.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# The SVG has no background, so use a grey that is readable on white and on black.
INK = "#808080"
COLORS = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color")
matplotlib.rcParams |= dict.fromkeys(COLORS, INK) | {
    "savefig.transparent": True,
    "legend.framealpha": 0,
    "svg.hashsalt": "turnout",
    "svg.fonttype": "none",  # text as text, a tenth of the size
}


def plot(path: Path) -> list[Path]:
    data = json.loads(path.read_text())
    growing = [comparison for comparison in data["comparisons"] if comparison.get("series")]
    if growing and all(comparison.get("scratch_bytes") is None for comparison in growing):
        return [save(panels(growing), data, path.with_suffix(".svg"))]
    others = [comparison for comparison in data["comparisons"] if not comparison.get("series")]
    made = []
    if others:
        made.append(save(bars(others), data, path.with_suffix(".svg")))
    if growing:
        made.append(save(lines(growing), data, path.with_name(f"{path.stem}_growth.svg")))
    return made


def save(figure: plt.Figure, data: dict, target: Path) -> Path:
    figure.suptitle(f"{data['machine']['cpu']}, {data['date']}", fontsize=9)
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)
    print(f"wrote {target}")
    return target


def bars(comparisons: list[dict]) -> plt.Figure:
    figure, panels = plt.subplots(
        len(comparisons), 1, figsize=(9, 1.1 + 1.9 * len(comparisons)), squeeze=False, layout="constrained"
    )
    for panel, comparison in zip(panels[:, 0], comparisons, strict=True):
        rows = comparison["rows"][::-1]
        medians = [row["median_us"] for row in rows]
        spread = [
            [row["median_us"] - row["low_us"] for row in rows],
            [row["high_us"] - row["median_us"] for row in rows],
        ]
        colors = ["tab:blue" if "turnout" in row["name"] else "tab:gray" for row in rows]
        panel.barh([row["name"] for row in rows], medians, xerr=spread, color=colors, height=0.7)
        for y, row in enumerate(rows):
            panel.text(row["high_us"], y, f" {row['ratio']:.2f}x", va="center", fontsize=8)
        panel.set_title(comparison["title"], loc="left", fontsize=9)
        panel.set_xlabel("microseconds", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
        panel.margins(x=0.12)
    return figure


def panels(comparisons: list[dict]) -> plt.Figure:
    """Plots nanoseconds per element against elements: a panel per series, a line per program."""
    series = list(dict.fromkeys(comparison["series"] for comparison in comparisons))
    columns = 3
    rows = -(-len(series) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(11, 2.4 * rows), squeeze=False, layout="constrained")
    for panel in grid.flat[len(series) :]:
        panel.set_axis_off()
    for panel, one in zip(grid.flat, series, strict=False):
        points = [comparison for comparison in comparisons if comparison["series"] == one]
        shown = []
        for number, name in enumerate(
            dict.fromkeys(row["name"] for point in points for row in point["rows"])
        ):
            each = {
                point["sites"]: row["median_us"] * 1e3 / point["sites"]
                for point in points
                for row in point["rows"]
                if row["name"] == name  # some programs run only at some sizes
            }
            panel.plot(
                *zip(*each.items(), strict=True), label=name, color=f"C{number}", marker="o", markersize=3
            )
            shown += each.values()
        panel.set_xscale("log")
        if max(shown) > 30 * min(shown):
            panel.set_yscale("log")
        else:
            panel.set_ylim(0)
        panel.set_title(one, loc="left", fontsize=9)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("elements: tokens, sites, cells or points", fontsize=9)
    figure.supylabel("nanoseconds per element", fontsize=9)
    max(grid.flat, key=lambda panel: len(panel.lines)).legend(fontsize=8)
    return figure


def lines(comparisons: list[dict]) -> plt.Figure:
    """Plots time, time per site and scratch bytes per site against sites, per series and program."""
    figure, (times, shares, scratch) = plt.subplots(1, 3, figsize=(14, 5.6), layout="constrained")
    names = list(dict.fromkeys(row["name"] for comparison in comparisons for row in comparison["rows"]))
    series = list(dict.fromkeys(comparison["series"] for comparison in comparisons))
    for one, style in zip(series, ("-", "--", ":", "-."), strict=False):
        points = [comparison for comparison in comparisons if comparison["series"] == one]
        sites = [point["sites"] for point in points]
        for number, name in enumerate(names):
            medians = [next(r["median_us"] for r in point["rows"] if r["name"] == name) for point in points]
            look = {"linestyle": style, "color": f"C{number}", "marker": "o", "markersize": 3}
            times.plot(sites, [us / 1e3 for us in medians], label=f"{name}; {one}", **look)
            shares.plot(sites, [us * 1e3 / n for us, n in zip(medians, sites, strict=True)], **look)
        known = [point for point in points if point.get("scratch_bytes") is not None]
        each = [point["scratch_bytes"] / point["sites"] for point in known]
        places = [point["sites"] for point in known]
        scratch.plot(places, each, style, color="tab:blue", marker="o", markersize=3, label=one)
    times.set_ylabel("milliseconds")
    shares.set_ylabel("nanoseconds per site")
    scratch.set_ylabel("scratch bytes per site")
    for panel in (times, shares, scratch):
        panel.set(xscale="log", yscale="log", xlabel="sites")
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(*times.get_legend_handles_labels(), loc="outside lower left", ncols=2, fontsize=8)
    scratch.legend(fontsize=8)
    return figure


if __name__ == "__main__":
    plot(Path(sys.argv[1]))
