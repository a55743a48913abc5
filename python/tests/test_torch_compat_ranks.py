"""The classes of turnout.compat whose names end in 1d to 4d: they behave like hand-written classes."""

import importlib
import pickle
import re

import pytest

from turnout.compat import mmcv, spconv
from turnout.torch import nn

pytestmark = pytest.mark.torch

CLASSES = [
    pytest.param(package, name, id=f"{package.__name__}.{name}")
    for package in (mmcv, spconv)
    for name in package.__all__
    if re.search(r"[1-4]d$", name)
]


def test_all_of_them_are_public():
    assert len(CLASSES) == 43  # five kinds in both packages and four ranks, spconv's average pool in three


@pytest.mark.parametrize(("package", "name"), CLASSES)
def test_class_of_a_rank(package, name):
    made = getattr(package, name)
    assert made.__name__ == made.__qualname__ == name
    assert getattr(importlib.import_module(made.__module__), name) is made
    assert made.__module__.startswith(package.__name__)
    is_pool = "Pool" in name
    layer = made(3) if is_pool else made(2, 4, 3, indice_key="key")
    assert layer.ndim == len(layer.kernel_size) == int(name[-2])
    assert isinstance(layer, package.SparseModule)
    assert isinstance(layer, nn.pooling.SparsePool if is_pool else package.SparseConvolution)
    assert repr(layer).startswith(f"{name}(")
    again = pickle.loads(pickle.dumps(layer))
    assert type(again) is made and repr(again) == repr(layer)
