"""Sampling and neighbours of the compiled modules of OpenPCDet and mmcv: what they write, and what stays."""

import pytest
import torch

from turnout.compat.mmcv import ext
from turnout.compat.pcdet.ops import MODULES

pytestmark = pytest.mark.torch

BATCH = MODULES["pcdet.ops.pointnet2.pointnet2_batch.pointnet2_batch_cuda"]
STACK = MODULES["pcdet.ops.pointnet2.pointnet2_stack.pointnet2_stack_cuda"]
MMCV = ext.TABLE
INF = float("inf")


def on_axis(*x):
    """Points on the x axis."""
    points = torch.zeros(len(x), 3)
    points[:, 0] = torch.tensor(x)
    return points


def ints(*shape):
    return torch.full(shape, 7, dtype=torch.int32)


def counts(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype)


# -- furthest point sampling --------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [BATCH, STACK], ids=["batch", "stack"])
def test_samples_of_pcdet(table):
    xyz, temp, idx = on_axis(0, 1, 2, 3, 10)[None], torch.full((1, 5), 1e10), ints(1, 4)
    assert table["farthest_point_sampling_wrapper"](1, 5, 4, xyz, temp, idx) == 1
    assert idx.tolist() == [[0, 4, 3, 1]]
    assert temp.tolist() == [[0, 1, 1, 0, 0]]  # the last sample is not entered


def test_samples_of_mmcv():
    xyz, temp, idx = on_axis(0, 1, 2, 3, 10)[None], torch.full((1, 5), 1e10), ints(1, 3)
    MMCV["furthest_point_sampling_forward"](xyz, temp, idx, b=1, n=5, m=3)
    assert idx.tolist() == [[0, 4, 3]]
    matrix = torch.cdist(xyz, xyz).square()
    temp.fill_(1e10)
    MMCV["furthest_point_sampling_with_dist_forward"](matrix, temp, idx, b=1, n=5, m=3)
    assert idx.tolist() == [[0, 4, 3]]


def test_temp_is_read():
    xyz, temp, idx = on_axis(0, 1, 2, 3)[None], torch.tensor([[1e10, 1e10, 0.0, 0.0]]), ints(1, 2)
    BATCH["farthest_point_sampling_wrapper"](1, 4, 2, xyz, temp, idx)
    assert idx.tolist() == [[0, 1]]


def test_no_samples_write_nothing():
    temp = torch.full((1, 4), 3.0)
    BATCH["farthest_point_sampling_wrapper"](1, 4, 0, on_axis(0, 1, 2, 3)[None], temp, ints(1, 0))
    assert (temp == 3).all()


def test_stacked_samples():
    xyz, temp, idx = on_axis(0, 1, 2, 50, 54, 52), torch.full((6,), 1e10), ints(4)
    function = STACK["stack_farthest_point_sampling_wrapper"]
    assert function(xyz, temp, counts(3, 0, 3), idx, counts(2, 0, 2)) == 1
    assert idx.tolist() == [0, 2, 3, 4]
    idx = ints(3)
    with pytest.raises(
        ValueError, match=r"^stack_farthest_point_sampling_wrapper: idx_tensor has shape \[3\]"
    ):
        function(xyz, temp, counts(3, 0, 3), idx, counts(2, 0, 2))
    with pytest.raises(
        ValueError, match=r"^stack_farthest_point_sampling_wrapper: xyz_batch_cnt_tensor\[2\]"
    ):
        function(xyz, temp, counts(3, 0, 4), idx, counts(1, 0, 2))
    with pytest.raises(ValueError, match=r"num_sampled_points_tensor\[1\] is 1, expected 0, because "):
        function(xyz, temp, counts(3, 0, 3), idx, counts(1, 1, 1))
    assert (idx == 7).all()


# -- points within a radius ----------------------------------------------------------------------------------


def test_empty_balls_of_a_batch_stay_as_they_are():
    xyz, queries, idx = on_axis(0, 1, 2, 3)[None], on_axis(1.1, 99)[None], ints(1, 2, 4)
    assert BATCH["ball_query_wrapper"](1, 4, 2, 1.2, 4, queries, xyz, idx) == 1
    assert idx.tolist() == [[[0, 1, 2, 0], [7, 7, 7, 7]]]


