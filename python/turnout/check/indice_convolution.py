"""The definitions of convolutions and pooling along given pairs, and checks against them."""

from __future__ import annotations

import math

import numpy as np

import turnout

__all__ = [
    "indice_avg_pool_backward",
    "indice_avg_pool_forward",
    "indice_convolution_backward_data",
    "indice_convolution_backward_filter",
    "indice_convolution_forward",
    "indice_max_pool_backward",
    "indice_max_pool_forward",
]


def _pairs(indice_pairs, indice_num, inverse=False, subm_rows=None):
    """Yields each offset with its input and output rows; the centre maps subm_rows rows to themselves."""
    num = np.asarray(indice_num).tolist()
    centre = int(np.argmax(num)) if subm_rows is not None and num else None
    for k, n in enumerate(num):
        if k == centre:
            yield k, np.arange(subm_rows), np.arange(subm_rows)
        else:
            i, o = np.asarray(indice_pairs)[k, :, :n]
            yield (k, o, i) if inverse else (k, i, o)


def _stacked(filters):
    return filters.reshape(math.prod(filters.shape[:-2]), *filters.shape[-2:])


def indice_convolution_forward(
    features, filters, indice_pairs, indice_num, num_act_out, *, bias=None, inverse=False, subm=False
):
    """The definition of ``turnout.indice_convolution_forward``, in float64."""
    filters = _stacked(filters).astype(np.float64)
    out = np.zeros((num_act_out, filters.shape[2]))
    for k, i, o in _pairs(indice_pairs, indice_num, inverse, len(features) if subm else None):
        np.add.at(out, o, features[i].astype(np.float64) @ filters[k])
    if bias is not None:
        out += bias.astype(np.float64)
    return out.astype(features.dtype)


def indice_convolution_backward_data(
    output_grad, filters, indice_pairs, indice_num, num_act_in, *, inverse=False, subm=False
):
    """The definition of ``turnout.indice_convolution_backward_data``, in float64."""
    filters = _stacked(filters).astype(np.float64)
    grad = np.zeros((num_act_in, filters.shape[1]))
    for k, i, o in _pairs(indice_pairs, indice_num, inverse, num_act_in if subm else None):
        np.add.at(grad, i, output_grad[o].astype(np.float64) @ filters[k].T)
    return grad.astype(output_grad.dtype)


def indice_convolution_backward_filter(
    features, output_grad, indice_pairs, indice_num, *, inverse=False, subm=False
):
    """The definition of ``turnout.indice_convolution_backward_filter``, in float64."""
    grad = np.zeros((len(indice_num), features.shape[1], output_grad.shape[1]))
    for k, i, o in _pairs(indice_pairs, indice_num, inverse, len(features) if subm else None):
        grad[k] = features[i].astype(np.float64).T @ output_grad[o].astype(np.float64)
    return grad.astype(features.dtype)


def indice_max_pool_forward(features, indice_pairs, indice_num, num_act_out, *, init="zero"):
    """The definition of ``turnout.indice_max_pool_forward``."""
    start = 0 if init == "zero" else np.finfo(features.dtype).min
    out = np.full((num_act_out, features.shape[1]), start, features.dtype)
    for _, rows, outputs in _pairs(indice_pairs, indice_num):
        for i, o in zip(rows, outputs, strict=True):
            out[o] = np.where(features[i] > out[o], features[i], out[o])
    return out


def indice_max_pool_backward(features, features_out, output_grad, indice_pairs, indice_num):
    """The definition of ``turnout.indice_max_pool_backward``, in float64."""
    grad = np.zeros(features.shape)
    for _, i, o in _pairs(indice_pairs, indice_num):
        np.add.at(grad, i, np.where(features[i] == features_out[o], output_grad[o].astype(np.float64), 0))
    return grad.astype(features.dtype)


def _pair_counts(indice_pairs, indice_num, out_rows):
    counts = np.zeros((out_rows, 1))
    for _, _, o in _pairs(indice_pairs, indice_num):
        np.add.at(counts, o, 1)
    return np.maximum(counts, 1)


