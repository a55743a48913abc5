"""mmcv's sparse modules: signatures, weights, shared pairs, and facts that checkpoints depend on."""

import inspect
import pickle

import numpy as np
import pytest
import torch
from sparse_networks import ENCODER_SPACE, encoder, plain_encoder, scene

import turnout.torch
from turnout.compat import mmcv
from turnout.compat.mmcv import (
    SparseConv2d,
    SparseConv3d,
    SparseConvTensor,
    SparseConvTranspose3d,
    SparseInverseConv3d,
    SparseMaxPool3d,
    SparseModule,
    SparseSequential,
    SubMConv1d,
    SubMConv2d,
    SubMConv3d,
    scatter_nd,
    sparse_functional,
    sparse_ops,
)
from turnout.torch import nn

pytestmark = pytest.mark.torch

SPACE = (5, 6, 7)


def tensor(rng, rows=40, **options):
    return scene(rng, rows, SPACE, kind=SparseConvTensor, **options)


# -- the five facts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"padding": 1}])
def test_fact_1_a_kernel_of_one_offset_is_a_matrix_product_whatever_the_stride(rng, options):
    """Sites and spatial shape stay, the weight is read as [in, out], and the key is ignored."""
    x = tensor(rng)
    for kind in (SubMConv3d, SparseConv3d, SparseConvTranspose3d):
        layer = kind(3, 4, 1, indice_key="one", **options).double()
        assert layer.conv1x1 and layer.weight.shape == (1, 1, 1, 3, 4)
        out = layer(x)
        assert out.indices is x.indices and out.spatial_shape is x.spatial_shape and x.indice_dict == {}
        torch.testing.assert_close(out.features, x.features @ layer.weight.view(3, 4) + layer.bias)


def test_fact_2_pairs_are_shared_by_key_and_nothing_is_checked(rng, pairs_built):
    """A kernel of 27 offsets after one of 9 with the same name uses its first 9 matrices."""
    x = tensor(rng)
    flat = SubMConv3d(3, 3, (1, 3, 3), padding=1, bias=False, indice_key="bef").double()
    full = SubMConv3d(3, 4, 3, bias=False, indice_key="bef").double()
    other = SubMConv3d(4, 2, (3, 1, 3), bias=False, indice_key="bef").double()
    middle = flat(x)
    out = full(middle)
    assert len(pairs_built) == 1
    alone = SubMConv3d(3, 4, (1, 3, 3), bias=False).double()
    alone.weight.data = full.weight.data[:1]
    assert torch.equal(out.features, alone(middle).features)
    (grad,) = torch.autograd.grad(out.features.sum(), full.weight)
    assert grad[1:].count_nonzero() == 0 and grad[0].count_nonzero() > 0
    alone = SubMConv3d(4, 2, (1, 3, 3), bias=False).double()
    alone.weight.data = other.weight.data.view(1, 3, 3, 4, 2)
    assert torch.equal(other(out).features, alone(out).features)


def test_fact_2_outputs_of_the_first_and_shape_of_the_own_parameters(rng, pairs_built):
    first = SparseConv3d(3, 4, 3, 2, 1, indice_key="down").double()
    second = SparseConv3d(3, 4, 3, 1, 1, indice_key="down").double()
    x = tensor(rng)
    wanted, out = first(x), second(x)
    assert torch.equal(out.indices, wanted.indices) and len(pairs_built) == 1
    assert wanted.spatial_shape == [3, 3, 4] and out.spatial_shape == list(SPACE)
    moved = SparseConvTensor(x.features, x.indices.flip(0), SPACE, 2)
    moved.indice_dict = x.indice_dict
    assert torch.equal(second(moved).indices, wanted.indices)


def test_fact_2_more_offsets_than_matrices_are_refused(rng):
    x = tensor(rng)
    SubMConv3d(3, 3, 3, indice_key="subm").double()(x)
    with pytest.raises(ValueError) as caught:
        SubMConv3d(3, 3, (1, 3, 3), indice_key="subm").double()(x)
    assert str(caught.value) == (
        "SubMConv3d: kernel_size is [1, 3, 3], which is 9 offsets, expected 27 or more, those of the pairs "
        "named 'subm'"
    )


