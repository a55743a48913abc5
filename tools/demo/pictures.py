"""The pictures of the README: detected boxes, a scan with its true boxes, its sites in a sparse network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import turnout
from demo import detector
from turnout.simulate import CLASSES, SENSOR_HEIGHT, lidar_scan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEED = 8
VOXEL, RANGE, SPACE = (0.1,) * 3, (-51.2, -51.2, -3.0, 51.2, 51.2, 3.4), (64, 1024, 1024)
BACKGROUND, TEXT, DIM = "#0b0f17", "#e6edf3", "#7d8794"
COLORS = ("#ffd54a", "#ff8a3d", "#ff6fae")  # of the classes
# Corners of a box as signs, and the corners of its faces: front, back, left, right, top, bottom.
CORNERS = np.array([(x, y, z) for z in (-1, 1) for x, y in ((1, 1), (1, -1), (-1, -1), (-1, 1))])
FACES = np.array([(0, 1, 5, 4), (2, 3, 7, 6), (0, 3, 7, 4), (1, 2, 6, 5), (4, 5, 6, 7), (0, 1, 2, 3)])
SIDES = np.array([(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)])
SHADES = np.array((0.62, 0.62, 0.78, 0.78, 1.0, 0.4))


class Camera:
    """A perspective view: x to the right and y up, in units of the distance to the screen."""

    def __init__(self, eye: tuple[float, ...], target: tuple[float, ...]) -> None:
        self.eye = np.array(eye)
        ahead = np.array(target) - self.eye
        right = np.cross(ahead, (0, 0, 1))
        axes = np.stack((right, np.cross(right, ahead), ahead))
        self.axes = axes / np.linalg.norm(axes, axis=1, keepdims=True)

    def __call__(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places on the screen, and how far away they are."""
        right, up, away = np.moveaxis((places - self.eye) @ self.axes.T, -1, 0)
        away = np.maximum(away, 0.01)
        return np.stack((right / away, up / away), axis=-1), away


CAMERA = Camera((-20.0, -3.5, 13.0), (8.0, 1.5, -2.0))


def colors_of(height: np.ndarray) -> np.ndarray:
    from matplotlib import colormaps

    return colormaps["turbo"](np.interp(height, (-2.3, 2.4), (0.09, 0.92)))


