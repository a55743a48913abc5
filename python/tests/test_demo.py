"""The demo's pictures, which tools/demo draws from a simulated scan."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import turnout
from turnout.simulate import lidar_scan

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
    """Sizes and most pixels match docs/images; text may differ between matplotlib versions."""
    from matplotlib.image import imread

    done = run_demo(tmp_path / "new")
    assert done.returncode == 0, done.stderr
    for name in ("scan.png", "layers.png"):
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


def test_layers_are_the_sites_within_reach_of_the_kernel():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        from demo import pictures
    finally:
        sys.path.remove(str(ROOT / "tools"))
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
