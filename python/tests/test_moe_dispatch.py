"""moe_dispatch_forward against its definition, for NumPy arrays."""

import ml_dtypes
import numpy as np
import pytest
from conftest import dispatch_arguments, routing, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

import turnout
from turnout import check

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def assert_like_definition(*arguments):
    result = turnout.moe_dispatch_forward(*arguments)
    expected = check.moe_dispatch_forward(*arguments)
    assert type(result) is np.ndarray
    assert same_bits(result, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("choices", [None, 1, 3])
def test_definition(rng, dtype, index_dtype, choices):
    gates, indices, locations, *rest = dispatch_arguments(rng, choices=choices, dtype=dtype)
    assert_like_definition(gates, indices.astype(index_dtype), locations.astype(index_dtype), *rest)


@pytest.mark.parametrize("dtype", DTYPES)
def test_float32_gates_with_any_tokens(rng, dtype):
    gates, *rest = dispatch_arguments(rng, dtype=dtype)
    assert_like_definition(gates.astype(np.float32), *rest)


def test_index_dtypes_may_differ(rng):
    gates, indices, locations, *rest = dispatch_arguments(rng)
    assert_like_definition(gates, indices.astype(np.int64), locations, *rest)


def test_last_token_wins():
    tokens = np.arange(12, dtype=np.float32).reshape(4, 3)
    same = np.zeros(4, np.int32)
    result = turnout.moe_dispatch_forward(np.ones(4, np.float32), same, same, tokens, 2, 1)
    assert same_bits(result, np.stack([tokens[3], np.zeros(3, np.float32)]))


def test_later_choice_wins():
    tokens = np.ones((1, 2), np.float32)
    gates = np.array([[2], [3]], np.float32)
    same = np.zeros((2, 1), np.int64)
    assert turnout.moe_dispatch_forward(gates, same, same, tokens, 1, 1).tolist() == [[3, 3]]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_extreme_indices_are_dropped(dtype):
    limits = np.iinfo(dtype)
    extremes = np.array([limits.min, limits.max, -1, 2, 0, 0, 0, 0, 1], dtype)
    slots = np.array([0, 0, 0, 0, limits.min, limits.max, -1, 3, 2], dtype)
    tokens = np.full((9, 2), 7, np.float32)
    result = turnout.moe_dispatch_forward(np.ones(9, np.float32), extremes, slots, tokens, 3, 2)
    assert result[5].tolist() == [7, 7]
    assert not result[:5].any()


def test_special_values(rng):
    gates = np.array([0, -0.0, np.inf, np.nan, 1e-30], np.float32)
    tokens = np.array([[np.inf, 1, -0.0, 1e-30, np.nan]] * 5, np.float32)
    slots = np.arange(5, dtype=np.int32)
    result = turnout.moe_dispatch_forward(gates, np.zeros(5, np.int32), slots, tokens, 5, 1)
    with np.errstate(all="ignore"):
        expected = gates[:, None] * tokens
    np.testing.assert_array_equal(result, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize(
    ("samples", "hidden", "capacity", "num_experts"),
    [(0, 4, 3, 2), (4, 0, 3, 2), (4, 4, 0, 2), (4, 4, 3, 0), (0, 0, 0, 0)],
)
def test_zero_sizes(rng, samples, hidden, capacity, num_experts):
    assert_like_definition(*dispatch_arguments(rng, samples, hidden, capacity, num_experts))


def test_out_keeps_unnamed_rows_and_is_returned(rng):
    arguments = dispatch_arguments(rng)
    out = rng.standard_normal((15, 17)).astype(np.float32)
    expected = check.moe_dispatch_forward(*arguments, out=out.copy())
    assert turnout.moe_dispatch_forward(*arguments, out=out) is out
    assert same_bits(out, expected)


@pytest.mark.parametrize("samples", [23, 5000])
@pytest.mark.parametrize("first_row", [0, 4])
def test_in_place(rng, samples, first_row):
    """out may overlap input, entirely or partly."""
    gates, indices, locations, _, capacity, num_experts = dispatch_arguments(
        rng, samples=samples, capacity=samples // 3, num_experts=3
    )
    memory = rng.standard_normal((samples + first_row, 129)).astype(np.float32)
    tokens, rows = memory[first_row:], memory[: capacity * num_experts]
    expected = rows.copy()
    turnout.moe_dispatch_forward(
        gates, indices, locations, tokens.copy(), capacity, num_experts, out=expected
    )
    result = turnout.moe_dispatch_forward(gates, indices, locations, tokens, capacity, num_experts, out=rows)
    assert result is rows
    assert same_bits(rows, expected)


def test_read_only_inputs(rng):
    arguments = dispatch_arguments(rng)
    for array in arguments[:4]:
        array.flags.writeable = False
    assert_like_definition(*arguments)


def test_any_integer_type_is_accepted(rng):
    *arrays, capacity, num_experts = dispatch_arguments(rng)
    result = turnout.moe_dispatch_forward(*arrays, np.int16(capacity), np.array(num_experts))
    assert same_bits(result, check.moe_dispatch_forward(*arrays, capacity, num_experts))


def test_large_result(rng):
    assert_like_definition(*dispatch_arguments(rng, samples=700, hidden=513, capacity=500, num_experts=2))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_shape(data):
    size = st.integers(0, 40)
    samples, hidden, capacity = data.draw(size), data.draw(size), data.draw(st.integers(0, 6))
    num_experts, choices = data.draw(st.integers(0, 4)), data.draw(st.sampled_from([None, 0, 1, 2, 3]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dtype = data.draw(st.sampled_from(DTYPES))
    assert_like_definition(*dispatch_arguments(rng, samples, hidden, capacity, num_experts, choices, dtype))


class Producer:
    """An array of another library that has only __dlpack__."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned = array, versioned

    def __dlpack__(self, **options):
        if not self.versioned and options:
            raise TypeError("no keywords before DLPack 1.0")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("versioned", [True, False])
def test_other_dlpack_producers(rng, versioned):
    *arrays, capacity, num_experts = dispatch_arguments(rng)
    produced = [Producer(a, versioned) for a in arrays]
    result = turnout.moe_dispatch_forward(*produced, capacity, num_experts)
    assert same_bits(result, check.moe_dispatch_forward(*arrays, capacity, num_experts))
    out = Producer(np.empty_like(result), versioned)
    out.array[:] = 3
    assert turnout.moe_dispatch_forward(*produced, capacity, num_experts, out=out) is out
    expected = check.moe_dispatch_forward(*arrays, capacity, num_experts, out=np.full_like(result, 3))
    assert same_bits(out.array, expected)


def test_routing_helper_drops_some(rng):
    indices, locations = routing(rng, 1000, 3, 5)
    dropped = (indices < 0) | (indices >= 3) | (locations < 0) | (locations >= 5)
    assert 0.2 < dropped.mean() < 0.8
