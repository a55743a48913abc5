"""moe_re_routing and its inverse against their definitions, for NumPy arrays."""

import ml_dtypes
import numpy as np
import pytest
from conftest import any_bits, same_bits, token_counts
from hypothesis import given, settings
from hypothesis import strategies as st
from test_moe_dispatch import Producer

import turnout
from turnout import check

DTYPES = [
    *(np.int8, np.uint8, np.bool_, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu),
    *(np.int16, np.uint16, np.float16, ml_dtypes.bfloat16),
    *(np.int32, np.uint32, np.float32),
    *(np.int64, np.uint64, np.float64),
]
# Rows, hidden, ranks, experts.
NAMED = [(256, 7168, 16, 16), (1, 7168, 16, 16), (64, 7168, 16, 16), (64, 7168, 4, 4), (50, 128, 4, 4)]
EDGES = [(36, 385, 3, 4), (3, 12, 2, 2), (9, 1, 2, 3), *((30, h, 3, 3) for h in (16383, 16384, 16385))]


def assert_like_definition(*arguments, **options):
    results = turnout.moe_re_routing(*arguments, **options)
    assert type(results) is tuple
    for actual, expected in zip(results, check.moe_re_routing(*arguments, **options), strict=True):
        if expected is None:
            assert actual is None
        else:
            assert type(actual) is np.ndarray
            assert same_bits(actual, expected)
    return results


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("choice", [0, 1])
def test_definition(rng, dtype, count_dtype, choice):
    tokens, counts = any_bits(rng, (40, 13), dtype), token_counts(rng, 40, 3, 5, count_dtype)
    options = {"expert_token_num_type": choice, "idx_type": choice}
    permuted, _, idx, _ = assert_like_definition(tokens, counts, **options)
    back = turnout.moe_re_routing_inverse(permuted, idx.astype(count_dtype), idx_type=choice)
    assert same_bits(back, tokens)
    assert same_bits(back, check.moe_re_routing_inverse(permuted, idx, idx_type=choice))


@pytest.mark.parametrize("scale_dtype", [np.float32, ml_dtypes.float8_e8m0fnu, np.float64])
@pytest.mark.parametrize("width", [None, 0, 1, 3])
def test_scales(rng, scale_dtype, width):
    counts = token_counts(rng, 36, 3, 4)
    shape = (36,) if width is None else (36, width)
    scales = any_bits(rng, shape, scale_dtype)
    assert_like_definition(any_bits(rng, (36, 385), np.int8), counts, per_token_scales=scales)


@pytest.mark.parametrize(("rows", "hidden", "ranks", "experts"), NAMED + EDGES)
@pytest.mark.parametrize(
    ("dtype", "count_dtype"), [(np.int8, np.int32), (np.float16, np.int64), (ml_dtypes.bfloat16, np.int32)]
)
def test_named_scales(rng, rows, hidden, ranks, experts, dtype, count_dtype):
    tokens = any_bits(rng, (rows, hidden), dtype)
    counts = token_counts(rng, rows, ranks, experts, count_dtype)
    scales = rng.random(rows, dtype=np.float32)
    assert_like_definition(tokens, counts, per_token_scales=scales)


def test_worked_examples():
    counts = np.array([[1, 2, 1], [2, 1, 0]])
    tokens = np.arange(7, dtype=np.int16)[:, None]
    permuted, scales, idx, num = turnout.moe_re_routing(tokens, counts)
    assert permuted[:, 0].tolist() == idx.tolist() == [0, 4, 5, 1, 2, 6, 3]
    assert (scales, idx.dtype, num.tolist(), num.dtype) == (None, np.int32, [3, 3, 1], np.int64)
    same, _, idx, num = turnout.moe_re_routing(tokens, counts, expert_token_num_type=0, idx_type=1)
    assert same_bits(same, permuted)
    assert (idx.tolist(), num.tolist()) == ([0, 3, 4, 6, 1, 2, 5], [3, 6, 7])

    tokens = np.arange(8 * 16, dtype=np.float16).reshape(8, 16)
    idx = turnout.moe_re_routing(tokens, np.array([[2, 1], [3, 2]], np.int32))[2]
    assert idx.tolist() == [0, 1, 3, 4, 5, 2, 6, 7]


