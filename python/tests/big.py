"""Arrays of more than 2^31 elements and more than 4 GB through NumPy; `./dev test big` runs this file.

pytest does not collect a file of this name by default, because a test takes up to 9 GB.
"""

import numpy as np
import pytest

import turnout

FAR = 2**31 + 1  # more elements than an int32 can count


@pytest.fixture(autouse=True)
def free_memory():
    """Empties the caches after each test."""
    turnout.output_cache(0)
    yield
    turnout.trim()


def filled_rows(values, width):
    rows = np.empty((len(values), width), values.dtype)
    rows[:] = values[:, None]
    return rows


def rows_are(rows, values):
    """Whether all elements of each row have the given value; compares in pieces to save memory."""
    step = 2**20
    return all((rows[i : i + step] == values[i : i + step, None]).all() for i in range(0, len(rows), step))


def numbers(count):
    return (np.arange(count) * 167 % 2039).astype(np.float16)


def test_dispatch():
    hidden, choices = 64, 8
    tokens = FAR // hidden // choices + 1
    rows = tokens * choices
    values = numbers(tokens)
    slots = np.arange(rows, dtype=np.int32).reshape(tokens, choices).T.copy()
    experts, gates = np.zeros_like(slots), np.ones(slots.shape, np.float16)
    result = turnout.moe_dispatch_forward(gates, experts, slots, filled_rows(values, hidden), rows, 1)
    assert result.size > 2**31 and result.nbytes > 2**32
    assert rows_are(result, np.repeat(values, choices))


def test_re_routing():
    hidden, rows = 128, 2**25 + 3
    values = (np.arange(rows) * 167 >> 3).astype(np.uint8)
    counts = np.array([[rows // 4 + 1, rows // 4], [rows // 3, 0]])
    counts[1, 1] = rows - counts.sum()
    tokens = filled_rows(values, hidden)
    moved, _, index, per_expert = turnout.moe_re_routing(tokens, counts)
    assert moved.nbytes > 2**32
    first, second, third, last = np.split(np.arange(rows), np.cumsum(counts.ravel())[:-1])
    source = np.concatenate([first, third, second, last])
    assert np.array_equal(index, source)
    assert np.array_equal(per_expert, counts.sum(0))
    assert rows_are(moved, values[source])
    del tokens
    back = turnout.moe_re_routing_inverse(moved, index)
    assert rows_are(back, values)


def test_scatter():
    channels, groups = 64, 1000
    rows = FAR // channels + 1
    values = numbers(rows)
    index = (np.arange(rows) * 7 % groups).astype(np.int32)
    source = filled_rows(values, channels)
    assert source.size > 2**31 and source.nbytes > 2**32
    found, argmax = turnout.scatter_max(source, index, dim_size=groups)
    expected = np.full(groups, -1, np.float16)
    np.maximum.at(expected, index, values)
    assert rows_are(found, expected)
    assert np.array_equal(values[argmax[:, 0]], expected) and np.array_equal(
        index[argmax[:, 0]], range(groups)
    )


def test_pairs():
    """Every cell of a line is a site: offset k leads from x to x + padding - k."""
    offsets = 1331
    padding, rows = offsets // 2, FAR // offsets // 2 + 1
    sites = np.stack([np.zeros(rows, np.int32), np.arange(rows, dtype=np.int32)], 1)
    out, pairs, num = turnout.get_indice_pairs(sites, 1, [rows], [offsets], 1, [padding])
    assert pairs.size > 2**31 and np.array_equal(out, sites)
    for k in range(offsets):
        shift, count = padding - k, rows - abs(padding - k)
        x = np.arange(max(0, -shift), max(0, -shift) + count)
        assert num[k] == count
        assert np.array_equal(pairs[k, 0, :count], x) and np.array_equal(pairs[k, 1, :count], x + shift)
        assert (pairs[k, :, count:] == -1).all()
