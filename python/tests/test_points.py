"""Points from NumPy: the definitions, ties, unusual numbers, out=, errors and threads."""

import numpy as np
import pytest

import turnout

FLOATS = (np.float32, np.float64)


def squares(points, query):
    d = points - query
    return (d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1]) + d[:, 2] * d[:, 2]


def sample(xyz, samples, square=None):
    """The definition of furthest_point_sample."""
    square = square or (lambda last: squares(xyz, xyz[last]))
    least, chosen = np.full(len(xyz), 1e10, xyz.dtype), [0]
    for _ in range(samples - 1):
        with np.errstate(invalid="ignore"):
            least = np.fmin(least, square(chosen[-1]))
        chosen.append(int(np.argmax(least)))
    return chosen


def balls(xyz, queries, radius, nsample, min_radius=0.0):
    most, least = (xyz.dtype.type(r) * xyz.dtype.type(r) for r in (radius, min_radius))
    idx, found = np.zeros((len(queries), nsample), np.int32), []
    for row, query in zip(idx, queries, strict=True):
        d2 = squares(xyz, query)
        hits = np.flatnonzero((d2 < most) & ((d2 >= least) | (d2 == 0)))[:nsample]
        if len(hits):
            row[:] = hits[0]
            row[: len(hits)] = hits
        found.append(len(hits))
    return idx, np.array(found, np.int32)


def nearest(xyz, queries, k, limit):
    idx = np.zeros((len(queries), k), np.int32)
    dist2 = np.full((len(queries), k), limit, xyz.dtype)
    for i, query in enumerate(queries):
        d2 = squares(xyz, query)
        order = [j for j in np.argsort(d2, kind="stable") if d2[j] < limit][:k]
        idx[i, : len(order)], dist2[i, : len(order)] = order, d2[order]
    return idx, dist2


def cloud(count, dtype=np.float32, seed=0, lattice=False):
    random = np.random.default_rng(seed)
    xyz = random.integers(0, 6, (count, 3)) if lattice else random.uniform(0, 10, (count, 3))
    return xyz.astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("lattice", [False, True])
def test_furthest_points(dtype, lattice):
    for count, samples in ((1, 3), (40, 40), (700, 90)):
        xyz = cloud(count, dtype, count, lattice)
        assert turnout.furthest_point_sample(xyz, samples).tolist() == sample(xyz, samples)
    batch = np.stack([cloud(50, dtype, 1), cloud(50, dtype, 2)])
    idx = turnout.furthest_point_sample(batch, 20)
    assert idx.dtype == np.int32
    assert idx.tolist() == [sample(xyz, 20) for xyz in batch]


def test_furthest_points_of_stacked_clouds():
    xyz, counts, wanted = cloud(100), [30, 0, 70], [5, 0, 12]
    idx = turnout.furthest_point_sample_stacked(xyz, np.array(counts), np.array(wanted, np.int32))
    expected = sample(xyz[:30], 5) + [30 + i for i in sample(xyz[30:], 12)]
    assert idx.tolist() == expected


def test_furthest_points_by_distances():
    matrix = np.random.default_rng(0).uniform(0, 9, (60, 60)).astype(np.float32)
    expected = sample(np.zeros((60, 3), np.float32), 30, lambda last: matrix[last])
    assert turnout.furthest_point_sample_by_distances(matrix, 30).tolist() == expected


def test_points_that_are_not_sampled():
    xyz = cloud(20)
    initial = np.full(20, 1e10, np.float32)
    initial[5:] = np.nan
    assert set(turnout.furthest_point_sample(xyz, 5, initial).tolist()) == set(range(5))
    xyz[7] = np.nan
    assert turnout.furthest_point_sample(xyz, 4).tolist() == [0, 7, 7, 7]


@pytest.mark.parametrize("dtype", FLOATS)
def test_balls(dtype):
    xyz = cloud(900, dtype)
    xyz[3], xyz[40] = np.nan, np.inf
    queries = np.concatenate([xyz[::9], cloud(30, dtype, 5) + 2])
    for radius, nsample, min_radius in ((0.8, 16, 0), (3, 5, 1), (50, 32, 0), (0, 4, 0)):
        idx, found = turnout.ball_query(xyz, queries, radius, nsample, min_radius)
        expected = balls(xyz, queries, radius, nsample, min_radius)
        assert idx.tolist() == expected[0].tolist()
        assert found.tolist() == expected[1].tolist()


