"""Shared by the Python tests: fixtures, arguments of calls, and which files to skip without torch."""

import importlib.util
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import turnout

# PyTorch's bf16 matrix products, used for comparison, crash with an illegal instruction on some virtual
# machines that report AMX. oneDNN reads this variable when torch first uses it.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# TURNOUT_TEST_CORE=1 tests an installation without torch. Otherwise, a missing torch is an error, so that no
# run skips the torch tests by accident.
if os.environ.get("TURNOUT_TEST_CORE") == "1" and importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_torch*.py", "test_examples.py", "test_types.py"]


def routing(rng, shape, num_experts, capacity, dtype=np.int32):
    """Draws experts and slots; about a quarter of the tokens are dropped, and many share a row."""
    indices = rng.integers(-1, num_experts + 1, shape).astype(dtype)
    locations = rng.integers(-1, capacity + 1, shape).astype(dtype)
    return indices, locations


def dispatch_arguments(rng, samples=23, hidden=17, capacity=5, num_experts=3, choices=None, dtype=np.float32):
    shape = samples if choices is None else (choices, samples)
    gates = np.asarray(rng.standard_normal(shape)).astype(dtype)
    indices, locations = routing(rng, shape, num_experts, capacity)
    tokens = rng.standard_normal((samples, hidden)).astype(dtype)
    return gates, indices, locations, tokens, capacity, num_experts


def any_bits(rng, shape, dtype):
    """Draws elements with any bit pattern; bool has only two."""
    if np.dtype(dtype) == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    size = np.dtype(dtype).itemsize
    return rng.integers(0, 256, (*shape, size), np.uint8).view(dtype).reshape(shape)


def token_counts(rng, rows, ranks, experts, dtype=np.int32):
    """Draws how many tokens each rank sent to each expert; about a third of the counts are 0."""
    weights = rng.random((ranks, experts)) * (rng.random((ranks, experts)) > 0.3) + 1e-9
    return rng.multinomial(rows, (weights / weights.sum()).ravel()).reshape(ranks, experts).astype(dtype)


def same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def in_forked_child(function, *arguments):
    """Returns the function's result in a forked child with as many threads; fails if the child hangs."""
    threads = turnout.get_num_threads()
    with multiprocessing.get_context("fork").Pool(1, turnout.set_num_threads, (threads,)) as pool:
        return pool.apply_async(function, arguments).get(timeout=60)


def at_the_same_time(works):
    """Runs the functions concurrently and returns their results."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(timeout=60) for future in [pool.submit(work) for work in works]]


@pytest.fixture
def rng():
    return np.random.default_rng(20240607)


@pytest.fixture
def threads():
    """set_num_threads, reset after the test."""
    import turnout

    before = turnout.get_num_threads()
    yield turnout.set_num_threads
    turnout.set_num_threads(before)


@pytest.fixture
def cache():
    """The output cache, initially empty; its limit is restored after the test."""
    import turnout

    before = turnout.output_cache().limit
    turnout.output_cache(0)
    turnout.output_cache(before)
    yield turnout.output_cache
    turnout.output_cache(before)


@pytest.fixture
def pairs_built(monkeypatch):
    """A list to which each call of a sparse module that builds pairs is added."""
    from turnout.torch.nn import geometry

    calls, build = [], geometry.get_indice_pairs

    def counting(*arguments, **options):
        calls.append(arguments)
        return build(*arguments, **options)

    monkeypatch.setattr(geometry, "get_indice_pairs", counting)
    return calls