def test_first_row_of_empty_balls_of_a_stack():
    xyz, queries = on_axis(0, 1, 50, 51), on_axis(1, 99, 51)
    for dtype in (torch.int32, torch.int64):
        sizes = counts(2, 2, dtype=dtype), counts(2, 1, dtype=dtype)
        idx = ints(3, 3)
        assert STACK["ball_query_wrapper"](2, 3, 0.5, 3, queries, sizes[1], xyz, sizes[0], idx) == 1
        assert idx.tolist() == [[1, 1, 1], [-1, 7, 7], [1, 1, 1]]
        idx = ints(3, 3)
        MMCV["stack_ball_query_forward"](queries, sizes[1], xyz, sizes[0], idx, max_radius=0.5, nsample=3)
        assert idx.tolist() == [[1, 1, 1], [-1, 7, 7], [1, 1, 1]]


def test_radii_of_mmcv():
    xyz, queries, idx = on_axis(2, 1, 0, 0.5)[None], on_axis(0)[None], ints(1, 1, 4)
    arguments = {"b": 1, "n": 4, "m": 1, "nsample": 4}
    MMCV["ball_query_forward"](queries, xyz, idx, min_radius=1.0, max_radius=2.0, **arguments)
    assert idx.tolist() == [[[1, 2, 1, 1]]]
    idx = ints(1, 1, 4)  # a point at the query is found whatever the radii are
    MMCV["ball_query_forward"](queries, xyz, idx, min_radius=0.0, max_radius=0.0, **arguments)
    assert idx.tolist() == [[[2, 2, 2, 2]]]
    BATCH["ball_query_wrapper"](1, 4, 1, 0.0, 4, queries, xyz, idx.fill_(7))  # not in OpenPCDet
    assert (idx == 7).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes_of_mmcv(dtype):
    xyz, idx = on_axis(0, 1, 2, 3)[None].to(dtype), ints(1, 4, 2)
    MMCV["ball_query_forward"](xyz, xyz, idx, 1, 4, 4, 0.0, 1.5, 2)
    assert idx.tolist() == [[[0, 1], [0, 1], [1, 2], [2, 3]]]
    dist2, idx = torch.zeros(1, 4, 3, dtype=dtype), ints(1, 4, 3)
    MMCV["three_nn_forward"](xyz, xyz, dist2, idx, 1, 4, 4)
    assert idx[0, 0].tolist() == [0, 1, 2]
    assert dist2[0, 0].tolist() == [0, 1, 4]
    with pytest.raises(TypeError, match=r"^ball_query_wrapper: new_xyz_tensor is .*, expected float32"):
        BATCH["ball_query_wrapper"](1, 4, 4, 1.5, 3, xyz, xyz, idx)


def test_voxel_query():
    xyz = on_axis(0.5, 1.5, 4.5)
    grid = torch.tensor([0, 1, -1, -1, 2], dtype=torch.int32).view(1, 1, 1, 5)
    at = torch.tensor([[0, 0, 0, 1], [0, 0, 0, 50]], dtype=torch.int32)
    idx = ints(2, 3)
    sizes, ranges, function = (2, 1, 1, 5, 3, 2.0), (0, 0, 2), STACK["voxel_query_wrapper"]
    assert function(*sizes, *ranges, xyz[[1, 1]], xyz, at, grid, idx) == 1
    assert idx.tolist() == [[0, 1, 0], [-1, 7, 7]]
    idx = ints(2, 3)
    bad = at.clone()
    bad[1, 0] = 1
    with pytest.raises(IndexError, match=r"^voxel_query_wrapper: new_coords_tensor\[1, 0\] is 1, expected 0"):
        function(*sizes, *ranges, xyz[[1, 1]], xyz, bad, grid, idx)
    with pytest.raises(IndexError, match=r"point_indices_tensor\[0, 0, 0, 0\] is 3, expected at most 2"):
        function(*sizes, *ranges, xyz[[1, 1]], xyz, at, torch.full_like(grid, 3), idx)
    with pytest.raises(ValueError, match=r"^voxel_query_wrapper: point_indices_tensor has shape"):
        function(2, 1, 2, 5, 3, 2.0, *ranges, xyz[[1, 1]], xyz, at, grid, idx)
    assert (idx == 7).all()


# -- nearest points ----------------------------------------------------------------------------------------


def test_three_nearest_points():
    known, unknown = on_axis(0, 1, 2, 5)[None], on_axis(4)[None]
    dist2, idx = torch.zeros(1, 1, 3), ints(1, 1, 3)
    assert BATCH["three_nn_wrapper"](1, 1, 4, unknown, known, dist2, idx) is None
    assert (idx.tolist(), dist2.tolist()) == ([[[3, 2, 1]]], [[[1, 4, 9]]])


