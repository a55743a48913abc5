"""Grouped products and the expert block in torch: gradients, compilers, transforms."""

from functools import partial

import pytest
import torch
from test_moe_experts import FORMS

import turnout.torch
from turnout import check
from turnout.torch.moe_experts import _composed

pytestmark = pytest.mark.torch

OPS = torch.ops.turnout
T, K, E, H, INNER = 7, 2, 3, 6, 5


def block(dtype=torch.float64, gated=True):
    """Returns arguments of moe_experts including biases; some ids are not experts."""
    torch.manual_seed(0)
    rows = 2 * INNER if gated else INNER
    shapes = [(T, K), (E, rows, H), (E, H, INNER), (E, rows), (E, H)]
    gates, w13, w2, w13_bias, w2_bias = (torch.randn(s).to(dtype) for s in shapes)
    return torch.randn(T, H).to(dtype), torch.randint(-1, E + 1, (T, K)), gates, w13, w2, w13_bias, w2_bias


def requiring(tensors):
    return [t.clone().requires_grad_() if t.is_floating_point() else t for t in tensors]


def experts(x, ids, gates, w13, w2, w13_bias=None, w2_bias=None, **options):
    return turnout.torch.moe_experts(x, ids, gates, w13, w2, w13_bias=w13_bias, w2_bias=w2_bias, **options)


def gradients(tensors, **options):
    tensors = requiring(tensors)
    experts(*tensors, **options).square().sum().backward()
    return [t.grad for t in tensors if t.requires_grad]


@pytest.mark.parametrize(("activation", "layout"), FORMS)
def test_gradcheck(activation, layout):
    gated = layout != "not gated"
    x, ids, *others = requiring(block(gated=gated))
    options = {"activation": activation, "gated": gated, "interleaved": layout == "interleaved", "limit": 1.0}
    if layout == "transposed":
        options["transposed"] = True
        others[1:3] = [w.detach().mT.contiguous().requires_grad_() for w in others[1:3]]
    assert torch.autograd.gradcheck(
        lambda x, *others: experts(x, ids, *others, **options), (x, *others), fast_mode=True
    )


@pytest.mark.parametrize("activation", ["silu", "swigluoai"])
@pytest.mark.parametrize(
    "dtypes",
    [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.float32, torch.bfloat16)],
)
def test_gradients_of_the_fused_operator(activation, dtypes):
    tensors = [t.to(dtypes[i > 2]) if t.is_floating_point() else t for i, t in enumerate(block())]
    found = gradients(tensors, activation=activation)
    expected = gradients([t.double() if t.is_floating_point() else t for t in tensors], activation=activation)
    exact = dtypes[1] == torch.float32
    for f, e in zip(found, expected, strict=True):
        assert (f.double() - e).norm() <= (1e-5 if exact else 2e-2) * e.norm()
    assert [f.dtype for f in found] == [t.dtype for t in tensors if t.is_floating_point()]


@pytest.mark.parametrize(("activation", "layout"), FORMS)
def test_gradients_with_and_without_kept_products(activation, layout):
    gated, interleaved, transposed = layout != "not gated", layout == "interleaved", layout == "transposed"
    tensors = block(gated=gated)
    if transposed:
        tensors = [*tensors[:3], *(w.mT.contiguous().mT for w in tensors[3:5]), *tensors[5:]]
    options = activation, gated, interleaved, 1.702, 1.0

    def of(call, dtype):
        leaves = requiring([t.to(dtype) if t.is_floating_point() else t for t in tensors])
        output = call(*leaves, *options)
        return torch.autograd.grad(output.square().sum(), [t for t in leaves if t.requires_grad])

    expected = of(_composed, torch.float64)
    strides = [t.stride() for t in tensors if t.is_floating_point()]
    for call in (OPS.moe_experts, lambda *a: OPS.moe_experts_forward(*a)[0]):
        found = of(call, torch.float32)
        assert [f.stride() for f in found] == strides
        for f, e in zip(found, expected, strict=True):
            assert (f.double() - e).norm() <= 1e-5 * e.norm()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_quantized(bits, dtype):
    """Results and gradients equal those of the dequantized weights; weights and scales have no gradient."""
    torch.manual_seed(0)
    x, ids, gates = torch.randn(T, 64).to(dtype), torch.randint(-1, E + 1, (T, K)), torch.rand(T, K)
    weights = [torch.randn(E, 64, 64) / 8, torch.randn(E, 64, 32) / 6]
    quantized = [turnout.torch.quantize_experts(w.to(dtype), bits=bits) for w in weights]
    exact = [torch.from_numpy(check.dequantized(v.numpy(), s.numpy())) for v, s in quantized]
    results = []
    for double in (False, True):
        tokens, factors = requiring([x.double(), gates.double()] if double else [x, gates])
        if double:
            y = experts(tokens, ids, factors, *exact)
        else:
            y = turnout.torch.moe_experts_quantized(tokens, ids, factors, *quantized[0], *quantized[1])
        y.square().sum().backward()
        results.append((y, tokens.grad, factors.grad))
    for found, expected in zip(*results, strict=True):
        error = (found.double() - expected).norm() / expected.norm()
        assert error <= (1e-5 if dtype == torch.float32 else 2e-2)
    scale = quantized[0][1].requires_grad_()
    y = turnout.torch.moe_experts_quantized(
        tokens.detach().to(dtype), ids, gates, *quantized[0], *quantized[1]
    )
    with pytest.raises(RuntimeError, match="w13_scale and w2_scale have no gradient"):
        y.sum().backward()
    assert scale.grad is None


