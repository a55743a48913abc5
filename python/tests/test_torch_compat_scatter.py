"""torch_scatter's names: defaults, messages and installation."""

import importlib
import importlib.util
import sys

import pytest
import torch

from turnout import torch as own
from turnout.compat import torch_scatter as ours

pytestmark = pytest.mark.torch

SRC = torch.tensor([[1.0, 5, 2], [2, 5, 8], [3, 4, 7], [4, 6, 0]])
INDEX = torch.tensor([2, 0, 2, 0])
COLUMNS = torch.tensor([1, 1, 0])
INDPTR = torch.tensor([0, 1, 1, 4])
SORTED = torch.tensor([0, 2, 2, 2])


def same(actual, expected):
    if isinstance(actual, tuple):
        return all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    return torch.equal(actual, expected)


def test_the_last_dimension_is_the_default():
    assert ours.scatter_sum(SRC, COLUMNS).tolist() == [[2, 6], [8, 7], [7, 7], [0, 10]]
    assert same(ours.scatter_add(SRC, COLUMNS), own.scatter_sum(SRC, COLUMNS, 1))
    assert same(ours.scatter_mean(SRC, COLUMNS, -1, None, 3), own.scatter_mean(SRC, COLUMNS, 1, 3))
    assert same(ours.scatter_max(SRC, COLUMNS), own.scatter_max(SRC, COLUMNS, 1))


@pytest.mark.parametrize(
    ("reduce", "function"), [("sum", "scatter_sum"), ("add", "scatter_sum"), ("mean", "scatter_mean")]
)
def test_scatter_by_the_name_of_the_reduction(reduce, function):
    expected = getattr(own, function)(SRC, INDEX)
    assert same(ours.scatter(SRC, INDEX, 0, reduce=reduce), expected)
    assert same(getattr(ours, function)(SRC, INDEX, dim=0), expected)
    assert same(ours.scatter(SRC, INDEX, 0, reduce="max"), own.scatter_max(SRC, INDEX)[0])


def test_dynamic_voxel_encoders():
    """Makes the calls of OpenPCDet's DynamicMeanVFE and DynamicPillarVFE, with torch.unique's inverse."""
    points = torch.rand(50, 4, requires_grad=True)
    _, inverse, counts = torch.unique(torch.randint(0, 9, (50,)), return_inverse=True, return_counts=True)
    mean = ours.scatter_mean(points[:, 1:4], inverse, dim=0)
    expected = torch.zeros(len(counts), 3).index_add(0, inverse, points[:, 1:4]) / counts[:, None]
    torch.testing.assert_close(mean, expected)
    most = ours.scatter_max(points - 0.5, inverse, dim=0)[0]
    assert most[inverse].shape == points.shape
    (mean.sum() + most.sum()).backward()
    assert points.grad.any()


def test_means_of_integers_are_rounded_down():
    src, index = torch.tensor([-3, 2, 5, 5]), torch.tensor([0, 0, 2, 2])
    assert ours.scatter_mean(src, index).tolist() == [-1, 0, 5]
    assert ours.scatter(src, index, dim_size=4, reduce="mean").tolist() == [-1, 0, 5, 0]


@pytest.mark.parametrize("reduce", ["sum", "add", "mean", "min", "max"])
def test_segments(reduce):
    scattered = getattr(ours, f"scatter_{reduce}")(SRC, SORTED, 0)
    is_pair = reduce in ("min", "max")
    expected = scattered[0] if is_pair else scattered
    assert same(ours.segment_csr(SRC, INDPTR, reduce=reduce), expected)
    assert same(ours.segment_coo(SRC, SORTED, reduce=reduce), expected)
    assert same(ours.scatter(SRC, SORTED, 0, reduce=reduce), expected)
    assert same(getattr(ours, f"segment_{reduce}_csr")(SRC, INDPTR), scattered)
    assert same(getattr(ours, f"segment_{reduce}_coo")(SRC, SORTED), scattered)
    assert ours.segment_coo(SRC, SORTED, dim_size=5, reduce=reduce).shape == (5, 3)
    whole = (SRC * 2).long() - 9
    mean = ours.scatter(whole, SORTED, 0, reduce=reduce)
    assert same(ours.segment_csr(whole, INDPTR, reduce=reduce), mean)
    assert same(ours.segment_coo(whole, SORTED, reduce=reduce), mean)
    # dimensions before the rows
    rows = SRC.T[None]
    moved = getattr(ours, f"segment_{reduce}_csr")(rows, INDPTR.reshape(1, 1, 4))
    wanted = tuple(one.T[None] for one in scattered) if is_pair else scattered.T[None]
    assert same(moved, wanted)
    assert same(getattr(ours, f"segment_{reduce}_coo")(rows, SORTED.reshape(1, 1, 4)), wanted)


