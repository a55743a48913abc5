"""indice_convolution and indice_max_pool for PyTorch: gradients, a dense convolution, the operators."""

import numpy as np
import pytest
import torch
from conftest import same_bits
from test_sparse_conv import distinct_sites

import turnout
import turnout.torch
from turnout import check

pytestmark = pytest.mark.torch

SPACE = (4, 5, 6)
OPS = torch.ops.turnout


def scene(rng, rows=40, space=SPACE, **options):
    indices = torch.from_numpy(distinct_sites(rng, rows, 2, space))
    return indices, *turnout.get_indice_pairs(indices, 2, space, **options)


def values(rng, *shape, dtype=torch.float64, grad=True):
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype).requires_grad_(grad)


def dense(indices, features, space):
    """Returns a dense [batch, channels, ..] tensor with the features at their sites and 0 elsewhere."""
    grid = features.new_zeros((2, *space, features.shape[1]))
    grid = grid.index_put(tuple(indices.long().T), features)
    return grid.permute(0, 4, 1, 2, 3)


# -- gradients ---------------------------------------------------------------------------------------------

MODES = [
    {"subm": True},
    {"stride": 2, "padding": 1},
    {"stride": (1, 2, 1), "padding": (0, 1, 2), "dilation": (1, 1, 2)},
]


@pytest.mark.parametrize("options", MODES)
def test_equals_a_dense_convolution(rng, options):
    indices, out_indices, pairs, num = scene(rng, **options)
    features, weight, bias = values(rng, len(indices), 5), values(rng, 3, 3, 3, 5, 7), values(rng, 7)
    out = turnout.torch.indice_convolution(
        features, weight, pairs, num, len(out_indices), bias=bias, subm=options.get("subm", False)
    )
    parameters = {"padding": 1} if "subm" in options else options
    full = torch.nn.functional.conv3d(
        dense(indices, features, SPACE), weight.permute(4, 3, 0, 1, 2), bias, **parameters
    )
    expected = full.permute(0, 2, 3, 4, 1)[tuple(out_indices.long().T)]
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    grad = values(rng, *out.shape, grad=False)
    inputs = (features, weight, bias)
    for actual, wanted in zip(
        torch.autograd.grad(out, inputs, grad), torch.autograd.grad(expected, inputs, grad), strict=True
    ):
        torch.testing.assert_close(actual, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("options", "inverse"), [(MODES[0], False), (MODES[1], False), (MODES[1], True)])
def test_gradcheck(rng, options, inverse):
    indices, out_indices, pairs, num = scene(rng, rows=12, **options)
    rows, out_rows = len(indices), len(out_indices)
    if inverse:
        rows, out_rows = out_rows, rows
    inputs = values(rng, rows, 2), values(rng, 27, 2, 3), values(rng, 3)
    subm = options.get("subm", False)

    def convolve(features, filters, bias):
        return turnout.torch.indice_convolution(
            features, filters, pairs, num, out_rows, bias=bias, inverse=inverse, subm=subm
        )

    assert torch.autograd.gradcheck(convolve, inputs)
    assert torch.autograd.gradgradcheck(convolve, inputs)


def test_only_requested_gradients(rng):
    indices, out_indices, pairs, num = scene(rng, **MODES[1])
    features, filters = values(rng, len(indices), 4, grad=False), values(rng, 27, 4, 4)
    out = turnout.torch.indice_convolution(features, filters, pairs, num, len(out_indices))
    out.sum().backward()
    assert features.grad is None and filters.grad.shape == filters.shape
    assert not turnout.torch.indice_convolution(
        features, filters.detach(), pairs, num, len(out_indices)
    ).requires_grad


def test_max_pool_equals_a_dense_one(rng):
    space = (4, 6, 6)
    indices, out_indices, pairs, num = scene(rng, rows=100, space=space, kernel_size=2, stride=2)
    features = values(rng, len(indices), 5)
    grid = torch.full((2, 5, *space), -torch.inf, dtype=torch.float64)
    batch, *where = indices.long().T
    grid = grid.permute(0, 2, 3, 4, 1).index_put((batch, *where), features).permute(0, 4, 1, 2, 3)
    full = torch.nn.functional.max_pool3d(grid, 2)
    expected = full.permute(0, 2, 3, 4, 1)[tuple(out_indices.long().T)]
    out = turnout.torch.indice_max_pool(features, pairs, num, len(out_indices), init="lowest")
    assert torch.equal(out, expected)
    grad = values(rng, *out.shape, grad=False)
    assert torch.equal(
        torch.autograd.grad(out, features, grad)[0], torch.autograd.grad(expected, features, grad)[0]
    )
    from_zero = turnout.torch.indice_max_pool(features, pairs, num, len(out_indices))
    assert torch.equal(from_zero, expected.clamp(min=0))