def test_balls_of_batches_and_stacks():
    xyz, queries = cloud(80).reshape(2, 40, 3), cloud(20, seed=3).reshape(2, 10, 3)
    idx, found = turnout.ball_query(xyz, queries, 2.5, 4)
    counts, new_counts = np.array([40, 40]), np.array([10, 10], np.int32)
    stacked = turnout.ball_query_stacked(
        xyz.reshape(-1, 3), counts, queries.reshape(-1, 3), new_counts, 2.5, 4
    )
    assert stacked[0].tolist() == idx.reshape(20, 4).tolist()  # rows begin with 0 in each cloud
    assert stacked[1].tolist() == found.reshape(20).tolist()


def test_radii_are_rounded_before_they_are_squared():
    """0.8^2 in float32 is above the float32 of 0.64, and the border is not inside."""
    r = np.float32(0.8)
    xyz = np.array([[r, 0, 0], [np.nextafter(r, np.float32(0)), 0, 0]], np.float32)
    idx, found = turnout.ball_query(xyz, np.zeros((1, 3), np.float32), 0.8, 2)
    assert (idx.tolist(), found.tolist()) == ([[1, 1]], [1])


def test_voxels():
    random = np.random.default_rng(0)
    xyz = cloud(200)
    grid = np.full((2, 4, 5, 6), -1, np.int32)
    grid[random.random(grid.shape) < 0.6] = 0
    grid[grid == 0] = random.integers(0, 200, (grid == 0).sum())
    coords = np.stack([random.integers(0, 2, 50), *random.integers(-2, 8, (3, 50))], 1)
    queries = cloud(50, seed=1)
    idx, found = turnout.voxel_query(xyz, queries, coords, grid, 4.0, 6, (1, 2, 3))
    for i, (b, z, y, x) in enumerate(coords):
        near = grid[
            b, max(z - 1, 0) : max(z + 2, 0), max(y - 2, 0) : max(y + 3, 0), max(x - 3, 0) : max(x + 4, 0)
        ]
        rows = [r for r in near.ravel() if r >= 0 and squares(xyz[r : r + 1], queries[i])[0] <= 16][:6]
        assert found[i] == len(rows)
        assert idx[i].tolist() == (rows + rows[:1] * 6 if rows else [0] * 6)[:6]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("lattice", [False, True])
def test_nearest_points(dtype, lattice):
    xyz, queries = cloud(600, dtype, 0, lattice), cloud(150, dtype, 1, lattice)
    xyz[[5, 9], 1] = np.nan, np.inf
    queries[3, 2] = np.nan
    for k in (1, 5, 20):
        idx, dist2 = turnout.knn(xyz, queries, k)
        expected = nearest(xyz, queries, k, 1e10)
        assert idx.tolist() == expected[0].tolist()
        assert dist2.tolist() == expected[1].tolist()
    dist2, idx = turnout.three_nn(queries, xyz)
    expected = nearest(xyz, queries, 3, np.inf)
    assert idx.tolist() == expected[0].tolist()
    assert dist2.tolist() == expected[1].tolist()
    counts = np.array([100, 500]), np.array([30, 120])
    dist2, idx = turnout.three_nn_stacked(queries, counts[1], xyz, counts[0])
    first, second = nearest(xyz[:100], queries[:30], 3, np.inf), nearest(xyz[100:], queries[30:], 3, np.inf)
    assert idx.tolist() == [*first[0].tolist(), *(second[0] + 100).tolist()]
    assert dist2.tolist() == [*first[1].tolist(), *second[1].tolist()]


def test_fewer_points_than_asked_for():
    xyz = np.zeros((2, 3), np.float32)
    assert [x.tolist() for x in turnout.knn(xyz, xyz[:1], 3)] == [[[0, 1, 0]], [[0, 0, 1e10]]]
    assert [x.tolist() for x in turnout.three_nn(xyz[:1], xyz)] == [[[0, 0, np.inf]], [[0, 1, 0]]]
    assert turnout.knn(xyz[:0], xyz, 1)[0].tolist() == [[0], [0]]
    assert turnout.furthest_point_sample(xyz[:0], 0).shape == (0,)


def test_out():
    xyz = cloud(30)
    idx = np.empty(5, np.int64)
    assert turnout.furthest_point_sample(xyz, 5, out=idx) is idx
    assert idx.tolist() == sample(xyz, 5)
    rows, found = np.empty((30, 4), np.int64), np.empty(30, np.int32)
    assert turnout.ball_query(xyz, xyz, 2.0, 4, out=(rows, found))[0] is rows
    assert rows.tolist() == balls(xyz, xyz, 2.0, 4)[0].tolist()
    dist2 = np.empty((30, 3), np.float32)
    assert turnout.three_nn(xyz, xyz, out=(dist2, None))[0] is dist2