@settings(max_examples=60, deadline=None)
@given(
    ranks=st.integers(1, 7),
    experts=st.integers(1, 7),
    most=st.integers(0, 6),
    dtype=st.sampled_from(DTYPES),
    hidden=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
)
def test_invariants(ranks, experts, most, dtype, hidden, seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, most + 1, (ranks, experts))
    rows = int(counts.sum())
    tokens = any_bits(rng, (rows, hidden), dtype)
    permuted, _, gather, num = assert_like_definition(tokens, counts)
    scatter = turnout.moe_re_routing(tokens, counts, idx_type=1)[2]
    assert (gather[scatter] == np.arange(rows)).all()
    assert (scatter[gather] == np.arange(rows)).all()
    assert num.sum() == rows
    if ranks == 1 or experts == 1:
        assert same_bits(permuted, tokens)
    for back in (
        turnout.moe_re_routing(permuted, np.ascontiguousarray(counts.T))[0],
        turnout.moe_re_routing_inverse(permuted, gather),
        turnout.moe_re_routing_inverse(permuted, scatter, idx_type=1),
    ):
        assert same_bits(back, tokens)
    expert = np.repeat(np.tile(np.arange(experts), ranks), counts.ravel())
    assert (gather == np.argsort(expert, kind="stable")).all()


@pytest.mark.parametrize("idx_type", [0, 1])
def test_inverse_of_any_permutation(rng, idx_type):
    x, idx = any_bits(rng, (500, 33), np.uint16), rng.permutation(500)
    result = turnout.moe_re_routing_inverse(x, idx, idx_type=idx_type)
    assert same_bits(result, check.moe_re_routing_inverse(x, idx, idx_type=idx_type))


@pytest.mark.parametrize("scales", [None, np.zeros(0, np.float32), np.zeros((0, 3), np.float32)])
def test_no_rows(scales):
    tokens, counts = np.zeros((0, 16), np.int8), np.zeros((2, 3), np.int32)
    out = (None, None, None, np.full(3, 7, np.int32))
    results = assert_like_definition(tokens, counts, per_token_scales=scales)
    assert results[3].tolist() == [0, 0, 0]
    assert turnout.moe_re_routing(tokens, counts, per_token_scales=scales, out=out)[3] is out[3]
    assert out[3].tolist() == [0, 0, 0]
    assert turnout.moe_re_routing_inverse(tokens, results[2]).shape == (0, 16)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_threads(rng, threads, count):
    threads(count)
    tokens, counts = any_bits(rng, (1200, 3001), np.int8), token_counts(rng, 1200, 8, 4)
    permuted, _, idx, _ = assert_like_definition(tokens, counts)
    assert same_bits(turnout.moe_re_routing_inverse(permuted, idx), tokens)


# -- out= --------------------------------------------------------------------------------------------------


def arguments_and_out(rng):
    """Returns arguments of a call, and arrays for its results."""
    tokens, counts = any_bits(rng, (7, 5), np.int16), np.array([[1, 2, 1], [2, 1, 0]], np.int32)
    scales = rng.random((7, 2), dtype=np.float32)
    out = (
        np.full((7, 5), 77, np.int16),
        np.full((7, 2), 77, np.float32),
        np.full(7, 77, np.int32),
        np.full(3, 77, np.int32),
    )
    return {"tokens": tokens, "expert_token_num_per_rank": counts, "per_token_scales": scales, "out": out}


def test_out(rng):
    arguments = arguments_and_out(rng)
    out = arguments.pop("out")
    expected = check.moe_re_routing(**arguments)
    for used in [(True,) * 4, *np.eye(4, dtype=bool)]:
        given_out = tuple(o if use else None for o, use in zip(out, used, strict=True))
        results = turnout.moe_re_routing(**arguments, out=given_out)
        for actual, wanted, o in zip(results, expected, given_out, strict=True):
            assert o is None or actual is o
            assert same_bits(actual, wanted)


def test_out_for_absent_scales_is_left_alone(rng):
    arguments = arguments_and_out(rng)
    del arguments["per_token_scales"]
    results = turnout.moe_re_routing(**arguments)
    assert results[1] is None
    assert results[0] is arguments["out"][0]
    assert (arguments["out"][1] == 77).all()


