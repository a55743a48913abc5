"""Results have the same bits for any number of threads, from several Python threads, and after fork()."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import pytest
from conftest import at_the_same_time, dispatch_arguments, in_forked_child, same_bits

import turnout
from turnout import check

# 4 MB of output: enough for the library to use several threads.
SIZES = {"samples": 2500, "hidden": 512, "capacity": 1024, "num_experts": 2}


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_same_bits(rng, threads, count, dtype):
    arguments = dispatch_arguments(rng, dtype=dtype, **SIZES)
    threads(count)
    assert turnout.get_num_threads() == count
    assert same_bits(turnout.moe_dispatch_forward(*arguments), check.moe_dispatch_forward(*arguments))


def test_calls_at_the_same_time(rng, threads):
    threads(2)
    calls = [dispatch_arguments(rng, **SIZES) for _ in range(4)]
    expected = [check.moe_dispatch_forward(*arguments) for arguments in calls]

    def is_right(i):
        return all(same_bits(turnout.moe_dispatch_forward(*calls[i]), expected[i]) for _ in range(10))

    assert all(at_the_same_time([partial(is_right, i) for i in range(len(calls))]))


def test_after_fork(rng, threads):
    threads(2)
    arguments = dispatch_arguments(rng, **SIZES)
    expected = turnout.moe_dispatch_forward(*arguments)  # starts the pool before the fork
    assert same_bits(in_forked_child(turnout.moe_dispatch_forward, *arguments), expected)


def test_automatic(threads):
    threads(0)
    assert turnout.get_num_threads() >= 1


@pytest.mark.parametrize(("method", "told"), [("fork", ""), ("fork", "2"), ("spawn", ""), ("spawn", "2")])
def test_workers_have_one_thread(threads, monkeypatch, method, told):
    """Workers of a Pool or DataLoader are daemonic; a process that is not daemonic keeps all threads."""
    threads(2)
    if told:
        monkeypatch.setenv("TURNOUT_NUM_THREADS", told)
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        assert pool.apply_async(turnout.get_num_threads).get(timeout=60) == (2 if told else 1)
    assert turnout.get_num_threads() == 2


def test_other_processes_keep_their_threads(threads):
    threads(2)
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(turnout.get_num_threads).result(timeout=60) == 2
