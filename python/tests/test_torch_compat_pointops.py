"""The stand-in for pointops: neighbours, samples and features of clouds that follow each other."""

import pytest
import torch

from turnout.compat import pointops

pytestmark = pytest.mark.torch


def clouds(counts=(40, 3, 60), seed=0):
    torch.manual_seed(seed)
    return torch.randn(sum(counts), 3), torch.tensor(counts).cumsum(0).int()


def rows_of(offset):
    return [range(begin, end) for begin, end in zip([0, *offset.tolist()], offset.tolist(), strict=False)]


def test_knn_query_equals_a_sort():
    xyz, offset = clouds()
    new_xyz, new_offset = clouds((5, 7, 11), seed=1)
    idx, dist = pointops.knn_query(8, xyz, offset, new_xyz, new_offset)
    assert idx.dtype == torch.int32
    for cloud, queries in zip(rows_of(offset), rows_of(new_offset), strict=True):
        for query in queries:
            d2 = (xyz[cloud.start : cloud.stop] - new_xyz[query]).square().sum(1)
            order = d2.argsort(stable=True)[:8]
            found = len(order)
            assert idx[query, :found].tolist() == (order + cloud.start).tolist()
            torch.testing.assert_close(dist[query, :found], d2[order].sqrt())
            assert idx[query, found:].tolist() == [-1] * (8 - found)
            assert (dist[query, found:] == 1e5).all()


def test_farthest_point_sampling():
    xyz = torch.zeros(6, 3)
    xyz[:, 0] = torch.tensor([0.0, 1.0, 2.0, 50.0, 54.0, 52.0])
    idx = pointops.farthest_point_sampling(xyz, torch.tensor([3, 6]), torch.tensor([2, 4]))
    assert idx.tolist() == [0, 2, 3, 4]


def test_grouping_gives_zeros_for_missing_neighbours():
    xyz, feat = torch.arange(9.0).view(3, 3), torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
    idx = torch.tensor([[2, -1]], dtype=torch.int32)
    made = pointops.grouping(idx, feat, xyz, xyz[:1], with_xyz=True)
    assert made.tolist() == [[[6, 6, 6, 3], [0, 0, 0, 0]]]
    made.sum().backward()
    assert feat.grad.tolist() == [[0], [0], [1]]
    found, same = pointops.knn_query_and_group(feat, xyz, idx=idx)
    assert found.tolist() == [[[3], [0]]]
    assert same is idx


def test_interpolation_at_known_points():
    xyz, offset = clouds()
    feat = torch.randn(len(xyz), 4, requires_grad=True)
    made = pointops.interpolation(xyz, xyz, feat, offset, offset)
    torch.testing.assert_close(made, feat, atol=1e-5, rtol=1e-5)  # the nearest point is the query itself
    assert torch.autograd.gradcheck(
        lambda f: pointops.interpolation(xyz.double(), xyz.double() + 1, f, offset, offset),
        torch.randn(len(xyz), 2, dtype=torch.float64, requires_grad=True),
        fast_mode=True,
        atol=1e-4,
    )


def test_query_and_group_with_dilation():
    xyz = torch.zeros(9, 3)
    xyz[:, 0] = torch.tensor([0.0, 1, 2, 3, 4, 5, 50, 51, 52])
    offset, new_offset = torch.tensor([6, 9]), torch.tensor([1, 2])
    feat = torch.arange(9.0).view(9, 1)
    new_xyz = xyz[[0, 6]]
    made, idx = pointops.query_and_group(3, xyz, new_xyz, feat, None, offset, new_offset, dilation=1)
    assert idx.tolist() == [[0, 2, 4], [6, 7, 8]]  # the second cloud is too small for the dilation
    assert made[0].tolist() == [[0, 0, 0, 0], [2, 0, 0, 2], [4, 0, 0, 4]]
    only = pointops.query_and_group(3, xyz, new_xyz, feat, None, offset, new_offset, with_feat=False)
    assert only.tolist() == [[0, 1, 2], [6, 7, 8]]


def test_offsets_and_batches():
    offset = torch.tensor([2, 2, 5])
    batch = pointops.offset2batch(offset)
    assert batch.tolist() == [0, 0, 2, 2, 2]
    assert pointops.batch2offset(batch).tolist() == [2, 2, 5]


def test_errors():
    xyz, offset = clouds()
    with pytest.raises(
        ValueError, match=r"^knn_query: offset ends with 102, expected 103, the number of rows"
    ):
        pointops.knn_query(1, xyz, offset - torch.tensor([0, 0, 1]))
    with pytest.raises(ValueError, match=r"^knn_query: offset is \[5, 3, 103\], expected ascending ends"):
        pointops.knn_query(1, xyz, torch.tensor([5, 3, 103]))
    with pytest.raises(ValueError, match="nsample or offset is None"):
        pointops.knn_query_and_group(xyz, xyz)
    with pytest.raises(NotImplementedError, match=r"^ball_query: turnout.compat.pointops does not implement"):
        pointops.ball_query(1, 2, 3)


def test_install():
    pointops.install()
    try:
        import pointops as installed

        assert installed.knn_query is pointops.knn_query
        with pytest.raises(NotImplementedError, match="subtraction"):
            installed.subtraction()
    finally:
        pointops.uninstall()
