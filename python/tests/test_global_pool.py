"""Pooling of whole batch elements: definitions, sentences, gradients, operators."""

import numpy as np
import pytest
import torch
from conftest import same_bits

import turnout
import turnout.torch
from turnout import check

OPS = torch.ops.turnout


def example(rng, rows=70, channels=5, batch_size=4, index=np.int32):
    """Batch element 1 has no rows."""
    indices = np.stack([rng.integers(0, n, rows) for n in (batch_size, 5, 6)], axis=1).astype(index)
    indices[indices[:, 0] == 1, 0] = 0
    return rng.standard_normal((rows, channels)).round(1), indices, batch_size


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_equals_the_definition(rng, dtype, index):
    features, indices, batch_size = example(rng, index=index)
    features = features.astype(dtype)
    features[3, 2] = np.nan
    most = turnout.global_max_pool_forward(features, indices, batch_size)
    np.testing.assert_array_equal(most, check.global_max_pool_forward(features, indices, batch_size))
    assert (most[1] == 0).all()
    features[3, 2] = 1
    mean = turnout.global_avg_pool_forward(features, indices, batch_size)
    expected = check.global_avg_pool_forward(features, indices, batch_size).astype(np.float64)
    np.testing.assert_allclose(mean.astype(np.float64), expected, rtol=2 * np.finfo(dtype).eps, atol=1e-7)
    assert (mean[1] == 0).all()
    out = np.ones_like(mean)
    assert turnout.global_avg_pool_forward(features, indices, batch_size, out=out) is out
    assert same_bits(out, mean)


def test_sentences(rng):
    features, indices, _ = example(rng)
    indices[7, 0] = 9
    for function in (turnout.global_max_pool_forward, turnout.global_avg_pool_forward):
        with pytest.raises(ValueError, match=rf"{function.__name__}: indices\[7, 0\] is 9, expected 0 .. 3"):
            function(features, indices, 4)
        with pytest.raises(ValueError, match="batch_size is -1, expected 0 or more"):
            function(features, indices, -1)
        with pytest.raises(ValueError, match=r"indices.shape\[0\] is 69"):
            function(features, indices[:-1].copy(), 4)
        with pytest.raises(ValueError, match=r"out.shape\[0\] is 3, expected batch_size = 4"):
            function(features, indices, 4, out=np.zeros((3, 5)))


@pytest.mark.torch
def test_gradients(rng):
    features, indices, batch_size = example(rng, rows=12, channels=3)
    features = torch.from_numpy(features) + torch.arange(36.0).view(12, 3) / 1000  # no ties
    sites = torch.from_numpy(indices)
    inputs = (features.requires_grad_(),)

    def mean(x):
        return turnout.torch.global_avg_pool(x, sites, batch_size)

    assert torch.autograd.gradcheck(mean, inputs) and torch.autograd.gradgradcheck(mean, inputs)
    assert torch.autograd.gradcheck(lambda x: turnout.torch.global_max_pool(x, sites, batch_size), inputs)


@pytest.mark.torch
def test_every_equal_input_gets_the_gradient():
    features = torch.tensor([[3.0], [2.0], [3.0]], requires_grad=True)
    indices = torch.zeros(3, 4, dtype=torch.int32)
    turnout.torch.global_max_pool(features, indices, 2).sum().backward()
    assert features.grad.tolist() == [[1.0], [0.0], [1.0]]


@pytest.mark.torch
def test_the_operators(rng):
    features, indices, batch_size = example(rng)
    x, sites = torch.from_numpy(features).float().requires_grad_(), torch.from_numpy(indices)
    grad = torch.ones(batch_size, 5)
    for op in (OPS.global_max_pool_forward, OPS.global_avg_pool_forward):
        torch.library.opcheck(op.default, (x, sites, batch_size))
    torch.library.opcheck(OPS.global_avg_pool_backward.default, (grad.clone().requires_grad_(), sites))
    most = OPS.global_max_pool_forward(x.detach(), sites, batch_size)
    torch.library.opcheck(OPS.global_max_pool_backward.default, (x.detach(), most, grad, sites))

    def network(x, sites):
        both = turnout.torch.global_max_pool(x, sites, 4), turnout.torch.global_avg_pool(x, sites, 4)
        return torch.cat(both).square().sum()

    eager = network(x, sites)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")(x, sites)
    torch.testing.assert_close(compiled, eager)
    torch.testing.assert_close(torch.autograd.grad(compiled, x), torch.autograd.grad(eager, x))


@pytest.mark.torch
def test_same_bits_for_any_number_of_threads(rng):
    features, indices, batch_size = example(rng, rows=5000, channels=64)
    x, sites = torch.from_numpy(features).float().requires_grad_(), torch.from_numpy(indices)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            most = turnout.torch.global_max_pool(x, sites, batch_size)
            mean = turnout.torch.global_avg_pool(x, sites, batch_size)
            grads = [torch.autograd.grad(y.square().sum(), x)[0] for y in (most, mean)]
            results.append((most, mean, *grads))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(same_bits(a.detach(), b.detach()) for a, b in zip(results[0], other, strict=True))
