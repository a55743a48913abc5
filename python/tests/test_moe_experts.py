"""Grouped products and the expert block against their definitions, for NumPy arrays."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from conftest import same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import turnout
from turnout import check

BF16 = ml_dtypes.bfloat16
ACTIVATIONS = ["silu", "gelu", "gelu_tanh", "relu", "swigluoai"]
LAYOUTS = ["plain", "interleaved", "transposed", "not gated"]
FORMS = [form for form in itertools.product(ACTIVATIONS, LAYOUTS) if form != ("swigluoai", "not gated")]
# Relative to the largest value: the error of float32 sums and of one rounding to the result's dtype.
TOLERANCE = {np.float32: 2e-6, np.float16: 1e-3, BF16: 8e-3, np.float64: 1e-13}


# Products with bfloat16 weights keep 16 bits of float32 operands on CPUs that multiply bfloat16.
SPLIT = 2e-5


def assert_close(found, expected, tolerance=0.0):
    assert found.shape == expected.shape
    largest = np.abs(expected).max(initial=1e-30)
    worst = np.abs(found.astype(np.float64) - expected).max(initial=0)
    assert worst <= max(TOLERANCE[found.dtype.type], tolerance) * largest


def block(
    rng, tokens=7, choices=2, experts=3, hidden=24, inner=10, dtype=np.float32, weights=None, gated=True
):
    """Returns arguments of moe_experts and its biases. Ids include -1 and ``experts``."""

    def values(*shape, dtype=weights or dtype):
        return rng.standard_normal(shape).astype(dtype)

    rows = 2 * inner if gated else inner
    arguments = (
        values(tokens, hidden, dtype=dtype),
        rng.integers(-1, experts + 1, (tokens, choices)),
        rng.random((tokens, choices)).astype(dtype),
        values(experts, rows, hidden) / hidden**0.5,
        values(experts, hidden, inner) / inner**0.5,
    )
    arguments = tuple(a.astype(weights or dtype) if i > 2 else a for i, a in enumerate(arguments))
    return arguments, {"w13_bias": values(experts, rows), "w2_bias": values(experts, hidden)}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BF16])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1), (17, 9), (64, 33)])
def test_grouped_mm(rng, dtype, transposed, sizes):
    depth, columns = sizes
    offs = np.array([5, 5, 14, 20], np.int32)
    x = rng.standard_normal((23, depth)).astype(dtype)
    w = rng.standard_normal((4, columns, depth) if transposed else (4, depth, columns)).astype(dtype)
    w = w.swapaxes(1, 2) if transposed else w
    bias = rng.standard_normal((4, columns)).astype(dtype)
    for b in (None, bias):
        found = turnout.grouped_mm(x, w, offs=offs, bias=b)
        assert_close(found, check.grouped_mm(x, w, offs=offs, bias=b))
        assert not found[20:].any()  # rows after the last group
        out = np.full_like(found, 7)
        assert turnout.grouped_mm(x, w, offs=offs.astype(np.int64), bias=b, out=out) is out
        assert same_bits(out, found)
    y = rng.standard_normal((23, columns)).astype(dtype)
    gradients = turnout.grouped_mm_backward_weight(x, y, offs=offs, with_bias=True)
    for found, expected in zip(gradients, check.grouped_mm_backward_weight(x, y, offs=offs), strict=True):
        assert_close(found, expected)
    assert turnout.grouped_mm_backward_weight(x, y, offs=offs)[1] is None


@pytest.mark.parametrize("dtypes", [(np.float32, None), (np.float16, None), (BF16, None), (np.float32, BF16)])
@pytest.mark.parametrize(("activation", "layout"), FORMS)
def test_moe_experts(rng, activation, dtypes, layout):
    gated = layout != "not gated"
    arguments, biases = block(rng, dtype=dtypes[0], weights=dtypes[1], gated=gated)
    *others, w13, w2 = arguments
    options = {"activation": activation, "gated": gated, "interleaved": layout == "interleaved", "limit": 1.5}
    for with_biases in ({}, biases):
        found = turnout.moe_experts(*arguments, **with_biases, **options)
        assert found.dtype == dtypes[0]
        tolerance = SPLIT if dtypes[1] else 0.0
        assert_close(found, check.moe_experts(*arguments, **with_biases, **options), tolerance)
        if layout == "transposed":
            other = [np.ascontiguousarray(w.swapaxes(1, 2)) for w in (w13, w2)]
            turned = turnout.moe_experts(*others, *other, transposed=True, **with_biases, **options)
            assert_close(turned, found.astype(np.float64), tolerance)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_precision_of_bfloat16_weights(rng, dtype, transposed):
    sizes = {"tokens": 40, "hidden": 300, "inner": 130, "experts": 3}
    (*tokens, w13, w2), _ = block(rng, **sizes, dtype=dtype, weights=BF16)
    if transposed:
        w13, w2 = (np.ascontiguousarray(w.swapaxes(1, 2)) for w in (w13, w2))
    arguments = (*tokens, w13, w2)
    expected = check.moe_experts(*arguments, transposed=transposed)
    exact = turnout.moe_experts(*arguments, transposed=transposed)
    assert_close(exact, expected, SPLIT)
    rounded = turnout.moe_experts(*arguments, transposed=transposed, precision="bfloat16")
    assert_close(rounded, expected, 1e-2)
    if turnout._core.info()["isa"] == "avx512_bf16":
        assert not same_bits(exact, rounded)
    # A token has the same bits alone and with others.
    x, ids, gates = tokens
    for precision in ("float32", "bfloat16"):
        options = {"transposed": transposed, "precision": precision}
        together = turnout.moe_experts(*arguments, **options)
        alone = [
            turnout.moe_experts(x[i : i + 1], ids[i : i + 1], gates[i : i + 1], w13, w2, **options)
            for i in range(40)
        ]
        assert same_bits(together, np.concatenate(alone))
    with pytest.raises(ValueError, match="precision is 'half', expected one of"):
        turnout.moe_experts(*arguments, transposed=transposed, precision="half")


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1, 1), (1, 8, 16, 40, 12), (29, 3, 2, 31, 7), (200, 2, 4, 16, 5)]
)
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_odd_sizes(rng, sizes, dtype):
    arguments, biases = block(rng, *sizes, dtype=dtype)
    for ids in (arguments[1], arguments[1].astype(np.int32)):
        call = (arguments[0], ids, *arguments[2:])
        assert_close(turnout.moe_experts(*call, **biases), check.moe_experts(*call, **biases))


@pytest.mark.parametrize("empty", ["tokens", "choices", "experts"])
def test_without_elements(rng, empty):
    arguments, _ = block(rng, **{empty: 0})
    found = turnout.moe_experts(*arguments)
    assert found.shape == arguments[0].shape
    assert not found.any()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtypes", [(np.float32, np.float32), (BF16, BF16), (np.float16, np.float32)])
@pytest.mark.parametrize("layout", ["plain", "interleaved", "not gated"])
@pytest.mark.parametrize("tokens", [1, 30])
def test_quantized(rng, bits, dtypes, layout, tokens):
    gated = layout != "not gated"
    arguments, biases = block(rng, tokens=tokens, hidden=96, inner=64, dtype=dtypes[0], gated=gated)
    options = {"gated": gated, "interleaved": layout == "interleaved"}
    quantized = [turnout.quantize_experts(w.astype(np.float32), bits=bits) for w in arguments[3:]]
    call = *arguments[:3], *(a for values, scale in quantized for a in (values, scale.astype(dtypes[1])))
    for with_biases in ({}, biases):
        found = turnout.moe_experts_quantized(*call, **with_biases, **options)
        assert found.dtype == dtypes[0]
        assert_close(found, check.moe_experts_quantized(*call, **with_biases, **options))
    whole = check.moe_experts(*arguments, **options)
    assert np.abs(check.moe_experts_quantized(*call, **options) - whole).max() <= (
        {8: 0.05, 4: 0.4}[bits] * np.abs(whole).max()
    )


def test_quantize_experts(rng):
    weight = rng.standard_normal((2, 3, 64)).astype(np.float32)
    weight[1, 2] = 0
    weight[0, 0, 0], weight[0, 0, 40] = -9, 9
    for bits, half in ((8, 0.5), (4, 1.0)):  # with 4 bits the largest magnitude may be 8, and its opposite 7
        values, scale = turnout.quantize_experts(weight, bits=bits)
        error = np.abs(check.dequantized(values, scale) - weight).reshape(*scale.shape, -1)
        assert (error <= half * np.abs(scale)[..., None] * 1.0001).all()
        assert not check.dequantized(values, scale)[1, 2].any()
    with pytest.raises(ValueError, match=r"weight.shape\[2\] is 33, expected a multiple of 32 for 4 bits"):
        turnout.quantize_experts(np.ones((1, 1, 33), np.float32), bits=4)
    with pytest.raises(ValueError, match="bits is 3, expected 8 or 4"):
        turnout.quantize_experts(weight, bits=3)
    with pytest.raises(ValueError, match="weight has 2 dimensions, expected 3"):
        turnout.quantize_experts(weight[0])
    for bits in (8, 4):
        for wrong in (np.nan, np.inf):
            weight[1, 0, 5] = wrong
            with pytest.raises(ValueError, match=r"weight\[1\] has a value that is not finite"):
                turnout.quantize_experts(weight, bits=bits)


@pytest.mark.parametrize(
    ("bits", "changes", "message"),
    [
        (
            8,
            {"w13": np.ones((3, 64, 31), np.int8)},
            r"w13.shape\[2\] is 31, expected 32 for hidden_states.shape\[1\] = 32",
        ),
        (
            4,
            {"w13": np.ones((3, 64, 32), np.uint8)},
            r"w13.shape\[2\] is 32, expected 16 bytes of 2 elements for hidden_states.shape\[1\] = 32",
        ),
        (
            4,
            {"w2_scale": np.ones((3, 32, 2), np.float32)},
            r"w2_scale.shape\[2\] is 2, expected 1, one per 32 elements",
        ),
        (
            8,
            {"w13_scale": np.ones((3, 64, 2), np.float32)},
            r"w13_scale.shape\[2\] is 2, expected 1, one per row",
        ),
        (8, {"gated": False}, r"w13.shape\[1\] is 64, expected 32 = w2.shape"),
        (8, {"w2": np.ones((3, 32, 32), np.uint8)}, "w2 has dtype uint8, expected that of w13"),
        (8, {"limit": 0.0}, "limit is 0, expected a number above 0"),
    ],
)
def test_refusals_of_quantized(rng, bits, changes, message):
    arguments, _ = block(rng, hidden=32, inner=32)
    names = ["hidden_states", "topk_ids", "topk_weights", "w13", "w13_scale", "w2", "w2_scale"]
    weights = [a for w in arguments[3:] for a in turnout.quantize_experts(w, bits=bits)]
    call = dict(zip(names, (*arguments[:3], *weights), strict=True))
    out = np.full((7, 32), 7, np.float32)
    with pytest.raises((ValueError, TypeError), match=f"^moe_experts_quantized: {message}"):
        turnout.moe_experts_quantized(**{**call, **changes}, out=out)
    assert (out == 7).all()


@settings(max_examples=60, deadline=None)
@given(ids=arrays(np.int64, (9, 3), elements=st.one_of(st.integers(-2, 6), st.integers(-(2**63), 2**63 - 1))))
def test_any_ids(ids):
    arguments, _ = block(np.random.default_rng(0), tokens=9, choices=3, experts=5)
    call = (arguments[0], ids, *arguments[2:])
    assert_close(turnout.moe_experts(*call), check.moe_experts(*call))


def test_a_token_does_not_depend_on_others_nor_on_threads(rng):
    """Few tokens and many tokens use different code paths."""
    arguments, _ = block(rng, tokens=300, hidden=40, inner=24, dtype=BF16)
    x, ids, gates, *weights = arguments
    whole = turnout.moe_experts(*arguments)
    threads = turnout.get_num_threads()
    turnout.set_num_threads(1)
    try:
        assert same_bits(turnout.moe_experts(*arguments), whole)
    finally:
        turnout.set_num_threads(threads)
    for t in (0, 150, 299):
        alone = turnout.moe_experts(x[t : t + 1], ids[t : t + 1], gates[t : t + 1], *weights)
        assert same_bits(alone, whole[t : t + 1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": "tanh"}, "activation is 'tanh', expected one of 'silu', 'gelu', "),
        (
            {"w2": np.ones((3, 24, 9), np.float32)},
            r"w13.shape\[1\] is 20, expected 18 = 2 \* w2.shape",
        ),
        ({"gated": False}, r"w13.shape\[1\] is 20, expected 10 = w2.shape"),
        ({"limit": 0.0}, "limit is 0, expected a number above 0"),
        ({"alpha": float("nan")}, "alpha is nan, expected a finite number"),
        (
            {"topk_ids": np.zeros((6, 2), np.int64)},
            r"topk_ids.shape\[0\] is 6, expected 7 = hidden_states.shape",
        ),
        ({"w13": np.ones((3, 20, 24))}, "w13 has dtype "),
        ({"transposed": True}, r"w13.shape\[2\] is 20, expected 24 = hidden_states.shape"),
        ({"topk_ids": np.zeros((7, 2), np.float32)}, "topk_ids has dtype "),
    ],
)
def test_refusals(rng, changes, message):
    arguments, _ = block(rng)
    names = ["hidden_states", "topk_ids", "topk_weights", "w13", "w2"]
    out = np.full((7, 24), 7, np.float32)
    with pytest.raises((ValueError, TypeError), match=f"^moe_experts: {message}"):
        turnout.moe_experts(**{**dict(zip(names, arguments, strict=True)), **changes}, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("offs", "message"),
    [
        ([3, 2], r"offs\[1\] is 2, expected"),
        ([3, 6], r"offs\[1\] is 6, expected"),
        ([-1, 2], r"offs\[0\] is -1"),
    ],
)
def test_wrong_offsets(offs, message):
    with pytest.raises(ValueError, match=f"^grouped_mm: {message}"):
        turnout.grouped_mm(np.ones((5, 3), np.float32), np.ones((2, 3, 4), np.float32), offs=np.array(offs))