def indice_avg_pool_forward(features, indice_pairs, indice_num, num_act_out):
    """The definition of ``turnout.indice_avg_pool_forward``, in float64."""
    out = np.zeros((num_act_out, features.shape[1]))
    for _, i, o in _pairs(indice_pairs, indice_num):
        np.add.at(out, o, features[i].astype(np.float64))
    return (out / _pair_counts(indice_pairs, indice_num, num_act_out)).astype(features.dtype)


def indice_avg_pool_backward(output_grad, indice_pairs, indice_num, num_act_in):
    """The definition of ``turnout.indice_avg_pool_backward``, in float64."""
    share = output_grad / _pair_counts(indice_pairs, indice_num, len(output_grad))
    grad = np.zeros((num_act_in, output_grad.shape[1]))
    for _, i, o in _pairs(indice_pairs, indice_num):
        np.add.at(grad, i, share[o])
    return grad.astype(output_grad.dtype)


def _example(rng):
    indices = np.unique(np.stack([rng.integers(0, n, 60) for n in (2, 5, 6, 7)], axis=1), axis=0)
    indices = indices.astype(np.int32)
    out_indices, pairs, num = turnout.get_indice_pairs(indices, 2, (5, 6, 7), stride=2, padding=1)
    features = rng.standard_normal((len(indices), 5)).astype(np.float32)
    grad = rng.standard_normal((len(out_indices), 8)).astype(np.float32)
    filters = rng.standard_normal((3, 3, 3, 5, 8)).astype(np.float32)
    return features, grad, filters, pairs, num


def _near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def _check_forward(rng: np.random.Generator) -> None:
    features, grad, filters, pairs, num = _example(rng)
    arguments = features, filters, pairs, num, len(grad)
    _near(turnout.indice_convolution_forward(*arguments), indice_convolution_forward(*arguments))


def _check_backward_data(rng: np.random.Generator) -> None:
    features, grad, filters, pairs, num = _example(rng)
    arguments = grad, filters, pairs, num, len(features)
    _near(turnout.indice_convolution_backward_data(*arguments), indice_convolution_backward_data(*arguments))


def _check_backward_filter(rng: np.random.Generator) -> None:
    features, grad, _, pairs, num = _example(rng)
    arguments = features, grad, pairs, num
    _near(
        turnout.indice_convolution_backward_filter(*arguments), indice_convolution_backward_filter(*arguments)
    )


def _check_index(rng: np.random.Generator) -> None:
    features, grad, filters, pairs, num = _example(rng)
    index = turnout.indice_convolution_index(pairs, num, len(features), len(grad))
    arguments = features, filters, pairs, num, len(grad)
    _near(turnout.indice_convolution_forward(*arguments, index=index), indice_convolution_forward(*arguments))


def _check_pool_forward(rng: np.random.Generator) -> None:
    features, grad, _, pairs, num = _example(rng)
    for init in ("zero", "lowest"):
        arguments = features, pairs, num, len(grad)
        np.testing.assert_array_equal(
            turnout.indice_max_pool_forward(*arguments, init=init),
            indice_max_pool_forward(*arguments, init=init),
        )


def _check_pool_backward(rng: np.random.Generator) -> None:
    features, grad, _, pairs, num = _example(rng)
    out = indice_max_pool_forward(features, pairs, num, len(grad))
    arguments = features, out, grad[:, :5].copy(), pairs, num
    _near(turnout.indice_max_pool_backward(*arguments), indice_max_pool_backward(*arguments))


def _check_avg_forward(rng: np.random.Generator) -> None:
    features, grad, _, pairs, num = _example(rng)
    arguments = features, pairs, num, len(grad)
    _near(turnout.indice_avg_pool_forward(*arguments), indice_avg_pool_forward(*arguments))


def _check_avg_backward(rng: np.random.Generator) -> None:
    features, grad, _, pairs, num = _example(rng)
    arguments = grad, pairs, num, len(features)
    _near(turnout.indice_avg_pool_backward(*arguments), indice_avg_pool_backward(*arguments))


CHECKS = {
    "indice_avg_pool_forward": _check_avg_forward,
    "indice_avg_pool_backward": _check_avg_backward,
    "indice_convolution_forward": _check_forward,
    "indice_convolution_backward_data": _check_backward_data,
    "indice_convolution_backward_filter": _check_backward_filter,
    "indice_convolution_index": _check_index,
    "indice_max_pool_forward": _check_pool_forward,
    "indice_max_pool_backward": _check_pool_backward,
}