def canvas(width: int, height: int, rows: int = 1, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of that many pixels with equal views side by side, each as seen by the camera."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(width / 100, height / 100), dpi=100, facecolor=BACKGROUND)
    gap = 6 if rows * columns > 1 else 0
    wide, high = (width - gap * (columns - 1)) / columns, (height - gap * (rows - 1)) / rows
    views = []
    for row, column in np.ndindex(rows, columns):
        left, bottom = column * (wide + gap), height - high - row * (high + gap)
        axes = figure.add_axes((left / width, bottom / height, wide / width, high / height))
        axes.set(xlim=(-0.78, 0.78), ylim=(-0.425, -0.425 + 1.56 * high / wide), xticks=[], yticks=[])
        axes.set_facecolor(BACKGROUND)
        for spine in axes.spines.values():
            spine.set_visible(False)
        views.append(axes)
    return figure, views


def draw_points(axes: Axes, points: np.ndarray) -> None:
    """Points by height, brighter where they reflect more, nearer ones larger and in front."""
    places, away = CAMERA(points[:, :3])
    order = np.argsort(-away)
    colors = colors_of(points[:, 2])
    colors[:, :3] *= np.clip(0.6 + 0.7 * points[:, 3:], 0, 1)
    axes.scatter(*places[order].T, s=np.clip(70 / away, 0.8, 6)[order], c=colors[order], linewidths=0)


def draw_boxes(axes: Axes, boxes: np.ndarray, colors: list[str], width: float = 1.7) -> None:
    from matplotlib.collections import LineCollection

    edges = np.array([(i, (i + 1) % 4) for i in range(4)])
    edges = np.concatenate((edges, edges + 4, np.stack((np.arange(4), np.arange(4) + 4), axis=1)))
    for box, color in zip(boxes, colors, strict=True):
        corner, cos, sin = CORNERS * box[3:6] / 2, np.cos(box[6]), np.sin(box[6])
        turned = np.stack((cos * corner[:, 0] - sin * corner[:, 1], sin * corner[:, 0] + cos * corner[:, 1]))
        places, away = CAMERA(box[:3] + np.column_stack((*turned, corner[:, 2])))
        if away.min() > 3:
            axes.add_collection(LineCollection(places[edges], colors=color, linewidths=width, alpha=0.95))


def draw_cubes(axes: Axes, sites: np.ndarray, stride: int) -> None:
    """The sites (batch, z, y, x) of one layer as cubes, far ones first; only the faces that are visible."""
    from matplotlib.collections import PolyCollection

    size = stride * np.array(VOXEL)
    middles = np.array(RANGE[:3]) + (sites[:, :0:-1] + 0.5) * size
    places, away = CAMERA(middles)
    middles = middles[(away > 3) & (np.abs(places) < 0.85).all(axis=1)]  # in the view, or at its edge
    middles = middles[np.argsort(-np.linalg.norm(middles - CAMERA.eye, axis=1))]
    visible = ((CAMERA.eye - middles)[:, None] * SIDES).sum(axis=-1) > size / 2 @ np.abs(SIDES).T
    cube, face = np.nonzero(visible)
    places, _ = CAMERA(middles[cube][:, None] + CORNERS[FACES[face]] * size / 2)
    colors = colors_of(middles[cube, 2])
    colors[:, :3] *= SHADES[face, None]
    axes.add_collection(
        PolyCollection(places, facecolors=colors, edgecolors=BACKGROUND, linewidths=0.08 * stride**0.8)
    )


def draw_ego(axes: Axes) -> None:
    """The vehicle with the sensor."""
    boxes = np.array(
        [(0, 0, 0.55 - SENSOR_HEIGHT, 4.4, 1.8, 0.7, 0), (-0.3, 0, 1.2 - SENSOR_HEIGHT, 2.4, 1.5, 0.6, 0)]
    )
    draw_boxes(axes, boxes, [DIM, DIM], 1.3)


def label(axes: Axes, x: float, y: float, text: str, color: str = TEXT, size: float = 15) -> None:
    """A line of text at a place of the view, in fractions of it."""
    frame = {"facecolor": BACKGROUND, "edgecolor": "none", "alpha": 0.75, "boxstyle": "round,pad=0.3"}
    axes.text(x, y, text, color=color, fontsize=size, transform=axes.transAxes, va="center", bbox=frame)


def draw_scan(path: Path) -> None:
    """The points of a scan, coloured by height, and the true boxes."""
    scan = lidar_scan(SEED)
    figure, (view,) = canvas(1600, 760)
    draw_points(view, scan.points)
    draw_boxes(view, scan.boxes, [COLORS[kind] for kind in scan.labels])
    draw_ego(view)
    label(view, 0.015, 0.945, f"{len(scan.points):,} points, {len(scan.boxes)} boxes", size=19)
    for number, name in enumerate(CLASSES):
        label(view, 0.015, 0.875 - 0.06 * number, f"□ {name}", COLORS[number], size=17)
    save(figure, path)


def layers(points: np.ndarray) -> list[np.ndarray]:
    """The sites of the scan's voxels, and those after one, two and three convolutions with stride 2."""
    coors = turnout.voxelize(points, VOXEL, RANGE)
    _, voxels, _, _ = turnout.dynamic_scatter_forward(points, coors, "mean")
    sites, space = [np.insert(voxels, 0, 0, axis=1)], np.array(SPACE)  # batch, z, y, x
    for _ in range(3):
        out_indices, _, _ = turnout.get_indice_pairs(sites[-1], 1, space, kernel_size=3, stride=2, padding=1)
        sites.append(out_indices)
        space = (space - 1) // 2 + 1
    return sites


def draw_layers(path: Path) -> None:
    """The active sites of each layer of an encoder, as cubes."""
    points = lidar_scan(SEED).points
    figure, views = canvas(1600, 806, rows=2, columns=2)
    for number, (view, sites) in enumerate(zip(views, layers(points), strict=True)):
        stride = 2**number
        draw_cubes(view, sites, stride)
        what = (
            f"stride {stride}: {len(sites):,} sites" if number else f"{len(sites):,} voxels of {VOXEL[0]} m"
        )
        label(view, 0.02, 0.93, what, size=19)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Writes a PNG with a palette, which takes a third of the space of one with full colours."""
    import matplotlib.pyplot as plt
    from PIL import Image

    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]
    plt.close(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.ascontiguousarray(pixels))
    image.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)


PICTURES = {"detect.png": detector.draw, "scan.png": draw_scan, "layers.png": draw_layers}


def draw(folder: Path) -> list[Path]:
    """Draws all pictures into a folder."""
    for name, picture in PICTURES.items():
        picture(folder / name)
    return [folder / name for name in PICTURES]