@pytest.mark.parametrize("shape", [(0,), (4, 0)])
def test_an_empty_indptr_has_no_segments(shape):
    indptr = torch.empty(shape, dtype=torch.int64)
    dim = len(shape) - 1
    src = torch.ones(4, 3, 2, requires_grad=True)
    sizes = [*src.shape[:dim], 0, *src.shape[dim + 1 :]]
    for reduce in ("sum", "mean", "min", "max"):
        out = ours.segment_csr(src, indptr, reduce=reduce)
        assert list(out.shape) == sizes
        out.sum().backward()
        assert not src.grad.any()
    assert [list(one.shape) for one in ours.segment_max_csr(src, indptr)] == [sizes, sizes]
    assert list(ours.gather_csr(src.narrow(dim, 0, 0), indptr).shape) == sizes


def test_gathering_and_softmax():
    pooled = ours.segment_csr(SRC, INDPTR)
    assert same(ours.gather_csr(pooled, INDPTR), pooled[SORTED])
    assert same(ours.gather_coo(pooled, SORTED), pooled[SORTED])
    assert same(ours.gather_csr(pooled.T, INDPTR[None]), pooled[SORTED].T)
    torch.testing.assert_close(ours.scatter_softmax(SRC, torch.zeros(3).long()), SRC.softmax(-1))


def test_pooling_of_pointcept():
    """Makes the calls of PTv3's pooling: sorted clusters, and the ends of their ranges."""
    features = torch.rand(50, 4, requires_grad=True)
    _, cluster, counts = torch.unique(torch.randint(0, 9, (50,)), return_inverse=True, return_counts=True)
    _, order = torch.sort(cluster)
    indptr = torch.cat([counts.new_zeros(1), torch.cumsum(counts, dim=0)])
    most = ours.segment_csr(features[order], indptr, reduce="max")
    assert same(most, ours.scatter_max(features, cluster, 0)[0])
    mean = ours.segment_csr(features[order], indptr, reduce="mean")
    torch.testing.assert_close(mean, ours.scatter_mean(features, cluster, 0))
    (most.sum() + mean.sum()).backward()
    torch.testing.assert_close(features.grad.sum(), torch.tensor(2.0 * mean.numel()))


def test_messages():
    for function in (ours.scatter, ours.scatter_add, ours.scatter_sum, ours.scatter_mean, ours.scatter_max):
        with pytest.raises(NotImplementedError) as caught:
            function(SRC, INDEX, 0, torch.zeros(3, 3))
        assert str(caught.value) == (
            f"{function.__name__}: out is given, expected None: Turnout does not accumulate into it; "
            "combine the result with it instead"
        )
        with pytest.raises(ValueError, match=rf"^{function.__name__}: index\.shape\[0\] is 4, expected"):
            function(SRC, INDEX)
    for function in (ours.scatter, ours.segment_csr, ours.segment_coo):
        message = rf"^{function.__name__}: reduce is 'mul', expected 'sum', 'add'"
        with pytest.raises(NotImplementedError, match=message):
            function(SRC, INDEX, reduce="mul")
    with pytest.raises(NotImplementedError, match=r"^segment_max_csr: out is given, expected None"):
        ours.segment_max_csr(SRC, INDPTR, torch.zeros(3, 3))
    with pytest.raises(ValueError, match=r"^segment_mean_csr: indptr\[1\] is 9, expected 0 \.\. 4"):
        ours.segment_mean_csr(SRC, torch.tensor([0, 9]))
    with pytest.raises(ValueError, match=r"^scatter: reduce is 'median', expected 'sum', 'add', 'mean'"):
        ours.scatter(SRC, INDEX, 0, reduce="median")
    for name in ("scatter_mul", "scatter_std", "scatter_logsumexp", "scatter_log_softmax"):
        with pytest.raises(NotImplementedError, match=rf"^{name}: turnout\.compat\.torch_scatter does not"):
            getattr(ours, name)(SRC, INDEX)
    with pytest.raises(AttributeError, match="scatter_median"):
        ours.scatter_median  # noqa: B018


@pytest.mark.skipif(
    importlib.util.find_spec("torch_scatter") is not None, reason="torch_scatter is installed"
)
def test_install():
    ours.install()
    ours.install()
    try:
        import torch_scatter
        from torch_scatter import scatter_max, scatter_std, segment_csr

        assert scatter_max is ours.scatter_max
        assert segment_csr is ours.segment_csr
        assert importlib.util.find_spec("torch_scatter") is torch_scatter.__spec__
        assert torch_scatter.__version__.split(".")[0] == "2"
        assert not hasattr(torch_scatter, "nothing")
        with pytest.raises(NotImplementedError, match="scatter_std: "):
            scatter_std(SRC, INDEX)
    finally:
        ours.uninstall()
    assert "torch_scatter" not in sys.modules


def test_force_keeps_what_the_package_has(tmp_path, monkeypatch):
    text = "__version__ = '9'\ndef scatter_std(): return 7\ndef scatter_max(): return 8\n"
    (tmp_path / "torch_scatter.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch_scatter", raising=False)
    package = importlib.import_module("torch_scatter")
    with pytest.raises(RuntimeError, match="torch_scatter is already imported"):
        ours.install()
    ours.install(force=True)
    try:
        assert package.scatter_max is ours.scatter_max
        assert (package.scatter_std(), package.__version__) == (7, "9")
    finally:
        ours.uninstall()
    assert package.scatter_max() == 8
    monkeypatch.delitem(sys.modules, "torch_scatter")
