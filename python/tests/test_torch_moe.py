"""Dispatch, combine and permute functions as torch operators: definitions, gradients, tracing."""

import pytest
import torch
from conftest import same_bits
from torch._subclasses.fake_tensor import FakeTensorMode

import turnout
import turnout.torch
from turnout import check

pytestmark = pytest.mark.torch

OPS = torch.ops.turnout
SAMPLES, HIDDEN, EXPERTS, CAPACITY = 7, 3, 4, 5


def routing(rng, choices=2, samples=SAMPLES):
    """Draws experts and slots like a layer's: no two choices share a row, and some are dropped."""
    shape = samples if choices is None else (samples, choices)
    indices = torch.from_numpy(rng.integers(-1, EXPERTS + 1, shape))
    return indices, turnout.torch.moe_locations(indices, EXPERTS)[0]


def floats(rng, *shape, dtype=torch.float64):
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype).requires_grad_()


def detached(*tensors):
    return [t.detach().numpy() if isinstance(t, torch.Tensor) else t for t in tensors]


# -- definitions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choices", [None, 1, 2])
@pytest.mark.parametrize("gated", [False, True])
def test_definition(rng, choices, gated):
    indices, locations = routing(rng, choices)
    tokens = floats(rng, SAMPLES, HIDDEN, dtype=torch.float32)
    gates = floats(rng, *indices.shape, dtype=torch.float32) if gated else None
    buffers = turnout.torch.moe_dispatch(tokens, indices, locations, CAPACITY, EXPERTS, gates)
    arguments = detached(indices, locations, CAPACITY)
    expected = check.moe_dispatch(*detached(tokens), *arguments, EXPERTS, *detached(gates))
    assert same_bits(buffers.detach().numpy(), expected)
    for view in (buffers, buffers.flatten(0, 1)):
        output = turnout.torch.moe_combine(view, indices, locations, CAPACITY, gates)
        assert same_bits(output.detach().numpy(), check.moe_combine(expected, *arguments, *detached(gates)))


def test_strided_tensors(rng):
    indices, locations = routing(rng)
    tokens, gates = floats(rng, SAMPLES, HIDDEN), floats(rng, SAMPLES, 2)
    plain = turnout.torch.moe_dispatch(tokens, indices, locations, CAPACITY, EXPERTS, gates)
    strided = [t.mT.contiguous().mT for t in (tokens, indices, locations, gates)]
    result = turnout.torch.moe_dispatch(*strided[:3], CAPACITY, EXPERTS, strided[3])
    assert torch.equal(result, plain)
    assert torch.equal(
        turnout.torch.moe_combine(plain.mT.contiguous().mT, *strided[1:3], CAPACITY, strided[3]),
        turnout.torch.moe_combine(plain, indices, locations, CAPACITY, gates),
    )


def test_locations_of_priorities(rng):
    indices, _ = routing(rng)
    priority = floats(rng, SAMPLES)
    locations, counts = turnout.torch.moe_locations(indices, EXPERTS, priority=priority)
    expected = check.moe_locations(indices.numpy(), EXPERTS, priority=priority.detach().numpy())
    assert same_bits(locations.numpy(), expected[0])
    assert same_bits(counts.numpy(), expected[1])
    assert not locations.requires_grad


def test_padded_permute(rng):
    tokens, probs = floats(rng, SAMPLES, HIDDEN), floats(rng, 2, 3)
    indices = torch.tensor([[0, 6, 2], [2, 1, 0]])
    permuted, kept = turnout.torch.moe_token_permute(tokens, indices, padded_mode=True)
    assert kept is indices
    assert torch.equal(permuted, tokens[indices.flatten()])
    output = turnout.torch.moe_token_unpermute(permuted, kept, probs, True, (SAMPLES, HIDDEN))
    expected = torch.zeros(SAMPLES, HIDDEN, dtype=torch.float64)
    for position, token in enumerate(indices.flatten()):
        expected[token] += probs.flatten()[position] * permuted[position]
    torch.testing.assert_close(output, expected)
    with pytest.raises(ValueError, match="moe_token_unpermute: restore_shape is None"):
        turnout.torch.moe_token_unpermute(permuted, kept, probs, True)


