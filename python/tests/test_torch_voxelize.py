"""voxelize for PyTorch: operators, compilation."""

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
from turnout.torch import voxelize

pytestmark = pytest.mark.torch

OP = torch.ops.turnout.voxelize.default
HARD = torch.ops.turnout.voxelize_hard.default
LIMITS = {"max_points": 3, "max_voxels": 20}


def points_of(rng, points=100, dtype=torch.float32):
    return torch.from_numpy(cloud(rng, points)).to(dtype)


def assert_like_definition(results, points, size=SIZE, ends=RANGE, **limits):
    wide = points if points.dtype == torch.float64 else points.float()
    expected = check.voxelize(wide.numpy(), size, ends, **limits)
    if not limits:  # only coordinates, of all points
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
    for results in (OP(points, SIZE, RANGE), turnout.voxelize(points, SIZE, RANGE)):
        assert_like_definition(results, points)
    for results in (HARD(points, SIZE, RANGE, 3, 20)[:3], turnout.voxelize(points, SIZE, RANGE, **LIMITS)):
        assert_like_definition(results, points, **LIMITS)
    for binding in (turnout.voxelize, voxelize):
        results = binding(points, SIZE, RANGE, return_map=True, **LIMITS)
        assert_like_definition(results, points, return_map=True, **LIMITS)
    assert HARD(points, SIZE, RANGE, 3, 20)[3].shape == (0,)
    assert len(voxelize(points, SIZE, RANGE, **LIMITS)) == 3
    for binding in (turnout.voxelize, voxelize):
        with pytest.raises(ValueError, match="voxelize: return_map is True, expected max_points"):
            binding(points, SIZE, RANGE, return_map=True)


def test_strided_tensors(rng):
    points = points_of(rng).T.contiguous().T
    assert not points.is_contiguous()
    assert_like_definition(voxelize(points, SIZE, RANGE), points)
    results = voxelize(points[:, :3], SIZE, RANGE, max_points=3, max_voxels=20)
    assert_like_definition(results, points[:, :3].contiguous(), max_points=3, max_voxels=20)


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor])
def test_kinds_of_numbers(rng, kind):
    points = points_of(rng)
    assert_like_definition(turnout.voxelize(points, kind(SIZE), kind(RANGE)), points)
    assert_like_definition(voxelize(points, kind(SIZE), kind(RANGE)), points)


@pytest.mark.parametrize("count", [0, 100])
def test_opcheck(rng, count):
    points = points_of(rng, count)
    torch.library.opcheck(OP, (points, SIZE, RANGE))
    torch.library.opcheck(OP, (points.clone().requires_grad_(), SIZE, RANGE))
    torch.library.opcheck(HARD, (points, SIZE, RANGE, 3, 20))
    torch.library.opcheck(HARD, (points, SIZE, RANGE, 3, 20, True))


def test_fake():
    with FakeTensorMode(shape_env=ShapeEnv()):
        points = torch.empty(100, 4, dtype=torch.float16)
        coors = OP(points, SIZE, RANGE)
        assert (tuple(coors.shape), coors.dtype) == ((100, 3), torch.int32)
        voxels, coors, num, map_ = HARD(points, SIZE, RANGE, 3, 20, True)
        assert (tuple(map_.shape), map_.dtype) == ((100,), torch.int32)
        assert free_unbacked_symbols(voxels.shape[0])
        assert voxels.shape[0] == coors.shape[0] == num.shape[0]
        assert (tuple(voxels.shape[1:]), coors.shape[1]) == ((3, 4), 3)
        assert [x.dtype for x in (voxels, coors, num)] == [torch.float16, torch.int32, torch.int32]


def test_gradients_are_not_dropped(rng):
    """Coordinates have no gradient; copies of points would have one."""
    points = points_of(rng).requires_grad_()
    assert not voxelize(points, SIZE, RANGE).requires_grad
    with pytest.raises(NotImplementedError) as caught:
        voxelize(points, SIZE, RANGE, **LIMITS)
    assert str(caught.value) == (
        "voxelize: points requires grad, but this operator has no gradient yet; pass points.detach(), or "
        "call it under torch.no_grad()"
    )
    with torch.no_grad():
        assert not voxelize(points, SIZE, RANGE, **LIMITS)[0].requires_grad


def test_torch_func_is_refused(rng):
    """torch.func hides its tracking from kernels, which would return zeros."""
    function = lambda points: voxelize(points, SIZE, RANGE, **LIMITS)[0].sum()  # noqa: E731
    for differentiate in (torch.func.grad, torch.func.jacrev):
        with pytest.raises(NotImplementedError, match="points requires grad, but this operator has no"):
            differentiate(function)(points_of(rng))


def test_same_messages(rng):
    points = points_of(rng)
    with pytest.raises(ValueError, match="voxelize: voxel_size has 2 elements, expected 3"):
        OP(points, SIZE[:2], RANGE)
    with pytest.raises(ValueError, match=r"voxelize: points.shape\[1\] is 2, expected 3 or more"):
        voxelize(points[:, :2], SIZE, RANGE, **LIMITS)
    with pytest.raises(ValueError, match="max_points is -2 and max_voxels is 5, expected two limits"):
        voxelize(points, SIZE, RANGE, max_points=-2, max_voxels=5)


# -- compilation -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{}, LIMITS])
def test_compile(rng, limits):
    def function(points):
        results = voxelize(points * 1, SIZE, RANGE, **limits)
        return [x + 1 for x in (results if limits else [results])]

    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        for _ in range(3):
            points = points_of(rng)
            for a, b in zip(function(points), compiled(points), strict=True):
                assert torch.equal(a, b)
