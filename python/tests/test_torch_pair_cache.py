"""Pairs are built once for each geometry and set of sites, and are not reused for changed sites."""

import gc
import weakref

import pytest
import torch
from sparse_networks import ENCODER_SPACE, plain_encoder, scene

from turnout.torch import nn

pytestmark = pytest.mark.torch

SPACE = (5, 6, 7)


def test_encoder_of_centerpoint_builds_8_sets_of_pairs(rng, pairs_built):
    """It has 21 convolutions and no indice_key."""
    network = plain_encoder().double().eval()
    assert sum(isinstance(module, nn.SparseConvolution) for module in network.modules()) == 21
    x = scene(rng, 150, ENCODER_SPACE)
    first = network(x).features
    assert len(pairs_built) == 8
    again = network(x)  # the tensor still has its pairs
    assert len(pairs_built) == 8 and torch.equal(first, again.features)
    network(scene(rng, 150, ENCODER_SPACE))
    assert len(pairs_built) == 16


def change_in_place(x):
    x.indices[:, 1:] = x.indices[:, 1:].flip(0)


def change_through_numpy(x):
    array = x.indices.numpy()
    array[:, 1:] = array[::-1, 1:].copy()


def assign(x):
    x.indices = x.indices.flip(0)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("change", [change_in_place, change_through_numpy, assign])
def test_changed_indices_are_noticed(rng, pairs_built, mode, change):
    layers = [nn.SubMConv(3, 3, 4, 3).double(), nn.SparseConv(3, 3, 4, 3, 2).double()]
    with mode():
        x = scene(rng, 40, SPACE)
        for layer in layers:
            layer(x)
        change(x)
        outs = [layer(x) for layer in layers]
        assert len(pairs_built) == 4
        fresh = nn.SparseTensor(x.features, x.indices.clone(), SPACE, 2)
        for layer, out in zip(layers, outs, strict=True):
            wanted = layer(fresh)
            assert torch.equal(out.indices, wanted.indices) and torch.equal(out.features, wanted.features)


def test_changed_outputs_do_not_reach_the_cache(rng, pairs_built):
    """A model may scale the sites of its outputs in place; the next output has the original sites."""
    down = nn.SparseConv(3, 3, 4, 3, 2, indice_key="down").double()
    up = nn.SparseInverseConv(3, 4, 3, 3, "down").double()
    x = scene(rng, 40, SPACE)
    first = down(x)
    before = first.indices.clone()
    first.indices[:, 1:] *= 2
    assert torch.equal(down(x).indices, before) and len(pairs_built) == 1
    sites = x.indices.clone()
    back = up(down(x))
    back.indices.zero_()
    assert torch.equal(up(down(x)).indices, sites)


def test_another_geometry_builds_new_pairs(rng, pairs_built):
    x = scene(rng, 40, SPACE)
    for count, layer in enumerate(
        (
            nn.SubMConv(3, 3, 3, 3),
            nn.SubMConv(3, 3, 3, (1, 3, 3)),
            nn.SubMConv(3, 3, 3, 3, dilation=2),
            nn.SparseConv(3, 3, 3, 3),
            nn.SparseConv(3, 3, 3, 3, 2),
            nn.SparseConv(3, 3, 3, 3, 2, 1),
            nn.SparseConvTranspose(3, 3, 3, 3, 2, 1),
            nn.SparseConvTranspose(3, 3, 3, 3, 2, 1, output_padding=1),
        ),
        start=1,
    ):
        layer.double()(x)
        layer(x)
        assert len(pairs_built) == count
    nn.SparseMaxPool(3, 3, 2)(x)  # shares the pairs of a convolution
    nn.SubMConv(3, 3, 7, 1).double()(x)  # needs no pairs
    assert len(pairs_built) == 8
    for change in ({"batch_size": 3}, {"spatial_shape": (6, 6, 7)}):
        for name, value in change.items():
            setattr(x, name, value)
        nn.SubMConv(3, 3, 3, 3).double()(x)
    assert len(pairs_built) == 10


def test_pairs_of_inference_serve_training(rng, pairs_built):
    x = scene(rng, 40, SPACE)
    layer = nn.SubMConv(3, 3, 4, 3).double()
    with torch.inference_mode():
        layer(x)
    layer(x).features.sum().backward()
    assert layer.weight.grad is not None and len(pairs_built) == 1


def test_refused_sites_are_not_kept(rng):
    x = scene(rng, 40, SPACE)
    x.indices[7, 1] = 99
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^SubMConv: indices\[7, 1\] is 99"):
            nn.SubMConv(3, 3, 4, 3).double()(x)
    assert x.cache._known == []


def test_the_cache_lives_as_long_as_the_tensors(rng):
    x = scene(rng, 40, SPACE)
    out = nn.SparseConv(3, 3, 4, 3, 2).double()(x)
    cache = weakref.ref(x.cache)
    del x
    assert cache() is out.cache is not None
    del out
    gc.collect()
    assert cache() is None


def test_layers_with_one_indice_key_share_pairs(rng, pairs_built):
    """Layers with the same indice_key share pairs, even those that a cache would not find."""
    x = scene(rng, 40, SPACE)
    layer = nn.SubMConv(3, 3, 3, 3, indice_key="subm").double()
    out = layer(x)
    assert "subm" not in x.indice_dict and "subm" in out.indice_dict
    layer(out)
    assert len(pairs_built) == 1
    with pytest.raises(ValueError, match=r"spatial_shape is \(9, 9, 9\), expected \(5, 6, 7\)"):
        out.spatial_shape = (9, 9, 9)
        layer(out)
