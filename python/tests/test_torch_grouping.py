"""Gradients of grouping, gathering and interpolation."""

import pytest
import torch

import turnout.torch

pytestmark = pytest.mark.torch

tt = turnout.torch


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def doubles(generator, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)


def check(function, *inputs):
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


def test_gradients(generator):
    features = doubles(generator, 2, 3, 5)
    indices = torch.randint(0, 5, (2, 4, 3), generator=generator)
    check(lambda f: tt.group_points(f, indices), features)
    check(lambda f: tt.gather_points(f, indices[:, 0]), features)
    weights = doubles(generator, 2, 4, 3)
    check(lambda f, w: tt.three_interpolate(f, indices, w), features, weights)


def test_gradients_of_stacked_samples(generator):
    features = doubles(generator, 6, 3)
    counts, index_counts = torch.tensor([4, 0, 2]), torch.tensor([2, 1, 2])
    indices = torch.tensor([[3, 0], [1, 1], [0, 0], [0, 1], [1, 1]])
    check(lambda f: tt.group_points_stacked(f, counts, indices, index_counts), features)
    rows, weights = torch.randint(0, 6, (5, 3), generator=generator), doubles(generator, 5, 3)
    check(lambda f, w: tt.three_interpolate_stacked(f, rows, w), features, weights)


# As callers do: the centre is subtracted from the result, and groups without points are set to 0.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_may_be_modified_in_place(generator, dtype):
    features = torch.randn(1, 3, 5, generator=generator).to(dtype).requires_grad_()
    indices = torch.tensor([[[0, 1], [2, 2]]])
    grouped = tt.group_points(features, indices)
    grouped -= 1
    grouped[:, :, 0] = 0
    grouped.sum().backward()
    assert features.grad.tolist() == [[[0, 0, 2, 0, 0]] * 3]
    weights = torch.full((1, 2, 3), 0.5)
    out = tt.three_interpolate(features, torch.zeros(1, 2, 3, dtype=torch.int32), weights)
    out *= 0
    out.sum().backward()


def test_gradients_of_16_bit_weights_have_the_weights_dtype(generator):
    features = torch.randn(1, 2, 4, generator=generator).half().requires_grad_()
    weights = torch.rand(1, 3, 3, generator=generator, requires_grad=True)
    tt.three_interpolate(features, torch.ones(1, 3, 3, dtype=torch.int64), weights).sum().backward()
    assert weights.grad.dtype == torch.float32 and features.grad.dtype == torch.float16


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_16_bit_weights_are_computed_in_float32(generator, dtype):
    """Products of 300 by 300 are beyond float16."""
    features, grad = (300 * torch.rand(2, 5, 4, generator=generator).to(dtype) for _ in range(2))
    indices = torch.randint(0, 4, (2, 4, 3), generator=generator)
    weights = torch.rand(2, 4, 3, generator=generator, requires_grad=True)

    def grad_weights(function, features, indices, weights, grad):
        return torch.autograd.grad(function(features, indices, weights), weights, grad)[0]

    expected = grad_weights(tt.three_interpolate, features.float(), indices, weights, grad.float())
    assert torch.equal(grad_weights(tt.three_interpolate, features, indices, weights, grad), expected)
    one = features[0].T, indices[0], weights[0], grad[0].T
    expected = grad_weights(tt.three_interpolate_stacked, one[0].float(), *one[1:3], one[3].float())
    assert torch.equal(grad_weights(tt.three_interpolate_stacked, *one), expected)


def test_compiled(generator):
    features = torch.randn(2, 3, 50, generator=generator, requires_grad=True)
    indices = torch.randint(0, 50, (2, 4, 3), generator=generator)

    def run(f, i):
        return tt.group_points(f, i).max(-1).values.sum()

    expected = torch.autograd.grad(run(features, indices), features)[0]
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(torch.autograd.grad(compiled(features, indices), features)[0], expected)


def test_messages_name_the_function():
    with pytest.raises(ValueError, match=r"^group_points: indices\[0, 0, 0\] is 9, expected 0 .. 2"):
        tt.group_points(torch.zeros(1, 1, 3), torch.tensor([[[9]]]))
    with pytest.raises(TypeError, match=r"^gather_points: indices is of type list"):
        tt.gather_points(torch.zeros(1, 1, 3), [[0]])
