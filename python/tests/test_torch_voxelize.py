"""voxelize for PyTorch: operators, the names of mmcv, compilation."""

import inspect

import numpy as np
import pytest
import torch
from conftest import same_bits
from test_voxelize import RANGE, SIZE, cloud
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

import turnout
import turnout.torch
from turnout import check
from turnout.torch import DynamicScatter, Voxelization, voxelization

pytestmark = pytest.mark.torch

OP = torch.ops.turnout.voxelize.default
HARD = torch.ops.turnout.voxelize_hard.default


def points_of(rng, points=100, dtype=torch.float32):
    return torch.from_numpy(cloud(rng, points)).to(dtype)


def assert_like_definition(results, points, size=SIZE, ends=RANGE, **limits):
    wide = points if points.dtype == torch.float64 else points.float()
    expected = check.voxelize(wide.numpy(), size, ends, **limits)
    if not limits:  # coordinates alone, whose rows are no results
        results, expected = (results,), (expected,)
    for actual, wanted in zip(results, expected, strict=True):
        assert type(actual) is torch.Tensor
        if actual.dtype.is_floating_point:
            assert torch.equal(actual, torch.from_numpy(wanted).to(points.dtype))
        else:
            assert same_bits(actual.numpy(), wanted)


# -- operators ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("count", [0, 100])
def test_definition(rng, dtype, count):
    points = points_of(rng, count, dtype)
    limits = {"max_points": 3, "max_voxels": 20}
    for results in (OP(points, SIZE, RANGE), turnout.voxelize(points, SIZE, RANGE)):
        assert_like_definition(results, points)
    for results in (HARD(points, SIZE, RANGE, 3, 20), turnout.voxelize(points, SIZE, RANGE, **limits)):
        assert_like_definition(results, points, **limits)


def test_strided_tensors(rng):
    points = points_of(rng).T.contiguous().T
    assert not points.is_contiguous()
    assert_like_definition(voxelization(points, SIZE, RANGE, -1), points)
    results = voxelization(points[:, :3], SIZE, RANGE, 3, 20)
    assert_like_definition(results, points[:, :3].contiguous(), max_points=3, max_voxels=20)


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_kinds_of_numbers(rng, kind):
    points = points_of(rng)
    assert_like_definition(turnout.voxelize(points, kind(SIZE), kind(RANGE)), points)
    assert_like_definition(voxelization(points, kind(SIZE), kind(RANGE), -1), points)
    module = Voxelization(kind(SIZE), kind(RANGE), 3, 20)
    assert_like_definition(module(points), points, max_points=3, max_voxels=20)


@pytest.mark.parametrize("count", [0, 100])
def test_opcheck(rng, count):
    points = points_of(rng, count)
    torch.library.opcheck(OP, (points, SIZE, RANGE))
    torch.library.opcheck(OP, (points.clone().requires_grad_(), SIZE, RANGE))
    torch.library.opcheck(HARD, (points, SIZE, RANGE, 3, 20))


def test_fake():
    with FakeTensorMode(shape_env=ShapeEnv()):
        points = torch.empty(100, 4, dtype=torch.float16)
        coors = OP(points, SIZE, RANGE)
        assert (tuple(coors.shape), coors.dtype) == ((100, 3), torch.int32)
        voxels, coors, num = HARD(points, SIZE, RANGE, 3, 20)
        assert free_unbacked_symbols(voxels.shape[0])
        assert voxels.shape[0] == coors.shape[0] == num.shape[0]
        assert (tuple(voxels.shape[1:]), coors.shape[1]) == ((3, 4), 3)
        assert [x.dtype for x in (voxels, coors, num)] == [torch.float16, torch.int32, torch.int32]


def test_gradients_are_not_dropped(rng):
    """Coordinates have none; copies of points would have one."""
    points = points_of(rng).requires_grad_()
    assert not voxelization(points, SIZE, RANGE, -1).requires_grad
    with pytest.raises(NotImplementedError) as caught:
        voxelization(points, SIZE, RANGE)
    assert str(caught.value) == (
        "voxelize_hard: points requires grad, but this operator has no gradient yet; pass points.detach(), "
        "or call it under torch.no_grad()"
    )
    with torch.no_grad():
        assert not voxelization(points, SIZE, RANGE)[0].requires_grad


def test_torch_func_is_refused(rng):
    """It hides from kernels what it follows: zeros would come back."""
    function = lambda points: voxelization(points, SIZE, RANGE)[0].sum()  # noqa: E731
    for differentiate in (torch.func.grad, torch.func.jacrev):
        with pytest.raises(NotImplementedError, match="points requires grad, but this operator has no"):
            differentiate(function)(points_of(rng))


def test_same_sentences(rng):
    points = points_of(rng)
    with pytest.raises(ValueError, match="voxelize: voxel_size has 2 elements, expected 3"):
        OP(points, SIZE[:2], RANGE)
    with pytest.raises(ValueError, match=r"voxelize: points.shape\[1\] is 2, expected 3 or more"):
        voxelization(points[:, :2], SIZE, RANGE)
    with pytest.raises(ValueError, match="max_points is -2 and max_voxels is 5, expected two limits"):
        voxelization(points, SIZE, RANGE, -2, 5)


# -- mmcv --------------------------------------------------------------------------------------------------


def test_mmcv_signatures():
    for function, names, defaults in (
        (
            voxelization,
            ("points", "voxel_size", "coors_range", "max_points", "max_voxels", "deterministic"),
            (35, 20000, True),
        ),
        (
            Voxelization,
            ("voxel_size", "point_cloud_range", "max_num_points", "max_voxels", "deterministic"),
            (20000, True),
        ),
    ):
        parameters = inspect.signature(function).parameters.values()
        assert tuple(p.name for p in parameters) == names
        assert tuple(p.default for p in parameters if p.default is not p.empty) == defaults
        assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)


