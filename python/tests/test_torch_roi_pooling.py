"""RoI pooling from torch: gradients, compiled code and what has no gradient."""

import pytest
import torch

import turnout.torch

pytestmark = pytest.mark.torch

tt = turnout.torch


@pytest.fixture
def scene():
    generator = torch.Generator().manual_seed(0)
    boxes = torch.rand(4, 7, generator=generator, dtype=torch.float64) * 2
    boxes[:, 3:6] += 1
    points = torch.rand(40, 3, generator=generator, dtype=torch.float64) * 4 - 1
    features = torch.randn(40, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    return boxes, points, features


@pytest.mark.parametrize("method", ["max", "avg"])
def test_gradients(scene, method):
    boxes, points, features = scene

    def pool(x):
        return tt.roiaware_pool3d(boxes, points, x, (2, 2, 1), 4, method)

    assert pool(features).count_nonzero() > 10
    assert torch.autograd.gradcheck(pool, features)
    assert torch.autograd.gradgradcheck(pool, features)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_second_derivative_of_the_lowest_finite_number(scene, dtype):
    """Without a larger number it is the maximum; -inf never is."""
    boxes, points, _ = scene
    rows = torch.full((40, 2), torch.finfo(dtype).min, dtype=dtype)
    rows[:, 1] = -torch.inf
    rows.requires_grad_()
    pooled = tt.roiaware_pool3d(boxes, points, rows, 1)
    grad = torch.ones_like(pooled, requires_grad=True)
    first = torch.autograd.grad(pooled, rows, grad, create_graph=True)[0]
    assert first.any(0).tolist() == [True, False]
    second = torch.autograd.grad(first, grad, torch.ones_like(first))[0]
    assert torch.equal(second[..., 0], (pooled[..., 0] != 0).to(dtype)) and not second[..., 1].any()


def test_results_may_be_modified_in_place(scene):
    boxes, points, features = scene
    pooled = tt.roiaware_pool3d(boxes, points, features, 2)
    pooled[0] = 0
    pooled.sum().backward()
    expected = tt.roiaware_pool3d(boxes[1:], points, features, 2)
    assert torch.equal(features.grad, torch.autograd.grad(expected.sum(), features)[0])


def test_compiled(scene):
    boxes, points, features = scene

    def run(x):
        return tt.roiaware_pool3d(boxes, points, x, 2).amax((1, 2, 3)).sum()

    expected = torch.autograd.grad(run(features), features)[0]
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(torch.autograd.grad(compiled(features), features)[0], expected)


def test_the_first_points_have_no_gradient(scene):
    boxes, points, features = (x[None].float() for x in scene)
    with pytest.raises(NotImplementedError, match="roipoint_pool3d: features requires grad"):
        tt.roipoint_pool3d(points, features, boxes, 4)
    with torch.no_grad():
        pooled, empty = tt.roipoint_pool3d(points, features, boxes, 4)
    assert pooled.shape == (1, 4, 4, 6) and not empty.any()