def test_fact_3_the_centre_is_found_by_count_and_pairs_each_row_with_itself():
    indices = torch.tensor([[0, 1], [0, 1], [0, 1]], dtype=torch.int32)
    layer = SubMConv1d(1, 1, 3, bias=False)
    layer.weight.data = torch.tensor([100.0, 1.0, 10.0]).view(3, 1, 1)
    x = SparseConvTensor(torch.tensor([[1.0], [2.0], [3.0]]), indices, (3,), 1)
    # By the pairs, the last row would have all three and the others none.
    assert layer(x).features.flatten().tolist() == [1, 2, 3]


def test_fact_4_one_dict_for_the_whole_network(rng, pairs_built):
    """A key stored on one branch is visible on every other."""
    x = tensor(rng)
    left = SubMConv3d(3, 3, 3, indice_key="key").double()(x)
    assert left.indice_dict is x.indice_dict and list(x.indice_dict) == ["key"]
    right = SubMConv3d(3, 3, 3, indice_key="other").double()(x)
    assert right.indice_dict is x.indice_dict and sorted(left.indice_dict) == ["key", "other"]
    down = SparseConv3d(3, 4, 3, 2, indice_key="down").double()
    low = down(left)
    lateral = SubMConv3d(4, 4, 3, indice_key="low").double()(low)
    up = SparseInverseConv3d(4, 3, 3, indice_key="down").double()
    assert torch.equal(up(lateral).indices, x.indices)
    assert SparseSequential(torch.nn.ReLU())(x).indice_dict is x.indice_dict
    SubMConv3d(3, 3, 3).double()(x)  # no key: nothing is stored
    assert sorted(x.indice_dict) == ["down", "key", "low", "other"]


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 5, "padding": 1},
        {"kernel_size": 3, "padding": 0, "stride": 2},
        {"kernel_size": (1, 3, 3), "padding": 1},
    ],
)
def test_fact_5_padding_and_stride_of_a_subm_layer_are_ignored(rng, options):
    x = tensor(rng)
    layer = SubMConv3d(3, 4, **options).double()
    plain = nn.SubMConv(3, 3, 4, options["kernel_size"]).double()
    plain.load_state_dict(layer.state_dict())
    out = layer(x)
    assert torch.equal(out.indices, x.indices) and out.spatial_shape is x.spatial_shape
    assert torch.equal(out.features, plain(x).features)


# -- networks ----------------------------------------------------------------------------------------------


def test_encoder_of_centerpoint(rng, pairs_built):
    """Builds 8 sets of pairs for 21 convolutions, and equals the plain modules with the same state_dict."""
    torch.manual_seed(0)
    network, plain = encoder(SparseSequential, SubMConv3d, SparseConv3d).double(), plain_encoder().double()
    plain.load_state_dict(network.state_dict())
    x = scene(rng, 150, ENCODER_SPACE, kind=SparseConvTensor)
    out = network(x)
    assert len(pairs_built) == 8 and type(out) is SparseConvTensor
    assert torch.equal(out.features, plain(scene_like(x)).features)
    out.dense().sum().backward()
    assert all(p.grad is not None for p in network.parameters())


def scene_like(x):
    return nn.SparseTensor(x.features, x.indices, ENCODER_SPACE, x.batch_size)


def unet():
    return SparseSequential(
        SubMConv3d(3, 4, 3, padding=1, bias=False, indice_key="subm1"),
        torch.nn.BatchNorm1d(4),
        SubMConv3d(4, 4, 3, padding=1, indice_key="subm1"),
        SparseConv3d(4, 6, 3, stride=2, padding=1, indice_key="down"),
        torch.nn.BatchNorm1d(6),
        SubMConv3d(6, 6, 3, indice_key="subm2"),
        SparseInverseConv3d(6, 4, 3, indice_key="down"),
        torch.nn.ReLU(),
    )


@pytest.mark.parametrize("training", [False, True])
def test_compiled_equals_eager(rng, training):
    modules = unet().double().train(training)
    x = tensor(rng)

    def run(features, indices):
        return modules(SparseConvTensor(features, indices, SPACE, 2)).features

    wanted = run(x.features, x.indices)
    actual = torch.compile(run, fullgraph=True, backend="aot_eager")(x.features, x.indices)
    torch.testing.assert_close(actual, wanted, rtol=1e-12, atol=1e-12)


