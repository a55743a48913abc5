"""The definitions of pooling of whole batch elements, and checks against them."""

from __future__ import annotations

import numpy as np

import turnout

__all__ = [
    "global_avg_pool_backward",
    "global_avg_pool_forward",
    "global_max_pool_backward",
    "global_max_pool_forward",
]


def global_max_pool_forward(features, indices, batch_size):
    """The definition of ``turnout.global_max_pool_forward``."""
    out = np.zeros((batch_size, features.shape[1]), features.dtype)
    for b in range(batch_size):
        rows = features[indices[:, 0] == b]
        if len(rows):
            out[b] = np.fmax.reduce(np.where(np.isnan(rows), -np.inf, rows))
    return out


def global_max_pool_backward(features, features_out, output_grad, indices):
    """The definition of ``turnout.global_max_pool_backward``."""
    b = indices[:, 0]
    return np.where(features == features_out[b], output_grad[b], 0).astype(features.dtype)


def _counts(indices, batch_size):
    return np.maximum(np.bincount(indices[:, 0], minlength=batch_size), 1)[:, None]


def global_avg_pool_forward(features, indices, batch_size):
    """The definition of ``turnout.global_avg_pool_forward``, in float64."""
    out = np.zeros((batch_size, features.shape[1]))
    np.add.at(out, indices[:, 0], features.astype(np.float64))
    return (out / _counts(indices, batch_size)).astype(features.dtype)


def global_avg_pool_backward(output_grad, indices):
    """The definition of ``turnout.global_avg_pool_backward``, in float64."""
    share = output_grad.astype(np.float64) / _counts(indices, len(output_grad))
    return share[indices[:, 0]].astype(output_grad.dtype)


def _example(rng):
    indices = np.stack([rng.integers(0, n, 70) for n in (3, 5, 6)], axis=1).astype(np.int32)
    indices[indices[:, 0] == 1, 0] = 3
    features = rng.standard_normal((70, 5)).astype(np.float32).round(1)
    return features, rng.standard_normal((4, 5)).astype(np.float32), indices


def _near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def _check_max_forward(rng: np.random.Generator) -> None:
    features, _, indices = _example(rng)
    arguments = features, indices, 4
    np.testing.assert_array_equal(
        turnout.global_max_pool_forward(*arguments), global_max_pool_forward(*arguments)
    )


def _check_max_backward(rng: np.random.Generator) -> None:
    features, grad, indices = _example(rng)
    arguments = features, global_max_pool_forward(features, indices, 4), grad, indices
    np.testing.assert_array_equal(
        turnout.global_max_pool_backward(*arguments), global_max_pool_backward(*arguments)
    )


def _check_avg_forward(rng: np.random.Generator) -> None:
    features, _, indices = _example(rng)
    arguments = features, indices, 4
    _near(turnout.global_avg_pool_forward(*arguments), global_avg_pool_forward(*arguments))


def _check_avg_backward(rng: np.random.Generator) -> None:
    _, grad, indices = _example(rng)
    _near(turnout.global_avg_pool_backward(grad, indices), global_avg_pool_backward(grad, indices))


CHECKS = {
    "global_max_pool_forward": _check_max_forward,
    "global_max_pool_backward": _check_max_backward,
    "global_avg_pool_forward": _check_avg_forward,
    "global_avg_pool_backward": _check_avg_backward,
}
