"""A small dataset in the format of KITTI, made of simulated scans: python examples/kitti_format.py FOLDER

The detectors of OpenPCDet and mmdetection3d can be tried with it on any machine, from the preparation of the
data to the average precision. The scans come from turnout.simulate; a pinhole camera next to the sensor says
which objects have a label, and its picture shows the points. Needs NumPy only.

    FOLDER/ImageSets/{train,val,test}.txt       the numbers of the scans
    FOLDER/{training,testing}/velodyne/N.bin    points: x, y, z, reflectance, float32
    FOLDER/{training,testing}/calib/N.txt       the matrices of the camera
    FOLDER/{training,testing}/image_2/N.png     its picture
    FOLDER/training/label_2/N.txt               objects in the coordinates of the camera
    FOLDER/training/planes/N.txt                the ground, for the augmentation of OpenPCDet
"""

from __future__ import annotations

import argparse
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnout.simulate import CLASSES, SENSOR_HEIGHT, Scan, lidar_scan

WIDTH, HEIGHT, FOCAL = 1242, 375, 720.0  # of the picture, pixels
# Camera coordinates: x to the right, y down, z ahead. The camera is at the place of the sensor.
TO_CAMERA = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
PROJECTION = np.array([[FOCAL, 0, WIDTH / 2, 0], [0, FOCAL, HEIGHT / 2, 0], [0, 0, 1, 0]])
NAMES = {"car": "Car", "van": "Van", "pedestrian": "Pedestrian"}
# Every fourth pedestrian is labelled as a cyclist, so that each class of the benchmark occurs.
CYCLISTS = 4
NEAR = 0.5  # metres in front of the camera


def row_of(values: Sequence[float] | NDArray[np.floating]) -> str:
    return " ".join(f"{value:.6e}" for value in np.ravel(values))


def calibration() -> str:
    """The matrices of KITTI's four cameras, which are one here."""
    lines = [f"P{camera}: {row_of(PROJECTION)}" for camera in range(4)]
    lines.append(f"R0_rect: {row_of(np.eye(3))}")
    lines.append(f"Tr_velo_to_cam: {row_of(np.column_stack([TO_CAMERA, np.zeros(3)]))}")
    lines.append(f"Tr_imu_to_velo: {row_of(np.eye(3, 4))}")
    return "\n".join(lines) + "\n"


def pixels_of(points: NDArray[np.floating]) -> NDArray[np.floating]:
    """[points, 2]: where points of the sensor's coordinates are in the picture."""
    camera = points[:, :3] @ TO_CAMERA.T
    depth = np.maximum(camera[:, 2:], NEAR)
    return camera[:, :2] / depth * FOCAL + [WIDTH / 2, HEIGHT / 2]


def corners_of(box: NDArray[np.floating]) -> NDArray[np.floating]:
    """[8, 3]: the corners of a box."""
    x, y, z, length, width, height, heading = box
    signs = np.array([[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)]) / 2
    local = signs * [length, width, height]
    cos, sin = math.cos(heading), math.sin(heading)
    along, across, up = local.T
    return np.column_stack([x + cos * along - sin * across, y + sin * along + cos * across, z + up])


def label_of(name: str, box: NDArray[np.floating]) -> str | None:
    """A line of a label file; None: the object is not in the picture."""
    x, y, z, length, width, height, heading = (float(number) for number in box)
    if x < NEAR:
        return None
    seen = pixels_of(corners_of(box))
    low, high = seen.min(axis=0), seen.max(axis=0)
    left, top = np.maximum(low, 0)
    right, bottom = np.minimum(high, [WIDTH - 1, HEIGHT - 1])
    if right - left < 2 or bottom - top < 2:
        return None
    truncated = 1 - (right - left) * (bottom - top) / np.prod(high - low)
    turn = math.remainder(-heading - math.pi / 2, 2 * math.pi)
    alpha = math.remainder(turn - math.atan2(-y, x), 2 * math.pi)
    place = (-y, -(z - height / 2), x)  # of the middle of the bottom
    numbers = (alpha, left, top, right, bottom, height, width, length, *place, turn)
    return f"{name} {truncated:.2f} 0 " + " ".join(f"{number:.2f}" for number in numbers)


