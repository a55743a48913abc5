"""Transformer Engine's permute functions, against plain torch."""

import importlib
import sys

import pytest
import torch

from turnout.compat import transformer_engine as te

pytestmark = pytest.mark.torch


def mask_arguments(rng, tokens=9, experts=4, hidden=3):
    mask = torch.from_numpy(rng.random((tokens, experts)) < 0.4)
    inp = torch.from_numpy(rng.standard_normal((tokens, hidden))).requires_grad_()
    probs = torch.from_numpy(rng.random((tokens, experts))).requires_grad_()
    return inp, mask, probs


def permuted_by_torch(inp, mask, probs):
    of_token = torch.arange(len(inp)).expand(mask.shape[1], -1)[mask.T]
    return inp[of_token], probs.T[mask.T], of_token


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32])
def test_mask_and_back(rng, dtype):
    inp, mask, probs = mask_arguments(rng)
    expected, expected_probs, of_token = permuted_by_torch(inp, mask, probs)
    output, permuted_probs, rows = te.moe_permute_with_probs(inp, probs, mask.to(dtype), len(expected))
    assert torch.equal(output, expected)
    assert torch.equal(permuted_probs, expected_probs)
    assert torch.equal(te.moe_permute(inp, mask.to(dtype), -1)[0], expected)
    back = te.moe_unpermute(output, rows, probs, restore_shape=inp.shape)
    by_torch = torch.zeros_like(inp).index_add(0, of_token, expected * expected_probs[:, None])
    torch.testing.assert_close(back, by_torch)
    torch.testing.assert_close(
        te.moe_unpermute(output, rows), torch.zeros_like(inp).index_add(0, of_token, expected)
    )
    for results in zip(
        torch.autograd.grad((back.sin() + 0 * permuted_probs.sum()).sum(), (inp, probs), retain_graph=True),
        torch.autograd.grad(by_torch.sin().sum(), (inp, probs), retain_graph=True),
        strict=True,
    ):
        torch.testing.assert_close(*results)
    grads = [
        torch.autograd.grad((p * torch.arange(len(p))).sum(), probs)[0]
        for p in (permuted_probs, expected_probs)
    ]
    torch.testing.assert_close(*grads)


def test_mask_with_dropped_and_added_rows(rng):
    inp, mask, probs = mask_arguments(rng)
    expected = permuted_by_torch(inp, mask, probs)[0]
    count = len(expected)
    for wanted in (count - 2, count + 2):
        output, rows = te.moe_permute(inp, mask, wanted)
        assert output.shape[0] == wanted
        kept = min(wanted, count)
        assert torch.equal(output[:kept], expected[:kept]) and not output[kept:].any()
        assert te.moe_unpermute(output, rows).shape == inp.shape


@pytest.mark.parametrize("align_size", [1, 4])
def test_mask_with_padding(rng, align_size):
    inp, mask, probs = mask_arguments(rng)
    counts = mask.sum(0)
    output, permuted_probs, rows, offsets, padded = te.moe_permute_and_pad_with_probs(
        inp, probs, mask, counts, align_size
    )
    assert (padded % align_size == 0).all() and output.shape[0] == padded.sum()
    assert (offsets is None) == (align_size == 1)
    plain, plain_probs, _ = permuted_by_torch(inp, mask, probs)
    for block, block_probs, expected, expected_probs in zip(
        output.split(padded.tolist()),
        permuted_probs.split(padded.tolist()),
        plain.split(counts.tolist()),
        plain_probs.split(counts.tolist()),
        strict=True,
    ):
        assert torch.equal(block[: len(expected)], expected) and not block[len(expected) :].any()
        assert torch.equal(block_probs[: len(expected)], expected_probs)
    back = te.moe_unpermute(output, rows, probs, pad_offsets=offsets)
    torch.testing.assert_close(back, te.moe_unpermute(te.moe_permute(inp, mask)[0], rows, probs))
    with pytest.raises(ValueError, match="moe_permute_and_pad_with_probs: tokens_per_expert is "):
        te.moe_permute_and_pad_with_probs(inp, probs, mask, counts + 1, align_size)


@pytest.mark.parametrize("wanted", [None, 7])
def test_index_and_back(rng, wanted):
    inp = torch.from_numpy(rng.standard_normal((6, 3))).requires_grad_()
    indices = torch.from_numpy(rng.integers(0, 4, (6, 2))).int()
    probs = torch.from_numpy(rng.random((6, 2))).requires_grad_()
    order = indices.flatten().argsort(stable=True)[:wanted]
    output, rows = te.moe_permute(inp, indices, wanted, map_type="index")
    assert torch.equal(output, inp[order // 2])
    back = te.moe_unpermute(output, rows, probs, map_type="index")
    by_torch = torch.zeros_like(inp).index_add(0, order // 2, inp[order // 2] * probs.flatten()[order, None])
    torch.testing.assert_close(back, by_torch)
    assert torch.equal(te.moe_unpermute(output, rows, probs=probs, map_type="index"), back)


def test_chunks(rng):
    inp, probs = torch.arange(12.0).reshape(6, 2), torch.arange(6.0)
    sizes, order = torch.tensor([2, 1, 3]), torch.tensor([2, 0, 1])
    expected = torch.cat([inp[3:], inp[:3]])
    assert torch.equal(te.moe_sort_chunks_by_index(inp, sizes, order), expected)
    output, permuted = te.moe_sort_chunks_by_index_with_probs(inp, probs, sizes, order)
    assert torch.equal(output, expected) and permuted.tolist() == [3, 4, 5, 0, 1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: te.moe_permute(x, torch.ones(3, 2), 1), r"moe_permute: routing_map has shape \[3, 2\]"),
        (lambda x: te.moe_permute(x, torch.ones(4, 2), map_type="rows"), "moe_permute: map_type is 'rows'"),
        (
            lambda x: te.moe_unpermute(x, torch.zeros(4, 2).int(), x, probs=x),
            "moe_unpermute: probs and merging_probs are given, expected only one of them",
        ),
        (
            lambda x: te.moe_unpermute(x, torch.zeros(4, 2).int(), torch.ones(4, 3)),
            r"moe_unpermute: merging_probs.shape\[1\] is 3, expected 2 = ",
        ),
        (
            lambda x: te.moe_sort_chunks_by_index(x, torch.tensor([4]), torch.tensor([1])),
            r"moe_sort_chunks_by_index: sorted_index\[0\] is 1, expected 0",
        ),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.ones(4, 2))


def test_install():
    te.install()
    try:
        permutation = importlib.import_module("transformer_engine.pytorch.permutation")
        assert permutation.moe_unpermute is te.moe_unpermute
        assert importlib.import_module("transformer_engine.pytorch").moe_permute is te.moe_permute
    finally:
        te.uninstall()
    assert "transformer_engine" not in sys.modules
