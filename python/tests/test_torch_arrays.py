"""``import turnout`` with torch tensors: torch in, torch out."""

import numpy as np
import pytest
import torch
from conftest import dispatch_arguments, same_bits

import turnout
from turnout import check

pytestmark = pytest.mark.torch


def tensors(arguments):
    return [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in arguments]


@pytest.mark.parametrize("choices", [None, 2])
@pytest.mark.parametrize("sizes", [{}, {"samples": 700, "hidden": 513, "capacity": 500}])
def test_tensors(rng, choices, sizes):
    arguments = dispatch_arguments(rng, choices=choices, **sizes)
    result = turnout.moe_dispatch_forward(*tensors(arguments))
    assert type(result) is torch.Tensor
    assert same_bits(result.numpy(), check.moe_dispatch_forward(*arguments))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_dtypes(rng, dtype):
    gates, indices, locations, tokens, *sizes = tensors(dispatch_arguments(rng))
    result = turnout.moe_dispatch_forward(
        gates.to(dtype), indices.long(), locations, tokens.to(dtype), *sizes
    )
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    expected = turnout.moe_dispatch_forward(
        gates.to(dtype).to(wide), indices, locations, tokens.to(dtype).to(wide), *sizes
    ).to(dtype)
    assert result.dtype == dtype
    assert torch.equal(result, expected)


def test_out(rng):
    arguments = dispatch_arguments(rng)
    out = torch.full((15, 17), 3.0)
    expected = check.moe_dispatch_forward(*arguments, out=np.full((15, 17), 3, np.float32))
    assert turnout.moe_dispatch_forward(*tensors(arguments), out=out) is out
    assert same_bits(out.numpy(), expected)


def test_tokens_decide_the_kind(rng):
    gates, indices, locations, tokens, *sizes = dispatch_arguments(rng)
    assert (
        type(turnout.moe_dispatch_forward(torch.from_numpy(gates), indices, locations, tokens, *sizes))
        is np.ndarray
    )
    tokens = torch.nn.Parameter(torch.from_numpy(tokens), requires_grad=False)
    assert type(turnout.moe_dispatch_forward(gates, indices, locations, tokens, *sizes)) is torch.Tensor


def test_large_results_are_cached(rng, cache):
    arguments = tensors(dispatch_arguments(rng, samples=700, hidden=513, capacity=500))
    first = turnout.moe_dispatch_forward(*arguments)
    where = first.data_ptr()
    row = first[3]
    del first
    assert cache().idle == 0
    del row
    assert cache().idle >= 1500 * 513 * 4
    assert turnout.moe_dispatch_forward(*arguments).data_ptr() == where


def test_results_are_ordinary_tensors(rng):
    result = turnout.moe_dispatch_forward(*tensors(dispatch_arguments(rng)))
    result.requires_grad_()
    (result * 2).sum().backward()
    assert (result.grad == 2).all()
    assert torch.equal(result.detach().clone(), result)


@pytest.mark.parametrize("name", ["gates", "input", "out"])
def test_requires_grad_is_refused(rng, name):
    arguments = dict(
        zip(("gates", "indices", "locations", "input"), tensors(dispatch_arguments(rng)), strict=False)
    )
    arguments["out"] = torch.zeros(15, 17)
    arguments[name].requires_grad_()
    with pytest.raises(ValueError) as caught:
        turnout.moe_dispatch_forward(**arguments, capacity=5, num_experts=3)
    assert str(caught.value) == (
        f"moe_dispatch_forward: {name} requires grad, which only turnout.torch follows; use that, or pass "
        f"{name}.detach()"
    )


def test_other_devices_are_refused(rng):
    gates, indices, locations, tokens, *sizes = tensors(dispatch_arguments(rng))
    with pytest.raises(ValueError, match="moe_dispatch_forward: input "):
        turnout.moe_dispatch_forward(gates, indices, locations, tokens.to("meta"), *sizes)


def test_unknown_dtype(rng):
    gates, indices, locations, tokens, *sizes = tensors(dispatch_arguments(rng))
    with pytest.raises(ValueError) as caught:
        turnout.moe_dispatch_forward(gates, indices, locations, tokens.to(torch.complex64), *sizes)
    assert str(caught.value) == (
        "moe_dispatch_forward: input has dtype torch.complex64, expected f32, f64, f16, bf16"
    )


def test_negated_views_are_refused():
    """Their memory holds the opposite of what they stand for; turnout.torch resolves them by contiguous()."""
    tokens, index = torch._neg_view(torch.ones(2, 3)), torch.arange(2, dtype=torch.int32)
    with pytest.raises(ValueError, match="permute_tokens is a negated view"):
        turnout.moe_re_routing_inverse(tokens, index)
    turnout.moe_re_routing_inverse(tokens.resolve_neg(), index)


def test_tangents_are_refused():
    from torch.autograd import forward_ad

    tokens, index = torch.ones(2, 3), torch.arange(2, dtype=torch.int32)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tokens, tokens)
        with pytest.raises(ValueError) as caught:
            turnout.moe_re_routing_inverse(dual, index)
        turnout.moe_re_routing_inverse(tokens, index)
        turnout.moe_re_routing_inverse(forward_ad.unpack_dual(dual).primal, index)
    assert str(caught.value) == (
        "moe_re_routing_inverse: permute_tokens has a tangent of forward-mode differentiation, which nothing "
        "here follows; pass torch.autograd.forward_ad.unpack_dual(permute_tokens).primal"
    )
