"""turnout.compat.spconv as the package spconv: the names that model files import, call and set."""

import importlib.util
import subprocess
import sys
import types
from collections import OrderedDict

import numpy as np
import pytest
import torch
from sparse_networks import scene

import turnout
import turnout.compat.spconv as spconv
from turnout.torch import nn

pytestmark = pytest.mark.torch

SPACE = (5, 6, 7)


def tensor(rng, rows=40, space=SPACE, channels=3, **options):
    return scene(rng, rows, space, channels, kind=spconv.SparseConvTensor, **options)


# -- installed as spconv -----------------------------------------------------------------------------------

# The imports of OpenPCDet, mmdetection3d and Pointcept, and their uses.
PROGRAM = """
import turnout.compat.spconv
turnout.compat.spconv.install()
turnout.compat.spconv.install()

import spconv
assert float(spconv.__version__[2:]) >= 2.2 and spconv.__version__ >= "2.0.0"
spconv.constants.SPCONV_USE_DIRECT_TABLE = False
import spconv.pytorch as spconv
from spconv.pytorch import (SparseConv2d, SparseConv3d, SparseConv4d, SparseConvTranspose2d,
                            SparseConvTranspose3d, SparseInverseConv2d, SparseInverseConv3d, SparseModule,
                            SubMConv2d, SubMConv3d, SubMConv4d)
from spconv.pytorch import SparseConvTensor, SparseMaxPool3d, SparseSequential, functional, ops
from spconv.pytorch.utils import PointToVoxel, gather_features_by_pc_voxel_id
from spconv.pytorch.modules import is_spconv_module
from spconv.core import ConvAlgo
from spconv.utils import VoxelGeneratorV2
import torch

layer = spconv.SubMConv3d(3, 3, 1, algo=spconv.ConvAlgo.Native)
assert isinstance(layer, spconv.conv.SparseConvolution) and spconv.modules.is_spconv_module(layer)
assert isinstance(spconv.Identity(), spconv.identity.Identity) and spconv.ops.ConvAlgo is ConvAlgo
assert spconv.SubMConv3d is SubMConv3d is turnout.compat.spconv.SubMConv3d
assert spconv.core.SparseConvTensor is SparseConvTensor and spconv.pool.SparseMaxPool3d is SparseMaxPool3d
assert spconv.utils.PointToVoxel is PointToVoxel
x = SparseConvTensor(features=torch.ones(1, 3), indices=torch.zeros(1, 4, dtype=torch.int32),
                     spatial_shape=[2, 2, 2], batch_size=1)
assert "replace_feature" in x.__dir__() and layer(x).features.shape == (1, 3)

import importlib.util, sys
assert importlib.util.find_spec("spconv.pytorch").origin == "turnout.compat.spconv"
from spconv.pytorch.conv import IndiceData, SparseConvTensor as Tensor, SparseModule as Module, expand_nd
from spconv.pytorch.core import AlgoHint, scatter_nd
from spconv.pytorch.spatial import RemoveDuplicate
from spconv.utils import nullcontext
assert Tensor is SparseConvTensor and Module is SparseModule and expand_nd(3, 2) == [2, 2, 2]
for module, name in (("spconv.pytorch", "HashTable"), ("spconv.pytorch.ops", "implicit_gemm"),
                     ("spconv.pytorch.hash", "HashTable"), ("spconv.utils", "rbbox_iou"),
                     ("spconv.utils", "Point2VoxelCPU3d"), ("spconv.pytorch.functional", "indice_conv"),
                     ("spconv.pytorch.cppcore", "torch_tensor_to_tv"), ("spconv.tools", "CUDAKernelTimer"),
                     ("spconv.pytorch.quantization", "quantize_per_tensor"),
                     ("spconv.pytorch.quantization.intrinsic.qat", "SparseConv"),
                     ("spconv.core_cc.csrc.sparse.all", "SpconvOps")):
    exec(f"from {module} import {name} as absent")
    message = (f"{name}: turnout.compat.spconv does not implement this name; Turnout has its modules, "
               "tensors and voxel generators")
    try:
        absent(1, b=2)
    except NotImplementedError as error:
        assert str(error) == message
    else:
        raise AssertionError(name)
    try:
        absent.attribute
    except AttributeError as error:
        assert str(error) == message
    else:
        raise AssertionError(name)
    assert not isinstance(layer, absent)
    assert not hasattr(sys.modules[module], "__nothing__")
assert not hasattr(spconv.ops, "nothing_like_this") and not hasattr(spconv, "nothing_like_this")
turnout.compat.spconv.uninstall()
turnout.compat.spconv.uninstall()
assert not [name for name in sys.modules if name.split(".")[0] == "spconv"]
assert not [finder for finder in sys.meta_path if type(finder).__module__.startswith("turnout")]
"""


