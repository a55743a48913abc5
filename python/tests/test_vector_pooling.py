"""Lists of neighbours and vector pooling from NumPy: the definitions, unusual numbers, errors and threads."""

import numpy as np
import pytest

import turnout

INF = float("inf")


def cloud(count, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).uniform(0, 4, (count, 3)).astype(dtype)


def lists_of(xyz, counts, queries, query_counts, radius, nsample, region):
    """The definition of neighbor_lists."""
    radius = xyz.dtype.type(radius)
    rows, starts, first, query = [], [0], 0, 0
    for points, asked in zip(counts, query_counts, strict=True):
        for q in queries[query : query + asked]:
            d = xyz[first : first + points] - q
            if region == "cube":
                has = (np.abs(d) <= radius).all(1)
            else:
                has = (d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1]) + d[:, 2] * d[:, 2] <= radius * radius
            rows += (first + np.flatnonzero(has)[:nsample]).tolist()
            starts.append(len(rows))
        first, query = first + points, query + asked
    return rows, starts


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("region", ["cube", "ball"])
@pytest.mark.parametrize("nsample", [3, 2**31 - 1])
def test_lists(dtype, region, nsample):
    xyz, queries, counts, asked = cloud(2000, dtype), cloud(150, dtype, 1), [1200, 0, 800], [90, 10, 50]
    given = xyz, np.array(counts), queries, np.array(asked, np.int32), 0.7, nsample, region
    rows, starts = turnout.neighbor_lists(*given)
    assert (rows.dtype, starts.dtype) == (np.int32, np.int64)
    expected = lists_of(xyz, counts, queries, asked, 0.7, nsample, region)
    assert (rows.tolist(), starts.tolist()) == expected
    wide = np.full(len(rows) + 5, -7, np.int64)
    found, _ = turnout.neighbor_lists(*given, out=(wide, None))
    assert found.tolist() == expected[0]
    assert (wide[len(rows) :] == -7).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nearest_of_lists(dtype):
    xyz, queries = cloud(500, dtype), cloud(20, dtype, 1)
    rows, starts = turnout.neighbor_lists(xyz, np.array([500]), queries, np.array([20]), 0.6)
    centers = queries[:, None] + cloud(6, dtype, 2)[None] / 10
    dist2, idx = turnout.three_nn_of_lists(xyz, centers, rows, starts)
    for q in range(20):
        listed = rows[starts[q] : starts[q + 1]]
        for g in range(6):
            d = xyz[listed] - centers[q, g]
            d2 = (d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1]) + d[:, 2] * d[:, 2]
            order = np.argsort(d2, kind="stable")[:3]
            order = [*order, *([order[0]] * (3 - len(order)))] if len(order) else []
            assert idx[q, g].tolist() == (listed[order].tolist() if len(order) else [-1] * 3)
            assert dist2[q, g].tolist() == (d2[order].tolist() if len(order) else [INF] * 3)


def pool(xyz, features, queries, rows, starts, radius, grid, slots, mode, nsample):
    """The definition of vector_pool, in float64."""
    cells = grid[0] * grid[1] * grid[2]
    pooled, local = np.zeros((len(queries), cells, slots)), np.zeros((len(queries), cells, 3))
    counts, grouped = np.zeros((len(queries), cells), np.int32), []
    for q, query in enumerate(queries):
        taken = 0
        for row in rows[starts[q] : starts[q + 1]]:
            d, cell = xyz[row] - query, -1
            if (np.abs(d) <= radius).all() and taken < nsample:
                k = [int(np.floor((d[i] + radius) / (radius * 2 / grid[i]))) for i in range(3)]
                cell = min((k[0] * grid[1] + k[1]) * grid[2] + k[2], cells - 1)
                if mode == "first" and counts[q, cell]:
                    cell = -1
            grouped.append([row, q, cell])
            if cell < 0:
                continue
            taken += 1
            counts[q, cell] += 1
            for i, value in enumerate(features[row]):
                was = 0 if mode == "first" else pooled[q, cell, i % slots]
                pooled[q, cell, i % slots] = was + value
            local[q, cell] = d if mode == "first" else local[q, cell] + d
    if mode == "mean":
        divisor = np.maximum(counts, 1)[..., None]
        pooled, local = pooled / divisor, local / divisor
    return pooled, local, counts, np.array(grouped)


