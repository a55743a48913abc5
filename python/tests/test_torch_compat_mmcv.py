"""mmcv's names: signatures, and differences from Turnout's functions."""

import inspect

import numpy as np
import pytest
import torch
from test_torch_dynamic_scatter import distinct, in_torch, tensors
from test_torch_sparse_conv import SPACE, tensor_sites
from test_torch_sparse_conv import assert_like_definition as assert_like_pairs
from test_torch_voxelize import assert_like_definition, points_of
from test_voxelize import RANGE, SIZE

from turnout.compat.mmcv import DynamicScatter, Voxelization, dynamic_scatter, get_indice_pairs, voxelization

pytestmark = pytest.mark.torch

# -- DynamicScatter -----------------------------------------------------------------------------------------


def test_scatter_signatures():
    parameters = inspect.signature(dynamic_scatter).parameters
    assert list(parameters) == ["feats", "coors", "reduce_type", "return_map"]
    assert parameters["return_map"].kind is inspect.Parameter.KEYWORD_ONLY  # mmdet3d's own class has it
    assert parameters["reduce_type"].default == "max"
    assert list(inspect.signature(DynamicScatter).parameters) == [
        *("voxel_size", "point_cloud_range", "average_points")
    ]


def mmcv_loop(points, coors, reduce_type):
    """Calls the operator for each cloud of a batch and puts its number in the first column."""
    feats, rows = [], []
    for b in range(int(coors[:, 0].max()) + 1):
        of_cloud = coors[:, 0] == b
        voxel_feats, voxel_coors = in_torch(points[of_cloud], coors[of_cloud][:, 1:], reduce_type)
        feats.append(voxel_feats)
        rows.append(torch.nn.functional.pad(voxel_coors, (1, 0), value=b))
    return torch.cat(feats), torch.cat(rows)


@pytest.mark.parametrize("average_points", [False, True])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_module_of_batches(rng, average_points, is_sorted):
    points, coors = distinct(rng, 90)
    batch = torch.from_numpy(rng.integers(0, 3, 90)).to(coors.dtype)
    coors = torch.cat([(batch.sort().values if is_sorted else batch)[:, None], coors, coors[:, :1]], dim=1)
    module = DynamicScatter([0.5, 0.5, 4], [0, 0, 0, 9, 9, 4], average_points)
    expected = mmcv_loop(points, coors, "mean" if average_points else "max")
    for actual, wanted in zip(module(points, coors), expected, strict=True):
        torch.testing.assert_close(actual, wanted)
    grads = [torch.autograd.grad((r[0] ** 2).sum(), points)[0] for r in (module(points, coors), expected)]
    torch.testing.assert_close(*grads)


def test_scatter_module(rng):
    module = DynamicScatter([0.5, 0.5, 4], [0, 0, 0, 9, 9, 4], True)
    assert repr(module) == (
        "DynamicScatter(voxel_size=[0.5, 0.5, 4], point_cloud_range=[0, 0, 0, 9, 9, 4], average_points=True)"
    )
    assert (module.voxel_size, module.point_cloud_range) == ([0.5, 0.5, 4], [0, 0, 0, 9, 9, 4])
    points, coors = tensors(rng)
    for call in (module, module.forward_single):
        for actual, wanted in zip(call(points, coors), dynamic_scatter(points, coors, "mean"), strict=True):
            assert torch.equal(actual, wanted)
    voxel_feats, voxel_coors = module(torch.zeros(0, 5), torch.zeros(0, 4, dtype=torch.int32))
    assert (voxel_feats.shape, voxel_coors.shape) == ((0, 5), (0, 4))
    voxel_feats, voxel_coors = module(points, torch.full((60, 4), -1))
    assert (voxel_feats.shape, voxel_coors.shape) == ((0, 5), (0, 4))


# -- Voxelization ------------------------------------------------------------------------------------------


def test_voxel_signatures():
    for function, names, defaults in (
        (
            voxelization,
            ("points", "voxel_size", "coors_range", "max_points", "max_voxels", "deterministic"),
            (35, 20000, True),
        ),
        (
            Voxelization,
            ("voxel_size", "point_cloud_range", "max_num_points", "max_voxels", "deterministic"),
            (20000, True),
        ),
    ):
        parameters = inspect.signature(function).parameters.values()
        assert tuple(p.name for p in parameters) == names
        assert tuple(p.default for p in parameters if p.default is not p.empty) == defaults
        assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)


@pytest.mark.parametrize("limits", [(-1, 20000), (35, -1), (-1, -1)])
def test_one_limit_of_minus_one_is_enough(rng, limits):
    points = points_of(rng)
    for deterministic in (True, False):
        assert_like_definition(voxelization(points, SIZE, RANGE, *limits, deterministic), points)


def test_voxel_module(rng):
    points = points_of(rng, 300)
    module = Voxelization(list(SIZE), list(RANGE), 3, (5, 9), deterministic=False)
    assert_like_definition(module(points), points, max_points=3, max_voxels=5)
    assert_like_definition(module.eval()(points), points, max_points=3, max_voxels=9)
    assert repr(module) == (
        "Voxelization(voxel_size=[0.5, 0.25, 4], point_cloud_range=[0, -1, -3, 4, 1, 1], max_num_points=3, "
        "max_voxels=(5, 9), deterministic=False)"
    )
    assert module.grid_size.tolist() == [8, 8, 1]
    assert module.grid_size.dtype == torch.int64
    assert Voxelization(SIZE, RANGE, 3).max_voxels == (20000, 20000)
    assert Voxelization(SIZE, RANGE, 3, [5, 9]).max_voxels == (5, 9)