# -- gradients ---------------------------------------------------------------------------------------------


def check_gradients(function, *inputs):
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("choices", [None, 1, 2])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("with_locations", [False, True])
def test_gradcheck(rng, choices, gated, with_locations):
    indices, locations = routing(rng, choices)
    sizes = (CAPACITY, EXPERTS)
    if not with_locations:  # rows
        indices = torch.where(indices < EXPERTS, indices * CAPACITY + locations, -1)
        locations, sizes = None, (1, EXPERTS * CAPACITY)
    inputs = [floats(rng, SAMPLES, HIDDEN)] + ([floats(rng, *indices.shape)] if gated else [])
    check_gradients(lambda x, g=None: turnout.torch.moe_dispatch(x, indices, locations, *sizes, g), *inputs)
    inputs[0] = floats(rng, EXPERTS * CAPACITY, HIDDEN)
    check_gradients(lambda x, g=None: turnout.torch.moe_combine(x, indices, locations, sizes[0], g), *inputs)


@pytest.mark.parametrize("choices", [None, 2])
def test_gradcheck_of_choices_first(rng, choices):
    indices, locations = routing(rng, choices)
    indices, locations = (indices.mT, locations.mT) if choices else (indices, locations)
    tokens, gates = floats(rng, SAMPLES, HIDDEN), floats(rng, *indices.shape)
    buffers, sizes = floats(rng, EXPERTS * CAPACITY, HIDDEN), (CAPACITY, EXPERTS)
    check_gradients(
        lambda g, x: turnout.torch.moe_dispatch_forward(g, indices, locations, x, *sizes), gates, tokens
    )
    check_gradients(
        lambda g, d: turnout.torch.moe_dispatch_backward_data(g, indices, locations, d, *sizes),
        *(gates, buffers),
    )
    check_gradients(
        lambda d: turnout.torch.moe_dispatch_backward_data(None, indices, locations, d, *sizes), buffers
    )
    check_gradients(
        lambda x, d: turnout.torch.moe_dispatch_backward_gate(indices, locations, x, d, *sizes),
        *(tokens, buffers),
    )


@pytest.mark.parametrize("kept", [None, 9, -3])
@pytest.mark.parametrize("choices", [None, 2])
def test_gradcheck_of_permutes(rng, choices, kept):
    indices = torch.from_numpy(rng.integers(0, 3, SAMPLES if choices is None else (SAMPLES, choices)))
    tokens = floats(rng, SAMPLES, HIDDEN)
    check_gradients(lambda x: turnout.torch.moe_token_permute(x, indices, kept)[0], tokens)
    permuted, order = turnout.torch.moe_token_permute(tokens.detach(), indices, kept)
    check_gradients(
        lambda x, p: turnout.torch.moe_token_unpermute(x, order, p),
        permuted.requires_grad_(),
        floats(rng, *indices.shape),
    )
    check_gradients(lambda x: turnout.torch.moe_token_unpermute(x, order), permuted)


def test_gradcheck_of_padded_permutes(rng):
    indices = torch.tensor([[0, 6, 2], [2, 1, 0]])
    check_gradients(
        lambda x: turnout.torch.moe_token_permute(x, indices, padded_mode=True)[0],
        floats(rng, SAMPLES, HIDDEN),
    )
    check_gradients(
        lambda x, p: turnout.torch.moe_token_unpermute(x, indices, p, True, (SAMPLES, HIDDEN)),
        floats(rng, 6, HIDDEN),
        floats(rng, 2, 3),
    )


