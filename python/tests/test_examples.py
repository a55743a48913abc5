"""The programs in examples/ at small scales: they run, losses fall, and pictures show something."""

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import turnout

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    """The program as a module; it imports others of its folder."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


@pytest.fixture(autouse=True)
def one_thread():
    """Two threads gain nothing at these sizes, and lose time where another program has a core."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def point_pillars():
    return load("point_pillars")


def test_point_pillars_learns_and_draws(point_pillars, tmp_path, capsys):
    from matplotlib.image import imread

    path = tmp_path / "new" / "pillars.png"
    losses = point_pillars.main(["--points", "1200", "--channels", "32", "--steps", "8", "--out", str(path)])
    assert len(losses) == 8
    assert losses[-1] < 0.7 * losses[0]
    picture = imread(path)
    assert min(picture.shape[:2]) > 500
    # The canvas, right above, has colors.
    height, width, _ = picture.shape
    canvas = picture[: height // 2, width // 2 :, :3]
    assert (canvas.max(axis=-1) - canvas.min(axis=-1) > 0.3).mean() > 0.005
    said = capsys.readouterr().out
    assert "1200 points" in said
    assert "step   7: loss" in said
    assert f"drawn in {path}" in said


def test_point_pillars_gives_the_same_losses_again(point_pillars):
    import torch

    def losses(seed):
        torch.manual_seed(seed)
        points, on_car, _ = map(torch.from_numpy, point_pillars.scan(500, np.random.default_rng(seed)))
        coors = turnout.torch.voxelize(points, point_pillars.PILLAR, point_pillars.RANGE)
        points, coors, on_car = (x[coors[:, 0] >= 0] for x in (points, coors, on_car))
        is_car, _ = turnout.torch.dynamic_scatter(on_car[:, None].float(), coors)
        encoder, head = point_pillars.PillarEncoder(16), torch.nn.Linear(16, 1)
        return point_pillars.train(encoder, head, (points, coors), is_car, 3)

    assert losses(0) == losses(0)
    assert losses(0) != losses(1)


def test_point_pillars_canvas_has_each_pillar_in_its_place(point_pillars):
    import torch

    rows = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    canvas = point_pillars.canvas_of(rows, torch.tensor([[0, 5, 7], [0, 495, 431]], dtype=torch.int32))
    assert canvas.shape == (496, 432, 2)
    assert canvas[5, 7].tolist() == [1, 2]
    assert canvas[495, 431].tolist() == [3, 4]
    assert int((canvas != 0).sum()) == 4


def test_toy_transducer_learns(tmp_path, capsys):
    """Both halves of the training lower the loss, and the words of the alignment have times."""
    from matplotlib.image import imread

    path = tmp_path / "new" / "toy.png"
    losses, _ = load("toy_transducer").main(["--small", "--out", str(path)])
    assert len(losses) == 24
    assert sum(losses[9:12]) < 0.9 * sum(losses[:3])
    assert sum(losses[-3:]) < 0.95 * sum(losses[9:12])
    assert min(imread(path).shape[:2]) > 300
    said = capsys.readouterr().out
    for word in ("bad", "cage", "feed"):
        assert f" s  {word} " in said


def test_sparse_encoder_shows_layers_and_stages(tmp_path, capsys):
    from matplotlib.image import imread

    path = tmp_path / "new" / "encoder.png"
    sparse_encoder = load("sparse_encoder")
    losses = sparse_encoder.main(["--small", "--out", str(path)])
    assert set(losses) == {"encoder", "unet"}
    assert all(len(course) == 3 and course[2] < course[0] for course in losses.values())
    said = capsys.readouterr().out
    assert "3000 voxels in a grid of 41 x 1024 x 1024" in said
    for layer in ("stem.0", "stage1.0.first.0", "stage4.0.0", "final.0", "up.2.0", "merge.0.0"):
        assert f" {layer} " in said
    assert f"drawn in {path}" in said
    picture = imread(path)
    # The last panel, right below, has the sites of the final stage.
    height, width, _ = picture.shape
    sites = picture[height // 2 :, 2 * width // 3 :, :3]
    assert (sites.max(axis=-1) - sites.min(axis=-1) > 0.2).mean() > 0.05


def test_example_networks_equal_dense_ones():
    """The encoder and a level of the UNet against conv3d, in training; weights have gradients."""
    import torch
    from sparse_networks import Dense, scene

    networks = load("networks")
    torch.manual_seed(0)
    x = scene(np.random.default_rng(0))
    encoder = networks.encoder(inputs=3, channels=(4, 6, 8, 8)).double()

    def run_dense(module, grid):
        if isinstance(module, networks.Block):
            out = run_dense(module.second, run_dense(module.first, grid))
            out.features = torch.relu(out.features + grid.features)
            return out
        if isinstance(module, torch.nn.Sequential):
            for child in module.children():
                grid = run_dense(child, grid)
            return grid
        return grid.run(module)

    out, dense = encoder(x), run_dense(encoder, Dense.of(x))
    assert list(out.spatial_shape) == [2, 2, 2] and len(out.features) > 5
    torch.testing.assert_close(out.dense(), dense.grid, rtol=1e-9, atol=1e-9)
    logits = networks.UNet(inputs=3, channels=(4, 6, 8)).double()(x)
    assert logits.shape == (len(x.features), 2)


def test_sparse_detector_learns_and_draws(tmp_path, capsys):
    path = tmp_path / "detector.png"
    losses = load("sparse_detector").main(["--small", "--out", str(path)])
    assert len(losses) == 8
    assert losses[-1] < 0.6 * losses[0]
    said = capsys.readouterr().out
    assert "step   7: loss" in said and " cars are found" in said
    assert path.stat().st_size > 10_000


def test_sparse_detector_finds_the_boxes_it_was_told():
    """What is read from a perfect answer are the cars of the scan."""
    import torch

    sparse_detector, street = load("sparse_detector"), load("street")
    scan = street.scan(2000, np.random.default_rng(3), degrees=360)
    targets = sparse_detector.Targets([scan])
    boxes = torch.zeros(1, *targets.heat.shape[1:], sparse_detector.BOX)
    boxes[targets.cells] = targets.boxes
    found, sure = sparse_detector.found(torch.logit(targets.heat[0], eps=1e-6), boxes[0], least=0.9)
    assert len(found) == len(targets.boxes) and bool((sure > 0.9).all())
    assert sparse_detector.count_found(found, scan) == (len(found), len(found))
    inside = scan.cars[np.abs(scan.cars[:, 0]) < 51.2]
    order = [rows[np.lexsort(rows.T)] for rows in (inside, found.numpy())]
    np.testing.assert_allclose(*order, rtol=1e-4, atol=1e-4)


def test_sparse_detector_under_torchrun(tmp_path):
    """Two processes with scans of their own: the loss falls, and one of them draws."""
    path = tmp_path / "detector.png"
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = [str(EXAMPLES / "sparse_detector.py"), "--small", "--out", str(path)]
    done = subprocess.run(
        [sys.executable, *command, *program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "2 x 1 scans" in done.stdout
    losses = [float(line.split()[3].rstrip(",")) for line in done.stdout.splitlines() if " loss " in line]
    assert len(losses) == 3 and losses[-1] < 0.6 * losses[0]
    assert path.exists()
