"""The same bits whatever the number of threads, from several Python threads, and after fork()."""

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
    expected = turnout.moe_dispatch_forward(*arguments)  # the pool runs before the fork
    assert same_bits(in_forked_child(turnout.moe_dispatch_forward, *arguments), expected)


def test_automatic(threads):
    threads(0)
    assert turnout.get_num_threads() >= 1