@pytest.mark.parametrize("with_probs", [False, True])
def test_gradcheck_of_chunks(rng, with_probs):
    sizes, order = torch.tensor([2, 0, 4, 1]), torch.tensor([2, 3, 0, 1], dtype=torch.int32)
    inputs = [floats(rng, SAMPLES, HIDDEN)] + ([floats(rng, SAMPLES)] if with_probs else [])

    def function(x, p=None):
        output, probs = turnout.torch.sort_chunks_by_idxs(x, sizes, order, p)
        return output if p is None else (output, probs)

    check_gradients(function, *inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gates_keep_their_dtype(rng, dtype):
    indices, locations = routing(rng)
    tokens = floats(rng, SAMPLES, HIDDEN, dtype=dtype)
    gates = floats(rng, SAMPLES, 2, dtype=torch.float32)
    buffers = turnout.torch.moe_dispatch(tokens, indices, locations, CAPACITY, EXPERTS, gates)
    output = turnout.torch.moe_combine(buffers, indices, locations, CAPACITY, gates)
    output.float().sum().backward()
    assert (tokens.grad.dtype, gates.grad.dtype) == (dtype, torch.float32)


def test_one_read_and_two_calls_agree(rng):
    """The fused gradients and those of a twice-differentiated graph have the same bits."""
    indices, locations = routing(rng)
    tokens, gates = floats(rng, SAMPLES, HIDDEN), floats(rng, SAMPLES, 2)
    for inputs, function in (
        (
            (tokens, gates),
            lambda x, g: turnout.torch.moe_dispatch(x, indices, locations, CAPACITY, EXPERTS, g),
        ),
        (
            (floats(rng, EXPERTS * CAPACITY, HIDDEN), gates),
            lambda x, g: turnout.torch.moe_combine(x, indices, locations, CAPACITY, g),
        ),
    ):
        loss = function(*inputs).sin().sum()
        fused = torch.autograd.grad(loss, inputs, retain_graph=True)
        separate = torch.autograd.grad(loss, inputs, create_graph=True)
        for a, b in zip(fused, separate, strict=True):
            assert torch.equal(a, b)


def test_empty_routings():
    tokens = torch.zeros(0, HIDDEN, requires_grad=True)
    none = torch.zeros(0, 2, dtype=torch.int64)
    buffers = turnout.torch.moe_dispatch(tokens, none, none, CAPACITY, EXPERTS)
    assert buffers.shape == (EXPERTS, CAPACITY, HIDDEN) and not buffers.any()
    turnout.torch.moe_combine(buffers, none, none, CAPACITY).sum().backward()
    assert tokens.grad.shape == (0, HIDDEN)
    permuted, order = turnout.torch.moe_token_permute(tokens, none)
    assert (permuted.shape, order.shape) == ((0, HIDDEN), (0,))
    tokens = torch.ones(2, HIDDEN, requires_grad=True)  # no slots: all tokens are dropped
    zeros, gates = torch.zeros(2, 2, dtype=torch.int64), torch.ones(2, 2, requires_grad=True)
    buffers = turnout.torch.moe_dispatch(tokens, zeros, zeros, 0, EXPERTS)
    assert buffers.shape == (EXPERTS, 0, HIDDEN)
    output = turnout.torch.moe_combine(buffers, zeros, zeros, 0, gates)
    output.sum().backward()
    assert not output.any() and not gates.grad.any() and not tokens.grad.any()


# -- tracing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("choices", [None, 2])
def test_opcheck(rng, choices, requires_grad):
    indices, locations = routing(rng, choices)
    tokens = floats(rng, SAMPLES, HIDDEN).detach()
    buffers = floats(rng, EXPERTS * CAPACITY, HIDDEN).detach()
    gates = floats(rng, *indices.shape).detach()
    first = [t.mT.contiguous() if t.dim() == 2 else t for t in (gates, indices, locations)]
    sizes = (CAPACITY, EXPERTS)
    check_op = torch.library.opcheck
    check_op(OPS.moe_locations.default, (indices, EXPERTS, tokens[:, 0].contiguous()))
    check_op(OPS.moe_dispatch_backward.default, (*first, tokens, buffers, *sizes))
    check_op(OPS.moe_combine_backward.default, (tokens, buffers, indices, locations, gates, CAPACITY))
    for leaf in (tokens, buffers, gates, first[0]):
        leaf.requires_grad_(requires_grad)
    check_op(OPS.moe_dispatch.default, (tokens, indices, locations, *sizes, gates))
    check_op(OPS.moe_dispatch.default, (tokens, indices, locations, *sizes))
    check_op(OPS.moe_combine.default, (buffers, indices, locations, CAPACITY, gates))
    check_op(OPS.moe_dispatch_forward.default, (*first, tokens, *sizes))
    check_op(OPS.moe_dispatch_backward_data.default, (*first, buffers, *sizes))
    check_op(OPS.moe_dispatch_backward_gate.default, (*first[1:], tokens, buffers, *sizes))
    check_op(OPS.moe_token_permute.default, (tokens, indices, 5))
    counts = torch.tensor([3, 4])
    check_op(OPS.sort_chunks_by_idxs.default, (tokens, counts, torch.tensor([1, 0]), tokens[:, 0]))


def layer(tokens, logits):
    """A mixture whose experts multiply by their number."""
    gates, indices = torch.topk(logits.softmax(1), 2)
    locations, _ = turnout.torch.moe_locations(indices, EXPERTS)
    buffers = turnout.torch.moe_dispatch(tokens, indices, locations, CAPACITY, EXPERTS)
    buffers = buffers * torch.arange(1, EXPERTS + 1, dtype=tokens.dtype)[:, None, None]
    output = turnout.torch.moe_combine(buffers, indices, locations, CAPACITY, gates)
    permuted, order = turnout.torch.moe_token_permute(output, indices)
    return turnout.torch.moe_token_unpermute(permuted.sin(), order, gates)


@pytest.mark.parametrize(("dynamic", "backend"), [(False, "aot_eager"), (True, "inductor")])
def test_compile(rng, dynamic, backend):
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic, backend=backend)
    for samples in (SAMPLES, 9):
        inputs = floats(rng, samples, HIDDEN), floats(rng, samples, EXPERTS)
        outputs = [f(*inputs) for f in (layer, compiled)]
        torch.testing.assert_close(*outputs)
        grads = [torch.autograd.grad((output**2).sum(), inputs) for output in outputs]
        for a, b in zip(*grads, strict=True):
            torch.testing.assert_close(a, b)