def test_imports_of_model_files():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_names_that_are_missing():
    """Even without install(), the name can be looked up in each module but not used."""
    for module, name in (
        *((spconv, "Point2VoxelCPU3d"), (spconv, "hash"), (spconv, "quantization"), (spconv, "cppcore")),
        *((spconv.utils, "Point2VoxelCPU3d"), (spconv.ops, "indice_conv"), (spconv.functional, "HashTable")),
    ):
        with pytest.raises(
            NotImplementedError, match=f"^{name}: turnout.compat.spconv does not implement this name"
        ):
            getattr(module, name)()
    assert spconv.conv.SparseConvTensor is spconv.SparseConvTensor
    assert spconv.conv.SparseModule is spconv.SparseModule
    assert spconv.core.expand_nd(2, np.array([1, 2])) == [1, 2]
    with pytest.raises(ValueError, match="expand_nd: val has 3 elements, expected 1 or 2"):
        spconv.core.expand_nd(2, [1, 2, 3])
    full = spconv.core.scatter_nd(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1.0], [2.0]]), [2, 2, 1])
    assert full.flatten().tolist() == [0, 1, 2, 0]


def test_refused_when_spconv_is_imported(tmp_path, monkeypatch):
    (tmp_path / "spconv").mkdir()
    (tmp_path / "spconv" / "__init__.py").write_text("mine = 1")
    monkeypatch.syspath_prepend(tmp_path)
    there = importlib.import_module("spconv")
    try:
        with pytest.raises(RuntimeError, match="install: spconv is already imported"):
            spconv.install()
        spconv.install(force=True)
        assert importlib.import_module("spconv.pytorch.hash").HashTable
        assert importlib.import_module("spconv.pytorch").SubMConv3d is spconv.SubMConv3d and there.mine == 1
    finally:
        spconv.uninstall()
    assert not hasattr(there, "pytorch") and importlib.import_module("spconv") is there
    assert "spconv.pytorch.hash" not in sys.modules
    del sys.modules["spconv"]


def test_every_name_of_every_rank():
    kinds = ("SubMConv", "SparseConv", "SparseConvTranspose", "SparseInverseConv", "SparseMaxPool")
    for kind in kinds:
        for dims in (1, 2, 3, 4):
            made = getattr(spconv, f"{kind}{dims}d")
            arguments = {"SparseMaxPool": (2,), "SparseInverseConv": (3, 4, 3, "key")}.get(kind, (3, 4, 3))
            assert made(*arguments).ndim == dims
    assert [spconv.SparseAvgPool1d(2).ndim, spconv.SparseAvgPool3d(2).ndim] == [1, 3]
    layer = spconv.SparseConv3d(3, 4, np.array([3, 1, 1]), [2, 1, 1], indice_key="down", name="first")
    assert (layer.kernel_size, layer.stride, layer.name) == ([3, 1, 1], [2, 1, 1], "first")
    assert layer.is_inverseable() and not spconv.SubMConv3d(3, 4, 3, indice_key="a").is_inverseable()
    half = spconv.conv.SparseConvolution(3, 3, 4, dtype=torch.float64, device="meta")
    assert half.weight.dtype == torch.float64 and half.weight.is_meta
    with pytest.raises(ValueError, match="SparseConv3d: groups is 2, expected 1"):
        spconv.SparseConv3d(4, 4, 3, groups=2)


# -- the tensor --------------------------------------------------------------------------------------------