@pytest.mark.parametrize("mode", ["mean", "sum", "first"])
@pytest.mark.parametrize(("channels", "slots"), [(6, 6), (6, 3), (5, 2), (2, 3)])
def test_pools(mode, channels, slots):
    xyz, queries = cloud(300, np.float64), cloud(12, np.float64, 1)
    features = np.random.default_rng(2).normal(size=(300, channels))
    lists = turnout.neighbor_lists(xyz, np.array([300]), queries, np.array([12]), 0.9)
    for nsample in (7, 2**31 - 1):
        given = xyz, features, queries, *lists, 0.8, (2, 3, 1), slots, mode, nsample
        found, expected = turnout.vector_pool(*given), pool(*given)
        for one, wanted in zip(found, expected, strict=True):
            assert np.array_equal(one, wanted)
        assert (found[3][:, 2] == -1).any()  # the lists reach further than the cube


def test_gradient_is_the_transpose():
    xyz, queries = cloud(200, np.float64), cloud(9, np.float64, 1)
    random = np.random.default_rng(3)
    features, grad = random.normal(size=(200, 4)), random.normal(size=(9, 8, 2))
    lists = turnout.neighbor_lists(xyz, np.array([200]), queries, np.array([9]), 0.9)
    for mode in ("mean", "sum", "first"):
        pooled, _, counts, grouped = turnout.vector_pool(
            xyz, features, queries, *lists, 0.9, (2, 2, 2), 2, mode, 20
        )
        back = turnout.vector_pool_backward(grad, counts, grouped, 200, 4, mode)
        assert np.isclose((pooled * grad).sum(), (back * features).sum())


def test_same_bits_with_any_number_of_threads():
    xyz, queries = cloud(4000), cloud(700, seed=1)
    features = np.random.default_rng(2).normal(size=(4000, 16)).astype(np.float32)
    before, results = turnout.get_num_threads(), []
    try:
        for threads in (1, 3):
            turnout.set_num_threads(threads)
            lists = turnout.neighbor_lists(xyz, np.array([4000]), queries, np.array([700]), 0.5)
            pooled = turnout.vector_pool(xyz, features, queries, *lists, 0.5, (3, 3, 3), 16)
            back = turnout.vector_pool_backward(pooled[0], *pooled[2:], 4000, 16)
            results.append((*lists, *pooled, back))
    finally:
        turnout.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        assert np.array_equal(one, other)


def test_nothing():
    none, xyz = np.zeros((0, 3), np.float32), cloud(4)
    zero, four = np.array([0]), np.array([4])
    rows, starts = turnout.neighbor_lists(xyz, four, none, zero, 1.0)
    assert (rows.tolist(), starts.tolist()) == ([], [0])
    rows, starts = turnout.neighbor_lists(none, zero, xyz, four, 1.0)
    assert (rows.tolist(), starts.tolist()) == ([], [0] * 5)
    pooled, _, counts, grouped = turnout.vector_pool(none, none, xyz, rows, starts, 1.0, (1, 1, 2), 3)
    assert not pooled.any()
    assert not counts.any()
    assert grouped.shape == (0, 3)
    assert turnout.three_nn_of_lists(none, xyz[:, None], rows, starts)[1].tolist() == [[[-1] * 3]] * 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: turnout.neighbor_lists(x, np.array([4]), x, np.array([3]), 1.0),
            "neighbor_lists: new_counts sums to 3, expected the 4 rows of new_xyz",
        ),
        (
            lambda x: turnout.neighbor_lists(x, np.array([4]), x, np.array([4]), -1.0),
            r"neighbor_lists: radius is -1(\.0)?, expected",
        ),
        (
            lambda x: turnout.three_nn_of_lists(x, x[None], np.array([0, 4]), np.array([0, 2])),
            r"three_nn_of_lists: rows\[1\] is 4, expected 0 .. 3",
        ),
        (
            lambda x: turnout.vector_pool(x, x, x[:1], np.array([0]), np.array([0, 2]), 1.0, (1, 1, 1), 3),
            r"vector_pool: starts\[1\] is 2, expected 1, the elements of rows",
        ),
        (
            lambda x: turnout.vector_pool(x, x, x[:1], np.array([0]), np.array([0, 1]), 1.0, (1, 0, 1), 3),
            r"vector_pool: grid\[1\] is 0, expected",
        ),
        (
            lambda x: turnout.vector_pool_backward(
                x[None], np.ones((1, 4), int), np.array([[0, 1, 0]]), 4, 3
            ),
            r"vector_pool_backward: grouped\[0, 1\] is 1, expected 0 .. 0",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match="^" + message):
        call(cloud(4))