def test_out_of_inverse(rng):
    x, idx, out = any_bits(rng, (6, 5), np.float64), rng.permutation(6), np.zeros((6, 5))
    assert turnout.moe_re_routing_inverse(x, idx, out=out) is out
    assert same_bits(out, check.moe_re_routing_inverse(x, idx))


def test_dlpack_and_read_only_inputs(rng):
    arguments = arguments_and_out(rng)
    expected = check.moe_re_routing(*(arguments[n] for n in ("tokens", "expert_token_num_per_rank")))
    tokens, counts = arguments["tokens"], arguments["expert_token_num_per_rank"]
    tokens.flags.writeable = counts.flags.writeable = False
    assert same_bits(turnout.moe_re_routing(tokens, counts)[0], expected[0])
    permuted, _, idx, num = turnout.moe_re_routing(Producer(tokens), Producer(counts))
    assert all(type(a) is np.ndarray for a in (permuted, idx, num))
    assert same_bits(permuted, expected[0])


# -- errors ------------------------------------------------------------------------------------------------


def refusal(function, op, arguments, untouched, kind=ValueError):
    """Returns the message of a rejected call, which must not change the arrays in `untouched`."""
    arrays = [a for a in untouched if a is not None]
    before = [a.tobytes() for a in arrays]
    with pytest.raises(kind) as caught:
        function(**arguments)
    assert [a.tobytes() for a in arrays] == before
    name, _, message = str(caught.value).partition(": ")
    assert name == op
    return message


def with_entry(tensors, i, value):
    return (*tensors[:i], value, *tensors[i + 1 :])


def read_only(array):
    array.flags.writeable = False
    return array


def counts_of(*rows):
    return lambda a: np.array(rows, np.int64)


def out_of(i, value):
    return lambda a: with_entry(a["out"], i, value(a["out"][i]))


