"""turnout.compat.spconv has spconv's results, and the facts on which these depend."""

import numpy as np
import pytest
import spconv_cases
import torch
from sparse_networks import scene
from spconv_cases import BATCH, CASES, CLOUDS, UNet

import turnout.compat.spconv as spconv
from turnout.torch import nn

pytestmark = pytest.mark.torch

SPACE = (5, 6, 7)


@pytest.fixture(scope="module")
def recorded():
    return spconv_cases.stored()


def tensor(rng, rows=40, space=SPACE, channels=3, **options):
    return scene(rng, rows, space, channels, kind=spconv.SparseConvTensor, **options)


def message_of(call, *arguments):
    with pytest.raises(ValueError) as caught:
        call(*arguments)
    return str(caught.value)


# -- spconv's results --------------------------------------------------------------------------------------


def test_every_recorded_case_is_compared(recorded):
    wanted = {f"{name} {dims}" for name, dims in CASES} | {"unet"} | {f"points {dims}" for dims in CLOUDS}
    assert set(recorded) == wanted


@pytest.mark.parametrize(("name", "dims"), CASES)
def test_a_layer_has_the_numbers_of_spconv(recorded, name, dims):
    """Compares outputs, sites and gradients, which are integers, so there is no rounding."""
    case = recorded[f"{name} {dims}"]
    features = case["features"].astype(np.float64)
    results = spconv_cases.run(
        spconv,
        spconv_cases.layer(spconv, name, dims),
        spconv_cases.state_of(case),
        case["indices"].astype(np.int32),
        features,
    )
    assert np.abs(results["out"]).max() > 0
    assert set(results) == {key for key in case if key.startswith(("out", "grad"))}
    for key, value in results.items():
        np.testing.assert_array_equal(value, case[key], key)


@pytest.mark.parametrize("training", [False, True])
def test_a_checkpoint_of_a_network_has_the_numbers_of_spconv(recorded, training):
    case = recorded["unet"]
    network = UNet(spconv).double().eval()
    for module in network.modules():
        if isinstance(module, spconv.conv.SparseConvolution):
            module.training = training
    results = spconv_cases.run(
        spconv, network, spconv_cases.state_of(case), case["indices"], case["features"]
    )
    assert set(results) == {key for key in case if key.startswith(("out", "grad"))}
    for key, value in results.items():
        np.testing.assert_allclose(value, case[key], 1e-11, 1e-11, err_msg=key)


def test_a_compiled_network_equals_eager(recorded):
    """Traces one graph, in training mode, with named pairs."""
    network = UNet(spconv).double()
    network.load_state_dict(spconv_cases.state_of(recorded["unet"]))
    features, indices = (torch.from_numpy(recorded["unet"][name]) for name in ("features", "indices"))

    def run(features, indices):
        return network(spconv.SparseConvTensor(features, indices, SPACE, BATCH)).dense()

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(features, indices), run(features, indices))


@pytest.mark.parametrize("dims", CLOUDS)
def test_points_have_the_voxels_of_spconv(recorded, dims):
    case = recorded[f"points {dims}"]
    results = spconv_cases.voxels(spconv.utils.PointToVoxel, dims, case["points"])
    assert case["num"].max() == 3 and (case["id"] == -1).any() and (case["num"] < 3).any()
    assert np.bincount(case["id"] + 1)[1:].max() > 3  # points beyond the limit keep their voxel's number
    for key, value in results.items():
        assert value.dtype == case[key].dtype
        np.testing.assert_array_equal(value, case[key], key)


# -- the five facts on which the results of a checkpoint depend --------------------------------------------