def test_grouped_experts():
    x, _, _, w13, w2, w13_bias, w2_bias = requiring(block())
    counts = torch.tensor([4, 0, 3])
    options = {"w13_bias": w13_bias, "w2_bias": w2_bias}
    y = turnout.torch.grouped_experts(x, counts, w13=w13, w2=w2, **options)
    ids = torch.tensor([0, 0, 0, 0, 2, 2, 2])[:, None]
    torch.testing.assert_close(
        y, turnout.torch.moe_experts(x, ids, torch.ones(7, 1).double(), w13, w2, **options)
    )
    found = turnout.torch.expert_parallel(
        x, ids[:, 0], None, partial(turnout.torch.grouped_experts, w13=w13, w2=w2, **options), num_experts=3
    )
    torch.testing.assert_close(found, y)
    y.sum().backward()
    assert not w13.grad[1].any()
    with pytest.raises(ValueError, match=r"^grouped_experts: counts sum to 6, expected 7, the number"):
        turnout.torch.grouped_experts(x, counts - torch.tensor([1, 0, 0]), w13=w13, w2=w2)
    with pytest.raises(ValueError, match=r"^grouped_experts: counts has shape \[2\], expected \[3\]"):
        turnout.torch.grouped_experts(x, counts[:2], w13=w13, w2=w2)


def test_gates_that_depend_on_the_tokens():
    """The gradient of the tokens has two paths, and each counts once."""
    x, ids, _, w13, w2, *_ = block()
    results = []
    for dtype in (torch.float32, torch.float64):
        tokens = x.to(dtype).requires_grad_()
        y = experts(tokens, ids, tokens[:, :2].softmax(1), w13.to(dtype), w2.to(dtype))
        results.append(torch.autograd.grad(y.square().sum(), tokens)[0])
    torch.testing.assert_close(results[0].double(), results[1], rtol=1e-4, atol=1e-4)


def test_second_gradients():
    x, ids, gates, w13, w2, *_ = requiring(block())
    assert torch.autograd.gradgradcheck(
        lambda x, w2: experts(x, ids, gates.detach(), w13.detach(), w2), (x, w2), fast_mode=True
    )


def test_grouped_mm_gradcheck():
    torch.manual_seed(0)
    offs = torch.tensor([2, 2, 8])
    x, w, bias = (
        torch.randn(s, dtype=torch.float64, requires_grad=True) for s in [(9, 4), (3, 4, 5), (3, 5)]
    )
    for weight in (w, w.detach().mT.contiguous().requires_grad_().mT):
        assert torch.autograd.gradcheck(
            lambda x, w, b: turnout.torch.grouped_mm(x, w, offs=offs, bias=b), (x, weight, bias)
        )
    turned = torch.nn.Parameter(w.detach().mT.contiguous())
    turnout.torch.grouped_mm(x.detach(), turned.mT, offs=offs).sum().backward()
    assert turned.grad.is_contiguous()
    turnout.torch.grouped_mm(x.detach(), w, offs=offs).sum().backward()
    torch.testing.assert_close(turned.grad, w.grad.mT)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck(requires_grad):
    tensors = block(torch.float32)
    tensors = requiring(tensors) if requires_grad else tensors
    for op in (OPS.moe_experts, OPS.moe_experts_forward):
        torch.library.opcheck(op, (*tensors, "silu", True, False, 1.702, None))
    x, w = torch.randn(9, 4, requires_grad=requires_grad), torch.randn(3, 4, 5, requires_grad=requires_grad)
    first, second = (turnout.torch.quantize_experts(t) for t in tensors[3:5])
    torch.library.opcheck(
        OPS.moe_experts_quantized,
        (*tensors[:3], *first, *second, *tensors[5:], "silu", True, False, 1.702, None),
    )
    torch.library.opcheck(OPS.grouped_mm, (x, w, torch.tensor([2, 2, 8])))
    for with_bias in (False, True):
        torch.library.opcheck(OPS.grouped_mm_backward_weight, (x, x, torch.tensor([2, 2, 8]), with_bias))


def test_compile():
    torch.compiler.reset()
    compiled = torch.compile(lambda *t: experts(*t).square().sum(), backend="aot_eager", fullgraph=True)
    results = []
    for function in (compiled, lambda *t: experts(*t).square().sum()):
        tensors = requiring(block(torch.float32))
        function(*tensors).backward()
        results.append([t.grad for t in tensors if t.requires_grad])
    torch.testing.assert_close(*results)


def test_torch_func():
    x, ids, gates, w13, w2, *_ = block(torch.float32)
    found = torch.func.grad(lambda x: experts(x, ids, gates, w13, w2).square().sum())(x)
    torch.testing.assert_close(found, gradients((x, ids, gates, w13, w2))[0])


def test_without_tokens():
    _, _, _, w13, w2, *_ = requiring(block(torch.float32))
    y = experts(torch.ones(0, H), torch.ones(0, K, dtype=torch.int64), torch.ones(0, K), w13, w2)
    y.sum().backward()
    assert y.shape == (0, H)
    assert not w13.grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_messages(dtype):
    x, ids, gates, w13, w2, *_ = block(dtype)
    with pytest.raises(
        ValueError, match=r"^moe_experts: topk_ids.shape\[0\] is 5, expected 7 = hidden_states.shape"
    ):
        experts(x, ids[:5], gates, w13, w2)
    with pytest.raises(ValueError, match=r"^moe_experts: activation is 'tanh', expected "):
        experts(x, ids, gates, w13, w2, activation="tanh")
    with pytest.raises(ValueError, match=r"^grouped_mm: offs\[1\] is 9, expected"):
        turnout.torch.grouped_mm(x, w13.mT, offs=torch.tensor([2, 9, 9]))
