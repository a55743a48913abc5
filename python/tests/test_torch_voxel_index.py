"""turnout.torch.VoxelIndex: many differentiable reductions of the same points."""

import copy
import gc
import itertools
import pickle
import weakref

import numpy as np
import pytest
import torch
from conftest import same_bits
from scans import REDUCTIONS, coordinates
from test_torch_dynamic_scatter import DTYPES, distinct, tensors
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

import turnout
import turnout.torch
from turnout import _core, check
from turnout.torch import VoxelIndex, dynamic_scatter

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("dims", [1, 2, 3, 4])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_attributes(rng, dims, index):
    feats, coors = tensors(rng, dims=dims, index=index)
    voxels = VoxelIndex(coors)
    expected = check.dynamic_scatter_forward(feats.numpy(), coors.numpy())
    results = voxels.reduce(feats), voxels.voxel_coors, voxels.point2voxel_map, voxels.voxel_points_count
    for actual, wanted in zip(results, expected, strict=True):
        assert type(actual) is torch.Tensor
        assert same_bits(actual.numpy(), wanted)
    assert (voxels.points, voxels.voxels) == (60, len(expected[0]))
    first = [int((voxels.point2voxel_map == v).nonzero()[0, 0]) for v in range(voxels.voxels)]
    assert voxels.first_point.dtype == torch.int32
    assert voxels.first_point.tolist() == first
    assert voxels.first_point is voxels.first_point
    assert repr(voxels) == f"VoxelIndex(60 points in {voxels.voxels} voxels)"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduce_type", REDUCTIONS)
def test_like_dynamic_scatter(rng, dtype, reduce_type):
    """Has the same bits, with one index for several features."""
    _, coors = tensors(rng)
    voxels = VoxelIndex(coors)
    for channels in (1, 5, 40):
        feats, _ = tensors(rng, channels=channels, dtype=dtype, requires_grad=True)
        results = voxels.reduce(feats, reduce_type), dynamic_scatter(feats, coors, reduce_type)[0]
        assert torch.equal(*results)
        weight = torch.from_numpy(rng.standard_normal(results[0].shape)).to(dtype)
        grads = [torch.autograd.grad(x, feats, weight)[0] for x in results]
        assert grads[0].dtype == dtype
        assert torch.equal(*grads)


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
def test_gradcheck(rng, reduce_type):
    feats, coors = distinct(rng)
    voxels = VoxelIndex(coors)
    assert torch.autograd.gradcheck(lambda x: voxels.reduce(x, reduce_type), feats)
    assert torch.autograd.gradgradcheck(lambda x: voxels.reduce(x, reduce_type), feats)


def test_loss_of_a_gradient(rng):
    feats, coors = distinct(rng)
    voxels = VoxelIndex(coors)
    for reduce_type in REDUCTIONS:
        results = []
        for voxel_feats in (voxels.reduce(feats, reduce_type), dynamic_scatter(feats, coors, reduce_type)[0]):
            (grad,) = torch.autograd.grad((voxel_feats**3).sum(), feats, create_graph=True)
            results.append(torch.autograd.grad((grad**2).sum(), feats)[0])
        torch.testing.assert_close(*results)


def test_coordinates_are_read_once(rng):
    feats, coors = tensors(rng, requires_grad=True)
    expected = dynamic_scatter(feats, coors)[0]
    voxels = VoxelIndex(coors)
    coors.fill_(-1)
    actual = voxels.reduce(feats)
    assert torch.equal(actual, expected)
    assert torch.equal(*(torch.autograd.grad(x.sum(), feats)[0] for x in (actual, expected)))