def test_fact_1_a_1x1_weight_is_read_by_the_view(rng):
    x = tensor(rng)
    for layer in (spconv.SubMConv3d(3, 4, 1, 2, 1), spconv.SparseConv3d(3, 4, 1), spconv.SubMConv3d(3, 3, 1)):
        layer = layer.double()
        assert layer.conv1x1 and layer.weight.shape == (layer.out_channels, 1, 1, 1, 3)
        wanted = x.features @ layer.weight.view(3, layer.out_channels) + layer.bias
        torch.testing.assert_close(layer(x).features, wanted)
        assert not torch.allclose(wanted, x.features @ layer.weight.flatten(1).T + layer.bias)
    strided = spconv.SparseConv3d(3, 4, 1, 2, bias=False).double()  # uses the general path
    out = strided(x)
    assert not strided.conv1x1 and out.spatial_shape == [3, 3, 4]
    kept = (x.indices[:, 1:] % 2 == 0).all(1)
    order = np.lexsort((x.indices[kept]).numpy().T[::-1])
    torch.testing.assert_close(out.features, (x.features[kept] @ strided.weight.flatten(1).T)[order])


def test_fact_2_a_name_with_another_kernel_is_refused(rng):
    first = spconv.SubMConv3d(3, 3, (1, 3, 3), indice_key="one").double()
    x = first(tensor(rng))
    for layer, wrong in (
        (spconv.SubMConv3d(3, 3, 3, indice_key="one"), "kernel_size is (3, 3, 3), expected (1, 3, 3)"),
        (spconv.SubMConv3d(3, 3, (1, 3, 3), dilation=2, indice_key="one"), "dilation is (2, 2, 2), expected"),
    ):
        assert message_of(layer.double(), x).startswith(f"SubMConv3d: {wrong}")
    fewer = spconv.SparseConvTensor(x.features[:-1], x.indices[:-1], SPACE, BATCH, indice_dict=x.indice_dict)
    assert "features.shape[0] is 39, expected 40, that of the pairs named 'one'" in message_of(first, fewer)
    larger = spconv.SparseConvTensor(x.features, x.indices, (5, 6, 8), BATCH, indice_dict=x.indice_dict)
    assert "spatial_shape is (5, 6, 8), expected (5, 6, 7)" in message_of(first, larger)


def test_fact_2_sites_of_a_shared_name_are_not_compared(rng):
    layer = spconv.SubMConv3d(3, 3, 3, indice_key="one").double()
    x = layer(tensor(rng))
    moved = x.shadow_copy()
    moved.indices = x.indices.flip(0)
    assert torch.equal(layer(moved).features, layer(x).features)


def test_fact_3_the_centre_pairs_each_row_with_itself():
    """A row with a repeated site pairs with itself, not with the last row of that site."""
    indices = torch.tensor([[0, 2], [0, 2], [0, 3]], dtype=torch.int32)
    layer = spconv.SubMConv1d(1, 1, 3, bias=False)
    layer.weight.data = torch.tensor([100.0, 1.0, 10.0]).view(1, 3, 1)
    x = spconv.SparseConvTensor(torch.tensor([[1.0], [2.0], [4.0]]), indices, [5], 1)
    assert layer(x).features.flatten().remainder(10).tolist() == [1, 2, 4]


def test_fact_4_a_layer_writes_names_into_a_copy(rng):
    x = tensor(rng)
    left = spconv.SubMConv3d(3, 3, 3, indice_key="one").double()(x)
    assert x.indice_dict == {} and list(left.indice_dict) == ["one"]
    # Another branch of the same tensor may use the name for another geometry.
    right = spconv.SubMConv3d(3, 3, 5, indice_key="one").double()(x)
    assert right.indice_dict["one"].ksize == [5, 5, 5] and left.indice_dict["one"].ksize == [3, 3, 3]
    down = spconv.SparseConv3d(3, 4, 3, 2, 1, indice_key="down").double()(left)
    later = spconv.SubMConv3d(4, 4, 3, indice_key="two").double()(down)
    assert list(later.indice_dict) == ["one", "down", "two"] and list(left.indice_dict) == ["one"]
    assert list(later.replace_feature(later.features).indice_dict) == ["one", "down", "two"]