def test_three_nearest_points_of_a_stack():
    known, unknown = on_axis(0, 50, 51), on_axis(1, 52)
    dist2, idx = torch.zeros(2, 3), ints(2, 3)
    function = STACK["three_nn_wrapper"]
    assert function(unknown, counts(1, 1), known, counts(1, 2), dist2, idx) is None
    assert idx.tolist() == [[0, 0, 0], [2, 1, 1]]  # rows of all points; the first one of the cloud if missing
    assert dist2.tolist() == [[1, INF, INF], [1, 4, INF]]
    with pytest.raises(ValueError, match=r"^three_nn_wrapper: known_batch_cnt_tensor\[1\] is 0, expected at"):
        function(unknown, counts(1, 1), known, counts(3, 0), dist2, idx)


def test_nearest_points_of_mmcv():
    xyz, queries = on_axis(0, 1, 2)[None], on_axis(2.1, 0)[None]
    idx, dist2 = ints(1, 2, 4), torch.zeros(1, 2, 4)
    MMCV["knn_forward"](xyz, queries, idx, dist2, 1, 3, 2, 4)
    assert idx.tolist() == [[[2, 1, 0, 0], [0, 1, 2, 0]]]
    assert dist2[0, 1].tolist() == [0, 1, 4, 1e10]


def test_nearest_features_of_mmcv_are_those_of_its_kernel():
    """DGCNN passes rows of 64 features. The kernel takes the memory of the tensor as rows of three."""
    torch.manual_seed(0)
    features = torch.randn(2, 6, 7)
    points = features.flatten()[: 2 * 6 * 3].view(2, 6, 3)
    wanted, squares = ints(2, 6, 4), torch.zeros(2, 6, 4)
    MMCV["knn_forward"](points, points, wanted, squares, 2, 6, 6, 4)
    idx, dist2 = ints(2, 6, 4), torch.zeros(2, 6, 4)
    MMCV["knn_forward"](features, features, idx, dist2, 2, 6, 6, 4)
    assert torch.equal(idx, wanted) and torch.equal(dist2, squares)
    with pytest.raises(ValueError, match=r"^knn_forward: new_xyz_tensor has shape .*, expected \[2, 6, 7"):
        MMCV["knn_forward"](features, points, idx, dist2, 2, 6, 6, 4)
    with pytest.raises(ValueError, match=r"^knn_forward: xyz_tensor has shape .*, expected \[2, 6, 3"):
        MMCV["knn_forward"](points[..., :2], points, idx, dist2, 2, 6, 6, 4)


def test_three_nearest_rows_of_mmcv_are_those_of_its_kernel():
    """SA-SSD passes rows of a sample's number and a point."""
    torch.manual_seed(0)
    unknown, known = torch.randn(2, 6, 4), torch.randn(2, 5, 4)
    triples = [rows.flatten()[: rows.shape[1] * 6].view(2, -1, 3) for rows in (unknown, known)]
    wanted, squares = ints(2, 6, 3), torch.zeros(2, 6, 3)
    MMCV["three_nn_forward"](*triples, squares, wanted, 2, 6, 5)
    idx, dist2 = ints(2, 6, 3), torch.zeros(2, 6, 3)
    MMCV["three_nn_forward"](unknown, known, dist2, idx, 2, 6, 5)
    assert torch.equal(idx, wanted) and torch.equal(dist2, squares)
    with pytest.raises(ValueError, match=r"^three_nn_forward: known_tensor has shape .*, expected \[2, 5, 4"):
        MMCV["three_nn_forward"](unknown, triples[1], dist2, idx, 2, 6, 5)


# -- all of them -------------------------------------------------------------------------------------------


def test_views_and_tensors_that_require_grad():
    wide = torch.cat([on_axis(0, 1, 2, 3), on_axis(5, 5, 5, 5)], 1).requires_grad_()
    memory = ints(1, 4, 4)
    BATCH["ball_query_wrapper"](1, 4, 4, 1.5, 2, wide[None, :, :3], wide[None, :, :3], memory[..., ::2])
    assert memory[0].tolist() == [[0, 7, 1, 7], [0, 7, 1, 7], [1, 7, 2, 7], [2, 7, 3, 7]]


def test_sizes_are_compared():
    xyz, idx = on_axis(0, 1, 2, 3)[None], ints(1, 4, 2)
    with pytest.raises(ValueError, match=r"^ball_query_wrapper: xyz_tensor has shape \[1, 4, 3\], expected"):
        BATCH["ball_query_wrapper"](1, 5, 4, 1.5, 2, xyz, xyz, idx)
    with pytest.raises(TypeError, match=r"^knn_forward: dist2_tensor is int32, expected float32"):
        MMCV["knn_forward"](xyz, xyz, idx, idx, 1, 4, 4, 2)