def labels_of(scan: Scan) -> list[str]:
    lines, pedestrians = [], 0
    for box, label in zip(scan.boxes, scan.labels, strict=True):
        name = NAMES[CLASSES[label]]
        if name == "Pedestrian":
            pedestrians += 1
            name = "Cyclist" if pedestrians % CYCLISTS == 0 else name
        line = label_of(name, box)
        if line is not None:
            lines.append(line)
    return lines


def picture_of(scan: Scan) -> NDArray[np.uint8]:
    """[HEIGHT, WIDTH, 3]: the points in front of the camera, brighter where they reflect more."""
    points = scan.points[scan.points[:, 0] > NEAR]
    pixels = pixels_of(points).astype(np.int64)
    inside = np.all((pixels >= 0) & (pixels < [WIDTH, HEIGHT]), axis=1)
    picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    x, y = pixels[inside].T
    picture[y, x] = (80 + 175 * points[inside, 3:4]).astype(np.uint8)
    return picture


def png_of(picture: NDArray[np.uint8]) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = picture.shape
    rows = np.column_stack([np.zeros(height, np.uint8), picture.reshape(height, -1)])
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def write_scan(folder: Path, number: int, scan: Scan, *, has_labels: bool) -> None:
    def path(kind: str, suffix: str) -> Path:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        return folder / kind / f"{number:06d}.{suffix}"

    scan.points.astype("<f4").tofile(path("velodyne", "bin"))
    path("calib", "txt").write_text(calibration())
    path("image_2", "png").write_bytes(png_of(picture_of(scan)))
    if has_labels:
        path("label_2", "txt").write_text("".join(f"{line}\n" for line in labels_of(scan)))
        plane = row_of([0, -1, 0, SENSOR_HEIGHT])
        path("planes", "txt").write_text(f"# Matrix\nWIDTH 4\nHEIGHT 1\n{plane}\n")


def write_dataset(
    folder: Path, *, train: int = 12, val: int = 4, test: int = 2, seed: int = 0, azimuths: int = 2048
) -> None:
    """Writes as many scans of each part. Every scan is another street.

    Args:
        folder: OpenPCDet looks for ``data/kitti``.
        seed: of the first scan.
        azimuths: steps of a revolution; fewer give smaller scans.
    """
    splits = {"train": range(train), "val": range(train, train + val), "test": range(test)}
    (folder / "ImageSets").mkdir(parents=True, exist_ok=True)
    for split, numbers in splits.items():
        (folder / "ImageSets" / f"{split}.txt").write_text("".join(f"{number:06d}\n" for number in numbers))
        part, first = ("testing", train + val) if split == "test" else ("training", 0)
        for number in numbers:
            scan = lidar_scan(seed + first + number, azimuths=azimuths)
            write_scan(folder / part, number, scan, has_labels=split != "test")
    names = "".join(f"{number:06d}\n" for number in range(train + val))
    (folder / "ImageSets" / "trainval.txt").write_text(names)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--train", type=int, default=12, help="scans to train with (default: 12)")
    parser.add_argument("--val", type=int, default=4, help="scans to evaluate with (default: 4)")
    parser.add_argument("--test", type=int, default=2, help="scans without labels (default: 2)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--azimuths", type=int, default=2048, help="steps of a revolution (default: 2048)")
    chosen = parser.parse_args()
    counts = {"train": chosen.train, "val": chosen.val, "test": chosen.test}
    write_dataset(chosen.folder, **counts, seed=chosen.seed, azimuths=chosen.azimuths)
    print(f"{chosen.folder}: {chosen.train + chosen.val} scans with labels, {chosen.test} without")


if __name__ == "__main__":
    main()
