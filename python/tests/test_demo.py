"""The demo's pictures, which tools/demo draws from a simulated scan."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import turnout
from turnout.simulate import CLASSES, Scan, lidar_scan

ROOT = Path(__file__).parents[2]


def run_demo(folder, **environment):
    return subprocess.run(
        [sys.executable, ROOT / "tools/demo", "--pictures", folder],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_pictures_are_as_recorded(tmp_path):
    """Their sizes and most pixels are those of docs/images; text may differ with matplotlib's version."""
    from matplotlib.image import imread

    done = run_demo(tmp_path / "new")
    assert done.returncode == 0, done.stderr
    for name in ("detect.png", "scan.png", "layers.png"):
        drawn, recorded = (imread(folder / name) for folder in (tmp_path / "new", ROOT / "docs/images"))
        assert str(tmp_path / "new" / name) in done.stdout.replace("\n", "")
        assert drawn.shape == recorded.shape and drawn.shape[1] == 1600
        differing = (np.abs(drawn[..., :3] - recorded[..., :3]).max(axis=-1) > 0.3).mean()
        assert differing < 0.02, f"run: python tools/demo --pictures docs/images ({differing:.1%} differ)"
        assert (ROOT / "docs/images" / name).stat().st_size < 400_000


def test_without_matplotlib_the_demo_says_so(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError(name='matplotlib')")
    done = run_demo(tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "The pictures were not drawn, because matplotlib is not installed.\n"


def demo_module(name):
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module(f"demo.{name}")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def test_layers_are_the_sites_within_reach_of_the_kernel():
    pictures = demo_module("pictures")
    points = lidar_scan(1, azimuths=128).points
    voxels, *strided = pictures.layers(points)
    coors = turnout.voxelize(points, pictures.VOXEL, pictures.RANGE)
    assert np.array_equal(voxels[:, 1:], np.unique(coors[coors[:, 0] >= 0], axis=0))
    before, space = voxels[:, 1:], np.array(pictures.SPACE)
    for sites in strided:
        space //= 2
        reached = np.concatenate([before + 1 - np.array(offset) for offset in np.ndindex(3, 3, 3)])
        reached = reached[(reached % 2 == 0).all(axis=1)] // 2
        before = np.unique(reached[((reached >= 0) & (reached < space)).all(axis=1)], axis=0)
        assert np.array_equal(before, np.unique(sites[:, 1:], axis=0))


@pytest.fixture(scope="module")
def detect_numpy():
    return demo_module("detector").detect_numpy


def test_detector_finds_boxes_in_an_unseen_scan(detect_numpy):
    assert detect_numpy.WEIGHTS.stat().st_size < 200_000
    scan = lidar_scan(detect_numpy.UNSEEN + 1)
    found = detect_numpy.detect(scan.points, detect_numpy.load_weights())
    assert found.boxes.shape == (len(found.scores), 7) and np.isfinite(found.boxes).all()
    assert (np.diff(found.scores) <= 0).all() and (found.scores > detect_numpy.MIN_SCORE).all()
    overlaps = turnout.boxes_iou_bev(found.boxes, found.boxes)
    assert (np.triu(overlaps, 1) <= detect_numpy.MAX_IOU).all()
    assert detect_numpy.average_precision([found], [scan], CLASSES.index("car")) > 0.7
    assert (found.scores >= detect_numpy.DRAWN_SCORE).sum() > 15
    nothing = detect_numpy.detect(scan.points[:0], detect_numpy.load_weights())
    assert [len(part) for part in nothing] == [0, 0, 0]


def test_precisions_are_those_of_the_readme():
    """To 0.02: rounding differs with the instruction set, which may exchange boxes of close scores."""
    text = " ".join((ROOT / "README.md").read_text().split())
    precisions = demo_module("detector").precisions()
    assert set(precisions) == set(CLASSES)
    for name, value in precisions.items():
        (recorded,) = re.findall(rf"(\d\.\d\d) for {name}s", text)
        assert value == pytest.approx(float(recorded), abs=0.02)


def test_average_precision_counts_each_true_box_once(detect_numpy):
    """Right, the same again, another class, right: the precision is 1 at recall 1/2 and 2/3 at recall 1."""
    box = np.array([0, 0, 0, 4, 2, 1.5, 0], np.float32)
    far = box + np.array([10, 0, 0, 0, 0, 0, 0], np.float32)
    empty = np.zeros(0, np.int32)
    scan = Scan(np.zeros((0, 4), np.float32), np.stack([box, far]), np.zeros(2, np.int32), empty)
    found = detect_numpy.Found(
        np.stack([box, box, far, far]), np.array([0.9, 0.8, 0.7, 0.6], np.float32), np.array([0, 0, 1, 0])
    )
    average_precision = detect_numpy.average_precision
    assert average_precision([found], [scan], 0) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision([found], [scan], 1) == 0
    assert average_precision([found, found], [scan, scan], 0) == pytest.approx((1 + 2 / 3) / 2)
    higher = found._replace(boxes=found.boxes + np.array([0, 0, 1, 0, 0, 0, 0], np.float32))
    assert average_precision([higher], [scan], 0, 0.5, turnout.boxes_iou3d) == 0
    none = detect_numpy.Found(found.boxes[:0], found.scores[:0], found.labels[:0])
    assert average_precision([none], [scan], 0) == 0


def test_boxes_of_outputs_are_the_inverse_of_the_numbers_of_boxes(detect_numpy):
    boxes, labels = detect_numpy.truth_of(lidar_scan(2, azimuths=256))
    cells = np.random.default_rng(0).integers(0, detect_numpy.PLANE, (len(boxes), 3))
    cells = np.insert(cells, 0, 0, axis=1)
    again = detect_numpy.boxes_of(cells, detect_numpy.numbers_of(cells, boxes, labels), labels)
    np.testing.assert_allclose(again[:, :6], boxes[:, :6], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.sin(again[:, 6] - boxes[:, 6]), 0, atol=1e-4)  # equal, or half a turn apart