def test_gradients_do_not_sort(rng, monkeypatch):
    feats, coors = tensors(rng, requires_grad=True)
    voxels = VoxelIndex(coors)
    for name in ("voxel_index", "dynamic_scatter_forward", "dynamic_scatter_backward"):
        monkeypatch.delattr(_core, name)
    for reduce_type in REDUCTIONS:
        (grad,) = torch.autograd.grad(voxels.reduce(feats, reduce_type).sum(), feats, create_graph=True)
        assert grad.any()


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
def test_strided_tensors(rng, reduce_type):
    feats, coors = tensors(rng, requires_grad=True)
    strided = feats.detach().T.contiguous().T.requires_grad_(), coors.T.contiguous().T
    assert not any(x.is_contiguous() for x in strided)
    pairs = [(VoxelIndex(c).reduce(x, reduce_type), x) for x, c in ((feats, coors), strided)]
    assert torch.equal(pairs[0][0], pairs[1][0])
    # Upstream gradients with stride 0, and in another order.
    for loss in (lambda x: x.sum(), lambda x: (x.T * torch.arange(len(x))).sum()):
        assert torch.equal(*(torch.autograd.grad(loss(r), x, retain_graph=True)[0] for r, x in pairs))


def test_negated_views(rng):
    """Negated views have no memory of their own, and no torch kernel resolves them here."""
    feats, coors = tensors(rng)
    negated = torch.complex(feats, feats).conj().imag
    assert negated.is_neg()
    assert torch.equal(VoxelIndex(coors).reduce(negated), VoxelIndex(coors).reduce(-feats))


def test_modes_without_gradients(rng):
    feats, coors = tensors(rng, requires_grad=True)
    voxels = VoxelIndex(coors)
    assert voxels.reduce(feats).requires_grad
    assert not voxels.reduce(feats.detach()).requires_grad
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert not voxels.reduce(feats).requires_grad
    assert not any(
        x.requires_grad for x in (voxels.voxel_coors, voxels.point2voxel_map, voxels.voxel_points_count)
    )


def test_an_index_lives_as_long_as_its_gradients(rng):
    feats, coors = tensors(rng, requires_grad=True)
    voxels = VoxelIndex(coors)
    known = weakref.ref(voxels)
    reduced = voxels.reduce(feats)
    del voxels
    gc.collect()
    assert known() is not None
    reduced.sum().backward()
    del reduced
    gc.collect()
    assert known() is None


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
@pytest.mark.parametrize(("points", "channels"), [(0, 5), (0, 0), (6, 0)])
def test_empty(reduce_type, points, channels):
    feats = torch.zeros(points, channels, requires_grad=True)
    voxel_feats = VoxelIndex(torch.zeros(points, 3, dtype=torch.int32)).reduce(feats, reduce_type)
    assert voxel_feats.shape == (min(points, 1), channels)
    voxel_feats.sum().backward()
    assert feats.grad.shape == (points, channels)


@pytest.mark.parametrize("count", [1, 2])
def test_torch_threads_do_the_work(rng, count):
    feats = torch.from_numpy(rng.standard_normal((90000, 20)).astype(np.float32)).requires_grad_()
    coors = torch.from_numpy(coordinates(rng, 90000, extent=20))
    on_own_threads = turnout.VoxelIndex(coors)
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    runs = [_core.torch_runs()]
    try:
        voxels = VoxelIndex(coors)
        runs.append(_core.torch_runs())
        most = voxels.reduce(feats)
        runs.append(_core.torch_runs())
        (grad,) = torch.autograd.grad(most.sum(), feats)
        runs.append(_core.torch_runs())
    finally:
        torch.set_num_threads(threads)
    assert all((after > before) == (count > 1) for before, after in itertools.pairwise(runs))
    assert torch.equal(most, on_own_threads.reduce(feats.detach()))
    ones = torch.ones_like(most)
    assert torch.equal(grad, on_own_threads.reduce_backward(ones, feats.detach(), most.detach()))


