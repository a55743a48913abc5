"""turnout.torch.nn: layers and networks against torch's dense ones; ranks, layouts, dtypes, no rows."""

import itertools
import pickle

import numpy as np
import pytest
import torch
from sparse_networks import Dense, plain_encoder, scene, small_unet
from torch.nn import functional

from turnout import _core
from turnout.torch import nn

pytestmark = pytest.mark.torch

SPACE = (5, 6, 7)


def assert_like_dense(x, out, module, **tolerance):
    """Checks that the output has the active sites and values of a dense run."""
    dense = Dense.of(x).run(module)
    assert list(out.spatial_shape) == list(dense.grid.shape[2:])
    order = np.lexsort(out.indices.numpy().T[::-1])
    np.testing.assert_array_equal(out.indices.numpy()[order], np.argwhere(dense.active.numpy()))
    torch.testing.assert_close(out.features[order], dense.features, **tolerance)


# -- against dense convolutions ----------------------------------------------------------------------------

LAYERS = [
    nn.SubMConv(3, 3, 5, 3),
    nn.SubMConv(3, 3, 5, (1, 3, 3), dilation=(1, 2, 1), bias=False),
    nn.SubMConv(3, 3, 5, 1),
    nn.SparseConv(3, 3, 5, 3, 2, 1),
    nn.SparseConv(3, 3, 5, (3, 1, 2), (2, 1, 1), (0, 1, 0), bias=False),
    nn.SparseConv(3, 3, 5, 2, 1, 0, 2),
    nn.SparseConv(3, 3, 5, 1),
    nn.SparseConv(3, 3, 5, 1, 2),
    nn.SparseConv(3, 3, 5, 1, padding=1),
    nn.SubMConv(3, 3, 5, 3, stride=2, padding=(1, 0, 2)),
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_a_layer_equals_a_dense_convolution(rng, layer):
    layer = layer.double()
    x = scene(rng, 50, SPACE)
    assert_like_dense(x, layer(x), layer, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("training", [False, True])
def test_an_encoder_equals_a_dense_one(rng, training):
    """Compares with a network of conv3d; in training, also the gradients of all parameters."""
    torch.manual_seed(0)
    network = plain_encoder().double()
    x = scene(rng)
    network(x)  # moves the batch normalization statistics away from 0 and 1
    network.train(training)
    out, dense = network(x), Dense.of(x).run(network)
    assert out.features.shape[0] == dense.features.shape[0] > 10
    assert_like_dense(x, out, network, rtol=1e-9, atol=1e-9)
    parameters = [p for p in network.parameters() if p.requires_grad]
    for actual, wanted in zip(
        torch.autograd.grad(out.dense().square().sum(), parameters),
        torch.autograd.grad(dense.grid.square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(actual, wanted, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("layer", [LAYERS[0], LAYERS[2], LAYERS[3]], ids=str)
def test_gradcheck(rng, layer):
    x = scene(rng, 9, SPACE)
    layer = layer.double()
    weight, bias = (p.detach().clone().requires_grad_() for p in (layer.weight, layer.bias))

    def run(features, weight, bias):
        parameters = {"weight": weight, "bias": bias}
        return torch.func.functional_call(layer, parameters, (x.with_features(features),)).features

    assert torch.autograd.gradcheck(run, (x.features.requires_grad_(), weight, bias))


def test_transposed_equals_a_dense_one(rng):
    for options in ({"stride": 2}, {"stride": (2, 1, 3), "padding": 1, "output_padding": (1, 0, 2)}):
        layer = nn.SparseConvTranspose(3, 3, 5, 3, **options).double()
        x = scene(rng, 30, SPACE)
        out = layer(x)
        dense = functional.conv_transpose3d(
            x.dense(), layer.weight.movedim((-2, -1), (0, 1)), layer.bias, **options
        )
        assert list(out.spatial_shape) == list(dense.shape[2:])
        wanted = dense.movedim(1, -1)[tuple(out.indices.long().T)]
        torch.testing.assert_close(out.features, wanted, rtol=1e-12, atol=1e-12)


def test_inverse_goes_back_to_the_sites_of_the_named_layer(rng):
    down = nn.SparseConv(3, 3, 4, 3, 2, 1, indice_key="down").double()
    up = nn.SparseInverseConv(3, 4, 3, 3, "down", bias=False).double()
    x = scene(rng, 50, SPACE)
    low = down(x)
    out = up(low)
    assert torch.equal(out.indices, x.indices) and out.spatial_shape == list(SPACE)
    # The kernel is not flipped: this equals the convolution's gradient for weights [k..., out, in].
    features = x.features.clone().requires_grad_()
    same = nn.SparseConv(3, 3, 4, 3, 2, 1, bias=False).double()
    same.weight.data = up.weight.data.transpose(-1, -2)
    (wanted,) = torch.autograd.grad(same(x.with_features(features)).features, features, low.features.detach())
    torch.testing.assert_close(out.features, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dims", [1, 2, 3, 4])
def test_ranks(rng, dims):
    """Tests every class in each rank, and that the shape in Python equals the operator's."""
    space = (7, 6, 5, 4)[:dims]
    x = scene(rng, 4 * dims, space)
    down = nn.SparseConv(dims, 3, 4, 3, 2, 1, indice_key="down").double()
    out = down(nn.SubMConv(dims, 3, 3, 3).double()(x))
    assert nn.SparseInverseConv(dims, 4, 2, 3, "down").double()(out).indices.shape == x.indices.shape
    assert nn.SparseConvTranspose(dims, 4, 2, 2, 2).double()(out).indices.shape[1] == dims + 1
    assert nn.SparseMaxPool(dims, 2)(out).features.shape[1] == 4
    assert nn.SparseAvgPool(dims, 2)(out).features.shape[1] == 4
    assert nn.SparseGlobalMaxPool()(out).shape == nn.SparseGlobalAvgPool()(out).shape == (2, 4)
    for kernel, stride, padding, dilation in itertools.product((1, 2, -1), (1, 2), (0, 1), (1, 2)):
        for transpose in (False, True) if kernel != -1 else (False,):
            vectors = [(value,) * dims for value in (kernel, stride, padding, dilation, int(transpose))]
            geometry = nn.Geometry(*vectors, subm=False, transpose=transpose)
            if min(geometry.out_shape(space)) > 0:
                wanted = _core.indice_pairs_output_shape(space, *vectors, False, transpose)
                assert geometry.out_shape(space) == tuple(wanted)


def test_both_weight_layouts_are_views_and_have_the_same_bits(rng):
    class OutFirst(nn.SparseConv):
        out_channels_first = True

    x = scene(rng, 50, SPACE)
    for kernel, stride in ((3, 2), (1, 1)):
        last, first = (
            kind(3, 3, 4, kernel, stride, bias=False).double() for kind in (nn.SparseConv, OutFirst)
        )
        assert first.weight.shape == (4, *(kernel,) * 3, 3) and last.weight.shape == (*(kernel,) * 3, 3, 4)
        first.weight.data = last.weight.data.movedim(-1, 0).contiguous()
        assert first.filters().data_ptr() == first.weight.data_ptr()
        torch.testing.assert_close(first(x).features, last(x).features, rtol=1e-15, atol=1e-15)


# -- pools -------------------------------------------------------------------------------------------------


def test_pools_equal_dense_ones(rng):
    x = scene(rng, 60, SPACE)
    active = Dense.of(x).active[:, None]
    lowest = x.dense().masked_fill(~active, -torch.inf)
    out = nn.SparseMaxPool(3, 2)(x)
    where = tuple(out.indices.long().T)
    assert out.spatial_shape == [2, 3, 3]
    assert torch.equal(out.features, functional.max_pool3d(lowest, 2).movedim(1, -1)[where])
    out = nn.SparseAvgPool(3, 2)(x)
    mean = functional.avg_pool3d(x.dense(), 2) / functional.avg_pool3d(active.double(), 2)
    torch.testing.assert_close(out.features, mean.movedim(1, -1)[where])


def test_an_inverse_layer_uses_the_pairs_of_a_pool(rng):
    x = scene(rng, 60, SPACE)
    out = nn.SparseMaxPool(3, 2, indice_key="pool")(x)
    assert torch.equal(nn.SparseInverseConv(3, 3, 2, 2, "pool").double()(out).indices, x.indices)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_global_pools_of_batches_with_and_without_sites(dtype):
    features = torch.tensor([[1.0, -5.0], [3.0, -7.0], [-2.0, -1.0]], dtype=dtype, requires_grad=True)
    indices = torch.tensor([[2, 0], [2, 1], [0, 4]], dtype=torch.int32)
    x = nn.SparseTensor(features, indices, (5,), 4)
    assert nn.SparseGlobalMaxPool()(x).tolist() == [[-2, -1], [0, 0], [3, -5], [0, 0]]
    mean = nn.SparseGlobalAvgPool()(x)
    assert mean.tolist() == [[-2, -1], [0, 0], [2, -6], [0, 0]]
    mean.sum().backward()
    assert features.grad.tolist() == [[0.5, 0.5], [0.5, 0.5], [1, 1]]


# -- the tensor --------------------------------------------------------------------------------------------


def test_dense(rng):
    x = scene(rng, 20, SPACE)
    full = x.dense()
    assert full.shape == (2, 3, *SPACE) and full.is_contiguous()
    assert torch.equal(full.movedim(1, -1)[tuple(x.indices.long().T)], x.features)
    assert full.count_nonzero() == x.features.count_nonzero()
    assert torch.equal(x.dense(channels_first=False), full.movedim(1, -1))
    x.features.requires_grad_()
    x.dense().square().sum().backward()
    assert torch.equal(x.features.grad, 2 * x.features)


def test_pickle(rng):
    """A tensor is pickled with its named pairs but without the cache."""
    x = nn.SparseConv(3, 3, 4, 3, 2, indice_key="down").double()(scene(rng, 20, SPACE))
    x.features = x.features.detach()
    again = pickle.loads(pickle.dumps(x))
    assert torch.equal(again.features, x.features) and torch.equal(again.indices, x.indices)
    assert torch.equal(again.indice_dict["down"].indice_pairs, x.indice_dict["down"].indice_pairs)
    up = nn.SparseInverseConv(3, 4, 3, 3, "down").double()
    assert torch.equal(up(again).features, up(x).features)
    assert len(pickle.dumps(scene(rng, 1, SPACE))) < 3000
    assert "rows=" in repr(x)


# -- unusual input -----------------------------------------------------------------------------------------


def test_no_rows(rng):
    """Gradients are zero, not missing, because other processes would wait for them."""
    modules = small_unet()
    x = scene(rng, 0, SPACE, dtype=torch.float32)
    out = modules(x)
    assert out.features.shape == (0, 2) and out.indices.shape == (0, 4) and out.dense().sum() == 0
    out.features.sum().backward()
    for name, parameter in modules.named_parameters():
        assert parameter.grad is not None and parameter.grad.count_nonzero() == 0, name
    with torch.no_grad():
        assert modules.eval()(x).features.shape == (0, 2)
    assert nn.SparseGlobalMaxPool()(x).tolist() == [[0.0] * 3] * 2
    assert nn.SparseMaxPool(3, 2)(x).features.shape == (0, 3)


def test_one_site(rng):
    modules = small_unet().double().eval()
    x = scene(rng, 1, SPACE)
    assert_like_dense(x, modules[0](x), modules[0])
    assert modules(x).features.shape == (1, 2)


def test_repeated_sites():
    """At the centre each row pairs with itself; elsewhere a neighbour pairs with the last row of its site."""
    indices = torch.tensor([[0, 2], [0, 2], [0, 3]], dtype=torch.int32)
    layer = nn.SubMConv(1, 1, 1, 3, bias=False)
    layer.weight.data = torch.tensor([100.0, 1.0, 10.0]).view(3, 1, 1)
    x = nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), indices, (5,), 1)
    # Rows 0 and 1 both add to row 2, on their right. Row 2 adds only to row 1, the last row of its site.
    assert layer(x).features.flatten().tolist() == [1, 2 + 30, 3 + 100 + 200]


def test_batch_elements_without_sites(rng):
    x = scene(rng, 20, SPACE)
    x.indices[:, 0] = 3
    x.indices = torch.unique(x.indices, dim=0)
    x.features, x.batch_size = x.features[: len(x.indices)], 5
    layer = nn.SparseConv(3, 3, 4, 3, 2, 1).double()
    out = layer(x)
    assert_like_dense(x, out, layer)
    assert (out.indices[:, 0] == 3).all() and out.dense()[[0, 1, 2, 4]].count_nonzero() == 0


def test_autocast(rng):
    torch.manual_seed(0)
    modules = small_unet()
    x = scene(rng, 60, SPACE, dtype=torch.float32)
    wanted = modules(x).features
    with torch.autocast("cpu", torch.bfloat16):
        for layer in (modules[0], modules[3], modules[5]):  # the last one is a product without pairs
            part = layer(x.with_features(torch.ones(60, layer.in_channels)))
            assert part.features.dtype == torch.bfloat16
        out = modules(x).features
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), wanted, rtol=0.1, atol=0.1)
    out.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in modules.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit(rng, dtype):
    x = scene(rng, 60, SPACE, dtype=dtype)
    for kernel in (1, 3):
        layer = nn.SubMConv(3, 3, 4, kernel).to(dtype)
        out = layer(x).features
        wanted = layer.float()(x.with_features(x.features.float())).features
        assert out.dtype == dtype
        torch.testing.assert_close(out.float(), wanted, rtol=0.02, atol=0.02)


# -- sequences ---------------------------------------------------------------------------------------------


def test_sequential(rng):
    from collections import OrderedDict

    x = scene(rng, 20, SPACE)
    conv, relu = nn.SubMConv(3, 3, 4, 3).double(), torch.nn.ReLU()
    by_position = nn.SparseSequential(conv, relu)
    assert list(by_position.state_dict()) == ["0.weight", "0.bias"]
    by_name = nn.SparseSequential(OrderedDict(conv=conv, relu=relu))
    assert list(by_name.state_dict()) == list(nn.SparseSequential(conv=conv, relu=relu).state_dict())
    assert list(by_name.state_dict()) == ["conv.weight", "conv.bias"]
    grown = nn.SparseSequential()
    grown.add(conv)
    grown.add_module("second", relu)
    for modules in (by_position, by_name, grown):
        assert len(modules) == 2 and modules[0] is modules[-2] is conv and list(modules) == [conv, relu]
        assert torch.equal(modules(x).features, conv(x).features.relu())
        with pytest.raises(IndexError, match="index 2 is out of range for 2 modules"):
            modules[2]
    with pytest.raises(KeyError, match="there is a module '0' already"):
        by_position.add(relu, "0")
    grown.add(nn.SparseGlobalMaxPool())
    grown.add(torch.nn.Linear(4, 2).double())
    assert grown(x).shape == (2, 2)
    assert x.features.shape == (20, 3)  # the input is unchanged


def test_a_module_without_rows_is_left_out(rng):
    class Never(torch.nn.Module):
        def forward(self, features):
            raise AssertionError

    x = scene(rng, 0, SPACE)
    assert nn.SparseSequential(Never(), nn.SubMConv(3, 3, 4, 3).double(), Never())(x).features.shape == (0, 4)


# -- messages ---------------------------------------------------------------------------------------------


def test_messages(rng):
    x = scene(rng, 20, SPACE)
    down = nn.SparseConv(3, 3, 4, 3, 2, 1, indice_key="down").double()
    low = down(x)
    for call, message in (
        (lambda: nn.SubMConv(5, 3, 3, 3), "SubMConv: ndim is 5, expected 1 .. 4"),
        (lambda: nn.SubMConv(3, 3, 3, (3, 3)), "SubMConv: kernel_size has 2 elements, expected 1 or 3"),
        (lambda: nn.SparseConvolution(3, 3, 3, groups=2), "SparseConvolution: groups is 2, expected 1"),
        (
            lambda: nn.SparseInverseConv(3, 4, 3, 3, "up")(low),
            "SparseInverseConv: indice_key is 'up', expected the name of an earlier layer's pairs; known "
            "names: 'down'",
        ),
        (
            lambda: nn.SparseInverseConv(3, 4, 3, 2, "down").double()(low),
            "SparseInverseConv: kernel_size is (2, 2, 2), expected (3, 3, 3), that of the pairs named 'down'",
        ),
        (
            lambda: nn.SubMConv(3, 4, 4, 3, indice_key="down").double()(low),
            "SubMConv: subm is True, expected False, that of the pairs named 'down'",
        ),
        (lambda: nn.SubMConv(3, 3, 4, (3, 2, 3)), "SubMConv: kernel_size[1] is 2, expected an odd number"),
        (lambda: nn.SparseMaxPool(1, 2, subm=True), "SparseMaxPool: kernel_size[0] is 2, expected an odd"),
        (lambda: nn.SubMConv(3, 3, 4, 3, stride=0), "SubMConv: stride[0] is 0, expected 1 or more"),
        (lambda: nn.SubMConv(2, 3, 4, 3, padding=(0, -1)), "SubMConv: padding[1] is -1, expected 0 or more"),
        (
            lambda: nn.SubMConv(3, 3, 4, 3, padding=(1, 1)),
            "SubMConv: padding has 2 elements, expected 1 or 3",
        ),
        (lambda: nn.SubMConv(3, 3, 4, 3)(x), "SubMConv: weight has dtype float32, expected that of features"),
        (
            lambda: nn.SubMConv(3, 5, 4, 3)(x),
            "SubMConv: features have shape [20, 3], expected [20, 5]: the rows of indices, in_channels",
        ),
        (
            lambda: nn.SparseConv(3, 3, 4, 1)(x.with_features(x.features[1:])),
            "SparseConv: features have shape [19, 3], expected [20, 3]",
        ),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value).startswith(message)
