"""The RNN-T operators from NumPy: against their definitions, out=, dtypes, threads and large offsets."""

import numpy as np
import pytest
from conftest import same_bits

import turnout
from turnout import check

KINDS = ("joint", "pruned", "simple")
SHAPE = 3, 9, 4, 21  # batch, frames, symbols, classes


def arguments(rng, kind, dtype=np.float32, shape=SHAPE):
    batch, frames, symbols, classes = shape
    text = rng.integers(1, classes, (batch, symbols))
    if kind == "simple":
        lm = rng.standard_normal((batch, symbols + 1, classes)).astype(dtype)
        return lm, rng.standard_normal((batch, frames, classes)).astype(dtype), text
    rows = symbols + 1 if kind == "joint" else 3
    logits = rng.standard_normal((batch, frames, rows, classes)).astype(dtype)
    if kind == "joint":
        return logits, text
    return logits, text, rng.integers(0, symbols - 1, (batch, frames, 1)) + np.arange(3)


def boundaries(rng, shape=SHAPE):
    batch, frames, symbols, _ = shape
    t = np.sort(rng.integers(0, frames + 1, (batch, 2)), 1)
    s_begin = rng.integers(0, symbols + 1, batch)
    s_end = np.minimum(symbols, s_begin + t[:, 1] - t[:, 0])
    return np.stack([s_begin, t[:, 0], s_end, t[:, 1]], 1)


def step_grads(rng, modified, dtype=np.float32, shape=SHAPE):
    batch, frames, symbols, _ = shape
    shapes = (batch, symbols, frames + (not modified)), (batch, symbols + 1, frames)
    return tuple(rng.standard_normal(s).astype(dtype) for s in shapes)


def functions(kind):
    return [
        getattr(module, f"rnnt_logprobs_{kind}_{way}")
        for way in ("forward", "backward")
        for module in (turnout, check)
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("modified", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_logprobs(rng, kind, modified, dtype):
    forward, forward_definition, backward, backward_definition = functions(kind)
    given = arguments(rng, kind, dtype)
    lane = np.float64 if dtype == np.float64 else np.float32
    rounding = max(np.finfo(dtype).eps, 1e-5 if lane == np.float32 else 1e-12)
    for boundary in (None, boundaries(rng)):
        for options in ({}, {"use_hat_loss": True}) if kind == "pruned" else ({},):
            steps = forward(*given, 0, boundary=boundary, modified=modified, **options)
            expected = forward_definition(*given, 0, boundary=boundary, modified=modified, **options)
            for actual, wanted in zip(steps[:3], expected[:3], strict=True):
                assert actual.dtype == lane
                np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)
            assert same_bits(steps[3], expected[3].astype(np.int64))
            grads = step_grads(rng, modified, lane)
            results = [
                f(*given, steps[2], *grads, 0, boundary=boundary, **options)
                for f in (backward, backward_definition)
            ]
            for actual, wanted in zip(*(r if kind == "simple" else (r,) for r in results), strict=True):
                assert actual.dtype == dtype
                np.testing.assert_allclose(actual, wanted, rtol=rounding, atol=4 * rounding)


@pytest.mark.parametrize("kind", KINDS)
def test_out_and_threads(rng, kind, threads):
    """Results have the same bits for any number of threads, and in given arrays."""
    shape = 4, 60, 8, 300
    forward, _, backward, _ = functions(kind)
    given, grads = arguments(rng, kind, shape=shape), step_grads(rng, False, shape=shape)
    threads(1)
    steps = forward(*given, 0)
    result = backward(*given, steps[2], *grads, 0)
    threads(3)
    out = tuple(np.full_like(x, 7) for x in steps)
    assert all(a is b for a, b in zip(forward(*given, 0, out=out), out, strict=True))
    assert all(map(same_bits, out, steps))
    results = (result,) if kind != "simple" else result
    where = tuple(np.full_like(x, 7) for x in results)
    again = backward(*given, steps[2], *grads, 0, out=where if kind == "simple" else where[0])
    assert all(map(same_bits, again if kind == "simple" else (again,), results))
    if kind != "simple":  # in place
        logits = given[0].copy()
        assert backward(logits, *given[1:], steps[2], *grads, 0, out=logits) is logits
        assert same_bits(logits, result)


def test_pruning(rng):
    px_grad, py_grad = step_grads(rng, False)
    boundary = np.array([(0, 0, 4, 9), (0, 0, 2, 3), (0, 0, 0, 1)])
    for s_range in (1, 2, 3, 9):
        ranges = turnout.rnnt_prune_ranges(px_grad, py_grad, boundary, s_range)
        assert same_bits(ranges, check.rnnt_prune_ranges(px_grad, py_grad, boundary, s_range))
        out = np.zeros_like(ranges)
        assert turnout.rnnt_prune_ranges(px_grad, py_grad, boundary, s_range, out=out) is out
        lm = rng.standard_normal((3, 5, 7))
        pruned = turnout.rnnt_pruning_forward(lm, ranges)
        assert same_bits(pruned, check.rnnt_pruning_forward(lm, ranges))
        np.testing.assert_allclose(
            turnout.rnnt_pruning_backward(pruned, ranges, 4), check.rnnt_pruning_backward(pruned, ranges, 4)
        )
    with pytest.raises(
        ValueError, match=r"rnnt_prune_ranges: score is 'best', expected one of 'flow', 'steps'"
    ):
        turnout.rnnt_prune_ranges(px_grad, py_grad, boundary, 2, score="best")
    with pytest.raises(ValueError, match=r"rnnt_pruning_backward: symbols is -1, expected 0 or more"):
        turnout.rnnt_pruning_backward(pruned, ranges, -1)


@pytest.mark.parametrize("modified", [False, True])
def test_align(rng, modified):
    px, py = step_grads(rng, modified)
    for boundary in (None, boundaries(rng)):
        frames, score = turnout.rnnt_align(px, py, boundary=boundary)
        expected = check.rnnt_align(px, py, boundary=boundary)
        np.testing.assert_array_equal(frames, expected[0])
        np.testing.assert_allclose(score, expected[1], rtol=1e-5)


def test_offsets_beyond_32_bits(rng):
    """There are more than 2^31 logits, of which only the last row of the batch is read."""
    batch, frames, symbols, classes = 35_000, 8, 7, 1024
    logits = np.empty((batch, frames, symbols + 1, classes), np.float16)
    assert logits.size > 2**31
    last = rng.standard_normal(logits.shape[1:]).astype(np.float16)
    logits[-1] = last
    text = np.zeros((batch, symbols), np.int32)
    text[-1] = rng.integers(0, classes, symbols)
    boundary = np.zeros((batch, 4), np.int64)
    boundary[-1] = 0, 0, symbols, frames
    px, py, _, nan_at = turnout.rnnt_logprobs_joint_forward(logits, text, 0, boundary=boundary)
    alone = turnout.rnnt_logprobs_joint_forward(last[None], text[-1:], 0)
    assert same_bits(px[-1:], alone[0])
    assert same_bits(py[-1:], alone[1])
    assert (nan_at == -1).all()
