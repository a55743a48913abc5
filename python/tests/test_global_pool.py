"""Pooling of whole batch elements: definitions and messages."""

import numpy as np
import pytest
from conftest import same_bits

import turnout
from turnout import check


def example(rng, rows=70, channels=5, batch_size=4, index=np.int32):
    """Batch element 1 has no rows."""
    indices = np.stack([rng.integers(0, n, rows) for n in (batch_size, 5, 6)], axis=1).astype(index)
    indices[indices[:, 0] == 1, 0] = 0
    return rng.standard_normal((rows, channels)).round(1), indices, batch_size


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_equals_the_definition(rng, dtype, index):
    features, indices, batch_size = example(rng, index=index)
    features = features.astype(dtype)
    features[3, 2] = np.nan
    most = turnout.global_max_pool_forward(features, indices, batch_size)
    np.testing.assert_array_equal(most, check.global_max_pool_forward(features, indices, batch_size))
    assert (most[1] == 0).all()
    features[3, 2] = 1
    mean = turnout.global_avg_pool_forward(features, indices, batch_size)
    expected = check.global_avg_pool_forward(features, indices, batch_size).astype(np.float64)
    np.testing.assert_allclose(mean.astype(np.float64), expected, rtol=2 * np.finfo(dtype).eps, atol=1e-7)
    assert (mean[1] == 0).all()
    out = np.ones_like(mean)
    assert turnout.global_avg_pool_forward(features, indices, batch_size, out=out) is out
    assert same_bits(out, mean)


def test_messages(rng):
    features, indices, _ = example(rng)
    indices[7, 0] = 9
    for function in (turnout.global_max_pool_forward, turnout.global_avg_pool_forward):
        with pytest.raises(ValueError, match=rf"{function.__name__}: indices\[7, 0\] is 9, expected 0 .. 3"):
            function(features, indices, 4)
        with pytest.raises(ValueError, match="batch_size is -1, expected 0 or more"):
            function(features, indices, -1)
        with pytest.raises(ValueError, match=r"indices.shape\[0\] is 69"):
            function(features, indices[:-1].copy(), 4)
        with pytest.raises(ValueError, match=r"out.shape\[0\] is 3, expected 4 = batch_size"):
            function(features, indices, 4, out=np.zeros((3, 5)))
