"""moe_re_routing for PyTorch: tensors with ``import turnout``, operators, gradients, compilation."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from conftest import any_bits, same_bits, token_counts
from torch._subclasses.fake_tensor import FakeTensorMode

import turnout
import turnout.torch
from turnout import _core, check

pytestmark = pytest.mark.torch

OP = torch.ops.turnout.moe_re_routing.default
INVERSE = torch.ops.turnout.moe_re_routing_inverse.default
DTYPES = [
    *(torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu),
    *(torch.int16, torch.float16, torch.bfloat16, torch.int32, torch.float32, torch.int64, torch.float64),
]


def tensor_arguments(rng, rows=36, hidden=5, ranks=3, experts=4, scale_width=None, dtype=torch.float32):
    tokens = torch.from_numpy(rng.standard_normal((rows, hidden))).to(dtype)
    shape = (rows,) if scale_width is None else (rows, scale_width)
    scales = torch.from_numpy(rng.standard_normal(shape)).to(dtype)
    return tokens, torch.from_numpy(token_counts(rng, rows, ranks, experts)), scales


def bits(tensor):
    return tensor.detach().contiguous().view(torch.uint8).numpy()


def assert_like_definition(results, tokens, counts, scales=None, *choices):
    arrays = [None if t is None else t.detach().contiguous().numpy() for t in (tokens, counts, scales)]
    options = dict(zip(("expert_token_num_type", "idx_type"), choices, strict=False))
    expected = check.moe_re_routing(*arrays[:2], per_token_scales=arrays[2], **options)
    for actual, wanted in zip(results, expected, strict=True):
        assert actual is wanted is None or same_bits(actual.detach().numpy(), wanted)


@pytest.mark.parametrize("binding", [turnout.moe_re_routing, turnout.torch.moe_re_routing])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_width(rng, binding, dtype):
    raw = (
        any_bits(rng, (30, 6), np.bool_)
        if dtype == torch.bool
        else any_bits(rng, (30, 6 * dtype.itemsize), np.uint8)
    )
    tokens = torch.from_numpy(raw).view(dtype)
    counts = torch.from_numpy(token_counts(rng, 30, 3, 4, np.int64))
    permuted, scales, idx, num = binding(tokens, counts, per_token_scales=tokens)
    assert (permuted.dtype, idx.dtype, num.dtype) == (dtype, torch.int32, torch.int64)
    expected = check.moe_re_routing(raw, counts.numpy())
    for actual in (permuted, scales):
        assert same_bits(bits(actual), bits(torch.from_numpy(expected[0])))
    assert same_bits(idx.numpy(), expected[2])
    back = {turnout.moe_re_routing: turnout.moe_re_routing_inverse}.get(
        binding, turnout.torch.moe_re_routing_inverse
    )
    assert same_bits(bits(back(permuted, idx)), bits(tokens))


def test_out(rng):
    tokens, counts, scales = tensor_arguments(rng)
    out = (torch.zeros_like(tokens), None, torch.zeros(36, dtype=torch.int32), None)
    results = turnout.moe_re_routing(tokens, counts, per_token_scales=scales, out=out)
    assert (results[0] is out[0], results[2] is out[2]) == (True, True)
    assert_like_definition(results, tokens, counts, scales)


def test_result_kind_follows_its_source(rng):
    tokens, counts, _ = tensor_arguments(rng)
    kinds = [type(r) for r in turnout.moe_re_routing(tokens, counts.numpy())]
    assert kinds == [torch.Tensor, type(None), torch.Tensor, np.ndarray]
    kinds = [type(r) for r in turnout.moe_re_routing(tokens.numpy(), counts)]
    assert kinds == [np.ndarray, type(None), np.ndarray, torch.Tensor]


def test_requires_grad_is_refused_without_turnout_torch(rng):
    tokens, counts, scales = tensor_arguments(rng)
    with pytest.raises(ValueError, match="per_token_scales requires grad, which only turnout"):
        turnout.moe_re_routing(tokens, counts, per_token_scales=scales.requires_grad_())


def test_torch_without_exchange_api():
    """Before torch 2.10, results are made with new_empty(), in dtypes that differ from the argument's."""
    program = """
        import torch
        if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            del torch.Tensor.__dlpack_c_exchange_api__
        import turnout.torch
        tokens, counts = torch.arange(14.0).reshape(7, 2), torch.tensor([[1, 2, 1], [2, 1, 0]])
        permuted, _, idx, num = turnout.torch.moe_re_routing(tokens.requires_grad_(), counts)
        assert (permuted.dtype, idx.dtype, num.dtype) == (torch.float32, torch.int32, torch.int64)
        assert idx.tolist() == [0, 4, 5, 1, 2, 6, 3] and torch.equal(permuted, tokens[idx])
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=120)


# -- torch.ops ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale_width", [None, 3])
@pytest.mark.parametrize("choices", [(0, 0), (1, 1)])
def test_definition(rng, scale_width, choices):
    tokens, counts, scales = tensor_arguments(rng, scale_width=scale_width)
    results = OP(tokens, counts, scales, *choices)
    assert_like_definition(results, tokens, counts, scales, *choices)


def test_absent_scales(rng):
    tokens, counts, _ = tensor_arguments(rng)
    empty = OP(tokens, counts)[1]
    assert (empty.shape, empty.dtype) == ((0,), torch.float32)
    assert turnout.torch.moe_re_routing(tokens, counts)[1] is None
    assert_like_definition(turnout.torch.moe_re_routing(tokens, counts), tokens, counts)


def test_absent_scales_do_not_follow_the_default_dtype(rng):
    tokens, counts, _ = tensor_arguments(rng)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert OP(tokens, counts)[1].dtype == torch.float32
    finally:
        torch.set_default_dtype(before)


def test_strided_tensors(rng):
    tokens, counts, scales = tensor_arguments(rng, scale_width=3)
    strided = [t.T.contiguous().T for t in (tokens, counts, scales)]
    assert_like_definition(OP(*strided), tokens, counts, scales)
    idx = OP(tokens, counts)[2]
    assert torch.equal(INVERSE(strided[0], idx.repeat_interleave(2)[::2]), INVERSE(tokens, idx))


def test_same_messages(rng):
    tokens, counts, _ = tensor_arguments(rng)
    for requires_grad in (False, True):
        with pytest.raises(ValueError, match="moe_re_routing: expert_token_num_per_rank sums to 36"):
            OP(torch.ones(37, 2, requires_grad=requires_grad), counts)
    with pytest.raises(ValueError, match=r"moe_re_routing_inverse: permute_token_idx\[1\] is 0, equal to"):
        INVERSE(tokens, torch.zeros(36, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"idx_type is 2, expected one of 0 \.\. 1"):
        OP(tokens, counts, None, 1, 2)


@pytest.mark.parametrize("sizes", [{}, {"rows": 0}, {"scale_width": 3}])
@pytest.mark.parametrize("idx_type", [0, 1])
@pytest.mark.parametrize("with_scales", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck(rng, sizes, idx_type, with_scales, requires_grad):
    tokens, counts, scales = tensor_arguments(rng, **sizes)
    idx = OP(tokens, counts, None, 1, idx_type)[2]
    tokens.requires_grad_(requires_grad)
    scales = scales.requires_grad_(requires_grad) if with_scales else None
    torch.library.opcheck(OP, (tokens, counts, scales, 1, idx_type))
    torch.library.opcheck(INVERSE, (tokens, idx, idx_type))


def test_opcheck_integers(rng):
    tokens, counts, scales = tensor_arguments(rng)
    torch.library.opcheck(OP, ((tokens * 9).to(torch.int8), counts, scales))


def test_fake_and_meta(rng):
    arguments = tensor_arguments(rng, scale_width=3)
    meta = OP(*(a.to("meta") for a in arguments))
    with FakeTensorMode() as mode:
        fake = OP(*(mode.from_tensor(a) for a in arguments))
    for results in (meta, fake):
        assert [tuple(r.shape) for r in results] == [(36, 5), (36, 3), (36,), (4,)]


@pytest.mark.parametrize("count", [1, 2])
def test_torch_threads_do_the_work(rng, count):
    tokens, counts, _ = tensor_arguments(rng, rows=1200, hidden=1024)
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    before = _core.torch_runs()
    try:
        results = turnout.torch.moe_re_routing(tokens, counts)
        assert _core.torch_runs() - before == (count > 1)
    finally:
        torch.set_num_threads(threads)
    assert_like_definition(results, tokens, counts)


# -- gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idx_type", [0, 1])
@pytest.mark.parametrize("scale_width", [None, 3])
def test_gradcheck(rng, idx_type, scale_width):
    tokens, counts, scales = tensor_arguments(rng, 7, 2, 2, 3, scale_width, torch.float64)

    def forward(tokens, scales):
        return OP(tokens, counts, scales, 1, idx_type)[:2]

    inputs = (tokens.requires_grad_(), scales.requires_grad_())
    assert torch.autograd.gradcheck(forward, inputs)
    assert torch.autograd.gradgradcheck(forward, inputs)
    idx = OP(tokens, counts, None, 1, idx_type)[2]
    assert torch.autograd.gradcheck(lambda x: INVERSE(x, idx, idx_type), (tokens,))
    assert torch.autograd.gradgradcheck(lambda x: INVERSE(x, idx, idx_type), (tokens,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("idx_type", [0, 1])
def test_gradient_is_the_inverse(rng, dtype, idx_type):
    tokens, counts, scales = tensor_arguments(rng, dtype=dtype)
    tokens.requires_grad_()
    scales.requires_grad_()
    permuted, permuted_scales, idx, num = turnout.torch.moe_re_routing(
        tokens, counts, per_token_scales=scales, idx_type=idx_type
    )
    assert (permuted.requires_grad, permuted_scales.requires_grad) == (True, True)
    assert (idx.requires_grad, num.requires_grad) == (False, False)
    weight = torch.from_numpy(rng.standard_normal((5, 36))).to(dtype).T  # its gradient is strided
    ((permuted * weight).sum() + (permuted_scales * weight[:, 0]).sum()).backward()
    assert torch.equal(tokens.grad, INVERSE(weight, idx, idx_type))
    assert torch.equal(scales.grad, INVERSE(weight[:, :1], idx, idx_type)[:, 0])


def test_only_requested_gradients(rng):
    tokens, counts, scales = tensor_arguments(rng)
    permuted, permuted_scales, *_ = turnout.torch.moe_re_routing(
        tokens, counts, per_token_scales=scales.requires_grad_()
    )
    (permuted.sum() + permuted_scales.sum()).backward()
    assert tokens.grad is None
    assert torch.equal(scales.grad, torch.ones(36))
    tokens.requires_grad_()
    turnout.torch.moe_re_routing(tokens, counts, per_token_scales=scales)[1].sum().backward()
    assert tokens.grad is None


def test_integer_tokens_have_no_gradient(rng):
    tokens, counts, scales = tensor_arguments(rng)
    permuted, permuted_scales, *_ = turnout.torch.moe_re_routing(
        (tokens * 9).to(torch.int8), counts, per_token_scales=scales.requires_grad_()
    )
    assert (permuted.requires_grad, permuted_scales.requires_grad) == (False, True)


def test_no_rows():
    tokens = torch.zeros(0, 4, requires_grad=True)
    permuted, _, idx, num = turnout.torch.moe_re_routing(tokens, torch.zeros(2, 3, dtype=torch.int32))
    assert (permuted.shape, idx.shape, num.tolist()) == ((0, 4), (0,), [0, 0, 0])
    turnout.torch.moe_re_routing_inverse(permuted, idx).sum().backward()
    assert tokens.grad.shape == (0, 4)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("with_scales", [False, True])
def test_compile(rng, dynamic, with_scales):
    def function(tokens, counts, scales):
        permuted, permuted_scales, idx, num = turnout.torch.moe_re_routing(
            tokens * 2, counts, per_token_scales=scales, idx_type=1
        )
        if permuted_scales is not None:
            permuted = permuted * permuted_scales[:, None]
        return turnout.torch.moe_re_routing_inverse(permuted + 1, idx, idx_type=1), num

    torch.compiler.reset()  # the cases share a recompilation limit
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    for rows in (36, 50):
        tokens, counts, scales = tensor_arguments(rng, rows=rows)
        arguments = [tokens.requires_grad_(), counts, scales.requires_grad_() if with_scales else None]
        leaves = [t for t in (tokens, arguments[2]) if t is not None]
        results = [f(*arguments) for f in (function, compiled)]
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b)
        grads = [torch.autograd.grad((result**2).sum(), leaves) for result, _ in results]
        for a, b in zip(*grads, strict=True):
            torch.testing.assert_close(a, b)
        with torch.inference_mode():
            torch.testing.assert_close(compiled(*arguments)[0], function(*arguments)[0])