def test_messages(rng):
    feats, coors = tensors(rng)
    voxels = VoxelIndex(coors)
    for function, kind, message in (
        (
            lambda: VoxelIndex(coors.numpy()),
            TypeError,
            "VoxelIndex: coors is of type ndarray, expected a torch",
        ),
        (
            lambda: VoxelIndex(coors.float()),
            ValueError,
            "VoxelIndex: coors has dtype float32, expected int32, int64",
        ),
        (lambda: VoxelIndex(coors[:, :0]), ValueError, "VoxelIndex: coors.shape[1] is 0, expected 1 or more"),
        (lambda: VoxelIndex(coors[0]), ValueError, "VoxelIndex: coors has 1 dimensions, expected"),
        (
            lambda: voxels.reduce([1.0]),
            TypeError,
            "VoxelIndex.reduce: feats is of type list, expected a torch",
        ),
        (lambda: voxels.reduce(feats[:9]), ValueError, "VoxelIndex.reduce: feats.shape[0] is 9, expected"),
        (
            lambda: voxels.reduce(feats, "median"),
            ValueError,
            "VoxelIndex.reduce: reduce_type is 'median', exp",
        ),
    ):
        with pytest.raises(kind) as caught:
            function()
        assert str(caught.value).startswith(message)


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
def test_torch_func(rng, reduce_type):
    feats, coors = distinct(rng)
    feats = feats.detach()
    voxels = VoxelIndex(coors)

    def loss(x):
        return (voxels.reduce(x, reduce_type) ** 3).sum()

    def expected(x):
        return torch.autograd.grad(loss(x), x, create_graph=True)[0]

    leaf = feats.clone().requires_grad_()
    assert torch.equal(torch.func.grad(loss)(feats), expected(leaf).detach())
    second = torch.func.grad(lambda x: (torch.func.grad(loss)(x) ** 2).sum())(feats)
    torch.testing.assert_close(second, torch.autograd.grad((expected(leaf) ** 2).sum(), leaf)[0])
    several = torch.stack([feats, -feats])
    wanted = torch.stack([voxels.reduce(x, reduce_type) for x in several])
    assert torch.equal(torch.func.vmap(lambda x: voxels.reduce(x, reduce_type))(several), wanted)
    with pytest.raises(NotImplementedError, match=r"VoxelIndex\.reduce: feats has a tangent of forward-mode"):
        torch.func.jvp(voxels.reduce, (feats,), (feats,))


# -- other processes ---------------------------------------------------------------------------------------


def assert_same_index(actual, expected, feats):
    for name in ("voxel_coors", "point2voxel_map", "voxel_points_count", "first_point"):
        assert torch.equal(getattr(actual, name), getattr(expected, name))
    assert (actual.points, actual.voxels) == (expected.points, expected.voxels)
    for reduce_type in REDUCTIONS:
        results = [index.reduce(feats, reduce_type) for index in (actual, expected)]
        assert torch.equal(*results)
        assert torch.equal(*(torch.autograd.grad(x.sum(), feats)[0] for x in results))


@pytest.mark.parametrize("points", [0, 60])
@pytest.mark.parametrize("through", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy])
def test_pickle(rng, through, points):
    feats, coors = tensors(rng, points=points, dims=4, index=torch.int64, requires_grad=True)
    voxels = VoxelIndex(coors)
    assert_same_index(through(voxels), voxels, feats)


def test_a_changed_map_is_refused(rng):
    voxels = VoxelIndex(tensors(rng)[1])
    voxels.point2voxel_map.fill_(0)
    with pytest.raises(ValueError, match="VoxelIndex: point2voxel_map has 1 voxels, expected"):
        pickle.loads(pickle.dumps(voxels))


def pairs_of(coors):
    sites = torch.cat([torch.zeros(len(coors), 1, dtype=torch.int32), coors.clamp(min=0)], dim=1)
    return turnout.torch.get_indice_pairs(sites.unique(dim=0), 1, [3, 3, 3], 3, subm=True)


class Scans(torch.utils.data.Dataset):
    def __init__(self, scans):
        self.scans = scans

    def __len__(self):
        return len(self.scans)

    def __getitem__(self, i):
        threads = turnout.get_num_threads(), torch.get_num_threads()
        return VoxelIndex(self.scans[i]), pairs_of(self.scans[i]), threads


