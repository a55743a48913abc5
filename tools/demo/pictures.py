"""The demo's pictures: as characters in the terminal, and as a file."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from rich.console import Console
from rich.text import Text

from demo.lattice import occupation
from demo.points import yard

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def show(console: Console, title: str, values: np.ndarray) -> None:
    """Prints values between 0 and 1, one character each."""
    shades, colors = " .:░▒▓█", (16, 17, 54, 90, 161, 208, 226)
    console.print(f"\n{title}")
    for row in values:
        text = Text()
        for level in np.minimum((row * len(shades)).astype(int), len(shades) - 1):
            text.append(shades[level], style=f"color({colors[level]})")
        console.print(text)


def show_occupation(console: Console, width: int = 100, height: int = 26) -> None:
    rows = np.array_split(occupation(), height)
    blocks = np.array([[part.max() for part in np.array_split(row, width, axis=1)] for row in rows])
    title = "alignment of an utterance: symbols down, frames to the right; denser is more likely"
    show(console, title, np.sqrt(blocks))


def show_yard(console: Console, width: int = 100, height: int = 26) -> None:
    shades = np.nan_to_num(np.interp(yard(width, height), (-2, 1), (0.2, 1)))
    show(console, "a LiDAR scan from above: the highest point of each pillar; denser is higher", shades)


def draw(path: Path) -> None:
    """Both pictures side by side."""
    figure, (scan, lattice) = plt.subplots(
        1, 2, figsize=(9, 3.6), layout="constrained", width_ratios=(1, 1.35)
    )
    picture = scan.imshow(yard(200, 200), origin="lower", extent=(-30, 30, -30, 30), vmin=-2, vmax=1.5)
    scan.set(title="voxelize, dynamic_scatter_forward", xlabel="x (m)", ylabel="y (m)")
    figure.colorbar(picture, ax=scan, label="highest point of each pillar (m)", shrink=0.9)
    picture = lattice.imshow(occupation(), aspect="auto", cmap="magma", interpolation="nearest", vmax=1)
    lattice.set(title="mutual_information_forward_backward", xlabel="frame", ylabel="symbol")
    figure.colorbar(picture, ax=lattice, label="probability of each cell", shrink=0.9)
    for panel in (scan, lattice):
        panel.title.set_size(10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"drawn in {path}, {path.stat().st_size / 1e3:.0f} KB")
