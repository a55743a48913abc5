"""Vector pooling of pointnet2_stack_cuda: what its four functions write, and what stays."""

import pytest
import torch

from turnout.compat.pcdet.ops import MODULES

pytestmark = pytest.mark.torch

STACK = MODULES["pcdet.ops.pointnet2.pointnet2_stack.pointnet2_stack_cuda"]
LISTS = STACK["query_stacked_local_neighbor_idxs_wrapper_stack"]
NEAREST = STACK["query_three_nn_by_stacked_local_idxs_wrapper_stack"]
POOL, GRAD = STACK["vector_pool_wrapper"], STACK["vector_pool_grad_wrapper"]
INF = float("inf")
# In cells 0, 0 and 3 of a grid of 2, 2, 1 with radius 1 around 0; outside; in cell 2, by y = +1.
XYZ = torch.tensor([[-0.5, -0.5, 0], [-0.25, -0.25, 0.5], [0.5, 0.5, 0], [0, 0, 3], [-0.5, 1, 0]])


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


class Buffers:
    """What the caller of vector_pool_wrapper allocates, for one query at 0."""

    def __init__(self, slots, room):
        self.features, self.local = torch.zeros(1, 4 * slots), torch.zeros(1, 12)
        self.counts, self.grouped = ints(0, 0, 0, 0)[None], torch.full((room, 3), 7, dtype=torch.int32)

    def pool(self, features, nsample, pooling_type, *, use_xyz=1, neighbor_type=0):
        cloud = XYZ, ints(len(XYZ)), features, torch.zeros(1, 3), ints(1)
        results = self.features, self.local, self.counts, self.grouped
        rest = nsample, neighbor_type, pooling_type
        return POOL(*cloud, *results, 2, 2, 1, 1.0, use_xyz, len(self.grouped), *rest)


FEATURES = torch.tensor([[1.0], [2.0], [4.0], [8.0], [16.0]])


def test_lists_of_a_stack():
    xyz = torch.tensor([[1.0, 0, 0], [9, 0, 0], [1, 1, 1], [50, 0, 0], [51, 0, 0]])
    queries = torch.tensor([[0.0, 0, 0], [9, 9, 9], [50, 0, 0]])
    sizes = xyz, ints(3, 2), queries, ints(2, 1)
    rows, where, end = torch.full((6,), 7, dtype=torch.int32), ints(*[7] * 6).reshape(3, 2), ints(0)
    assert LISTS(*sizes, rows, where, end, 2, 1.0, -1, 0) == 0
    assert rows.tolist() == [0, 2, 3, 4, 7, 7]
    assert (where.tolist(), end.tolist()) == ([[0, 2], [2, 0], [2, 2]], [4])
    end.zero_()
    LISTS(*sizes, rows.fill_(7), where, end, 2, 1.0, -1, 1)  # in a ball
    assert (rows[:3].tolist(), where.tolist()) == ([0, 3, 4], [[0, 1], [1, 0], [1, 2]])
    end.zero_()
    LISTS(*sizes, rows.fill_(7), where, end, 2, 1.0, 1, 0)  # at most one
    assert (rows.tolist(), where.tolist(), end.tolist()) == (
        [0, 3, 7, 7, 7, 7],
        [[0, 1], [1, 0], [1, 1]],
        [2],
    )


def test_lists_that_do_not_fit_are_cut_and_counted():
    xyz, query = torch.zeros(5, 3), torch.zeros(2, 3)
    rows, where, end = torch.full((8,), 7, dtype=torch.int32), torch.zeros(2, 2, dtype=torch.int32), ints(0)
    LISTS(xyz, ints(5), query, ints(2), rows, where, end, 3, 1.0, 0, 0)
    assert rows.tolist() == [0, 1, 2, 3, 4, 0, 7, 7]
    assert (where.tolist(), end.tolist()) == ([[0, 5], [5, 5]], [10])
    LISTS(xyz, ints(5), query, ints(2), rows.fill_(7), where, end.fill_(2), 3, 1.0, 2, 0)  # after two others
    assert (rows.tolist(), where.tolist()) == ([7, 7, 0, 1, 0, 1, 7, 7], [[2, 2], [4, 2]])
    assert end.tolist() == [6]


