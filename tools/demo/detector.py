"""The demo's detector: the trained network of examples/ on scans that it has not seen, with NumPy alone."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from turnout.simulate import CLASSES, lidar_scan

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import detect_numpy

SCANS = 4
DRAWN = detect_numpy.UNSEEN + 7  # a street with vans


def summary() -> str:
    """How long the network takes for a scan, and how precise it is."""
    weights = detect_numpy.load_weights()
    scans = [lidar_scan(detect_numpy.UNSEEN + number) for number in range(SCANS)]
    found = [detect_numpy.detect(scan.points, weights) for scan in scans]
    seconds = []
    for _ in range(9):
        start = time.perf_counter()
        detect_numpy.detect(scans[0].points, weights)
        seconds.append(time.perf_counter() - start)
    precisions = (
        f"{name}s {detect_numpy.average_precision(found, scans, label):.2f}"
        for label, name in enumerate(CLASSES)
        if any((detect_numpy.truth_of(scan)[1] == label).any() for scan in scans)
    )
    voxels = len(detect_numpy.voxels_of(scans[0].points)[1])
    return (
        f"Detector: {len(scans[0].points):,} points, {voxels:,} voxels and "
        f"{(found[0].scores >= detect_numpy.DRAWN_SCORE).sum()} boxes in "
        f"{1e3 * statistics.median(seconds):.0f} ms.\n"
        f"Its average precision at IoU 0.5 in {SCANS} scans that it has not seen: {', '.join(precisions)}."
    )


def draw(path: Path) -> None:
    """Draws an unseen scan from above, with true and found boxes, in a palette as the other pictures."""
    from PIL import Image

    scan = lidar_scan(DRAWN)
    detect_numpy.draw(path, scan, detect_numpy.detect(scan.points, detect_numpy.load_weights()))
    with Image.open(path) as image:
        pixels = image.convert("RGB")
    pixels.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)