def test_no_rows(rng):
    modules = unet().double()
    out = modules(tensor(rng, 0))
    assert out.features.shape == (0, 4) and out.dense().shape == (2, 4, *SPACE)
    out.features.sum().backward()
    assert all(p.grad is not None for p in modules.parameters())


# -- modules -----------------------------------------------------------------------------------------------

REQUIRED = ("in_channels", "out_channels", "kernel_size")
CONV = {
    **dict.fromkeys(REQUIRED),
    **{"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "bias": True, "indice_key": None},
}
INVERSE = {name: CONV[name] for name in ("in_channels", "out_channels", "kernel_size", "indice_key", "bias")}
POOL = {name: CONV[name] for name in ("kernel_size", "stride", "padding", "dilation")}


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_signatures_and_weights(rank):
    for kind, wanted in (
        ("SparseConv", CONV),
        ("SubMConv", CONV),
        ("SparseConvTranspose", CONV),
        ("SparseInverseConv", INVERSE),
        ("SparseMaxPool", POOL),
    ):
        cls = getattr(mmcv, f"{kind}{rank}d")
        parameters = inspect.signature(cls).parameters.values()
        assert [p.name for p in parameters] == list(wanted)
        defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        assert defaults == {name: wanted[name] for name in wanted if name not in REQUIRED}
        assert issubclass(cls, SparseModule)
        if kind == "SparseMaxPool":
            continue
        sizes = tuple(range(1, 2 * rank, 2))
        layer = cls(3, 5, sizes)
        assert {name: tuple(p.shape) for name, p in layer.state_dict().items()} == {
            "weight": (*sizes, 3, 5),
            "bias": (5,),
        }
        assert (layer.ndim, layer.in_channels, layer.out_channels, layer.groups) == (rank, 3, 5, 1)
        assert layer.kernel_size == list(sizes) and layer.stride == [1] * rank
        assert cls(3, 5, 3, bias=False).bias is None
        assert (layer.subm, layer.transposed, layer.inverse) == (
            kind == "SubMConv",
            kind == "SparseConvTranspose",
            kind == "SparseInverseConv",
        )


def test_weights_start_as_torch_starts_this_layout():
    torch.manual_seed(0)
    layer = SubMConv3d(8, 16, 3)
    wanted = torch.empty(3, 3, 3, 8, 16)
    bound = torch.nn.init._calculate_fan_in_and_fan_out(wanted)[0] ** -0.5
    assert 0.9 * bound < layer.weight.abs().max() <= bound
    assert 0 < layer.bias.abs().max() <= (8 * 27) ** -0.5


def test_max_pool_starts_at_0_and_its_stride_is_1(rng):
    x = tensor(rng)
    x.features = -x.features.abs()
    assert SparseMaxPool3d(2)(x).spatial_shape == [4, 5, 6]
    out = SparseMaxPool3d(kernel_size=2, stride=2)(x)
    assert out.spatial_shape == [2, 3, 3] and out.features.count_nonzero() == 0
    same = mmcv.SparseMaxPool(3, 3, 2, 1, subm=True)(x)
    assert torch.equal(same.indices, x.indices) and list(same.spatial_shape) == list(SPACE)


def test_sequential_replaces_features_in_place(rng):
    x = tensor(rng)
    before = x.features
    out = SparseSequential(torch.nn.ReLU(), SubMConv3d(3, 4, 3).double())(x)
    assert torch.equal(x.features, before.relu()) and out is not x
    sequence = SparseSequential(torch.nn.ReLU())
    assert sequence(x) is x
    sequence.add(torch.nn.Sigmoid(), "second")
    assert list(sequence) == [sequence[0], sequence[-1]] and mmcv.is_spconv_module(sequence)


def test_sparse_module_of_model_files(rng):
    """A second __init__, and a loader and a version that are assigned to the class."""

    class Base(torch.nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.channels = channels

    class Both(Base, SparseModule):
        def __init__(self, channels):
            SparseModule.__init__(self)
            Base.__init__(self, channels)
            self.conv = SubMConv2d(channels, channels, 3)

    module = Both(3)
    assert module.channels == 3 and list(module.state_dict()) == ["conv.weight", "conv.bias"]
    loaded = []

    def load(self, state, prefix, metadata, *rest):
        loaded.append((prefix, metadata.get("version")))
        torch.nn.Module._load_from_state_dict(self, state, prefix, metadata, *rest)

    try:
        SparseModule._version = 2
        SparseModule._load_from_state_dict = load
        fresh = Both(3)
        fresh.load_state_dict(module.state_dict())
    finally:
        del SparseModule._version, SparseModule._load_from_state_dict
    assert loaded == [("", 2), ("conv.", 2)]
    assert torch.equal(fresh.conv.weight, module.conv.weight)


# -- the tensor --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.Size, torch.tensor])
def test_spatial_shape_stays_as_given(rng, kind):
    x = tensor(rng)
    shape = kind(SPACE)
    given = SparseConvTensor(x.features, x.indices, shape, torch.tensor(2), grid=None)
    assert given.spatial_shape is shape and given.spatial_size == 210 and given.sparity == 40 / 420
    layer = SparseConv3d(3, 4, 3, 2).double()
    assert torch.equal(layer(given).features, layer(x).features)
    assert (
        torch.equal(given.dense(), x.dense()) and SubMConv3d(3, 4, 3).double()(given).spatial_shape is shape
    )


def test_int64_indices(rng):
    x = tensor(rng)
    wide = SparseConvTensor(x.features, x.indices.long(), SPACE, 2)
    layer = SparseConv3d(3, 4, 3, 2).double()
    out = layer(wide)
    assert wide.indices.dtype == torch.int64 and torch.equal(out.features, layer(x).features)
    assert torch.equal(out.dense(), layer(x).dense())


def test_find_indice_pair(rng):
    x = tensor(rng)
    out = SparseConv3d(3, 4, 3, 2, indice_key="down").double()(x)
    outids, indices, pairs, counts, shape = out.find_indice_pair("down")
    wanted = turnout.torch.get_indice_pairs(x.indices, 2, SPACE, 3, 2)
    assert all(torch.equal(a, b) for a, b in zip((outids, pairs, counts), wanted, strict=True))
    assert torch.equal(indices, x.indices) and shape == list(SPACE)
    assert out.find_indice_pair("up") is out.find_indice_pair(None) is None


def test_grid_and_pickle(rng):
    x = tensor(rng)
    x.grid = torch.zeros(3)
    out = SparseConv3d(3, 4, 3, 2, indice_key="down").double()(x)
    assert out.grid is x.grid
    out.features = out.features.detach()
    again = pickle.loads(pickle.dumps(out))
    assert type(again) is SparseConvTensor and torch.equal(again.features, out.features)
    assert torch.equal(again.find_indice_pair("down")[2], out.find_indice_pair("down")[2])
    assert not hasattr(x, "replace_feature")  # if it exists, model files do not assign features


def test_scatter_nd():
    indices = torch.tensor([[0, 2], [1, 0]])
    updates = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    out = scatter_nd(indices, updates, [2, 3, 2])
    assert out.shape == (2, 3, 2) and out[0, 2].tolist() == [1, 2] and out[1, 0].tolist() == [3, 4]
    assert out.sum() == 10
    assert scatter_nd(indices[:1].int(), torch.tensor([5]), [2, 3]).tolist() == [[0, 0, 5], [0, 0, 0]]


def test_2d(rng):
    """Index columns are batch, y, x; dense() is [N, C, H, W]."""
    x = scene(rng, 20, (6, 7), kind=SparseConvTensor)
    layer = SparseConv2d(3, 4, 3, 2, 1).double()
    out = layer(x).dense()
    wanted = torch.nn.functional.conv2d(x.dense(), layer.weight.permute(3, 2, 0, 1), layer.bias, 2, 1)
    active = layer(x.with_features(torch.ones_like(x.features))).dense() != 0
    torch.testing.assert_close(out, wanted * active)


@pytest.mark.parametrize("kind", ["sparse", "subm", "inverse"])
def test_functions_along_given_pairs(rng, kind):
    x = tensor(rng)
    down = SparseConv3d(3, 4, 3, 2, 1, bias=False, indice_key="a").double()
    if kind == "subm":
        layer, given, function = (
            SubMConv3d(3, 4, 3, bias=False, indice_key="a").double(),
            x,
            "indice_subm_conv",
        )
    elif kind == "sparse":
        layer, given, function = down, x, "indice_conv"
    else:
        layer = SparseInverseConv3d(4, 2, 3, "a", bias=False).double()
        given, function = down(x), "indice_inverse_conv"
    wanted = layer(given)
    _, _, *pairs, _ = wanted.find_indice_pair("a")
    flags = {"inverse": kind == "inverse", "subm": kind == "subm"}
    features, rows = given.features.detach().requires_grad_(), torch.tensor(len(wanted.indices))
    out = getattr(sparse_functional, function)(features, layer.weight, *pairs, rows)
    assert torch.equal(out, wanted.features)
    assert torch.equal(sparse_ops.indice_conv(features, layer.weight, *pairs, rows, **flags), out)
    bias = torch.ones(out.shape[1], dtype=torch.float64)
    fused = sparse_ops.fused_indice_conv(features, layer.weight, bias, *pairs, rows, *flags.values())
    torch.testing.assert_close(fused, out + 1)
    grad = torch.randn_like(out)
    wanted_grads = torch.autograd.grad(out, (features, layer.weight), grad)
    grads = sparse_ops.indice_conv_backward(features.detach(), layer.weight.detach(), grad, *pairs, **flags)
    for one, other in zip(grads, wanted_grads, strict=True):
        torch.testing.assert_close(one, other)
    with pytest.raises(ValueError, match=r"^indice_conv: indice_pair_num"):
        sparse_ops.indice_conv(features, layer.weight, pairs[0], pairs[1][:-1], rows)


def test_pooling_along_given_pairs(rng):
    x = tensor(rng)
    outids, *pairs = sparse_ops.get_indice_pairs(x.indices, 2, SPACE, 2, 2)
    features = x.features.requires_grad_()
    out = sparse_functional.indice_maxpool(features, *pairs, len(outids))
    assert torch.equal(out, SparseMaxPool3d(2, 2)(x).features)
    grad = torch.randn_like(out)
    (wanted,) = torch.autograd.grad(out, features, grad)
    got = sparse_ops.indice_maxpool_backward(features.detach(), out.detach(), grad, *pairs)
    assert torch.equal(got, wanted)
    assert sparse_ops.get_conv_output_size([7, 8], [3, 2], [2, 1], [1, 0], [1, 2]) == [4, 6]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_fused_sequence(rng, bias, affine):
    norm = torch.nn.BatchNorm1d(4, affine=affine)
    layers = SparseSequential(
        SubMConv3d(3, 4, 3, bias=bias, indice_key="a"), norm, torch.nn.ReLU(), SparseConv3d(4, 4, 3, 2, 1),
        torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4),
    ).double()  # fmt: skip
    for _ in range(3):
        layers(tensor(rng))  # updates the running statistics
    if affine:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    layers.eval()
    fused = layers.fused()
    assert [type(module).__name__ for module in fused._modules.values()] == [
        "SubMConv3d",
        "ReLU",
        "SparseConv3d",
    ]
    assert layers[1] is norm and (layers[0].bias is not None) == bias and fused[0].indice_key == "a"
    x, same = tensor(rng), tensor(np.random.default_rng(0))
    same.features, same.indices = x.features, x.indices
    torch.testing.assert_close(fused(x).features, layers(same).features)
    assert len(SparseSequential(norm, SubMConv3d(3, 3, 3)).fused()) == 2
    free = SparseSequential(SubMConv3d(3, 3, 3), torch.nn.BatchNorm1d(3, track_running_stats=False))
    with pytest.raises(ValueError, match=r"SparseSequential.fused: a BatchNorm1d has no running statistics"):
        free.fused()


def test_messages(rng):
    x = tensor(rng)
    with pytest.raises(ValueError, match=r"SubMConv3d: kernel_size\[2\] is 2, expected an odd number"):
        SubMConv3d(3, 4, (1, 3, 2))  # raised by the constructor, not in the first call
    with pytest.raises(ValueError, match="SparseInverseConv3d: indice_key is None, expected the name of"):
        SparseInverseConv3d(3, 4, 3)(x)
    with pytest.raises(ValueError, match="SubMConv3d: groups is 2, expected 1"):
        SubMConv3d(3, 4, 3, groups=2)