LEFT = "the remainder of the 7 rows of tokens"
HUGE = 2**63 - 1
NAMES = "permute_tokens, permute_per_token_scales, permute_token_idx, expert_token_num"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "expert_token_num_per_rank",
            counts_of([1, 2, 1], [2, -1, 2]),
            "expert_token_num_per_rank[1, 1] is -1, expected 0 or more",
        ),
        (
            "expert_token_num_per_rank",
            counts_of([1, 2, 1], [2, 0, 0]),
            "expert_token_num_per_rank sums to 6, expected the 7 rows of tokens",
        ),
        (
            "expert_token_num_per_rank",
            counts_of([1, 2, 1], [2, 1, 1]),
            f"expert_token_num_per_rank[1, 2] is 1, expected at most 0, {LEFT}",
        ),
        (
            "expert_token_num_per_rank",
            counts_of([1, HUGE, HUGE], [3, 0, 0]),
            f"expert_token_num_per_rank[0, 1] is {HUGE}, expected at most 6, {LEFT}",
        ),
        (
            "expert_token_num_per_rank",
            lambda a: np.zeros((2, 3), np.int16),
            "expert_token_num_per_rank has dtype int16, expected int32, int64",
        ),
        (
            "expert_token_num_per_rank",
            lambda a: np.zeros((0, 3), np.int32),
            "expert_token_num_per_rank.shape[0] is 0, expected 1 or more",
        ),
        (
            "tokens",
            lambda a: np.zeros(7, np.int16),
            "tokens has 1 dimensions, expected [rows, hidden]",
        ),
        (
            "tokens",
            lambda a: np.zeros((7, 5), np.complex64),
            "tokens has dtype complex64, expected float32, float64, float16, bfloat16, int8, uint8, int16, "
            "uint16, int32, uint32, int64, uint64, "
            "bool, float8_e4m3fn, float8_e5m2, float8_e8m0fnu",
        ),
        (
            "per_token_scales",
            lambda a: np.zeros((6, 2), np.float32),
            "per_token_scales.shape[0] is 6, expected 7 = tokens.shape[0]",
        ),
        (
            "per_token_scales",
            lambda a: np.zeros((7, 2, 1), np.float32),
            "per_token_scales has 3 dimensions, expected [rows, scale_width?]",
        ),
        (
            "expert_token_num_type",
            lambda a: 2,
            "expert_token_num_type is 2, expected one of 0 .. 1 (cumsum count)",
        ),
        ("idx_type", lambda a: -1, "idx_type is -1, expected one of 0 .. 1 (gather scatter)"),
        ("idx_type", lambda a: 2**40, "idx_type is 1099511627776, expected one of 0 .. 1 (gather scatter)"),
        (
            "out",
            out_of(0, lambda o: o[:6]),
            "permute_tokens.shape[0] is 6, expected 7 = tokens.shape[0]",
        ),
        (
            "out",
            out_of(0, lambda o: o.view(np.uint16)),
            "permute_tokens has dtype uint16, expected that of tokens",
        ),
        (
            "out",
            out_of(1, lambda o: o.view(np.int32)),
            "permute_per_token_scales has dtype int32, expected that of per_token_scales",
        ),
        (
            "out",
            out_of(1, lambda o: o[:, 0].copy()),
            "permute_per_token_scales has no dimension scale_width, expected [rows, scale_width?] with "
            "scale_width = 2",
        ),
        ("out", out_of(2, lambda o: o.astype(np.int64)), "permute_token_idx has dtype int64, expected int32"),
        (
            "out",
            out_of(2, read_only),
            "permute_token_idx is read-only, expected memory that can be written to",
        ),
        (
            "out",
            out_of(3, lambda o: np.zeros((3, 2), np.int32)[:, 0]),
            "expert_token_num is strided, expected contiguous row-major memory for shape [3]: it is written "
            "in place, and not by way of a copy",
        ),
        (
            "out",
            lambda a: with_entry(a["out"], 0, a["tokens"]),
            "permute_tokens overlaps tokens in memory, expected separate buffers",
        ),
        ("out", lambda a: a["out"][:3], f"out has 3 entries, expected a tuple of {NAMES}; None allocates"),
    ],
)
def test_messages(rng, name, change, message):
    arguments = arguments_and_out(rng)
    out = arguments["out"]
    arguments[name] = change(arguments)
    if name == "expert_token_num_per_rank" and arguments[name].dtype == np.int64:
        arguments["out"] = with_entry(out, 3, np.zeros(3, np.int64))
    everything = (*out, *arguments["out"], arguments["tokens"])
    assert refusal(turnout.moe_re_routing, "moe_re_routing", arguments, everything) == message


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "expert_token_num_per_rank",
            lambda a: None,
            "expert_token_num_per_rank is of type NoneType, expected an array of NumPy or one with "
            "__dlpack__",
        ),
        (
            "per_token_scales",
            lambda a: [1.0],
            "per_token_scales is of type list, expected an array of NumPy or one with __dlpack__",
        ),
        ("idx_type", lambda a: "gather", "idx_type is of type str, expected an integer"),
        (
            "out",
            lambda a: a["out"][0],
            f"out is of type ndarray, expected a tuple of {NAMES}; None allocates",
        ),
    ],
)
def test_wrong_types(rng, name, change, message):
    arguments = arguments_and_out(rng)
    out = arguments["out"]
    arguments[name] = change(arguments)
    assert refusal(turnout.moe_re_routing, "moe_re_routing", arguments, out, TypeError) == message


@pytest.mark.parametrize(
    ("idx", "message"),
    [
        ([3, 1, 4, 2], "permute_token_idx[2] is 4, expected 0 .. 3"),
        ([3, -1, 0, 2], "permute_token_idx[1] is -1, expected 0 .. 3"),
        ([3, 1, 0, 3], "permute_token_idx[3] is 3, equal to [0], expected a permutation"),
        ([3, 1, 0], "permute_token_idx.shape[0] is 3, expected 4 = permute_tokens.shape[0]"),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("idx_type", [0, 1])
def test_messages_of_inverse(idx, message, dtype, idx_type):
    out = np.full((4, 2), 9, np.float32)
    arguments = {
        "permute_tokens": np.zeros((4, 2), np.float32),
        "permute_token_idx": np.array(idx, dtype),
        "idx_type": idx_type,
        "out": out,
    }
    function = turnout.moe_re_routing_inverse
    assert refusal(function, "moe_re_routing_inverse", arguments, (out,)) == message
