"""The programs in examples/ at small scales: they run, losses fall, and pictures show something."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import turnout

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
        points, on_car = map(torch.from_numpy, point_pillars.scan(500, np.random.default_rng(seed)))
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
    losses, _ = load("toy_transducer").main(["--steps", "24", "--batch", "6", "--out", str(path)])
    assert len(losses) == 24
    assert sum(losses[9:12]) < 0.9 * sum(losses[:3])
    assert sum(losses[-3:]) < 0.95 * sum(losses[9:12])
    assert min(imread(path).shape[:2]) > 300
    said = capsys.readouterr().out
    for word in ("bad", "cage", "feed"):
        assert f" s  {word} " in said
