"""Pooling of whole batch elements, and its gradients."""

from __future__ import annotations

from typing import Any

from turnout import _core

__all__ = [
    "global_avg_pool_backward",
    "global_avg_pool_forward",
    "global_max_pool_backward",
    "global_max_pool_forward",
]

Array = Any  # of NumPy, torch, or any library that speaks DLPack
Int = Any  # anything with __index__


def global_max_pool_forward(
    features: Array, indices: Array, batch_size: Int, *, out: Array | None = None
) -> Array:
    """The maximum of each channel over the rows of each batch element.

    ::

        features_out[b] = max(features[i] for all rows i with indices[i, 0] == b)     # 0 without such a row

    NaN is ignored; rows of NaN alone give -inf. Arrays are contiguous, in CPU memory; read-only inputs are
    fine. Results are bit-identical for any number of threads. On an error nothing is written.

    Args:
        features: ``[rows, channels]``, float32, float64, float16 or bfloat16.
        indices: ``[rows, columns]``, int32 or int64. Column 0 is the batch number, ``0 .. batch_size - 1``;
            other columns are not read.
        batch_size: rows of the result.
        out: where to write.

    Returns:
        features_out: ``[batch_size, channels]``, ``out`` or a new array.

    Raises:
        ValueError: arguments that do not fit together, or a batch number out of range.
        TypeError: something that is no array, or no integer.
    """
    return _core.global_max_pool_forward(features, indices, batch_size, out, False)


def global_max_pool_backward(
    features: Array, features_out: Array, output_grad: Array, indices: Array, *, out: Array | None = None
) -> Array:
    """The gradient of ``features`` of :func:`global_max_pool_forward`, for that of its result.

    ::

        b = indices[i, 0]
        input_grad[i] = where(features[i] == features_out[b], output_grad[b], 0)

    Every input that equals the maximum gets the gradient.
    """
    return _core.global_max_pool_backward(features, features_out, output_grad, indices, out, False)


def global_avg_pool_forward(
    features: Array, indices: Array, batch_size: Int, *, out: Array | None = None
) -> Array:
    """The mean of each channel over the rows of each batch element.

    ::

        features_out[b] = mean(features[i] for all rows i with indices[i, 0] == b)    # 0 without such a row

    Sums are in float32 (float64 for float64), in ascending row, 512 rows of a batch element at a time; the
    result is rounded once. Arguments and errors are as for :func:`global_max_pool_forward`.
    """
    return _core.global_avg_pool_forward(features, indices, batch_size, out, False)


def global_avg_pool_backward(output_grad: Array, indices: Array, *, out: Array | None = None) -> Array:
    """The gradient of ``features`` of :func:`global_avg_pool_forward`, for that of its result.

    ::

        b = indices[i, 0]
        input_grad[i] = output_grad[b] / the number of rows of b
    """
    return _core.global_avg_pool_backward(output_grad, indices, out, False)
