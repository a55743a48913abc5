"""Draws the two pictures of the demo side by side: python tools/picture.py [docs/images/demo.png].

Left: voxelize and dynamic_scatter_forward (max) on a simulated LiDAR scan. Right: the gradients of
mutual_information_forward_backward on one simulated utterance. Needs matplotlib.
"""

from __future__ import annotations

import sys
from pathlib import Path

import demo
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def draw(path: Path) -> None:
    figure, (scan, lattice) = plt.subplots(
        1, 2, figsize=(9, 3.6), layout="constrained", width_ratios=(1, 1.35)
    )
    picture = scan.imshow(demo.yard(200, 200), origin="lower", extent=(-30, 30, -30, 30), vmin=-2, vmax=1.5)
    scan.set(title="voxelize, dynamic_scatter_forward", xlabel="x (m)", ylabel="y (m)")
    figure.colorbar(picture, ax=scan, label="highest point of each pillar (m)", shrink=0.9)
    picture = lattice.imshow(demo.occupation(), aspect="auto", cmap="magma", interpolation="nearest", vmax=1)
    lattice.set(title="mutual_information_forward_backward", xlabel="frame", ylabel="symbol")
    figure.colorbar(picture, ax=lattice, label="probability of each cell", shrink=0.9)
    for panel in (scan, lattice):
        panel.title.set_size(10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"drawn in {path}, {path.stat().st_size / 1e3:.0f} KB")


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images/demo.png"))
