"""Draws a recorded benchmark, one panel per comparison: python bench/plot.py results.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def plot(path: Path) -> Path:
    data = json.loads(path.read_text())
    comparisons = data["comparisons"]
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
        colors = ["tab:blue" if row["name"].startswith("turnout") else "tab:gray" for row in rows]
        panel.barh([row["name"] for row in rows], medians, xerr=spread, color=colors, height=0.7)
        for y, row in enumerate(rows):
            panel.text(row["high_us"], y, f" {row['ratio']:.2f}x", va="center", fontsize=8)
        panel.set_title(comparison["title"], loc="left", fontsize=9)
        panel.set_xlabel("microseconds", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
        panel.margins(x=0.12)
    figure.suptitle(data["machine"]["cpu"], fontsize=9)
    target = path.with_suffix(".png")
    figure.savefig(target, dpi=120)
    plt.close(figure)
    print(f"plotted in {target}")
    return target


if __name__ == "__main__":
    plot(Path(sys.argv[1]))
