"""examples/kitti_format.py: its files say what is true about the simulated scans."""

import importlib.util
import math
import zlib
from pathlib import Path

import numpy as np
import pytest

from turnout.simulate import CLASSES, lidar_scan

PROGRAM = Path(__file__).parents[2] / "examples" / "kitti_format.py"


@pytest.fixture(scope="module")
def kitti_format():
    spec = importlib.util.spec_from_file_location("kitti_format", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(kitti_format, tmp_path_factory):
    made = tmp_path_factory.mktemp("kitti")
    kitti_format.write_dataset(made, train=2, val=1, test=1, seed=5, azimuths=256)
    return made


def matrices(path):
    lines = dict(line.split(": ") for line in path.read_text().splitlines())
    return {name: np.array(text.split(), float) for name, text in lines.items()}


def test_files(folder):
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    expected = {f"ImageSets/{split}.txt" for split in ("train", "val", "trainval", "test")}
    kinds = {"velodyne": "bin", "calib": "txt", "image_2": "png", "label_2": "txt", "planes": "txt"}
    for number in range(3):
        expected |= {f"training/{kind}/{number:06d}.{suffix}" for kind, suffix in kinds.items()}
    expected |= {f"testing/{kind}/000000.{kinds[kind]}" for kind in ("velodyne", "calib", "image_2")}
    assert found == expected
    assert (folder / "ImageSets" / "val.txt").read_text() == "000002\n"


def test_points_and_other_streets_for_the_test(folder):
    for path, seed in (("training/velodyne/000002.bin", 7), ("testing/velodyne/000000.bin", 8)):
        points = np.fromfile(folder / path, "<f4").reshape(-1, 4)
        np.testing.assert_array_equal(points, lidar_scan(seed, azimuths=256).points)


def test_labels_are_the_boxes(folder):
    """Each label is a box of the scan in other coordinates, and no box ahead is missing."""
    for number in range(3):
        scan = lidar_scan(5 + number, azimuths=256)
        calib = matrices(folder / f"training/calib/{number:06d}.txt")
        to_camera = calib["Tr_velo_to_cam"].reshape(3, 4)
        names, taken = [], set()
        for line in (folder / f"training/label_2/{number:06d}.txt").read_text().splitlines():
            name, *numbers = line.split()
            truncated, occluded, alpha, *rect, height, width, length, x, y, z, turn = map(float, numbers)
            centre = np.linalg.inv(to_camera[:, :3]) @ ([x, y - height / 2, z] - to_camera[:, 3])
            box = [*centre, length, width, height]
            errors = np.abs(scan.boxes[:, :6] - box).max(axis=1)
            row = int(errors.argmin())
            assert errors[row] < 0.011 and row not in taken
            taken.add(row)
            turned = math.remainder(-turn - math.pi / 2 - float(scan.boxes[row, 6]), 2 * math.pi)
            assert abs(turned) < 0.011
            assert abs(math.remainder(alpha - (turn - math.atan2(x, z)), 2 * math.pi)) < 0.021
            left, top, right, bottom = rect
            assert 0 <= left < right < 1242 and 0 <= top < bottom < 375
            assert 0 <= truncated <= 1 and occluded == 0
            # The middle of an object that is whole in the picture is in its rectangle.
            u, v, w = calib["P2"].reshape(3, 4) @ [x, y - height / 2, z, 1]
            assert truncated > 0 or (left < u / w < right and top < v / w < bottom)
            own = {"car": ["Car"], "van": ["Van"], "pedestrian": ["Pedestrian", "Cyclist"]}
            assert name in own[CLASSES[scan.labels[row]]]
            names.append(name)
        ahead = scan.boxes[:, 0] > 5
        near = np.abs(scan.boxes[:, 1]) < 0.6 * scan.boxes[:, 0]
        assert set(np.flatnonzero(ahead & near)) <= taken
        assert "Car" in names


def test_every_class_occurs(kitti_format):
    names = {
        line.split()[0]
        for seed in range(12)
        for line in kitti_format.labels_of(lidar_scan(seed, azimuths=512))
    }
    assert names == {"Car", "Van", "Pedestrian", "Cyclist"}


def test_picture(folder, kitti_format):
    data = (folder / "training/image_2/000000.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    size = int.from_bytes(data[33:37], "big")
    rows = np.frombuffer(zlib.decompress(data[41 : 41 + size]), np.uint8).reshape(375, 1 + 1242 * 3)
    assert (rows[:, 0] == 0).all()
    picture = rows[:, 1:].reshape(375, 1242, 3)
    np.testing.assert_array_equal(picture, kitti_format.picture_of(lidar_scan(5, azimuths=256)))
    assert 0.002 < (picture > 0).any(axis=2).mean() < 0.5
    assert (picture[:100] > 0).mean() < (picture[200:] > 0).mean()  # the ground is below


def test_plane_is_the_ground(folder):
    a, b, c, d = map(float, (folder / "training/planes/000000.txt").read_text().splitlines()[3].split())
    assert (a, b, c) == (0, -1, 0) and d == pytest.approx(1.73)