def test_same_bits_for_any_number_of_threads():
    xyz = cloud(3000, lattice=True)
    batch = xyz.reshape(3, 1000, 3)
    before = turnout.get_num_threads()
    results = []
    for threads in (1, 2, 4):
        turnout.set_num_threads(threads)
        results.append(
            [
                turnout.furthest_point_sample(batch, 100),
                *turnout.ball_query(batch, batch, 1.5, 9),
                *turnout.knn(batch, batch, 7),
            ]
        )
    turnout.set_num_threads(before)
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: turnout.furthest_point_sample(x[:0], 2),
            "furthest_point_sample: samples is 2, expected 0, because there are no points",
        ),
        (
            lambda x: turnout.furthest_point_sample_stacked(x, np.array([4, 3]), np.array([1, 1])),
            r"furthest_point_sample_stacked: counts sums to 7, expected the 8 rows of xyz",
        ),
        (
            lambda x: turnout.furthest_point_sample_stacked(x, np.array([8]), np.array([-1])),
            r"furthest_point_sample_stacked: sample_counts\[0\] is -1, expected 0 .. 2147483647",
        ),
        (lambda x: turnout.ball_query(x, x, -1.0, 3), "ball_query: radius is -1"),
        (
            lambda x: turnout.ball_query(x, x.astype(np.float64), 1.0, 3),
            "ball_query: new_xyz has dtype float64",
        ),
        (
            lambda x: turnout.ball_query_stacked(x, np.array([9]), x, np.array([8]), 1.0, 3),
            r"ball_query_stacked: counts\[0\] is 9, expected 0 .. 8",
        ),
        (
            lambda x: turnout.three_nn_stacked(x, np.array([5, 3]), x, np.array([8, 0])),
            r"known_counts\[1\] is 0, expected at least 1, because unknown_counts\[1\] is 3",
        ),
        (
            lambda x: turnout.three_nn(x, x[:0]),
            "three_nn: there are no points in known, expected at least 1 for the 8 rows of unknown",
        ),
        (
            lambda x: turnout.voxel_query(
                x, x[:1], np.array([[1, 0, 0, 0]]), np.zeros((1, 1, 1, 1), np.int32), 1.0, 1, (0, 0, 0)
            ),
            r"voxel_query: new_coords\[0, 0\] is 1, expected 0 .. 0",
        ),
        (
            lambda x: turnout.voxel_query(
                x, x[:1], np.array([[0, 0, 0, 0]]), np.full((1, 1, 1, 2), 8, np.int64), 1.0, 1, (0, 0, 1)
            ),
            r"voxel_query: point_indices\[0, 0, 0, 0\] is 8, expected at most 7",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call(cloud(8))


def test_radii_of_closed_regions_are_rounded_before_they_are_squared():
    """0.8^2 in float32 is above the float32 of 0.64, and the border is inside; the next number is outside."""
    r = np.float32(0.8)
    xyz = np.zeros((2, 3), np.float32)
    xyz[:, 0] = r, np.nextafter(r, np.float32(1))
    query, at, one = xyz[:1] * 0, np.zeros((1, 4), np.int64), np.array([1])
    found = turnout.voxel_query(xyz, query, at, np.array([[[[0, 1]]]]), 0.8, 2, (0, 0, 1))[1]
    assert found.tolist() == [1]
    for region in ("cube", "ball"):
        rows, _ = turnout.neighbor_lists(xyz, np.array([2]), query, one, 0.8, region=region)
        assert rows.tolist() == [0]


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ((1, 2), "ranges has 2 elements, expected 3: z, y and x"),
        ((1, 2, 3, 4), "ranges has 4 elements, expected 3: z, y and x"),
        ((1, -1, 2), r"ranges\[1\] is -1, expected 0 \.\. 2147483647"),
        ((1, 1, 2**40), r"ranges\[2\] is 1099511627776, expected 0 \.\. 2147483647"),
        (2, "ranges is 2, expected three integers"),
        ((1, 1.5, 2), r"ranges is \(1, 1\.5, 2\), expected three integers"),
    ],
)
def test_errors_of_ranges(ranges, message):
    xyz, at = cloud(8), np.zeros((1, 4), np.int64)
    with pytest.raises((TypeError, ValueError), match=f"^voxel_query: {message}$"):
        turnout.voxel_query(xyz, xyz[:1], at, np.zeros((1, 1, 1, 2), np.int64), 1.0, 1, ranges)
