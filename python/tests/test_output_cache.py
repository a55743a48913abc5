"""Large results reuse the memory of deleted results, up to a limit."""

import threading

import numpy as np
import pytest
from conftest import dispatch_arguments, in_forked_child, same_bits

import turnout
from turnout import check

MEGABYTE = 2**20


def dispatch(rng, megabytes, fill=1.0):
    rows = int(megabytes * 1024)
    slots = np.arange(rows, dtype=np.int32)
    tokens = np.full((rows, 256), fill, np.float32)
    return turnout.moe_dispatch_forward(
        np.ones(rows, np.float32), np.zeros_like(slots), slots, tokens, rows, 1
    )


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_reused(rng, cache):
    first = dispatch(rng, 4)
    where = address(first)
    assert cache().idle == 0
    del first
    assert 4 * MEGABYTE <= cache().idle <= 4.1 * MEGABYTE
    second = dispatch(rng, 4, fill=2.0)
    assert address(second) == where
    assert (second == 2).all()
    assert cache().idle == 0


def test_views_keep_the_memory(rng, cache):
    view = dispatch(rng, 2)[3:5, 1:]
    assert cache().idle == 0
    assert (view == 1).all()
    del view
    assert cache().idle >= 2 * MEGABYTE


def test_arrays_never_share(rng, cache):
    arrays = [dispatch(rng, 1 + i % 3, fill=i) for i in range(12)]
    del arrays[::2]
    arrays += [dispatch(rng, 1 + i % 3, fill=100 + i) for i in range(6)]
    assert [a[0, 0] for a in arrays] == [1, 3, 5, 7, 9, 11, 100, 101, 102, 103, 104, 105]
    assert all((a == a[0, 0]).all() for a in arrays)


def test_small_results_are_not_cached(rng, cache):
    del rng
    result = turnout.moe_dispatch_forward(
        np.ones(1, np.float32),
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
        np.ones((1, 8), np.float32),
        1,
        1,
    )
    assert result.flags.owndata
    del result
    assert cache().idle == 0


def test_unnamed_rows_are_zero_in_reused_memory(rng, cache):
    del cache
    arguments = dispatch_arguments(rng, samples=900, hidden=512, capacity=600, num_experts=2)
    for fill in (7.0, 8.0):
        dispatch(rng, 1200 * 512 * 4 / MEGABYTE, fill)
        assert same_bits(turnout.moe_dispatch_forward(*arguments), check.moe_dispatch_forward(*arguments))


def test_limit_evicts_the_least_recently_used(rng, cache):
    assert cache(5 * MEGABYTE) == turnout.OutputCache(5 * MEGABYTE, 0)
    arrays = [dispatch(rng, size) for size in (2, 3.5, 2.5)]
    where = [address(a) for a in arrays]
    while arrays:
        arrays.pop(0)  # 2, then 3.5, then 2.5: only one of the last two fits the limit
    assert cache().idle <= 5 * MEGABYTE
    assert address(dispatch(rng, 2.5)) == where[2]


def test_larger_than_the_limit_is_freed(rng, cache):
    cache(3 * MEGABYTE)
    del_me = dispatch(rng, 6)
    del del_me
    assert cache().idle == 0


def test_zero_turns_it_off(rng, cache):
    dispatch(rng, 2)
    assert cache().idle > 0
    assert cache(0) == (0, 0)
    dispatch(rng, 2)
    assert cache().idle == 0


def test_negative_limit(cache):
    with pytest.raises(ValueError, match="output_cache: limit is -1, expected 0 or more"):
        cache(-1)


def child_state(rng):
    idle_at_start = turnout.output_cache().idle
    result_is_right = bool((dispatch(rng, 4, fill=3.0) == 3).all())
    return idle_at_start, result_is_right, turnout.output_cache().idle


def test_forked_child_starts_empty(rng, cache):
    kept = dispatch(rng, 4, fill=9.0)
    dispatch(rng, 4)
    idle = cache().idle
    at_start, right, at_end = in_forked_child(child_state, rng)
    assert (at_start, right) == (0, True)
    assert at_end >= 4 * MEGABYTE
    assert cache().idle == idle
    assert (kept == 9).all()


def test_from_many_threads(rng, cache):
    wrong = []

    def work(fill):
        for _ in range(20):
            if not (dispatch(rng, 1.5, fill) == fill).all():
                wrong.append(fill)

    workers = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    assert cache().idle <= cache().limit