def test_max_pool_gives_the_gradient_to_every_equal_input():
    indices = torch.tensor([[0, 0], [0, 1]], dtype=torch.int32)
    _, pairs, num = turnout.get_indice_pairs(indices, 1, (2,), 2, 2)
    features = torch.tensor([[3.0], [3.0]], requires_grad=True)
    turnout.torch.indice_max_pool(features, pairs, num, 1).backward(torch.tensor([[5.0]]))
    assert features.grad.tolist() == [[5.0], [5.0]]


def test_avg_pool_gradcheck(rng):
    indices, out_indices, pairs, num = scene(rng, rows=12, **MODES[1])
    features = values(rng, len(indices), 2)

    def pool(x):
        return turnout.torch.indice_avg_pool(x, pairs, num, len(out_indices))

    assert torch.autograd.gradcheck(pool, (features,))
    assert torch.autograd.gradgradcheck(pool, (features,))
    for op, rows in ((OPS.indice_avg_pool_forward, out_indices), (OPS.indice_avg_pool_backward, indices)):
        x = values(rng, len(indices) + len(out_indices) - len(rows), 3, dtype=torch.float32)
        torch.library.opcheck(op.default, (x, pairs, num, len(rows)))


@pytest.mark.parametrize("init", ["zero", "lowest"])
def test_max_pool_gradgradcheck(rng, init):
    indices, out_indices, pairs, num = scene(rng, rows=12, **MODES[1])
    features = values(rng, len(indices), 2)

    def pool(x):
        return turnout.torch.indice_max_pool(x, pairs, num, len(out_indices), init=init)

    assert torch.autograd.gradgradcheck(pool, (features,))


def test_max_pool_derivatives_of_ties_and_without_outputs():
    indices = torch.tensor([[0, 0], [0, 1], [0, 4]], dtype=torch.int32)
    _, pairs, num = turnout.get_indice_pairs(indices, 1, (6,), 2, 2)
    features = torch.tensor([[3.0], [3.0], [1.0]], dtype=torch.float64, requires_grad=True)
    out = turnout.torch.indice_max_pool(features, pairs, num, 2)
    weight = torch.ones_like(out, requires_grad=True)
    (grad,) = torch.autograd.grad(out, features, weight, create_graph=True)
    (grad * torch.tensor([[1.0], [10.0], [100.0]])).sum().backward()
    assert weight.grad.tolist() == [[11.0], [100.0]]  # both equal inputs get the gradient of the first
    missed, none = turnout.torch.get_indice_pairs(indices[1:2], 1, [6], 1, 4)[::2]
    out = turnout.torch.indice_max_pool(features[1:2], torch.full((1, 2, 1), -1).int(), none, len(missed))
    (grad,) = torch.autograd.grad(out.sum(), features, create_graph=True)
    assert len(missed) == 0 and not grad.any()
    grad.sum().backward()


# -- dtypes, layouts, empty tensors ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes(rng, dtype):
    indices, out_indices, pairs, num = scene(rng, **MODES[1])
    features = values(rng, len(indices), 8, dtype=dtype, grad=False)
    filters = values(rng, 27, 8, 16, dtype=dtype, grad=False)
    out = turnout.torch.indice_convolution(features, filters, pairs, num.long(), len(out_indices))
    wide = features.double(), filters.double()
    exact = turnout.torch.indice_convolution(*wide, pairs, num, len(out_indices))
    assert out.dtype == dtype
    torch.testing.assert_close(out, exact.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-5)


