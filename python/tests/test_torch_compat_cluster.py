"""The stand-in for torch_cluster: cells, samples, neighbours and edges of points."""

import importlib.util
import sys

import pytest
import torch

from turnout.compat import torch_cluster as cluster

pytestmark = pytest.mark.torch

# The examples of torch_cluster's documentation.
SQUARE = torch.tensor([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
SIDES = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
ONE = torch.zeros(4, dtype=torch.int64)


def clouds(counts, seed=0, columns=3):
    torch.manual_seed(seed)
    batch = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return torch.randn(sum(counts), columns), batch


def test_examples_of_the_documentation():
    assert cluster.fps(SQUARE, ONE, ratio=0.5, random_start=False).tolist() == [0, 3]
    assert cluster.knn(SQUARE, SIDES, 2, ONE, ONE[:2]).tolist() == [[0, 0, 1, 1], [0, 1, 2, 3]]
    assert cluster.radius(SQUARE, SIDES, 1.5, ONE, ONE[:2]).tolist() == [[0, 0, 1, 1], [0, 1, 2, 3]]
    edges = [[1, 2, 0, 3, 0, 3, 1, 2], [0, 0, 1, 1, 2, 2, 3, 3]]
    assert cluster.knn_graph(SQUARE, 2, ONE).tolist() == edges
    assert cluster.radius_graph(SQUARE, 2.5, ONE).tolist() == edges
    assert cluster.knn_graph(SQUARE, 2, flow="target_to_source").tolist() == edges[::-1]
    assert cluster.nearest(SQUARE, SIDES, ONE, ONE[:2]).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_grid_cluster_numbers_the_cells(dtype):
    torch.manual_seed(0)
    pos = torch.randint(-20, 20, (500, 3)).to(dtype)
    size, start, end = (torch.tensor(one).to(dtype) for one in ([5, 4, 3], [-20, -20, -20], [19, 19, 19]))
    cells = torch.div(pos - start, size, rounding_mode="floor").long()
    want = cells[:, 0] + 8 * (cells[:, 1] + 10 * cells[:, 2])
    assert torch.equal(cluster.grid_cluster(pos, size, start, end), want)
    assert torch.equal(cluster.grid_cluster(pos[:, 0], size[:1], start[:1]), cells[:, 0])
    # Without start and end, they are the least and the greatest coordinates.
    found = cluster.grid_cluster(pos, size)
    assert torch.equal(found, cluster.grid_cluster(pos, size, pos.amin(0), pos.amax(0)))
    assert cluster.grid_cluster(pos[:0], size).tolist() == []


def test_knn_equals_a_sort_in_each_example():
    x, batch_x = clouds((40, 2, 0, 30))
    y, batch_y = clouds((5, 6, 3, 0), seed=1)
    found = cluster.knn(x, y, 4, batch_x, batch_y)
    want = []
    for row in range(len(y)):
        rows = (batch_x == batch_y[row]).nonzero()[:, 0]
        order = (x[rows] - y[row]).square().sum(1).argsort(stable=True)[:4]
        want += [(row, int(rows[one])) for one in order]
    assert list(zip(*found.tolist(), strict=True)) == want
    assert torch.equal(cluster.knn(x, y, 4, batch_x, batch_y, batch_size=6), found)
    assert cluster.knn(x[:0], y, 4).shape == (2, 0)


@pytest.mark.parametrize("columns", [1, 2])
def test_points_of_fewer_columns(columns):
    x, batch = clouds((30, 20), columns=columns)
    flat = x[:, 0] if columns == 1 else x
    padded = torch.nn.functional.pad(x, (0, 3 - columns))
    for function, arguments in ((cluster.knn_graph, (5,)), (cluster.radius_graph, (0.7,))):
        assert torch.equal(function(flat, *arguments, batch), function(padded, *arguments, batch))


def test_graphs_have_no_loops_and_keep_the_number_of_neighbours():
    x, batch = clouds((30, 20))
    x[10:14] = x[10]  # four points at the same place
    for function, arguments in ((cluster.knn_graph, (3,)), (cluster.radius_graph, (50.0,))):
        options = {} if function is cluster.knn_graph else {"max_num_neighbors": 3}
        neighbours, points = function(x, *arguments, batch, **options)
        assert (neighbours != points).all()
        assert torch.equal(batch[neighbours], batch[points])
        assert points.bincount().tolist() == [3] * 50
        neighbours, points = function(x, *arguments, batch, loop=True, **options)
        assert points.bincount().tolist() == [3] * 50


def test_radius_finds_the_lowest_rows():
    x, batch = clouds((60, 40))
    rows, found = cluster.radius(x, x, 1.0, batch, batch, max_num_neighbors=5)
    for query in range(100):
        near = ((x - x[query]).square().sum(1) < 1) & (batch == batch[query])
        assert found[rows == query].tolist() == near.nonzero()[:5, 0].tolist()


def test_fps_samples_a_part_of_each_example():
    x, batch = clouds((7, 0, 4))
    samples = cluster.fps(x, batch, 0.3)
    assert batch[samples].tolist() == [0, 0, 0, 2, 2]  # ceil(2.1) and ceil(1.2)
    assert len(set(samples.tolist())) == 5
    assert sorted(cluster.fps(x, batch, torch.tensor(1.0)).tolist()) == list(range(11))
    first = set()
    for seed in range(60):
        torch.manual_seed(seed)
        first.add(int(cluster.fps(x, batch, 0.3)[0]))
    assert first == set(range(7))
    assert cluster.fps(x, batch, 0.3, random_start=False)[0] == 0


@pytest.mark.parametrize("ptr", [[0, 7, 7, 11], torch.tensor([0, 7, 7, 11])])
def test_fps_takes_the_bounds_of_examples(ptr):
    x, batch = clouds((7, 0, 4))
    want = cluster.fps(x, batch, 0.3, random_start=False)
    assert torch.equal(cluster.fps(src=x, ptr=ptr, ratio=0.3, random_start=False), want)


def test_errors():
    x, batch = clouds((3, 2))
    with pytest.raises(ValueError, match=r"^knn: x has shape \[5, 4\], expected \[points, columns\] with 1"):
        cluster.knn(torch.zeros(5, 4), x, 1)
    with pytest.raises(ValueError, match=r"^knn: batch_y is not ascending"):
        cluster.knn(x, x, 1, batch, batch.flip(0))
    with pytest.raises(ValueError, match=r"^fps: batch has shape \[2\]"):
        cluster.fps(x, batch[:2])
    for ptr in ([0, 3], [0, 4, 3, 5], [1, 5], [], torch.tensor(5)):
        with pytest.raises(ValueError, match=r"^fps: ptr is .*, expected numbers that ascend from 0 to 5"):
            cluster.fps(x, ptr=ptr)
    with pytest.raises(ValueError, match=r"^knn: batch_x has example 1, expected less than 1"):
        cluster.knn(x, x, 1, batch, batch, batch_size=1)
    with pytest.raises(ValueError, match=r"^grid_cluster: size has shape \[2\], expected \[3\]"):
        cluster.grid_cluster(x, torch.ones(2))
    with pytest.raises(ValueError, match=r"^nearest: y has no point for x\[3\]"):
        cluster.nearest(x, x[:3], batch, batch[:3])
    with pytest.raises(ValueError, match=r"^radius_graph: flow is 'up'"):
        cluster.radius_graph(x, 1.0, flow="up")
    with pytest.raises(NotImplementedError, match=r"^knn_graph: cosine is True"):
        cluster.knn_graph(x, 1, cosine=True)
    with pytest.raises(NotImplementedError, match=r"^random_walk: turnout.compat.torch_cluster does not"):
        cluster.random_walk(1, 2, 3, 4)


def test_results_do_not_depend_on_threads(request):
    x, batch = clouds((3000, 2000))
    threads = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(threads))
    results = []
    for count in (1, 2):
        torch.set_num_threads(count)
        results.append(
            (
                cluster.knn_graph(x, 8, batch),
                cluster.radius_graph(x, 0.2, batch),
                cluster.fps(x, batch, 0.1, random_start=False),
            )
        )
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


def test_install():
    if importlib.util.find_spec("torch_cluster") is not None:
        pytest.skip("torch_cluster is installed")
    cluster.install()
    try:
        import torch_cluster as installed

        assert installed.grid_cluster is cluster.grid_cluster
        assert installed.__version__ == cluster.__version__
        # torch_geometric looks there for whether the argument exists.
        assert "batch_size" in installed.knn.__doc__
        with pytest.raises(NotImplementedError, match="graclus_cluster"):
            installed.graclus_cluster()
    finally:
        cluster.uninstall()
    assert "torch_cluster" not in sys.modules
