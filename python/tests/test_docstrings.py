"""Docstrings: everything public has one with an example, and each example has the output it shows."""

import doctest
import importlib
import importlib.util
import inspect
import os

import numpy as np
import pytest

import turnout

# As in conftest.py, torch may be missing only if the run says so.
WITHOUT_TORCH = os.environ.get("TURNOUT_TEST_CORE") == "1" and importlib.util.find_spec("torch") is None
TORCH = [pytest.mark.torch, pytest.mark.skipif(WITHOUT_TORCH, reason="torch is not installed")]

COMPAT = [
    *("fast_rnnt", "k2", "mmcv", "pcdet", "pointops", "spconv", "torch_cluster", "torch_npu"),
    *("torch_scatter", "torchaudio", "transformer_engine", "transformers", "tutel"),
]


def module_of(name):
    return pytest.param(name, id=name, marks=[] if name == "turnout" else TORCH)


def documented(module):
    """Returns a module's public functions and classes by name, without constants and modules."""
    names = {name: getattr(module, name) for name in module.__all__}
    kinds = (inspect.isfunction, inspect.isclass)
    return {name: value for name, value in names.items() if any(is_one(value) for is_one in kinds)}


@pytest.mark.parametrize(
    "name", [module_of(name) for name in ("turnout", "turnout.torch", "turnout.torch.nn")]
)
def test_everything_public_has_a_docstring_with_an_example(name):
    public = documented(importlib.import_module(name))
    assert len(public) > 10
    assert [one for one, value in public.items() if ">>> " not in (inspect.getdoc(value) or "")] == []


@pytest.mark.parametrize("name", [module_of(f"turnout.compat.{name}") for name in COMPAT])
def test_names_of_other_packages_have_a_docstring_and_their_module_an_example(name):
    """The package's own documentation explains each name; one example shows how to import it here."""
    module = importlib.import_module(name)
    assert [one for one, value in documented(module).items() if not inspect.getdoc(value)] == []
    assert ">>> " in module.__doc__


def examples():
    """Yields the examples of all modules; skips torch's if torch is missing."""
    modules = ["turnout", "turnout.simulate", "turnout.typing"]
    if not WITHOUT_TORCH:
        modules += ["turnout.torch", "turnout.torch.nn", *(f"turnout.compat.{name}" for name in COMPAT)]
    finder, seen = doctest.DocTestFinder(recurse=False), set()
    for name in modules:
        module = importlib.import_module(name)
        values = [] if name == "turnout.typing" else documented(module).values()  # has no functions
        for value in (module, *values):
            if id(value) in seen:
                continue
            seen.add(id(value))
            marks = [] if name in ("turnout", "turnout.simulate", "turnout.typing") else TORCH
            for example in finder.find(value, f"{name}.{getattr(value, '__name__', name)}", globs={}):
                if example.examples:
                    yield pytest.param(example, id=example.name, marks=marks)


@pytest.mark.parametrize("example", list(examples()))
def test_example(example):
    """Runs with ``np``, ``turnout`` and, in torch modules, ``torch`` and ``turnout.torch`` imported."""
    example.globs = {"np": np, "turnout": turnout, "__name__": "example"}
    if not WITHOUT_TORCH:
        example.globs["torch"] = importlib.import_module("torch")
        importlib.import_module("turnout.torch")
    report = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=report.append)
    assert not report, "".join(report)