@pytest.mark.parametrize("kind", [list, tuple, np.array, torch.tensor, range])
def test_limits_of_the_module(rng, kind):
    limits = range(5, 7) if kind is range else kind([5, 6])
    module = Voxelization(SIZE, RANGE, 3, limits)
    assert module.max_voxels == (5, 6)
    points = points_of(rng)
    assert_like_definition(module(points), points, max_points=3, max_voxels=5)
    for values in ([], [5], [5, 6, 7]):
        limits = range(len(values)) if kind is range else kind(values)
        with pytest.raises(ValueError) as caught:
            Voxelization(SIZE, RANGE, 3, limits)
        assert str(caught.value) == (
            f"Voxelization: max_voxels has {len(values)} elements, expected one limit, or 2: "
            "for training and evaluation"
        )


@pytest.mark.parametrize("limit", [5, np.int64(5), np.array(5), torch.tensor(5)])
def test_one_limit_of_the_module(limit):
    assert Voxelization(SIZE, RANGE, 3, limit).max_voxels == (5, 5)


@pytest.mark.parametrize(
    ("size", "ends", "message"),
    [
        ((0, 1, 1), RANGE, "voxel_size[0] is 0, expected a positive finite number"),
        ((1, float("nan"), 1), RANGE, "voxel_size[1] is nan, expected a positive finite number"),
        ((1, 1, float("inf")), RANGE, "voxel_size[2] is inf, expected a positive finite number"),
        (SIZE[:2], RANGE, "voxel_size has 2 elements, expected 3"),
        (SIZE, RANGE[:5], "point_cloud_range has 5 elements, expected 6"),
        (
            (1, 1, 1),
            (0, 0, 0, 4, float("nan"), 1),
            "point_cloud_range[4] is nan, expected a number",
        ),
    ],
)
def test_module_refuses_a_bad_grid(size, ends, message):
    """The constructor raises the operator's message."""
    for kind in (list, np.array, torch.tensor):
        with pytest.raises(ValueError) as caught:
            Voxelization(kind(size), kind(ends), 3)
        assert str(caught.value) == f"Voxelization: {message}"


@pytest.mark.parametrize(
    ("size", "ends", "grid"),
    [
        ((0.075, 0.075, 0.2), (-54, -54, -5, 54, 54, 3), [1440, 1440, 40]),
        ((0.16, 0.16, 4), (0, -39.68, -3, 69.12, 39.68, 1), [432, 496, 1]),
        ((1, 1, 1), (0, 0, 0, 2.5, 3.5, 0.6), [3, 4, 1]),  # halves are rounded away from zero
    ],
)
def test_grid_size(size, ends, grid):
    module = Voxelization(size, ends, -1)
    assert module.grid_size.tolist() == grid
    assert [int(extent) for extent in module.pcd_shape] == [1, grid[1], grid[0]]
    # The last voxel in each direction exists, and the next one does not.
    for offset, expected in ((-0.5, [n - 1 for n in grid][::-1]), (0.5, [-1, -1, -1])):
        point = [least + (n + offset) * s for least, n, s in zip(ends, grid, size, strict=False)]
        assert module(torch.tensor([point])).tolist() == [expected]


def test_pillars(rng):
    """Runs Voxelization, then DynamicScatter, for a batch of clouds."""
    clouds = [points_of(rng, n) for n in (80, 0, 50)]
    voxels = Voxelization(SIZE, RANGE, -1)
    coors = [torch.nn.functional.pad(voxels(p), (1, 0), value=b) for b, p in enumerate(clouds)]
    mean, rows = DynamicScatter(SIZE, RANGE, True)(torch.cat(clouds), torch.cat(coors))
    first = 0
    for b, points in enumerate(clouds):
        alone, coors_alone = DynamicScatter(SIZE, RANGE, True)(points, voxels(points))
        part = slice(first, first + len(alone))
        assert torch.equal(mean[part], alone)
        assert torch.equal(rows[part], torch.nn.functional.pad(coors_alone, (1, 0), value=b))
        first = part.stop
    assert first == len(mean)


# -- sparse convolution -------------------------------------------------------------------------------------

# The signature of mmcv.ops.sparse_ops.get_indice_pairs.
MMCV = {
    **{"ksize": 3, "stride": 1, "padding": 0, "dilation": 1, "out_padding": 0},
    **{"subm": False, "transpose": False, "grid": None},
}


def test_mmcv_signature():
    parameters = inspect.signature(get_indice_pairs).parameters
    assert list(parameters) == ["indices", "batch_size", "spatial_shape", *MMCV]
    assert {name: parameters[name].default for name in MMCV} == MMCV
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())


def test_mmcv_calls(rng):
    indices = tensor_sites(rng)
    results = get_indice_pairs(
        indices=indices,
        batch_size=2,
        spatial_shape=list(SPACE),
        ksize=[3, 3, 3],
        stride=[2, 2, 2],
        padding=[0, 1, 1],
        dilation=[1, 1, 1],
        out_padding=0,
        subm=False,
        transpose=False,
        grid=torch.zeros(2, *SPACE, dtype=torch.int32),
    )
    assert_like_pairs(results, indices, 2, SPACE, stride=2, padding=(0, 1, 1))
    results = get_indice_pairs(indices, 2, SPACE, 2, 2, 0, 1, [1, 0, 1], False, True, None)
    assert_like_pairs(
        results, indices, 2, SPACE, kernel_size=2, stride=2, output_padding=[1, 0, 1], transpose=True
    )