def test_autocast(rng):
    indices, out_indices, pairs, num = scene(rng, **MODES[0])
    features = values(rng, len(indices), 8, dtype=torch.float32)
    filters, bias = values(rng, 27, 8, 4, dtype=torch.float32), values(rng, 4, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = turnout.torch.indice_convolution(features, filters, pairs, num, len(out_indices), bias=bias)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert features.grad.dtype == filters.grad.dtype == bias.grad.dtype == torch.float32


def test_strided_tensors_have_the_same_bits(rng):
    indices, out_indices, pairs, num = scene(rng, **MODES[0])
    features, weight = values(rng, len(indices), 8), values(rng, 16, 3, 3, 3, 8)
    plain = turnout.torch.indice_convolution(
        features, weight.permute(1, 2, 3, 4, 0).contiguous(), pairs, num, len(out_indices)
    )
    strided = turnout.torch.indice_convolution(
        features.t().contiguous().t(), weight.permute(1, 2, 3, 4, 0), pairs, num, len(out_indices)
    )
    assert torch.equal(plain, strided)


def test_no_rows_and_no_pairs(rng):
    pairs, num = torch.full((27, 2, 0), -1, dtype=torch.int32), torch.zeros(27, dtype=torch.int32)
    features, filters, bias = values(rng, 0, 4), values(rng, 27, 4, 6), values(rng, 6)
    out = turnout.torch.indice_convolution(features, filters, pairs, num, 0, bias=bias, subm=True)
    assert out.shape == (0, 6)
    out.sum().backward()
    assert features.grad.shape == (0, 4)
    # Zero, not missing: in distributed training, a process without rows must have gradients, too.
    assert (filters.grad == 0).all() and (bias.grad == 0).all()
    out = turnout.torch.indice_convolution(features, filters, pairs, num, 3, bias=bias)
    assert torch.equal(out, bias.expand(3, 6))
    assert turnout.torch.indice_max_pool(features, pairs, num, 2).tolist() == [[0.0] * 4] * 2


def test_torch_in_and_out_of_import_turnout(rng):
    indices, out_indices, pairs, num = scene(rng, **MODES[1])
    features = values(rng, len(indices), 8, dtype=torch.float32, grad=False)
    filters = values(rng, 27, 8, 4, dtype=torch.float32, grad=False)
    out = turnout.indice_convolution_forward(features, filters, pairs, num, len(out_indices))
    expected = turnout.torch.indice_convolution(features, filters, pairs, num, len(out_indices))
    assert type(out) is torch.Tensor and torch.equal(out, expected)
    wanted = check.indice_convolution_forward(
        features.numpy(), filters.numpy(), pairs.numpy(), num.numpy(), len(out_indices)
    )
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="features requires grad, which only turnout"):
        turnout.indice_convolution_forward(features.requires_grad_(), filters, pairs, num, len(out_indices))


# -- the operators -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", MODES[:2])
def test_opcheck(rng, options):
    indices, out_indices, pairs, num = scene(rng, **options)
    rows, out_rows, subm = len(indices), len(out_indices), options.get("subm", False)
    features, filters = values(rng, rows, 3, dtype=torch.float32), values(rng, 27, 3, 4, dtype=torch.float32)
    grad, bias = values(rng, out_rows, 4, dtype=torch.float32), values(rng, 4, dtype=torch.float32)
    check_op = torch.library.opcheck
    for weight in (filters, filters.reshape(3, 3, 3, 3, 4)):
        forward = features, weight, pairs, num, out_rows, bias, None, False, subm
        check_op(OPS.indice_convolution_forward.default, forward)
        backward = grad, weight, pairs, num, rows, None, False, subm
        check_op(OPS.indice_convolution_backward_data.default, backward)
    check_op(OPS.indice_convolution_backward_filter.default, (features, grad, pairs, num, False, subm))
    check_op(OPS.indice_max_pool_forward.default, (features, pairs, num, out_rows, "lowest"))
    pooled = OPS.indice_max_pool_forward(features.detach(), pairs, num, out_rows)
    check_op(
        OPS.indice_max_pool_backward.default,
        (features.detach(), pooled, torch.ones_like(pooled, requires_grad=True), pairs, num),
    )


def test_compile_equals_eager(rng):
    indices, _, pairs, num = scene(rng, **MODES[0])
    features, filters = values(rng, len(indices), 4), values(rng, 3, 3, 3, 4, 4)

    def network(x, w):
        x = turnout.torch.indice_convolution(x, w, pairs, num, x.shape[0], subm=True).relu()
        return turnout.torch.indice_max_pool(x, pairs, num, x.shape[0]).sum()

    eager = network(features, filters)
    expected = torch.autograd.grad(eager, (features, filters))
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")(features, filters)
    torch.testing.assert_close(compiled, eager)
    for actual, wanted in zip(torch.autograd.grad(compiled, (features, filters)), expected, strict=True):
        torch.testing.assert_close(actual, wanted)


def test_same_bits_for_any_number_of_threads(rng):
    indices, out_indices, pairs, num = scene(rng, rows=3000, space=(20, 40, 40), **MODES[1])
    features = values(rng, len(indices), 32, dtype=torch.float32)
    filters = values(rng, 27, 32, 32, dtype=torch.float32)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            out = turnout.torch.indice_convolution(features, filters, pairs, num, len(out_indices))
            results.append((out, *torch.autograd.grad(out.square().sum(), (features, filters))))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(same_bits(a.detach(), b.detach()) for a, b in zip(results[0], other, strict=True))
