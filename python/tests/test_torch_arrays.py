"""``import turnout`` with torch tensors returns torch tensors."""

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
        f"moe_dispatch_forward: {name} requires grad, which only turnout.torch supports; use it, or pass "
        f"{name}.detach()"
    )


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_is_neg_that_raises(rng, kind):
    class Subclass(torch.Tensor):
        def is_neg(self):
            raise kind("not today")

    gates, *others = tensors(dispatch_arguments(rng))
    refused = KeyboardInterrupt if kind is KeyboardInterrupt else ValueError
    with pytest.raises(refused) as caught:
        turnout.moe_dispatch_forward(gates.as_subclass(Subclass), *others)
    if refused is ValueError:
        assert str(caught.value) == "moe_dispatch_forward: gates.is_neg() failed: not today"


def test_requires_grad_without_grad_mode(rng):
    """Under no_grad and inside a backward, no gradient is recorded, so none is lost."""
    gates, indices, locations, tokens, *sizes = tensors(dispatch_arguments(rng))
    expected = turnout.moe_dispatch_forward(gates, indices, locations, tokens, *sizes)
    gates.requires_grad_()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            result = turnout.moe_dispatch_forward(gates, indices, locations, tokens, *sizes)
        assert torch.equal(result, expected)
        assert not result.requires_grad

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sum()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            assert x.requires_grad
            assert torch.equal(turnout.moe_dispatch_forward(x, indices, locations, tokens, *sizes), expected)
            return grad * torch.ones_like(x)

    Function.apply(gates).backward()
    with pytest.raises(ValueError, match="gates requires grad"):
        turnout.moe_dispatch_forward(gates, indices, locations, tokens, *sizes)


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: torch.repeat_interleave(x, 2, dim=-1)[..., ::2],
        lambda x: x.T.contiguous().T if x.dim() == 2 else x,
        lambda x: x.flip(0)[:1].expand(x.shape),
    ],
)
def test_strided_tensors(rng, layout):
    *arrays, capacity, experts = tensors(dispatch_arguments(rng))
    strided = [layout(x) for x in arrays]
    expected = turnout.moe_dispatch_forward(*(x.contiguous() for x in strided), capacity, experts)
    assert torch.equal(turnout.moe_dispatch_forward(*strided, capacity, experts), expected)
    with pytest.raises(ValueError, match=r"out is strided, expected contiguous .* written in place"):
        turnout.moe_dispatch_forward(*arrays, capacity, experts, out=torch.zeros(17, 15).T)


@pytest.mark.parametrize("name", ["gates", "indices", "locations", "input", "out"])
def test_other_devices_are_refused(rng, name):
    names = ("gates", "indices", "locations", "input")
    arguments = dict(zip(names, tensors(dispatch_arguments(rng)), strict=False))
    arguments["out"] = torch.zeros(15, 17)
    arguments[name] = arguments[name].to("meta")
    with pytest.raises(ValueError) as caught:
        turnout.moe_dispatch_forward(**arguments, capacity=5, num_experts=3)
    assert str(caught.value) == (f"moe_dispatch_forward: {name} is on device meta, expected CPU memory")


@pytest.mark.filterwarnings("ignore")
def test_tensors_without_plain_memory():
    """Each gives one message, without the backtrace that torch appends."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    index = torch.arange(2, dtype=torch.int32)
    ones = torch.ones(2, 3)
    with FakeTensorMode():
        fake = torch.ones(2, 3)
    types = (
        "expected float32, float64, float16, bfloat16, int8, uint8, int16, uint16, int32, uint32, int64, "
        "uint64, bool, float8_e4m3fn, float8_e5m2, "
        "float8_e8m0fnu"
    )
    cases = {
        "is a FakeTensor without memory, expected one with values": fake,
        "has layout torch.sparse_coo, expected torch.strided": ones.to_sparse(),
        "has layout torch.sparse_csr, expected torch.strided": ones.to_sparse_csr(),
        f"has dtype complex64, {types}": ones.to(torch.complex64),
        f"has dtype quint8, {types}": torch.quantize_per_tensor(ones, 0.1, 0, torch.quint8),
        f"has dtype bits8, {types}": torch.empty(2, 3, dtype=torch.bits8),
        f"has dtype float8_e4m3fnuz, {types}": ones.to(torch.float8_e4m3fnuz),
    }
    if hasattr(torch, "float4_e2m1fn_x2"):
        strange = torch.empty(2, 3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
        cases[f"has dtype float4_e2m1fn_x2, {types}"] = strange
    for message, tensor in cases.items():
        with pytest.raises(ValueError) as caught:
            turnout.moe_re_routing_inverse(tensor, index)
        assert str(caught.value) == f"moe_re_routing_inverse: permute_tokens {message}"

    def inside(x):
        with pytest.raises(ValueError, match=r"^moe_re_routing_inverse: permute_tokens [^\n]*$"):
            turnout.moe_re_routing_inverse(x, index)
        return x.sum()

    torch.vmap(inside)(torch.ones(4, 2, 3))
    torch.func.grad(inside)(ones)


def test_unknown_dtype(rng):
    gates, indices, locations, tokens, *sizes = tensors(dispatch_arguments(rng))
    with pytest.raises(ValueError) as caught:
        turnout.moe_dispatch_forward(gates, indices, locations, tokens.to(torch.complex64), *sizes)
    assert str(caught.value) == (
        "moe_dispatch_forward: input has dtype complex64, expected float32, float64, float16, bfloat16"
    )


def test_negated_views_are_refused():
    """Their memory holds the negated values; turnout.torch resolves them with contiguous()."""
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
        "moe_re_routing_inverse: permute_tokens has a tangent of forward-mode differentiation, which this "
        "function does not support; pass torch.autograd.forward_ad.unpack_dual(permute_tokens).primal"
    )