def test_lists_have_at_most_1000_rows():
    where, end = torch.zeros(1, 2, dtype=torch.int32), ints(0)
    for nsample, length in ((-1, 1000), (1500, 1000), (900, 900)):
        rows = torch.full((2000,), -7, dtype=torch.int32)
        end.zero_()
        LISTS(
            torch.zeros(1200, 3),
            ints(1200),
            torch.zeros(1, 3),
            ints(1),
            rows,
            where,
            end,
            2000,
            1.0,
            nsample,
            0,
        )
        assert where.tolist() == [[0, length]]
        assert rows[:length].tolist() == list(range(length))
        assert (rows[length:] == -7).all()


def test_nearest_of_lists_in_any_order():
    xyz = torch.zeros(4, 3)
    xyz[:, 0] = torch.tensor([0.0, 1, 2, 4])
    centers = torch.tensor([[[4.0, 0, 0]], [[0, 0, 0]], [[0, 0, 0]]])
    idx, dist2 = torch.full((3, 1, 3), 7, dtype=torch.int32), torch.zeros(3, 1, 3)
    where = ints(2, 4, 0, 2, 0, 0).reshape(3, 2)  # the list of query 1 is before that of query 0
    assert NEAREST(xyz, torch.zeros(3, 3), centers, idx, dist2, ints(3, 1, 0, 1, 2, 3), where, 3, 1) == 0
    assert idx.tolist() == [[[3, 2, 1]], [[1, 3, 1]], [[-1, -1, -1]]]
    assert dist2.tolist() == [[[0, 4, 9]], [[1, 16, 1]], [[INF, INF, INF]]]
    given = xyz, torch.zeros(3, 3), centers, idx.fill_(7), dist2
    with pytest.raises(IndexError, match=r"_stack: stack_neighbor_idxs\[1\] is 4, expected 0 .. 3"):
        NEAREST(*given, ints(3, 4, 0, 1, 2, 3), where, 3, 1)
    with pytest.raises(IndexError, match=r"_stack: start_len\[0\] is \[2, 4\], expected a range of the 5 "):
        NEAREST(*given, ints(3, 1, 0, 1, 2), where, 3, 1)
    with pytest.raises(ValueError, match=r"_stack: new_xyz_grid_centers has shape \[3, 1, 3\], expected"):
        NEAREST(*given, ints(3, 1, 0, 1, 2, 3), where, 3, 2)
    assert (idx == 7).all()


def test_sums():
    one = Buffers(1, 6)
    assert one.pool(FEATURES, -1, 0) == 4
    assert one.features.tolist() == [[3, 0, 16, 4]]
    assert one.local.tolist() == [[-0.75, -0.75, 0.5, 0, 0, 0, -0.5, 1, 0, 0.5, 0.5, 0]]
    assert one.counts.tolist() == [[2, 0, 1, 1]]
    assert one.grouped.tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 3], [4, 0, 2], [7, 7, 7], [7, 7, 7]]
    ball = Buffers(1, 6)  # the last point is at a distance above 1
    assert ball.pool(FEATURES, 0, 0, use_xyz=0, neighbor_type=1) == 3
    assert (ball.features.tolist(), ball.local.any()) == ([[3, 0, 0, 4]], torch.tensor(False))
    few = Buffers(1, 6)
    assert few.pool(FEATURES, 2, 0) == 2
    assert few.features.tolist() == [[3, 0, 0, 0]]