def test_fact_5_padding_and_stride_of_a_submanifold_layer_are_ignored(rng):
    x = tensor(rng)
    for kernel in (5, 3, 1, (1, 3, 3)):
        plain = spconv.SubMConv3d(3, 4, kernel).double()
        odd = spconv.SubMConv3d(3, 4, kernel, stride=2, padding=1).double()
        odd.load_state_dict(plain.state_dict())
        assert torch.equal(odd(x).features, plain(x).features) and odd(x).spatial_shape == list(SPACE)
    assert message_of(lambda: spconv.SparseConv3d(3, 4, 1, padding=1)) == (
        "SparseConv3d: padding is [1, 1, 1], expected 0 for a kernel of one offset without stride"
    )


# -- names of pairs ----------------------------------------------------------------------------------------


def test_a_layer_that_is_not_submanifold_needs_a_new_name(rng):
    x = tensor(rng)
    subm = spconv.SubMConv3d(3, 3, 3, indice_key="one").double()
    down = spconv.SparseConv3d(3, 3, 3, indice_key="one").double()
    taken = "indice_key 'one' names the pairs of an earlier layer, and only submanifold layers share theirs"
    for first, second in ((down, down), (subm, down), (down, subm)):
        assert taken in message_of(second, first(x))
    pool = spconv.SparseMaxPool3d(2, indice_key="one")
    assert "SparseMaxPool3d: indice_key 'one' names the pairs of" in message_of(pool, subm(x))


def test_inverse_layers_ask_for_pairs_that_fit(rng):
    x = tensor(rng)
    low = spconv.SparseConv3d(3, 4, 3, 2, 1, indice_key="down").double()(x)

    def inverse(key, kernel=3):
        return spconv.SparseInverseConv3d(4, 3, kernel, key).double()

    out = inverse("down")(low)
    assert torch.equal(out.indices, x.indices) and out.spatial_shape == list(SPACE)
    assert "indice_key is 'up', expected the name of an earlier layer's pairs" in message_of(
        lambda: inverse("up")(low)
    )
    assert "kernel_size is (2, 2, 2), expected (3, 3, 3)" in message_of(inverse("down", 2), low)
    subm = spconv.SubMConv3d(4, 4, 3, indice_key="subm").double()(low)
    assert "names the pairs of a submanifold layer" in message_of(inverse("subm"), subm)
    fewer = low.at(low.features[:3], low.indices[:3], low.spatial_shape, low.indice_dict)
    assert "features.shape[0] is 3, expected" in message_of(inverse("down"), fewer)
    single = spconv.SparseInverseConv3d(4, 3, 1, "any").double()  # one offset: a matrix product, no pairs
    assert torch.equal(single(low).indices, low.indices)


def test_contents_of_named_pairs(rng):
    x = tensor(rng)
    out = spconv.SparseConv3d(3, 4, 3, 2, (0, 1, 1), indice_key="down").double()(x)
    kept = out.find_indice_pair("down")
    assert out.find_indice_pair(None) is out.find_indice_pair("none") is None
    assert (kept.ksize, kept.stride, kept.padding, kept.dilation) == ([3] * 3, [2] * 3, [0, 1, 1], [1] * 3)
    assert not kept.is_subm and isinstance(kept.algo, spconv.ConvAlgo)
    assert torch.equal(kept.indices, x.indices) and torch.equal(kept.out_indices, out.indices)
    assert list(kept.spatial_shape) == x.spatial_shape and list(kept.out_spatial_shape) == out.spatial_shape
    assert kept.indice_pairs.shape == (27, 2, 40) and kept.indice_pair_num.shape == (27,)
    plain = spconv.SparseConv3d(3, 4, 1, indice_key="one").double()(x)
    assert plain.indice_dict == {}  # a matrix product has no pairs


# -- pools -------------------------------------------------------------------------------------------------


