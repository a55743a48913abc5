"""torch_npu's names."""

import inspect

import pytest
import torch
from conftest import same_bits
from test_torch_re_routing import assert_like_definition, tensor_arguments

import turnout.torch
from turnout.compat.torch_npu import (
    npu_moe_re_routing,
    npu_moe_token_permute,
    npu_moe_token_unpermute,
)

pytestmark = pytest.mark.torch

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


def byte_arguments(rng, dtype):
    tokens, counts, _ = tensor_arguments(rng)
    return torch.from_numpy(rng.integers(0, 256, tokens.shape, "uint8")).view(dtype), counts


def test_signature():
    parameters = inspect.signature(npu_moe_re_routing).parameters
    assert {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY} == {
        **{"per_token_scales": None, "expert_token_num_type": 1, "idx_type": 0, "tokens_dtype": None}
    }
    assert [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD] == [
        *("tokens", "expert_token_num_per_rank")
    ]


@pytest.mark.parametrize("tokens_dtype", [None, torch.float32, 290])
def test_like_moe_re_routing(rng, tokens_dtype):
    tokens, counts, scales = tensor_arguments(rng)
    results = npu_moe_re_routing(
        tokens=tokens,
        expert_token_num_per_rank=counts,
        per_token_scales=scales,
        expert_token_num_type=0,
        idx_type=1,
        tokens_dtype=tokens_dtype,
    )
    assert_like_definition(results, tokens, counts, scales, 0, 1)


def test_tokens_dtype_is_a_dtype(rng):
    tokens, counts, _ = tensor_arguments(rng)
    with pytest.raises(TypeError, match="npu_moe_re_routing: tokens_dtype is of type str, expected a torch"):
        npu_moe_re_routing(tokens, counts, tokens_dtype="float32")


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_absent_scales_are_float32(rng, device):
    tokens, counts, _ = tensor_arguments(rng, dtype=torch.float16)
    results = npu_moe_re_routing(tokens.to(device), counts.to(device))
    assert (results[1].shape, results[1].dtype) == ((36,), torch.float32)
    if device == "cpu":
        assert not results[1].any()
        permuted, _, idx, num = results
        assert_like_definition((permuted, None, idx, num), tokens, counts)


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("scale_dtype", [torch.uint8, torch.float8_e8m0fnu])
@pytest.mark.parametrize("width", [None, 2])
def test_scales_of_8_bit_floats_are_bytes(rng, dtype, scale_dtype, width):
    tokens, counts = byte_arguments(rng, dtype)
    shape = (36,) if width is None else (36, width)
    scales = torch.from_numpy(rng.integers(0, 256, shape, "uint8")).view(scale_dtype)
    permuted, permuted_scales, idx, _ = npu_moe_re_routing(tokens, counts, per_token_scales=scales)
    assert (permuted.dtype, permuted_scales.dtype) == (dtype, scale_dtype)
    for actual, source in ((permuted, tokens), (permuted_scales, scales)):
        assert same_bits(actual.view(torch.uint8).numpy(), source.view(torch.uint8).numpy()[idx.numpy()])


def test_other_scales_of_8_bit_floats_are_refused(rng):
    tokens, counts = byte_arguments(rng, torch.float8_e4m3fn)
    with pytest.raises(ValueError) as caught:
        npu_moe_re_routing(tokens, counts, per_token_scales=torch.ones(36))
    assert str(caught.value) == (
        "npu_moe_re_routing: per_token_scales has dtype torch.float32, expected torch.float8_e8m0fnu or "
        "torch.uint8 for tokens of torch.float8_e4m3fn"
    )
    turnout.torch.moe_re_routing(tokens, counts, per_token_scales=torch.ones(36))


def test_messages_name_the_function(rng):
    tokens, counts, _ = tensor_arguments(rng)
    with pytest.raises(
        ValueError, match=r"^npu_moe_re_routing: expert_token_num_per_rank\[0, 1\] is 6, expected"
    ):
        npu_moe_re_routing(tokens[:9], counts)
    with pytest.raises(TypeError, match=r"^npu_moe_re_routing: tokens is of type ndarray, expected a torch"):
        npu_moe_re_routing(tokens.numpy(), counts)


def test_token_permute_and_back(rng):
    """The index gives the row of each choice, not the choice of each row."""
    tokens = torch.from_numpy(rng.standard_normal((6, 3))).requires_grad_()
    indices = torch.from_numpy(rng.integers(0, 4, (6, 2)))
    probs = torch.from_numpy(rng.random((6, 2))).requires_grad_()
    permuted, sorted_indices = npu_moe_token_permute(tokens, indices)
    came_from = indices.flatten().argsort(stable=True)
    assert sorted_indices.dtype == torch.int32
    assert torch.equal(sorted_indices.long(), came_from.argsort())
    assert torch.equal(permuted, tokens[came_from // 2])
    output = npu_moe_token_unpermute(permuted, sorted_indices, probs)
    torch.testing.assert_close(output, tokens * probs.sum(1, keepdim=True))
    grads = torch.autograd.grad(output.sum(), (tokens, probs))
    torch.testing.assert_close(grads[0], probs.sum(1, keepdim=True).expand(6, 3))
    torch.testing.assert_close(grads[1], tokens.sum(1, keepdim=True).expand(6, 2))
    with pytest.raises(ValueError, match="npu_moe_token_unpermute: sorted_indices has 12 elements"):
        npu_moe_token_unpermute(permuted, sorted_indices, probs[:3])