def test_the_first_of_each_cell():
    one = Buffers(1, 6)
    assert one.pool(FEATURES, -1, 1) == 3
    assert one.features.tolist() == [[1, 0, 16, 4]]
    assert one.local.tolist() == [[-0.5, -0.5, 0, 0, 0, 0, -0.5, 1, 0, 0.5, 0.5, 0]]
    assert one.counts.tolist() == [[1, 0, 1, 1]]
    assert one.grouped[:3].tolist() == [[0, 0, 0], [2, 0, 3], [4, 0, 2]]
    few = Buffers(1, 6)  # points of a cell that has one do not count
    assert few.pool(FEATURES, 2, 1) == 2
    assert few.features.tolist() == [[1, 0, 0, 4]]
    wide = Buffers(2, 6)  # the last channel of each slot stays
    wide.pool(torch.cat([FEATURES, FEATURES * 10, FEATURES * 100], 1), -1, 1)
    assert wide.features.tolist() == [[100, 10, 0, 0, 1600, 160, 400, 40]]
    other = Buffers(1, 6)
    assert other.pool(FEATURES, -1, 2) == 0
    assert not other.features.any()


@pytest.mark.parametrize("pooling_type", [0, 1])
def test_cells_without_points_stay(pooling_type):
    """As in the compiled function, even if the caller has not cleared them."""
    cleared, other = Buffers(2, 6), Buffers(2, 6)
    features = torch.cat([FEATURES, -FEATURES], 1)
    cleared.pool(features, -1, pooling_type)
    with_points = cleared.counts > 0
    assert with_points.tolist() == [[True, False, True, True]]
    for values in (other.features, other.local):
        values.view(1, 4, -1)[~with_points] = float("nan")
    other.pool(features, -1, pooling_type)
    for expected, found in ((cleared.features, other.features), (cleared.local, other.local)):
        assert torch.equal(found.view(1, 4, -1)[with_points], expected.view(1, 4, -1)[with_points])
        assert bool(found.view(1, 4, -1)[~with_points].isnan().all())
        assert not bool(expected.view(1, 4, -1)[~with_points].any())


def test_only_the_entries_are_cut():
    one = Buffers(1, 2)
    assert one.pool(FEATURES, -1, 0) == 4
    assert (one.features.tolist(), one.counts.tolist()) == ([[3, 0, 16, 4]], [[2, 0, 1, 1]])
    assert one.grouped.tolist() == [[0, 0, 0], [1, 0, 0]]


def test_gradient_is_added():
    grad, counts = torch.tensor([[2.0, 8, 1, 3]]), ints(2, 1)[None]
    grouped = ints(0, 0, 0, 1, 0, 0, 0, 0, 1).reshape(3, 3)
    to = torch.ones(3, 3)
    assert GRAD(grad, counts, grouped, to) == 1
    # Channels 0 and 2 belong to slot 0; row 0 is in both cells: (2, 8) / 2 + (1, 3).
    assert to.tolist() == [[3, 8, 3], [2, 5, 2], [1, 1, 1]]
    to.fill_(1)
    for bad, place in ((3, 0), (1, 1), (2, 2), (-1, 2)):
        wrong = grouped.clone()
        wrong[1, place] = bad
        with pytest.raises(
            IndexError, match=rf"^vector_pool_grad_wrapper: grouped_idxs\[1, {place}\] is {bad}, "
        ):
            GRAD(grad, counts, wrong, to)
    assert (to == 1).all()


def test_errors():
    one = Buffers(1, 6)
    cloud = XYZ, ints(4), FEATURES, torch.zeros(1, 3), ints(1)
    results = one.features, one.local, one.counts, one.grouped
    with pytest.raises(
        ValueError, match=r"^vector_pool_wrapper: xyz_batch_cnt sums to 4, expected the 5 rows"
    ):
        POOL(*cloud, *results, 2, 2, 1, 1.0, 1, 6, -1, 0, 0)
    with pytest.raises(
        ValueError, match=r"^vector_pool_wrapper: point_cnt_of_grid has shape \[1, 4\], expected"
    ):
        POOL(*cloud, *results, 2, 2, 2, 1.0, 1, 6, -1, 0, 0)
    with pytest.raises(
        TypeError, match=r"^vector_pool_wrapper: support_features is float64, expected float32"
    ):
        POOL(*cloud[:2], FEATURES.double(), *cloud[3:], *results, 2, 2, 1, 1.0, 1, 6, -1, 0, 0)
    assert not one.counts.any()
