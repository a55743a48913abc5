"""torch.func: gradients, gradients of gradients and vmap of every operator."""

import pytest
import torch

import turnout.torch
from turnout.torch import dynamic_scatter, joint_mutual_information_recursion, mutual_information_recursion

pytestmark = pytest.mark.torch

OPS = torch.ops.turnout
COORS = torch.tensor([[0, 1], [2, 0], [0, 1], [-1, 0]])
MAP = torch.tensor([0, 1, 0, -1])
ORDER = torch.tensor([2, 0, 3, 1])
COUNT = torch.tensor([[1, 2], [0, 1]])
PX, PY = (
    torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1)).double(),
    torch.zeros(2, 4, 4).double(),
)
ROWS = torch.arange(12.0).double().reshape(4, 3)
SITES = torch.tensor([[0, 0], [0, 1], [0, 5], [2, 3]], dtype=torch.int32)  # batch, x; batch 1 has no sites
OUT_SITES, PAIRS, NUM = turnout.torch.get_indice_pairs(SITES, 3, [6], 3, 2, 1)
TIES = torch.tensor([[1.0, 2.0], [1.0, -2.0], [3.0, 0.5], [0.0, -4.0]]).double()
LOGITS = torch.randn(2, 4, 4, 6, generator=torch.Generator().manual_seed(2)).double()
TEXT, KEPT = torch.ones(2, 3).long(), torch.arange(4).repeat(2, 4, 1)

# Functions of one tensor. Those in SMOOTH have derivatives of every order, the others one.
SMOOTH = {
    "moe_re_routing": (ROWS, lambda x: turnout.torch.moe_re_routing(x, COUNT, per_token_scales=x[:, 0])[0]),
    "scales": (ROWS, lambda x: turnout.torch.moe_re_routing(x, COUNT, per_token_scales=x[:, 0])[1]),
    "moe_re_routing_inverse": (ROWS, lambda x: turnout.torch.moe_re_routing_inverse(x, ORDER, idx_type=1)),
    "dynamic_scatter max": (ROWS, lambda x: dynamic_scatter(x, COORS)[0]),
    "dynamic_scatter mean": (ROWS, lambda x: dynamic_scatter(x, COORS, "mean")[0]),
    "dynamic_scatter_backward": (
        ROWS[:2],
        lambda x: OPS.dynamic_scatter_backward(x, None, None, MAP, None, "sum"),
    ),
    "indice_max_pool": (
        TIES,
        lambda x: turnout.torch.indice_max_pool(x, PAIRS, NUM, len(OUT_SITES), init="lowest"),
    ),
    "indice_max_pool zero": (
        TIES - 1,
        lambda x: turnout.torch.indice_max_pool(x, PAIRS, NUM, len(OUT_SITES)),
    ),
    "global_max_pool": (TIES, lambda x: turnout.torch.global_max_pool(x, SITES, 3)),
    "scatter_max": (ROWS, lambda x: turnout.torch.scatter_max(x, MAP.clamp(min=0))[0]),
    "scatter_min": (ROWS, lambda x: turnout.torch.scatter_min(x, MAP.clamp(min=0))[0]),
    "segment_csr mean": (ROWS, lambda x: turnout.torch.segment_csr(x, torch.tensor([0, 1, 4]), "mean")),
    "segment_csr max": (ROWS, lambda x: turnout.torch.segment_csr(x, torch.tensor([0, 1, 4]), "max")),
    "gather_csr": (ROWS[:2], lambda x: turnout.torch.gather_csr(x, torch.tensor([0, 1, 4]), 4)),
    "bev_pool": (ROWS, lambda x: turnout.torch.bev_pool(x, torch.eye(4).long(), 2, 2, 2, 2)),
    "do_rnnt_pruning": (LOGITS[0], lambda x: turnout.torch.do_rnnt_pruning(x[:2], x[:2], KEPT[..., :2])[1]),
}
ONCE = {
    "mutual_information_forward": (PX, lambda x: OPS.mutual_information_forward(x, PY)[1]),
    "mutual_information_recursion": (PX, lambda x: mutual_information_recursion(x, PY)),
    "joint": (PX, lambda x: joint_mutual_information_recursion([x, x * 2], [PY, PY])),
    "rnnt_loss": (LOGITS, lambda x: turnout.torch.rnnt_loss(x, TEXT, 0, reduction="none")),
    "rnnt_loss_pruned": (
        LOGITS,
        lambda x: turnout.torch.rnnt_loss_pruned(x, TEXT, KEPT, 0, reduction="none", fastemit_lambda=0.1),
    ),
    "rnnt_loss_pruned_fused": (
        LOGITS[0],
        lambda x: turnout.torch.rnnt_loss_pruned_fused(
            *(x[:2], x[2:], x[0], TEXT, KEPT, "tanh", 0, x[0, :, 0])
        ),
    ),
    "rnnt_loss_simple": (LOGITS[0], lambda x: turnout.torch.rnnt_loss_simple(x[:2], x[2:], TEXT, 0)),
    "rnnt_loss_smoothed": (LOGITS[0], lambda x: turnout.torch.rnnt_loss_smoothed(x[:2], x[2:], TEXT, 0)),
}
ALL = {**SMOOTH, **ONCE}


