"""Vector pooling from torch: results of NumPy, gradients, compiled code."""

import pytest
import torch

import turnout.torch

pytestmark = pytest.mark.torch

tt = turnout.torch


@pytest.fixture
def scene():
    generator = torch.Generator().manual_seed(0)
    xyz, queries = (torch.rand(n, 3, generator=generator, dtype=torch.float64) for n in (40, 5))
    counts, asked = torch.tensor([30, 10]), torch.tensor([3, 2])
    features = torch.rand(40, 5, generator=generator, dtype=torch.float64)
    return xyz, counts, queries, asked, features


def test_results_are_those_of_numpy(scene):
    xyz, counts, queries, asked, features = scene
    lists = tt.neighbor_lists(xyz, counts, queries, asked, 0.4, 9, "ball")
    expected = turnout.neighbor_lists(*(one.numpy() for one in scene[:4]), 0.4, 9, "ball")
    for one, wanted in zip(lists, expected, strict=True):
        assert torch.equal(one, torch.from_numpy(wanted))
    arrays = [one.numpy() for one in (xyz, features, queries, *lists)]
    pooled = tt.vector_pool(xyz, features, queries, *lists, 0.4, (2, 1, 2), 2, "sum", 4)
    for one, wanted in zip(pooled, turnout.vector_pool(*arrays, 0.4, (2, 1, 2), 2, "sum", 4), strict=True):
        assert torch.equal(one, torch.from_numpy(wanted))


@pytest.mark.parametrize("mode", ["mean", "sum", "first"])
@pytest.mark.parametrize("slots", [5, 2, 7])
def test_gradients(scene, mode, slots):
    xyz, counts, queries, asked, features = scene
    lists = tt.neighbor_lists(xyz, counts, queries, asked, 0.5)

    def pool(x):
        return tt.vector_pool(xyz, x, queries, *lists, 0.4, (2, 1, 2), slots, mode, 6)[0]

    x = features.clone().requires_grad_()
    assert torch.autograd.gradcheck(pool, (x,))
    assert torch.autograd.gradgradcheck(pool, (x,))


def test_only_pooled_has_a_gradient(scene):
    xyz, counts, queries, asked, features = scene
    lists = tt.neighbor_lists(xyz.requires_grad_(), counts, queries, asked, 0.5)
    results = tt.vector_pool(xyz.detach(), features.requires_grad_(), queries, *lists, 0.5, (2, 2, 2), 5)
    assert [one.requires_grad for one in results] == [True, False, False, False]
    assert not tt.three_nn_of_lists(xyz, queries[:, None], *lists)[0].requires_grad


def test_opcheck(scene):
    xyz, counts, queries, asked, features = scene
    ops = torch.ops.turnout
    torch.library.opcheck(ops.neighbor_lists.default, (xyz, counts, queries, asked, 0.5))
    lists = tt.neighbor_lists(xyz, counts, queries, asked, 0.5)
    torch.library.opcheck(ops.three_nn_of_lists.default, (xyz, queries[:, None], *lists))
    x = features.clone().requires_grad_()
    given = xyz, x, queries, *lists, 0.5, (2, 1, 2), 5
    torch.library.opcheck(ops.vector_pool.default, given)
    pooled, _, cell_counts, grouped = ops.vector_pool(*given)
    grad = torch.ones_like(pooled).requires_grad_()
    torch.library.opcheck(ops.vector_pool_backward.default, (grad, cell_counts, grouped, 40, 5))


def test_compiled(scene):
    xyz, counts, queries, asked, features = scene
    lists = tt.neighbor_lists(xyz, counts, queries, asked, 0.5)

    def pool(x):
        return tt.vector_pool(xyz, x, queries, *lists, 0.5, (2, 1, 2), 5)[0].square()

    torch.compiler.reset()
    compiled = torch.compile(pool, fullgraph=True, backend="aot_eager")
    x, y = (features.clone().requires_grad_() for _ in range(2))
    compiled(x).sum().backward()
    pool(y).sum().backward()
    assert torch.equal(x.grad, y.grad)