def test_spatial_shapes_and_batch_sizes_of_any_kind(rng):
    x = tensor(rng)
    for shape in (list(SPACE), SPACE, np.array(SPACE), torch.Size(SPACE), torch.tensor(SPACE)):
        made = spconv.SparseConvTensor(x.features, x.indices, shape, torch.tensor(2))
        assert made.spatial_shape == list(SPACE) and made.spatial_size == 210
        assert made.dense().shape == (2, 3, *SPACE)
        assert spconv.SparseConv3d(3, 4, 3, 2, 1).double()(made).spatial_shape == [3, 3, 4]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"features": torch.zeros(2)}, "features has 1 dimensions, expected 2"),
        ({"indices": torch.zeros(2, dtype=torch.int32)}, "indices has 1 dimensions, expected 2"),
        ({"indices": torch.zeros(2, 4).long()}, "indices has dtype torch.int64, expected torch.int32"),
        (
            {"spatial_shape": [2, 2]},
            "spatial_shape has 2 elements, expected 3, one less than the columns of indices",
        ),
        ({"batch_size": 0}, "batch_size is 0, expected 1 or more"),
    ],
)
def test_messages_of_the_tensor(changed, message):
    given = {
        "features": torch.zeros(2, 3),
        "indices": torch.zeros(2, 4, dtype=torch.int32),
        "spatial_shape": [2, 2, 2],
        "batch_size": 1,
    }
    with pytest.raises(ValueError) as caught:
        spconv.SparseConvTensor(**{**given, **changed})
    assert str(caught.value) == f"SparseConvTensor: {message}"


def test_features_are_replaced_and_set(rng):
    x = tensor(rng)
    x.grid, x.benchmark = torch.zeros(1), True
    y = x.replace_feature(x.features * 2)
    assert y.indices is x.indices and y.indice_dict is x.indice_dict and y.grid is x.grid and y.benchmark
    assert torch.equal(x.features * 2, y.features)
    y.features = x.features
    for total in (x + y, x + x.features):
        assert torch.equal(total.features, 2 * x.features)
    assert torch.equal(x.minus().features, -x.features)
    chosen = spconv.SubMConv3d(3, 3, 3, indice_key="a").double()(x).select_by_index(x.indices[:, 0] == 1)
    assert chosen.indice_dict == {} and (chosen.indices[:, 0] == 1).all() and 0 < len(chosen.indices) < 40
    again = spconv.SparseConvTensor.from_dense(x.dense(channels_first=False))
    assert torch.equal(again.dense(), x.dense()) and again.spatial_shape == list(SPACE)
    assert not x.is_quantized


def test_sites_that_a_model_file_changes(rng):
    """Like VoxelNeXt, changes sites in place and sets features before sites."""
    x = tensor(rng)
    before = x.indices.clone()
    layer = spconv.SubMConv3d(3, 3, 3, indice_key="a").double()
    y = layer(x)
    y.indices[:, 1:] *= 2
    assert torch.equal(x.indices, before) and torch.equal(y.indice_dict["a"].indices, before)
    z = x.replace_feature(torch.cat([x.features, y.features]))
    z.indices = torch.cat([x.indices, y.indices])
    assert z.features.shape[0] == z.indices.shape[0] == 80
    # The same tensor with other sites: pairs are looked up by the contents of indices.
    free = spconv.SubMConv3d(3, 3, 3).double()
    old = free(x).features
    x.indices[:, 3] = 6 - x.indices[:, 3]
    assert not torch.equal(free(x).features, old)
    fresh = spconv.SparseConvTensor(x.features, x.indices, SPACE, 2)
    assert torch.equal(free(x).features, free(fresh).features)


# -- modules -----------------------------------------------------------------------------------------------