@pytest.mark.parametrize("limits", [(-1, 20000), (35, -1), (-1, -1)])
def test_one_limit_of_minus_one_is_enough(rng, limits):
    points = points_of(rng)
    for deterministic in (True, False):
        assert_like_definition(voxelization(points, SIZE, RANGE, *limits, deterministic), points)


def test_module(rng):
    points = points_of(rng, 300)
    module = Voxelization(list(SIZE), list(RANGE), 3, (5, 9), deterministic=False)
    assert_like_definition(module(points), points, max_points=3, max_voxels=5)
    assert_like_definition(module.eval()(points), points, max_points=3, max_voxels=9)
    assert repr(module) == (
        "Voxelization(voxel_size=[0.5, 0.25, 4], point_cloud_range=[0, -1, -3, 4, 1, 1], max_num_points=3, "
        "max_voxels=(5, 9), deterministic=False)"
    )
    assert module.grid_size.tolist() == [8, 8, 1]
    assert module.grid_size.dtype == torch.int64
    assert Voxelization(SIZE, RANGE, 3).max_voxels == (20000, 20000)
    assert Voxelization(SIZE, RANGE, 3, [5, 9]).max_voxels == (5, 9)


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor, range])
def test_limits_of_the_module(rng, kind):
    limits = range(5, 7) if kind is range else kind([5, 6])
    module = Voxelization(SIZE, RANGE, 3, limits)
    assert module.max_voxels == (5, 6)
    points = points_of(rng)
    assert_like_definition(module(points), points, max_points=3, max_voxels=5)
    for values in ([], [5], [5, 6, 7]):
        limits = range(len(values)) if kind is range else kind(values)
        with pytest.raises(ValueError) as caught:
            Voxelization(SIZE, RANGE, 3, limits)
        assert str(caught.value) == (
            f"Voxelization: max_voxels has {len(values)} elements, expected one limit, or 2: "
            "for training and for all else"
        )


@pytest.mark.parametrize("limit", [5, np.int64(5), np.array(5), torch.tensor(5)])
def test_one_limit_of_the_module(limit):
    assert Voxelization(SIZE, RANGE, 3, limit).max_voxels == (5, 5)


@pytest.mark.parametrize(
    ("size", "ends", "sentence"),
    [
        ((0, 1, 1), RANGE, "voxel_size[0] is 0, expected a positive finite number"),
        ((1, float("nan"), 1), RANGE, "voxel_size[1] is nan, expected a positive finite number"),
        ((1, 1, float("inf")), RANGE, "voxel_size[2] is inf, expected a positive finite number"),
        (SIZE[:2], RANGE, "voxel_size has 2 elements, expected 3"),
        (SIZE, RANGE[:5], "point_cloud_range has 5 elements, expected 6"),
        (
            (1, 1, 1),
            (0, 0, 0, 4, float("nan"), 1),
            "point_cloud_range is 0 .. nan in direction y, which is nan voxels, expected 1 .. 2147483647",
        ),
    ],
)
def test_module_refuses_a_bad_grid(size, ends, sentence):
    """When it is made, with the sentence of the operator."""
    for kind in (list, np.array, torch.tensor):
        with pytest.raises(ValueError) as caught:
            Voxelization(kind(size), kind(ends), 3)
        assert str(caught.value) == f"voxelize: {sentence}"


@pytest.mark.parametrize(
    ("size", "ends", "grid"),
    [
        ((0.075, 0.075, 0.2), (-54, -54, -5, 54, 54, 3), [1440, 1440, 40]),
        ((0.16, 0.16, 4), (0, -39.68, -3, 69.12, 39.68, 1), [432, 496, 1]),
        ((1, 1, 1), (0, 0, 0, 2.5, 3.5, 0.6), [3, 4, 1]),  # halves away from zero, as the operator
    ],
)
def test_grid_size(size, ends, grid):
    module = Voxelization(size, ends, -1)
    assert module.grid_size.tolist() == grid
    assert [int(extent) for extent in module.pcd_shape] == [1, grid[1], grid[0]]
    # The last voxel of each direction is there, and the next one is not.
    for offset, expected in ((-0.5, [n - 1 for n in grid][::-1]), (0.5, [-1, -1, -1])):
        point = [least + (n + offset) * s for least, n, s in zip(ends, grid, size, strict=False)]
        assert module(torch.tensor([point])).tolist() == [expected]


def test_pillars(rng):
    """Voxelization and DynamicScatter one after the other, for a batch of clouds."""
    clouds = [points_of(rng, n) for n in (80, 0, 50)]
    voxels = Voxelization(SIZE, RANGE, -1)
    coors = [torch.nn.functional.pad(voxels(p), (1, 0), value=b) for b, p in enumerate(clouds)]
    mean, rows = DynamicScatter(SIZE, RANGE, True)(torch.cat(clouds), torch.cat(coors))
    first = 0
    for b, points in enumerate(clouds):
        alone, coors_alone = DynamicScatter(SIZE, RANGE, True)(points, voxels(points))
        part = slice(first, first + len(alone))
        assert torch.equal(mean[part], alone)
        assert torch.equal(rows[part], torch.nn.functional.pad(coors_alone, (1, 0), value=b))
        first = part.stop
    assert first == len(mean)


# -- compilation -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [(-1, -1), (3, 20)])
def test_compile(rng, limits):
    def function(points):
        results = voxelization(points * 1, SIZE, RANGE, *limits)
        return [x + 1 for x in ([results] if limits[0] == -1 else results)]

    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        for _ in range(3):
            points = points_of(rng)
            for a, b in zip(function(points), compiled(points), strict=True):
                assert torch.equal(a, b)
