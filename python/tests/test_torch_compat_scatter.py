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
    with pytest.raises(NotImplementedError, match=r"^scatter: reduce is 'min', expected 'sum', 'add'"):
        ours.scatter(SRC, INDEX, 0, reduce="min")
    with pytest.raises(ValueError, match=r"^scatter: reduce is 'median', expected 'sum', 'add', 'mean'"):
        ours.scatter(SRC, INDEX, 0, reduce="median")
    for name in ("scatter_min", "scatter_mul", "segment_csr", "segment_max_coo", "gather_csr"):
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
        from torch_scatter import scatter_max, segment_csr

        assert scatter_max is ours.scatter_max
        assert importlib.util.find_spec("torch_scatter") is torch_scatter.__spec__
        assert torch_scatter.__version__.split(".")[0] == "2"
        assert not hasattr(torch_scatter, "nothing")
        with pytest.raises(NotImplementedError, match="segment_csr: "):
            segment_csr(SRC, INDEX)
    finally:
        ours.uninstall()
    assert "torch_scatter" not in sys.modules


def test_force_keeps_what_the_package_has(tmp_path, monkeypatch):
    text = "__version__ = '9'\ndef scatter_min(): return 7\ndef scatter_max(): return 8\n"
    (tmp_path / "torch_scatter.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch_scatter", raising=False)
    package = importlib.import_module("torch_scatter")
    with pytest.raises(RuntimeError, match="torch_scatter is already imported"):
        ours.install()
    ours.install(force=True)
    try:
        assert package.scatter_max is ours.scatter_max
        assert (package.scatter_min(), package.__version__) == (7, "9")
    finally:
        ours.uninstall()
    assert package.scatter_max() == 8
    monkeypatch.delitem(sys.modules, "torch_scatter")