def test_export(rng):
    class Layer(torch.nn.Module):
        def forward(self, tokens, logits):
            return layer(tokens, logits)

    inputs = floats(rng, SAMPLES, HIDDEN).detach(), floats(rng, SAMPLES, EXPERTS).detach()
    samples = torch.export.Dim("samples", min=2, max=1000)
    program = torch.export.export(Layer(), inputs, dynamic_shapes=({0: samples}, {0: samples}))
    longer = floats(rng, 11, HIDDEN).detach(), floats(rng, 11, EXPERTS).detach()
    torch.testing.assert_close(program.module()(*longer), layer(*longer))


def test_fake_shapes(rng):
    indices, locations = routing(rng)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(t) for t in (torch.ones(SAMPLES, HIDDEN), indices, locations)]
        buffers = turnout.torch.moe_dispatch(*fake, CAPACITY, EXPERTS)
        assert buffers.shape == (EXPERTS, CAPACITY, HIDDEN)
        assert turnout.torch.moe_combine(buffers, *fake[1:], CAPACITY).shape == (SAMPLES, HIDDEN)
        assert turnout.torch.moe_token_permute(*fake[:2], -3)[0].shape == (2 * SAMPLES - 3, HIDDEN)


# -- messages ---------------------------------------------------------------------------------------------


def test_messages(rng):
    indices, locations = routing(rng)
    tokens = torch.ones(SAMPLES, HIDDEN)
    for call, message in (
        (
            lambda: turnout.torch.moe_dispatch(tokens, indices.mT, locations.mT, CAPACITY, EXPERTS),
            r"moe_dispatch: indices has shape \[2, 7\], expected \[samples, choices\?\] with samples = 7: "
            "its dimensions are the other way round",
        ),
        (
            lambda: turnout.torch.moe_combine(torch.ones(4, 5, 3), indices, locations, 4),
            r"moe_combine: expert_output.shape\[1\] is 5, expected 4 = capacity",
        ),
        (
            lambda: turnout.torch.moe_token_unpermute(tokens, indices, torch.ones(3, 4)),
            r"moe_token_unpermute: sorted_indices has 14 elements, expected 12 as probs has shape \[3, 4\]",
        ),
        (
            lambda: turnout.torch.moe_token_unpermute(tokens.int(), indices[:, 0]),
            "moe_token_unpermute: permuted_tokens has dtype int32",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
