"""The programs in examples/ at small scales: they run, losses fall, and pictures show something."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import turnout
from turnout.simulate import CLASSES, lidar_scan

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
        points, on_car = point_pillars.ahead(500, seed)
        coors = turnout.torch.voxelize(points, point_pillars.PILLAR, point_pillars.RANGE)
        assert bool((coors >= 0).all()) and 0 < int(on_car.sum()) < 500
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
    scan = lidar_scan(3, azimuths=512)
    targets = sparse_detector.Targets([scan])
    boxes = torch.zeros(1, *targets.heat.shape[1:], sparse_detector.BOX)
    boxes[targets.cells] = targets.boxes
    found, sure = sparse_detector.found(torch.logit(targets.heat[0], eps=1e-6), boxes[0], least=0.9)
    assert len(found) == len(targets.boxes) and bool((sure > 0.9).all())
    assert sparse_detector.count_found(found, scan) == (len(found), len(found))
    cars = street.cars_of(scan)
    inside = cars[(np.abs(cars[:, :2]) < 51.2).all(axis=1)]
    order = [rows[np.lexsort(rows.T)] for rows in (inside, found.numpy())]
    np.testing.assert_allclose(*order, rtol=1e-4, atol=1e-4)


def test_detect_learns_and_draws(tmp_path, capsys):
    """The loss falls; the weights are written, the precision is reported, and both pictures are drawn."""
    path, weights = tmp_path / "new" / "detect.png", tmp_path / "new" / "weights.npz"
    losses, precisions = load("detect").main(["--small", "--out", str(path), "--weights", str(weights)])
    assert len(losses) == 24 and np.mean(losses[-6:]) < 0.75 * np.mean(losses[:6])
    assert set(precisions) == set(CLASSES) and all(0 <= value <= 1 for value in precisions.values())
    said = capsys.readouterr().out
    assert "1 unseen scans" in said and f"drawn in {path}" in said
    assert set(load("detect_numpy").load_weights(weights)) == set(load("detect_numpy").load_weights())
    assert path.stat().st_size > 10_000 and "<svg" in path.with_suffix(".svg").read_text()


def test_detect_with_numpy_equals_torch():
    """The modules with random weights and statistics, and what their folded weights give."""
    import torch

    detect, detect_numpy = load("detect"), load("detect_numpy")
    torch.manual_seed(0)
    detector = detect.Detector().eval()
    for module in detector.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            for values, low, high in (
                (module.weight, 0.5, 1.5),
                (module.bias, -0.5, 0.5),
                (module.running_mean, -0.2, 0.2),
                (module.running_var, 0.05, 0.2),
            ):
                torch.nn.init.uniform_(values, low, high)
    features, sites = detect_numpy.voxels_of(lidar_scan(5, azimuths=256).points)
    voxels = turnout.torch.nn.SparseTensor(
        torch.from_numpy(features), torch.from_numpy(sites), detect_numpy.SPACE, 1
    )
    with torch.inference_mode():
        cells, outputs = detector(voxels)
    again, values = detect_numpy.forward(detector.weights(), features, sites)
    assert np.array_equal(again, cells.numpy()) and len(again) > 500
    assert values.std(axis=0).min() > 0.05
    np.testing.assert_allclose(values, outputs.numpy(), rtol=1e-3, atol=1e-4)


def torchrun(processes, program, *arguments):
    """What the program prints in so many processes."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [sys.executable, *command, str(EXAMPLES / program), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sparse_detector_under_torchrun(tmp_path):
    """Two processes with scans of their own: the loss falls, and one of them draws."""
    path = tmp_path / "detector.png"
    said = torchrun(2, "sparse_detector.py", "--small", "--out", str(path))
    assert "2 x 1 scans" in said
    losses = [float(line.split()[3].rstrip(",")) for line in said.splitlines() if " loss " in line]
    assert len(losses) == 3 and losses[-1] < 0.6 * losses[0]
    assert path.exists()


def test_toy_mixture_learns_the_same_alone_and_under_torchrun(tmp_path, capsys):
    """The loss falls, all choices are counted, and two processes print what one prints."""
    paths = [tmp_path / "new" / name for name in ("one.svg", "two.svg")]
    losses, loads = load("toy_mixture").main(["--small", "--out", str(paths[0])])
    alone = capsys.readouterr().out
    assert len(losses) == 60 and losses[-1] < 0.5 * losses[0]
    assert loads.shape == (60, 8) and (loads.sum(1) == 2 * 256).all()
    together = torchrun(2, "toy_mixture.py", "--small", "--out", str(paths[1]))
    printed = [[float(text) for text in re.findall(r"loss (\d+\.\d+)", said)] for said in (alone, together)]
    assert len(printed[0]) == 10
    np.testing.assert_allclose(*printed, rtol=1e-2)
    assert "processes: 2" in together and together.count("step    0") == 1
    for path in paths:
        assert "<svg" in path.read_text() and path.stat().st_size > 10_000


def test_swin_moe_shape(capsys):
    """The capacity of the seed's shape; outputs and gradients are those of plain torch."""
    result = load("swin_moe_shape").main(["--small"])
    assert result["capacity"] == 11520 and result["dropped"] > 100 and result["difference"] < 1e-4
    said = capsys.readouterr().out
    assert "18432 tokens, 2 experts, factor 1.25: capacity 11520" in said and "backward" in said


def test_expert_parallel_scale(capsys):
    """Bytes that can be counted by hand, a skew that loads one rank, and bytes measured as computed."""
    scale = load("expert_parallel_scale")
    shape = scale.Shape(tokens=10, choices=2, hidden=3, inner=4, experts=4)
    rows = np.array([[5, 15], [20, 0]])  # rank 0 sends 15 rows, rank 1 sends 20; and as many back
    counts = 8 * (5 + 2)
    assert scale.sent_bytes(rows, shape).tolist() == [2 * 35 * 12 + counts] * 2
    assert dict((name, forward) for name, forward, _ in scale.memory_steps(shape))["re-route"] == 4 * 12
    sizes = ["--tokens", "64", "--choices", "2", "--hidden", "8", "--inner", "8", "--experts", "8"]
    even, skewed = scale.main([*sizes, "--ranks", "4", "--skew", "0", "2"])
    assert even["load"] < 1.2 < 1.5 < skewed["load"]
    assert even["message"] == 64 * 2 * 8 * 2 / 4
    assert "4   2.0" in capsys.readouterr().out
    said = torchrun(2, "expert_parallel_scale.py", *sizes, "--skew", "1", "--repeat", "2")
    sent = re.findall(r"sent (\d+) B, computed (\d+) B", said)
    assert len(sent) == 2 and all(measured == computed for measured, computed in sent)


def test_qwen3_moe(capsys):
    assert load("qwen3_moe").main(["--small"]) < 0.02
    said = capsys.readouterr().out
    assert said.count(" tokens/s with grouped_mm, ") == 2
