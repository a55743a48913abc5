"""Convolutions and pooling over given pairs against their definitions, for NumPy arrays."""

import ml_dtypes
import numpy as np
import pytest
from conftest import same_bits
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_sparse_conv import distinct_sites, sites

import turnout
from turnout import check

MODES = [{}, {"stride": 2, "padding": 1}, {"subm": True}, {"transpose": True, "stride": 2, "kernel_size": 2}]
TOLERANCE = {"float32": 3e-6, "float64": 1e-14, "float16": 2e-3, "bfloat16": 1.6e-2}


def scene(rng, rows=60, space=(5, 6, 7), make=distinct_sites, **options):
    indices = make(rng, rows, 2, space)
    out_indices, pairs, num = turnout.get_indice_pairs(indices, 2, space, **options)
    return len(indices), len(out_indices), pairs, num


def values(rng, shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def assert_near(actual, expected, products=0):
    """Compares up to the error of a sum of products and of one rounding. `products` are the same sums of
    absolute values, which bound the error if products cancel."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    expected = expected.astype(np.float64)
    scale = np.abs(expected).max(initial=1)
    bound = max(TOLERANCE[actual.dtype.name] * scale, 1.2e-7 * np.max(products, initial=0))
    assert np.abs(actual.astype(np.float64) - expected).max(initial=0) <= bound


# -- results -----------------------------------------------------------------------------------------------


def test_worked_example():
    indices = np.array([[0, 0], [0, 1]], np.int32)
    _, pairs, num = turnout.get_indice_pairs(indices, 1, (3,), 3, subm=True)
    features = np.array([[1, 2], [3, 4]], np.float32)
    filters = np.array([[[10], [20]], [[1], [-1]], [[100], [200]]], np.float32)
    bias = np.array([0.5], np.float32)
    out = turnout.indice_convolution_forward(features, filters, pairs, num, 2, bias=bias)
    assert out.tolist() == [[1 - 2 + 300 + 800 + 0.5], [10 + 40 + 3 - 4 + 0.5]]
    grad = np.array([[1], [10]], np.float32)
    data = turnout.indice_convolution_backward_data(grad, filters, pairs, num, 2)
    assert data.tolist() == [[101, 199], [110, 190]]
    filter_grad = turnout.indice_convolution_backward_filter(features, grad, pairs, num)
    assert filter_grad[..., 0].tolist() == [[10, 20], [31, 42], [3, 4]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("options", MODES)
def test_definition(rng, dtype, options):
    rows, out_rows, pairs, num = scene(rng, **options)
    kernel = [2 if "transpose" in options else 3] * 3
    features, grad = values(rng, (rows, 9), dtype), values(rng, (out_rows, 17), dtype)
    filters, bias = values(rng, (*kernel, 9, 17), dtype), values(rng, 17, dtype)
    subm = {"subm": options.get("subm", False)}
    for counts in (num, num.astype(np.int64)):
        for given_bias in (None, bias):
            call = (features, filters, pairs, counts, out_rows)
            assert_near(
                turnout.indice_convolution_forward(*call, bias=given_bias, **subm),
                check.indice_convolution_forward(*call, bias=given_bias, **subm),
            )
        call = (grad, filters, pairs, counts, rows)
        assert_near(
            turnout.indice_convolution_backward_data(*call, **subm),
            check.indice_convolution_backward_data(*call, **subm),
        )
        call = (features, grad, pairs, counts)
        assert_near(
            turnout.indice_convolution_backward_filter(*call, **subm),
            check.indice_convolution_backward_filter(*call, **subm),
        )


def test_inverse_reverses_the_pairs(rng):
    rows, out_rows, pairs, num = scene(rng, stride=2, padding=1)
    features, grad = values(rng, (out_rows, 8)), values(rng, (rows, 5))
    filters = values(rng, (27, 8, 5))
    call = (features, filters, pairs, num, rows)
    back = turnout.indice_convolution_forward(*call, inverse=True)
    assert_near(back, check.indice_convolution_forward(*call, inverse=True))
    exchanged = np.ascontiguousarray(pairs[:, ::-1])
    assert same_bits(back, turnout.indice_convolution_forward(features, filters, exchanged, num, rows))
    call = (grad, filters, pairs, num, out_rows)
    assert_near(
        turnout.indice_convolution_backward_data(*call, inverse=True),
        check.indice_convolution_backward_data(*call, inverse=True),
    )
    call = (features, grad, pairs, num)
    assert_near(
        turnout.indice_convolution_backward_filter(*call, inverse=True),
        check.indice_convolution_backward_filter(*call, inverse=True),
    )


def test_filters_in_both_layouts_have_the_same_bits(rng):
    rows, out_rows, pairs, num = scene(rng, subm=True)
    features, filters = values(rng, (rows, 8)), values(rng, (3, 3, 3, 8, 16))
    expected = turnout.indice_convolution_forward(features, filters, pairs, num, out_rows)
    krsc = np.ascontiguousarray(filters.transpose(4, 0, 1, 2, 3))
    for view in (filters.reshape(27, 8, 16), krsc.transpose(1, 2, 3, 4, 0)):
        actual = turnout.indice_convolution_forward(features, view, pairs, num, out_rows)
        assert same_bits(actual, expected)


def test_repeated_sites_of_a_submanifold_convolution_pair_with_themselves(rng):
    rows, _, pairs, num = scene(rng, rows=200, space=(3, 3, 3), make=sites, subm=True)
    features, filters = values(rng, (rows, 4)), values(rng, (27, 4, 4))
    call = (features, filters, pairs, num, rows)
    along = turnout.indice_convolution_forward(*call)
    centred = turnout.indice_convolution_forward(*call, subm=True)
    assert_near(centred, check.indice_convolution_forward(*call, subm=True))
    assert not np.allclose(along, centred)
    rows, _, pairs, num = scene(rng, subm=True)
    call = (values(rng, (rows, 4)), filters, pairs, num, rows)
    assert same_bits(
        turnout.indice_convolution_forward(*call), turnout.indice_convolution_forward(*call, subm=True)
    )


def test_same_bits_for_any_number_of_threads(rng, threads):
    rows, out_rows, pairs, num = scene(rng, rows=4000, space=(20, 60, 60), stride=2, padding=1)
    features, grad, filters = (values(rng, shape) for shape in ((rows, 32), (out_rows, 48), (27, 32, 48)))
    results = []
    for count in (1, 2, 5):
        threads(count)
        results.append(
            (
                turnout.indice_convolution_forward(features, filters, pairs, num, out_rows),
                turnout.indice_convolution_backward_data(grad, filters, pairs, num, rows),
                turnout.indice_convolution_backward_filter(features, grad, pairs, num),
                turnout.indice_max_pool_forward(features, pairs, num, out_rows),
            )
        )
    for other in results[1:]:
        assert all(same_bits(a, b) for a, b in zip(results[0], other, strict=True))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.integers(0, 9), st.integers(0, 9), st.integers(0, 20), st.integers(0, 20)
)
@example(1131, 7, 1, 18, 1)  # hundreds of products whose sum is 0.9
def test_any_pairs(seed, rows, out_rows, channels, out_channels):
    rng = np.random.default_rng(seed)
    columns = 12
    num = rng.integers(0, columns + 1, 4) * (rows > 0 and out_rows > 0)
    pairs = np.full((4, 2, columns), -1, np.int32)
    for k, n in enumerate(num):
        pairs[k, 0, :n] = rng.integers(0, max(rows, 1), n)
        pairs[k, 1, :n] = rng.integers(0, max(out_rows, 1), n)
    features, grad = values(rng, (rows, channels)), values(rng, (out_rows, out_channels))
    filters = values(rng, (4, channels, out_channels))
    for name, call in {
        "indice_convolution_forward": (features, filters, pairs, num, out_rows),
        "indice_convolution_backward_data": (grad, filters, pairs, num, rows),
        "indice_convolution_backward_filter": (features, grad, pairs, num),
    }.items():
        definition = getattr(check, name)
        products = definition(np.abs(call[0]), np.abs(call[1]), *call[2:])
        assert_near(getattr(turnout, name)(*call), definition(*call), products)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("init", ["zero", "lowest"])
def test_max_pool(rng, dtype, init):
    rows, out_rows, pairs, num = scene(rng, stride=2, padding=1)
    # Few values, so that many are equal, with zeros and NaN.
    features = rng.integers(-3, 2, (rows, 7)).astype(dtype)
    features[3] = np.nan
    grad = values(rng, (out_rows, 7), dtype)
    out = turnout.indice_max_pool_forward(features, pairs, num, out_rows, init=init)
    assert same_bits(out, check.indice_max_pool_forward(features, pairs, num, out_rows, init=init))
    assert (out >= 0).all() == (init == "zero")
    call = (features, out, grad, pairs, num)
    input_grad = turnout.indice_max_pool_backward(*call)
    assert_near(input_grad, check.indice_max_pool_backward(*call))
    assert (input_grad[3] == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_avg_pool(rng, dtype):
    rows, out_rows, pairs, num = scene(rng, stride=2, padding=1)
    features, grad = values(rng, (rows, 7), dtype), values(rng, (out_rows, 7), dtype)
    call = (features, pairs, num, out_rows + 1)  # the last row has no pair
    out = turnout.indice_avg_pool_forward(*call)
    assert_near(out, check.indice_avg_pool_forward(*call))
    assert (out[-1] == 0).all()
    call = (grad, pairs, num, rows)
    assert_near(turnout.indice_avg_pool_backward(*call), check.indice_avg_pool_backward(*call))


# -- out= and errors ---------------------------------------------------------------------------------------


def test_out(rng):
    rows, out_rows, pairs, num = scene(rng)
    features, filters = values(rng, (rows, 4)), values(rng, (27, 4, 6))
    out = np.full((out_rows, 6), 7, np.float32)
    call = (features, filters, pairs, num, out_rows)
    assert turnout.indice_convolution_forward(*call, out=out) is out
    assert same_bits(out, turnout.indice_convolution_forward(*call))


def broken(pairs, k, side, j, value):
    pairs = pairs.copy()
    pairs[k, side, j] = value
    return pairs


def test_refusals(rng):
    rows, out_rows, pairs, num = scene(rng, stride=2, padding=1)
    features, filters, grad = (
        values(rng, (rows, 4)),
        values(rng, (27, 4, 6)),
        values(rng, (out_rows, 6)),
    )
    name = "indice_convolution_forward: "
    limit = f"expected 0 .. {out_rows - 1}, the rows of out"

    def message(*arguments, function=turnout.indice_convolution_forward, **options):
        with pytest.raises(ValueError) as error:
            function(*arguments, **options)
        return str(error.value)

    k = int(np.argmax(num))
    bad = broken(pairs, k, 1, 2, out_rows)
    out = np.full((out_rows, 6), 7, np.float32)
    assert (
        message(features, filters, bad, num, out_rows, out=out)
        == f"{name}indice_pairs[{k}][1][2] is {out_rows}, {limit}"
    )
    assert (out == 7).all()
    bad = broken(pairs, k, 0, 0, -1)
    assert f"indice_pairs[{k}][0][0] is -1" in message(features, filters, bad, num, out_rows)
    assert f"indice_pairs[{k}][0][0] is -1" in message(
        features, grad, bad, num, function=turnout.indice_convolution_backward_filter
    )
    many = num.copy()
    many[3] = rows + 1
    assert f"indice_num[3] is {rows + 1}, expected 0 .. {rows}" in message(
        features, filters, pairs, many, out_rows
    )
    assert message(features, filters, pairs, num, -1) == f"{name}num_act_out is -1, expected 0 or more"
    assert (
        message(features, filters, pairs, num, out_rows + 1, out=out)
        == f"{name}out.shape[0] is {out_rows}, expected {out_rows + 1} = num_act_out"
    )
    assert "filters.shape[1] is 3" in message(features, filters[:, :3], pairs, num, out_rows)
    assert ".shape[0] is" in message(features, filters, pairs, num, out_rows, subm=True)
    odd = values(rng, (9, 5, 4, 6))[:, :3]
    assert "filters.stride(0) is 120" in message(features, odd, pairs, num, out_rows)
    assert "init is 'median', expected " in message(
        features, pairs, num, out_rows, init="median", function=turnout.indice_max_pool_forward
    )