def test_algo_decides_where_max_pooling_starts(rng):
    x = tensor(rng)
    x.features = -x.features.abs() - 1
    assert spconv.SparseMaxPool3d(2)(x).features.max() <= -1
    for algo in spconv.ConvAlgo:
        least = spconv.SparseMaxPool3d(2, algo=algo)(x).features.max()
        assert (least == 0) == (algo is spconv.ConvAlgo.Native)
        weight = torch.ones(4, 3, 3, 3, 3, dtype=torch.float64)
        layer = spconv.SubMConv3d(3, 4, 3, bias=False, algo=algo).double()
        layer.weight.data = weight
        assert layer(x).features.max() < 0 and layer.algo is algo


def test_pools(rng):
    x = tensor(rng)
    assert spconv.SparseMaxPool3d(2).stride == [2, 2, 2] and spconv.pool.SparseMaxPool(3, 2).stride == [1] * 3
    torch.testing.assert_close(spconv.SparseAvgPool3d(2)(x).features, nn.SparseAvgPool(3, 2)(x).features)
    assert torch.equal(spconv.SparseGlobalMaxPool()(x), nn.SparseGlobalMaxPool()(x))
    assert torch.equal(spconv.SparseGlobalAvgPool("name")(x), nn.SparseGlobalAvgPool()(x))
    subm = spconv.pool.SparseMaxPool(3, 3, subm=True)(x)
    assert torch.equal(subm.indices, x.indices) and (subm.features >= x.features).all()


# -- state -------------------------------------------------------------------------------------------------


def test_saved_weight_layouts(rng, monkeypatch):
    for dims in (1, 2, 3, 4):
        layer = getattr(spconv, f"SparseConv{dims}d")(3, 4, 2)
        saved = layer.state_dict()
        krsc = saved["weight"].clone()
        for layout, weight in (
            ("KRSC", krsc),
            ("RSKC", krsc.movedim(0, -2)),
            ("RSCK", krsc.movedim(0, -1)),
        ):
            monkeypatch.setenv("SPCONV_SAVED_WEIGHT_LAYOUT", layout)
            other = getattr(spconv, f"SparseConv{dims}d")(3, 4, 2)
            other.load_state_dict({**saved, "weight": weight})
            assert torch.equal(other.weight, krsc)
    monkeypatch.setenv("SPCONV_SAVED_WEIGHT_LAYOUT", "KCRS")
    assert message_of(lambda: layer.load_state_dict(saved)) == (
        "load_state_dict: SPCONV_SAVED_WEIGHT_LAYOUT is 'KCRS', expected KRSC, RSKC, RSCK"
    )


def test_record_voxel_count(rng):
    x = tensor(rng)
    name = "max_num_voxels_during_training"
    for layer in (
        spconv.SparseConv3d(3, 3, 3, record_voxel_count=True).double(),
        spconv.SparseMaxPool3d(2, record_voxel_count=True),
    ):
        few = layer(x.select_by_index(torch.arange(2))).features.shape[0]
        assert layer.state_dict()[name].dtype == torch.int32 and layer.get_max_num_voxels().tolist() == [few]
        many = layer(x).features.shape[0]
        layer(x.select_by_index(torch.arange(2)))
        assert layer.get_max_num_voxels().tolist() == [many]
        old = {key: value for key, value in layer.state_dict().items() if key != name}
        layer.load_state_dict(old)
        assert layer.get_max_num_voxels().tolist() == [0]
    for plain in (spconv.SparseConv3d(3, 3, 3), spconv.conv.SparseConvolution(3, 3, 3, 3, subm=True)):
        assert list(plain.state_dict()) == ["weight", "bias"] and plain.get_max_num_voxels() is None


def test_a_loader_that_a_model_file_gives_to_the_base_class_is_called(monkeypatch):
    called = []

    def load(self, *arguments):
        called.append(type(self).__name__)
        torch.nn.Module._load_from_state_dict(self, *arguments)

    monkeypatch.setattr(spconv.SparseModule, "_load_from_state_dict", load, raising=False)
    layer = spconv.SparseSequential(spconv.SubMConv3d(3, 3, 3))
    layer.load_state_dict(layer.state_dict())
    assert called == ["SparseSequential", "SubMConv3d"]
