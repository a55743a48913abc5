"""Pooling of whole batch elements, and its gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import Array, Int, R, Source

__all__ = [
    "global_avg_pool_backward",
    "global_avg_pool_forward",
    "global_max_pool_backward",
    "global_max_pool_forward",
]


def global_max_pool_forward(
    features: Source[R], indices: Array, batch_size: Int, *, out: R | None = None
) -> R:
    """The maximum of each channel over the rows of each batch element.

    ::

        features_out[b] = max(features[i] for all rows i with indices[i, 0] == b)     # 0 without such a row

    NaN is ignored; if all rows are NaN, the maximum is -inf. A maximum of zero is +0. Arrays must be
    contiguous and in CPU memory; inputs may be read-only. Results have the same bits for any number of
    threads. A failing call writes nothing.

    Args:
        features: ``[rows, channels]``, float32, float64, float16 or bfloat16.
        indices: ``[rows, columns]``, int32 or int64. Column 0 is the batch number, ``0 .. batch_size - 1``;
            other columns are not read.
        batch_size: the number of rows of the result.
        out: the array to write to.

    Returns:
        features_out: ``[batch_size, channels]``, ``out`` or a new array.

    Raises:
        ValueError: an argument has an invalid shape or dtype, or a batch number is out of range.
        TypeError: an argument is not an array or an integer where one is expected.

    Example:
        >>> features = np.array([[1.0, 2.0], [4.0, 0.0], [-3.0, 6.0]], np.float32)
        >>> indices = np.array([[0, 5], [0, 9], [1, 5]], np.int32)  # batch number, coordinate
        >>> turnout.global_max_pool_forward(features, indices, 2).tolist()
        [[4.0, 2.0], [-3.0, 6.0]]
    """
    return _core.global_max_pool_forward(features, indices, batch_size, out)


def global_max_pool_backward(
    features: Source[R], features_out: Array, output_grad: Array, indices: Array, *, out: R | None = None
) -> R:
    """The gradient of :func:`global_max_pool_forward` with respect to ``features``.

    ::

        b = indices[i, 0]
        input_grad[i] = where(features[i] == features_out[b], output_grad[b], 0)

    Every input that equals the maximum gets the gradient.

    Example:
        >>> features = np.array([[1.0, 2.0], [4.0, 0.0], [-3.0, 6.0]], np.float32)
        >>> indices = np.array([[0, 5], [0, 9], [1, 5]], np.int32)
        >>> pooled = turnout.global_max_pool_forward(features, indices, 2)
        >>> grad = np.array([[0.5, 0.25], [1.0, 2.0]], np.float32)
        >>> turnout.global_max_pool_backward(features, pooled, grad, indices).tolist()
        [[0.0, 0.25], [0.5, 0.0], [1.0, 2.0]]
    """
    return _core.global_max_pool_backward(features, features_out, output_grad, indices, out)


def global_avg_pool_forward(
    features: Source[R], indices: Array, batch_size: Int, *, out: R | None = None
) -> R:
    """The mean of each channel over the rows of each batch element.

    ::

        features_out[b] = mean(features[i] for all rows i with indices[i, 0] == b)    # 0 without such a row

    Sums are in float32 (float64 for float64), of 512 rows of a batch element at a time, and of every eighth
    row of these; the result is rounded once. Arguments and errors are as for :func:`global_max_pool_forward`.

    Example:
        >>> features = np.array([[1.0, 2.0], [4.0, 0.0], [-3.0, 6.0]], np.float32)
        >>> indices = np.array([[0, 5], [0, 9], [1, 5]], np.int32)  # batch number, coordinate
        >>> turnout.global_avg_pool_forward(features, indices, 2).tolist()
        [[2.5, 1.0], [-3.0, 6.0]]
    """
    return _core.global_avg_pool_forward(features, indices, batch_size, out)


def global_avg_pool_backward(output_grad: Source[R], indices: Array, *, out: R | None = None) -> R:
    """The gradient of :func:`global_avg_pool_forward` with respect to ``features``.

    ::

        b = indices[i, 0]
        input_grad[i] = output_grad[b] / the number of rows of b

    Example:
        >>> indices = np.array([[0, 5], [0, 9], [1, 5]], np.int32)  # two rows in batch element 0
        >>> grad = np.array([[0.5, 0.25], [1.0, 2.0]], np.float32)
        >>> turnout.global_avg_pool_backward(grad, indices).tolist()
        [[0.25, 0.125], [0.25, 0.125], [1.0, 2.0]]
    """
    return _core.global_avg_pool_backward(output_grad, indices, out)
