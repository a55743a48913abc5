"""indice_convolution_index: the same bits with and without it, messages, torch operators."""

import numpy as np
import pytest
import torch
from conftest import same_bits
from test_torch_indice_convolution import MODES, scene, values

import turnout
import turnout.torch

OPS = torch.ops.turnout


def indexes(pairs, num, rows, out_rows, inverse=False, subm=False):
    module = turnout if isinstance(pairs, np.ndarray) else turnout.torch
    forward = module.indice_convolution_index(pairs, num, rows, out_rows, inverse=inverse, subm=subm)
    backward = module.indice_convolution_index(pairs, num, out_rows, rows, inverse=not inverse, subm=subm)
    return forward, backward


@pytest.mark.parametrize("subm", [False, True])
def test_the_same_bits(rng, subm):
    indices, out_indices, pairs, num = (
        x.numpy() for x in scene(rng, rows=900, space=(9, 20, 20), **MODES[0 if subm else 1])
    )
    rows, out_rows = len(indices), len(out_indices)
    x = rng.standard_normal((rows, 5)).astype(np.float32)
    dy = rng.standard_normal((out_rows, 7)).astype(np.float32)
    filters = rng.standard_normal((27, 5, 7)).astype(np.float32)
    index, grad_index = indexes(pairs, num, rows, out_rows, subm=subm)
    assert index.dtype == np.int64 and index.ndim == 1
    forward = filters, pairs, num, out_rows
    assert same_bits(
        turnout.indice_convolution_forward(x, *forward, subm=subm, index=index),
        turnout.indice_convolution_forward(x, *forward, subm=subm),
    )
    backward = filters, pairs, num, rows
    assert same_bits(
        turnout.indice_convolution_backward_data(dy, *backward, subm=subm, index=grad_index),
        turnout.indice_convolution_backward_data(dy, *backward, subm=subm),
    )
    back = turnout.indice_convolution_forward(dy[:, :5].copy(), filters, pairs, num, rows, inverse=True)
    kept = turnout.indice_convolution_index(pairs, num, out_rows, rows, inverse=True)
    assert same_bits(
        back,
        turnout.indice_convolution_forward(
            dy[:, :5].copy(), filters, pairs, num, rows, inverse=True, index=kept
        ),
    )


def test_out(rng):
    indices, out_indices, pairs, num = scene(rng, **MODES[1])
    arguments = pairs, num, len(indices), len(out_indices)
    index = turnout.indice_convolution_index(*arguments)
    out = torch.zeros_like(index)
    assert turnout.indice_convolution_index(*arguments, out=out) is out and torch.equal(out, index)


def test_messages(rng):
    indices, out_indices, pairs, num = (x.numpy() for x in scene(rng, **MODES[1]))
    rows, out_rows = len(indices), len(out_indices)
    index, _ = indexes(pairs, num, rows, out_rows)
    x, filters = np.ones((rows, 4), np.float32), np.ones((27, 4, 4), np.float32)

    def refused(index, x=x):
        with pytest.raises(ValueError) as caught:
            turnout.indice_convolution_forward(x, filters, pairs, num, out_rows, index=index)
        return str(caught.value)

    words = f"expected {len(index)} for {num.sum()} pairs and {out_rows} rows"
    short = index[:-1].copy()
    assert refused(short) == f"indice_convolution_forward: index.shape[0] is {len(short)}, {words}"
    assert "index has dtype int32, expected int64" in refused(index.astype(np.int32))
    last = len(index) - 1
    for word in (0, 1, 2, last):
        for hostile in (-1, 1 << 62, -(1 << 63)):
            wrong = index.copy()
            wrong[word] = hostile
            assert refused(wrong).startswith(f"indice_convolution_forward: index[{word}] ")
    assert " has row " in refused(index, np.ones((rows // 2, 4), np.float32))
    pairs[3, 1, 0] = out_rows
    with pytest.raises(
        ValueError, match=rf"indice_convolution_index: indice_pairs\[3\]\[1\]\[0\] is {out_rows}"
    ):
        turnout.indice_convolution_index(pairs, num, rows, out_rows)


def test_gradients_of_any_order(rng):
    indices, out_indices, pairs, num = scene(rng, rows=12, **MODES[1])
    rows, out_rows = len(indices), len(out_indices)
    index, grad_index = indexes(pairs, num, rows, out_rows)
    inputs = values(rng, rows, 2), values(rng, 27, 2, 3), values(rng, 3)

    def convolve(features, filters, bias):
        return turnout.torch.indice_convolution(
            features, filters, pairs, num, out_rows, bias=bias, index=index, grad_index=grad_index
        )

    assert torch.autograd.gradcheck(convolve, inputs)
    assert torch.autograd.gradgradcheck(convolve, inputs)


def test_gradients_use_the_index(rng):
    """The gradient rejects a wrong index, which shows that it uses the index."""
    indices, out_indices, pairs, num = scene(rng, **MODES[1])
    features, filters = values(rng, len(indices), 4), values(rng, 27, 4, 4)
    index, grad_index = indexes(pairs, num, len(indices), len(out_indices))
    grad_index[-1] = -1
    out = turnout.torch.indice_convolution(
        features, filters, pairs, num, len(out_indices), index=index, grad_index=grad_index
    )
    with pytest.raises(ValueError, match=r"indice_convolution_backward_data: index\["):
        out.sum().backward()


def test_compiled_and_exported(rng):
    indices, _, pairs, num = scene(rng, **MODES[0])
    rows = len(indices)
    features, filters = values(rng, rows, 4), values(rng, 3, 3, 3, 4, 4)

    def network(x, w, pairs, num):
        rows = x.shape[0]
        index = turnout.torch.indice_convolution_index(pairs, num, rows, rows)
        back = turnout.torch.indice_convolution_index(pairs, num, rows, rows, inverse=True)
        for _ in range(2):
            x = turnout.torch.indice_convolution(x, w, pairs, num, rows, index=index, grad_index=back).relu()
        return x.sum()

    eager = network(features, filters, pairs, num)
    expected = torch.autograd.grad(eager, (features, filters))
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(network, fullgraph=True, backend="aot_eager")(features, filters, pairs, num)
    torch.testing.assert_close(compiled, eager)
    for actual, wanted in zip(torch.autograd.grad(compiled, (features, filters)), expected, strict=True):
        torch.testing.assert_close(actual, wanted)

    class Network(torch.nn.Module):
        def forward(self, x, w, pairs, num):
            return network(x, w, pairs, num)

    with torch.no_grad():
        exported = torch.export.export(Network(), (features.detach(), filters.detach(), pairs, num))
        assert "indice_convolution_index" in str(exported.graph)
        torch.testing.assert_close(exported.module()(features, filters, pairs, num), eager)


def test_opcheck(rng):
    indices, out_indices, pairs, num = scene(rng, **MODES[1])
    rows, out_rows = len(indices), len(out_indices)
    index, grad_index = indexes(pairs, num, rows, out_rows)
    features, filters = values(rng, rows, 3, dtype=torch.float32), values(rng, 27, 3, 4, dtype=torch.float32)
    torch.library.opcheck(OPS.indice_convolution_index.default, (pairs, num, rows, out_rows))
    torch.library.opcheck(
        OPS.indice_convolution_forward.default,
        (features, filters, pairs, num, out_rows, None, index, False, False, grad_index),
    )
