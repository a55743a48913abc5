"""The demo's detector: the trained network of examples/ on scans that it has not seen, with NumPy alone."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from turnout.simulate import CLASSES, lidar_scan

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import detect_numpy

SCANS = 10
DRAWN = detect_numpy.UNSEEN + 8  # a street with all classes


def precisions() -> dict[str, float]:
    """The average precision of each class at IoU 0.5, over scans that the network has not seen."""
    weights = detect_numpy.load_weights()
    scans = [lidar_scan(detect_numpy.UNSEEN + number) for number in range(SCANS)]
    found = [detect_numpy.detect(scan.points, weights) for scan in scans]
    return {name: detect_numpy.average_precision(found, scans, label) for label, name in enumerate(CLASSES)}


def summary() -> str:
    """How long the network takes for a scan, and how precise it is."""
    weights, points = detect_numpy.load_weights(), lidar_scan(DRAWN).points
    seconds = []
    for _ in range(9):
        start = time.perf_counter()
        found = detect_numpy.detect(points, weights)
        seconds.append(time.perf_counter() - start)
    sure = (found.scores >= detect_numpy.DRAWN_SCORE).sum()
    listed = ", ".join(f"{name}s {value:.2f}" for name, value in precisions().items())
    return (
        f"Detector: {len(points):,} points to {sure} boxes in {1e3 * statistics.median(seconds):.0f} ms.\n"
        f"Its average precision at IoU 0.5 in {SCANS} unseen scans: {listed}."
    )


def draw(path: Path) -> None:
    """Draws an unseen scan from above, with true and found boxes, in a palette as the other pictures."""
    from PIL import Image

    scan = lidar_scan(DRAWN)
    detect_numpy.draw(path, scan, detect_numpy.detect(scan.points, detect_numpy.load_weights()))
    with Image.open(path) as image:
        pixels = image.convert("RGB")
    pixels.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)