def loss_of(function):
    return lambda x: (function(x) ** 3).sum()


def gradient(loss, x):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(loss(leaf), leaf)[0]


@pytest.mark.parametrize("name", ALL)
def test_grad(name):
    x, function = ALL[name]
    torch.testing.assert_close(torch.func.grad(loss_of(function))(x), gradient(loss_of(function), x))


@pytest.mark.parametrize("name", ALL)
def test_grad_inside_autograd(name):
    """The weight is an autograd leaf; the tokens are an argument of torch.func."""
    x, function = ALL[name]
    weight = torch.full_like(x, 2, requires_grad=True)
    inner = torch.func.grad(lambda y: function(y).sum())(x)
    (grad,) = torch.autograd.grad((torch.func.grad(lambda y: function(y).sum())(x) * weight).sum(), weight)
    torch.testing.assert_close(grad, inner)


@pytest.mark.parametrize("name", SMOOTH)
def test_grad_of_grad(name):
    x, function = SMOOTH[name]
    loss = loss_of(function)

    def by_autograd(y):
        return (torch.autograd.grad(loss(y), y, create_graph=True)[0] ** 2).sum()

    second = torch.func.grad(lambda y: (torch.func.grad(loss)(y) ** 2).sum())(x)
    torch.testing.assert_close(second, gradient(by_autograd, x))
    mixed = torch.autograd.functional.hessian(lambda y: (function(y) ** 2).sum(), x)
    torch.testing.assert_close(
        torch.func.jacrev(torch.func.jacrev(lambda y: (function(y) ** 2).sum()))(x), mixed
    )


@pytest.mark.parametrize("name", ONCE)
def test_a_second_derivative_is_refused(name):
    x, function = ONCE[name]
    with pytest.raises(NotImplementedError, match=r"_backward: a second derivative was requested"):
        torch.func.grad(lambda y: torch.func.grad(loss_of(function))(y).sum())(x)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.filterwarnings("error")  # torch's fallback loop warns that it is slow
def test_vmap(name):
    x, function = ALL[name]
    several = torch.stack([x, x * 0.5, -x])
    wanted = torch.stack([function(y) for y in several])
    torch.testing.assert_close(torch.func.vmap(function)(several), wanted)
    torch.testing.assert_close(torch.func.vmap(function, in_dims=2)(several.movedim(0, 2)), wanted)
    wanted = torch.stack([gradient(loss_of(function), y) for y in several])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss_of(function)))(several), wanted)
    grad = torch.func.grad(lambda z: torch.func.vmap(loss_of(function))(z).sum())(several)
    torch.testing.assert_close(grad, wanted)


@pytest.mark.filterwarnings("error")
def test_vmap_without_gradients():
    points, size, ends = ROWS.float(), [2.0] * 3, [0.0] * 3 + [16.0] * 3
    several = torch.stack([points, points + 1])
    coors = torch.func.vmap(lambda p: turnout.torch.voxelize(p, size, ends))(several)
    assert torch.equal(coors[1], turnout.torch.voxelize(points + 1, size, ends))
    voxels, _, _ = torch.func.vmap(
        lambda p: turnout.torch.voxelize(p, size, ends, max_points=2, max_voxels=5)
    )(several)
    assert voxels.shape == (2, 4, 2, 3)
    dispatch = torch.func.vmap(
        lambda x: turnout.torch.moe_dispatch_forward(torch.ones(4), MAP, MAP, x, 2, 2)
    )(several)
    assert torch.equal(dispatch[0], turnout.torch.moe_dispatch_forward(torch.ones(4), MAP, MAP, points, 2, 2))
    sites = torch.tensor([[[0, 1], [0, 3]], [[0, 2], [0, 3]]], dtype=torch.int32)
    pairs = torch.func.vmap(lambda s: turnout.torch.get_indice_pairs(s, 1, [5], subm=True)[1])(sites)
    assert pairs.shape == (2, 3, 2, 2)


def test_vmap_rejects_results_of_different_shapes():
    coors = torch.tensor([[[0], [0]], [[0], [1]]])
    with pytest.raises(ValueError) as caught:
        torch.func.vmap(lambda c: dynamic_scatter(torch.ones(2, 3), c)[0])(coors)
    assert str(caught.value) == (
        "dynamic_scatter: a result has shape [1, 3] for the first sample of torch.vmap and [2, 3] for sample "
        "1, expected one shape; call it for each sample"
    )
    with pytest.raises(
        ValueError, match=r"dynamic_scatter: torch.vmap has no samples, expected at least one"
    ):
        torch.func.vmap(lambda c: dynamic_scatter(torch.ones(2, 3), c)[0])(coors[:0])
