"""Pooling of whole batch elements with torch: gradients, operators, threads."""

import torch
from conftest import same_bits
from test_global_pool import example

import turnout.torch

OPS = torch.ops.turnout


def test_gradients(rng):
    features, indices, batch_size = example(rng, rows=12, channels=3)
    features = torch.from_numpy(features) + torch.arange(36.0).view(12, 3) / 1000  # no ties
    sites = torch.from_numpy(indices)
    inputs = (features.requires_grad_(),)

    def mean(x):
        return turnout.torch.global_avg_pool(x, sites, batch_size)

    assert torch.autograd.gradcheck(mean, inputs) and torch.autograd.gradgradcheck(mean, inputs)

    def largest(x):
        return turnout.torch.global_max_pool(x, sites, batch_size)

    assert torch.autograd.gradcheck(largest, inputs) and torch.autograd.gradgradcheck(largest, inputs)


def test_all_equal_inputs_get_the_gradient():
    features = torch.tensor([[3.0], [2.0], [3.0]], requires_grad=True)
    indices = torch.zeros(3, 4, dtype=torch.int32)
    turnout.torch.global_max_pool(features, indices, 2).sum().backward()
    assert features.grad.tolist() == [[1.0], [0.0], [1.0]]


def test_the_operators(rng):
    features, indices, batch_size = example(rng)
    x, sites = torch.from_numpy(features).float().requires_grad_(), torch.from_numpy(indices)
    grad = torch.ones(batch_size, 5)
    for op in (OPS.global_max_pool_forward, OPS.global_avg_pool_forward):
        torch.library.opcheck(op.default, (x, sites, batch_size))
    torch.library.opcheck(OPS.global_avg_pool_backward.default, (grad.clone().requires_grad_(), sites))
    most = OPS.global_max_pool_forward(x.detach(), sites, batch_size)
    torch.library.opcheck(
        OPS.global_max_pool_backward.default, (x.detach(), most, grad.requires_grad_(), sites)
    )

    def network(x, sites):
        both = turnout.torch.global_max_pool(x, sites, 4), turnout.torch.global_avg_pool(x, sites, 4)
        return torch.cat(both).square().sum()

    eager = network(x, sites)
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")(x, sites)
    torch.testing.assert_close(compiled, eager)
    torch.testing.assert_close(torch.autograd.grad(compiled, x), torch.autograd.grad(eager, x))


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