def test_a_block_that_derives_from_two_classes(rng):
    class Basic(torch.nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.conv = spconv.SubMConv3d(channels, channels, 3).double()

    class Block(Basic, spconv.SparseModule):
        def __init__(self, channels):
            spconv.SparseModule.__init__(self)
            Basic.__init__(self, channels)

        def forward(self, x):
            return self.conv(x) + x

    block = Block(3)
    modules = torch.nn.Sequential(block, spconv.SparseSequential(OrderedDict(block=Block(3))))
    spconv.assign_name_for_sparse_modules(modules)
    assert modules[1].block._sparse_unique_name == "1.block" and block.name is None
    assert modules(tensor(rng)).features.shape == (40, 3)
    assert spconv.modules.is_spconv_module(block) and not spconv.modules.is_sparse_conv(block)
    assert spconv.modules.is_sparse_conv(block.conv)
    assert not spconv.modules.is_spconv_module(spconv.Identity())


def test_a_sequence_leaves_its_input_alone(rng):
    x = tensor(rng)
    before = x.features.clone()
    out = spconv.SparseSequential(torch.nn.ReLU(), spconv.ToDense())(x)
    assert torch.equal(x.features, before) and torch.equal(out, x.replace_feature(before.relu()).dense())
    x.grid = torch.zeros(1)
    assert spconv.RemoveGrid()(x).grid is None


def test_modules_that_take_sparse_tensors_too(rng):
    x = tensor(rng)
    for sparse, plain in (
        (spconv.SparseBatchNorm(3), torch.nn.BatchNorm1d(3)),
        (spconv.SparseReLU(), torch.nn.ReLU()),
        (spconv.SparseIdentity(), torch.nn.Identity()),
        (spconv.modules.SparseSyncBatchNorm(3).eval(), torch.nn.BatchNorm1d(3).eval()),
    ):
        wanted = plain.double()(x.features)
        assert torch.equal(sparse.double()(x).features, wanted)
        assert torch.equal(sparse(x.features), wanted)
        assert torch.equal(spconv.SparseSequential(sparse)(x).features, wanted)
        assert sparse(tensor(rng, 0)).features.shape == (0, 3)


def test_tables(rng):
    x = tensor(rng)
    table = spconv.ConcatTable().add(spconv.Identity()).add(spconv.SubMConv3d(3, 3, 1).double())
    added = spconv.SparseSequential(table, spconv.AddTable())(x)
    _, conv = table.children()
    torch.testing.assert_close(added.features, x.features + conv(x).features)
    joined = spconv.SparseSequential(table, spconv.JoinTable())(x)
    assert torch.equal(joined.features[:, :3], x.features) and joined.features.shape == (40, 6)
    with pytest.raises(ValueError, match=r"^AddTable: input\[1\] has rows: 39, expected 40 as input\[0\]$"):
        spconv.AddTable()([x, x.select_by_index(torch.arange(39))])


def test_sparse_add_of_different_sites(rng):
    x = spconv.SubMConv3d(3, 3, 3, indice_key="a").double()(tensor(rng))
    part = x.select_by_index(torch.randperm(40)[:10])
    total = spconv.functional.sparse_add(part, x)
    torch.testing.assert_close(total.dense(), x.dense() + part.dense())
    assert torch.equal(total.indices, x.indices) and list(total.indice_dict) == ["a"]
    other = tensor(rng, 41)
    total = spconv.tables.AddTableMisaligned()([x, other])
    torch.testing.assert_close(total.dense(), x.dense() + other.dense())
    assert len(total.indices) == len(torch.unique(total.indices, dim=0)) > 41 and total.indice_dict == {}
    with pytest.raises(ValueError, match=r"^sparse_add: tens\[1\] has a spatial shape"):
        spconv.functional.sparse_add(x, tensor(rng, 3, channels=2))


def test_the_first_row_of_a_repeated_site_stays(rng):
    x = tensor(rng)
    twice = x.select_by_index(torch.arange(40).repeat(2).flip(0))
    once = spconv.spatial.RemoveDuplicate()(twice)
    assert len(once.indices) == len(torch.unique(x.indices, dim=0)) and once.indice_dict == {}
    torch.testing.assert_close(once.dense(), x.dense())
    assert torch.equal(once.indices, torch.unique(x.indices, dim=0))


@pytest.mark.parametrize(
    ("act_type", "function"),
    [
        ("ReLU", torch.relu),
        (types.SimpleNamespace(name="Sigmoid"), torch.sigmoid),
        ("LeakyReLU", lambda x: torch.nn.functional.leaky_relu(x, 0.3)),
        ("None_", lambda x: x),
        (None, lambda x: x),
    ],
)
def test_activations(rng, act_type, function):
    x = tensor(rng)
    plain = spconv.conv.SparseConvolution(3, 3, 3, subm=True).double()
    layer = spconv.conv.SparseConvolution(3, 3, 3, subm=True, act_type=act_type, act_alpha=0.3).double()
    layer.load_state_dict(plain.state_dict())
    assert (layer.act_type, layer.act_alpha, layer.act_beta) == (act_type, 0.3, 0)
    assert torch.equal(layer(x).features, function(plain(x).features))
    assert torch.equal(layer(x, add_input=x).features, function(plain(x).features + x.features))
    with pytest.raises(
        ValueError, match="SparseConvolution: act_type is 'Tanh', expected one of None_, ReLU"
    ):
        spconv.conv.SparseConvolution(3, 3, 3, act_type="Tanh")


def test_add_input(rng):
    x = tensor(rng)
    layer = spconv.SubMConv3d(3, 3, 3).double()
    torch.testing.assert_close(layer(x, add_input=x).features, layer(x).features + x.features)


def test_output_sizes():
    assert spconv.ops.get_conv_output_size([7, 8], [3, 2], [2, 1], [1, 0], [1, 2]) == [4, 6]
    assert spconv.ops.get_deconv_output_size([4, 6], [3, 2], [2, 1], [1, 0], [1, 1], [1, 0]) == [8, 7]


# -- voxels ------------------------------------------------------------------------------------------------


def test_empty_mean_fills_with_the_mean_of_each_voxel():
    generator = spconv.utils.PointToVoxel([1, 1, 1], [0, 0, 0, 4, 4, 4], 4, 10, 3)
    points = torch.tensor([[0.5, 0.5, 0.5, 1], [1.5, 0.5, 0.5, 2], [0.5, 0.5, 0.5, 5]])
    voxels, indices, num = generator(points, empty_mean=True)
    assert indices.tolist() == [[0, 0, 0], [0, 0, 1]] and num.tolist() == [2, 1]
    assert voxels[..., 3].tolist() == [[1, 5, 3], [2, 2, 2]]
    assert generator(points)[0][..., 3].tolist() == [[1, 5, 0], [2, 0, 0]]
    assert (generator.grid_size, generator.ndim) == ([4, 4, 4], 3)


def test_features_of_voxels_go_back_to_points():
    generator = spconv.utils.PointToVoxel([1.0], [0, 4], 1, 2, 1)
    points = torch.tensor([[0.5], [9.0], [1.5], [0.7], [2.5]])
    voxels, _, _, ids = generator.generate_voxel_with_id(points)
    assert ids.tolist() == [0, -1, 1, 0, -1]  # the fourth has a full voxel, the last none
    gathered = spconv.utils.gather_features_by_pc_voxel_id(voxels[:, 0], ids, invalid_value=-7)
    assert gathered.flatten().tolist() == [0.5, -7, 1.5, 0.5, -7]
    nothing = generator.generate_voxel_with_id(torch.full((3, 1), 100.0))
    assert nothing[0].shape == (0, 1, 1) and nothing[3].tolist() == [-1, -1, -1]


def test_messages_of_voxels():
    make = spconv.utils.PointToVoxel
    for call, message in (
        (lambda: make([1] * 4, [0] * 4 + [1] * 4, 4, 9, 9), "vsize_xyz has 4 elements, expected 1 .. 3"),
        (lambda: make([1] * 3, [0] * 3 + [1], 4, 9, 9), "coors_range_xyz has 4 elements, expected 6"),
        (lambda: make([1, 1], [0, 0, 1, 1], 1, 9, 9), "num_point_features is 1, expected 2 or more"),
        (lambda: make([1.0], [0, 1], 1, 9, 9, device="meta"), "device is meta, expected cpu"),
        (lambda: make([1], [0, 1], 2, 9, 9)(torch.ones(5, 3)), "pc has shape (5, 3), expected [points, 2]"),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == f"PointToVoxel: {message}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_voxel_generator_for_a_gpu_runs_on_the_cpu():
    with pytest.warns(
        UserWarning, match="PointToVoxel: device is cuda:0, but torch finds no CUDA device"
    ) as told:
        generator = spconv.utils.PointToVoxel([1.0], [0, 4], 1, 2, 1, device=torch.device("cuda:0"))
    assert len(told) == 1 and generator.device.type == "cpu" and told[0].filename == __file__
    assert generator(torch.tensor([[2.5]]))[1].tolist() == [[2]]


def test_generators_of_spconv_1(rng):
    points = (rng.random((50, 4)) * 4).astype(np.float32)
    options = {"voxel_size": [1, 1, 2], "point_cloud_range": [0, 0, 0, 4, 4, 4], "max_num_points": 3}
    wanted = turnout.voxelize(points, [1, 1, 2], [0, 0, 0, 4, 4, 4], max_points=3, max_voxels=20)
    made = spconv.utils.VoxelGenerator(**options, max_voxels=20)
    assert made.grid_size.tolist() == [4, 4, 2]
    for one, other in zip(made.generate(points), wanted, strict=True):
        assert isinstance(one, np.ndarray) and np.array_equal(one, other)
    named = spconv.utils.VoxelGeneratorV2(**options, max_voxels=20).generate(points, max_voxels=7)
    assert list(named) == ["voxels", "coordinates", "num_points_per_voxel"]
    assert np.array_equal(named["coordinates"], wanted[1][:7])


def test_the_plain_modules_are_under_these():
    assert issubclass(spconv.SubMConv3d, nn.SparseConvolution)
    assert issubclass(spconv.SparseConvTensor, nn.SparseTensor)
    assert all(hasattr(spconv, name) for name in spconv.__all__)