@pytest.mark.parametrize(
    ("context", "strategy"),
    [("fork", "file_descriptor"), ("fork", "file_system"), ("spawn", "file_descriptor")],
)
def test_data_loader(rng, context, strategy):
    """Workers on one thread each send indexes through shared memory; a failing one would wait forever."""
    pairs = [tensors(rng, points=n, requires_grad=True) for n in (60, 3000)]
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy(strategy)
    try:
        loader = torch.utils.data.DataLoader(
            Scans([coors for _, coors in pairs]),
            batch_size=None,
            num_workers=2,
            multiprocessing_context=context,
            timeout=60,
        )
        for (index, sent, threads), (feats, coors) in zip(loader, pairs, strict=True):
            assert_same_index(index, VoxelIndex(coors), feats)
            assert all(torch.equal(a, b) for a, b in zip(sent, pairs_of(coors), strict=True))
            assert index.point2voxel_map.is_shared() and sent[1].is_shared()
            assert list(threads) == [1, 1]
    finally:
        torch.multiprocessing.set_sharing_strategy(before)


# -- tracing -----------------------------------------------------------------------------------------------


def encoder(feats, coors):
    voxels = VoxelIndex(coors)
    means = voxels.reduce(feats, "mean")
    return torch.cat([voxels.reduce(feats * 2), means], dim=1), voxels.voxel_coors, voxels.first_point


class Encoder(torch.nn.Module):
    def forward(self, feats, coors):
        return encoder(feats, coors)


def assert_like_encoder(function, feats, coors):
    for actual, wanted in zip(function(feats, coors), encoder(feats, coors), strict=True):
        assert torch.equal(actual, wanted)


@pytest.mark.parametrize("strict", [False, True])
def test_export(rng, strict):
    exported = torch.export.export(Encoder(), tensors(rng), strict=strict).module()
    for _ in range(2):
        assert_like_encoder(exported, *tensors(rng))


def test_full_graph(rng):
    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
        for _ in range(2):
            feats, coors = tensors(rng, requires_grad=True)
            assert_like_encoder(compiled, feats, coors)
            grads = [torch.autograd.grad(f(feats, coors)[0].sum(), feats)[0] for f in (compiled, encoder)]
            assert torch.equal(*grads)


def test_full_graph_without_sizes_that_depend_on_data(rng):
    torch.compiler.reset()
    with pytest.raises(
        Exception, match=r"VoxelIndex: the number of voxels depends on values; torch\._dynamo"
    ):
        torch.compile(encoder, fullgraph=True, backend="eager")(*tensors(rng))


def test_an_index_from_outside_the_graph(rng):
    feats, coors = tensors(rng)
    voxels = VoxelIndex(coors)
    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(lambda x: voxels.reduce(x) + 1, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(feats), voxels.reduce(feats) + 1)


def test_fake_tensors(rng):
    feats, coors = tensors(rng)
    voxels = VoxelIndex(coors)
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        reduced, rows, first = encoder(mode.from_tensor(feats), mode.from_tensor(coors))
        assert free_unbacked_symbols(rows.shape[0])
        assert (reduced.shape[0], reduced.shape[1], rows.shape[1]) == (rows.shape[0], 10, 3)
        assert (tuple(first.shape), first.dtype) == ((rows.shape[0],), torch.int32)
        with pytest.raises(ValueError, match=r"VoxelIndex: coors has dtype float32, expected int32, int64"):
            VoxelIndex(mode.from_tensor(feats))
    with FakeTensorMode() as mode, pytest.raises(NotImplementedError) as caught:
        VoxelIndex(mode.from_tensor(coors))
    assert str(caught.value) == (
        "VoxelIndex: a size depends on values, for which fake tensors need a mode with a ShapeEnv"
    )
    for function, message in (
        (lambda: VoxelIndex(coors.to("meta")), "VoxelIndex: coors is on the device meta, expected cpu"),
        (
            lambda: voxels.reduce(feats.to("meta")),
            "VoxelIndex.reduce: feats is on the device meta, expected cpu",
        ),
    ):
        with pytest.raises(ValueError) as caught:
            function()
        assert str(caught.value) == message


def test_compile(rng):
    def function(feats, coors):
        voxels = VoxelIndex(coors)
        return voxels.reduce(feats * 2, "mean") + 1

    torch.compiler.reset()
    compiled = torch.compile(function, backend="aot_eager")
    for _ in range(2):
        feats, coors = tensors(rng, requires_grad=True)
        results = [f(feats, coors) for f in (function, compiled)]
        assert torch.equal(*results)
        assert torch.equal(*(torch.autograd.grad(x.sum(), feats)[0] for x in results))
