"""Features of points by index: grouping, gathering, and interpolation from three neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import Array, Int, R, Source

__all__ = [
    "gather_points",
    "gather_points_backward",
    "group_points",
    "group_points_backward",
    "group_points_stacked",
    "group_points_stacked_backward",
    "three_interpolate",
    "three_interpolate_backward",
    "three_interpolate_stacked",
    "three_interpolate_stacked_backward",
]


def group_points(features: Source[R], indices: Array, *, out: R | None = None) -> R:
    """The features of the points of each group, for example of the neighbours that a ball query found.

    ::

        out[b, c, p, s] = features[b, c, indices[b, p, s]]

    If there are no points (``features.shape[2]`` is 0), ``out`` is 0 whatever the indices are: an empty ball
    has the index 0. Any other index that is out of range is an error.

    Arrays must be in CPU memory. Inputs may be read-only or strided (strided ones are copied first); ``out``
    must be contiguous. A failing call writes nothing.

    Args:
        features: ``[B, C, N]``, float32, float64, float16 or bfloat16.
        indices: ``[B, P, S]``, int32 or int64, each 0 .. N-1.
        out: the array to write to.

    Returns:
        out: ``[B, C, P, S]``, dtype of ``features``: ``out`` or a new array, a torch tensor if ``features``
        is one, otherwise a NumPy array.

    Raises:
        ValueError: an argument has an invalid shape, dtype or value, or an index is out of range; the message
            names the first one.
        TypeError: an argument is not an array where one is expected.

    Example:
        >>> features = np.array([[[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]], np.float32)
        >>> indices = np.array([[[2, 0], [1, 1]]])
        >>> turnout.group_points(features, indices).tolist()
        [[[[3.0, 1.0], [2.0, 2.0]], [[30.0, 10.0], [20.0, 20.0]]]]
    """
    result: R = _core.group_points(features, indices, out)
    return result


def group_points_backward(grad_out: Source[R], indices: Array, rows: Int, *, out: R | None = None) -> R:
    """The gradient of :func:`group_points` with respect to ``features``, which has ``rows`` points.

    ``grad_features[b, c, i]`` is the sum of ``grad_out[b, c, p, s]`` over all p and s with
    ``indices[b, p, s] == i``, in the order of p and s. Sums are in float64 for float64 and in float32
    otherwise, rounded once. Results have the same bits for any number of threads.

    Example:
        >>> grad = np.array([[[[0.5, 0.25], [1.0, 2.0]]]], np.float32)
        >>> turnout.group_points_backward(grad, np.array([[[2, 0], [1, 1]]]), 3).tolist()
        [[[0.25, 3.0, 0.5]]]
    """
    result: R = _core.group_points_backward(grad_out, indices, rows, out)
    return result


def gather_points(features: Source[R], indices: Array, *, out: R | None = None) -> R:
    """The features of chosen points, for example of those that furthest point sampling chose.

    ::

        out[b, c, p] = features[b, c, indices[b, p]]

    ``features`` is ``[B, C, N]`` and ``indices`` ``[B, P]``; otherwise as :func:`group_points`. An index into
    no points is an error.

    Example:
        >>> features = np.array([[[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]], np.float32)
        >>> turnout.gather_points(features, np.array([[2, 0]])).tolist()
        [[[3.0, 1.0], [30.0, 10.0]]]
    """
    result: R = _core.gather_points(features, indices, out)
    return result


def gather_points_backward(grad_out: Source[R], indices: Array, rows: Int, *, out: R | None = None) -> R:
    """The gradient of :func:`gather_points` with respect to ``features``, which has ``rows`` points.

    It is defined like :func:`group_points_backward`, with ``grad_out`` ``[B, C, P]`` and ``indices``
    ``[B, P]``.

    Example:
        >>> grad = np.array([[[0.5, 0.25]]], np.float32)
        >>> turnout.gather_points_backward(grad, np.array([[2, 2]]), 3).tolist()
        [[[0.0, 0.0, 0.75]]]
    """
    result: R = _core.gather_points_backward(grad_out, indices, rows, out)
    return result


def group_points_stacked(
    features: Source[R], counts: Array, indices: Array, index_counts: Array, *, out: R | None = None
) -> R:
    """:func:`group_points` for samples with different numbers of points, stacked into one array.

    ::

        out[p, c, s] = features[start + indices[p, s], c]

    where start is the first row of the sample of p: sample b has ``counts[b]`` rows of ``features`` and
    ``index_counts[b]`` rows of ``indices``. Where a sample has no points, ``out`` is 0 whatever its indices
    are. Any other index that is out of range of its sample is an error.

    Args:
        features: ``[N, C]``, float32, float64, float16 or bfloat16.
        counts: ``[B]``, int32 or int64; they add up to N.
        indices: ``[P, S]``, int32 or int64, each below the count of its sample.
        index_counts: ``[B]``, int32 or int64; they add up to P.
        out: the array to write to.

    Returns:
        out: ``[P, C, S]``, dtype of ``features``.

    Example:
        >>> features = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]], np.float32)
        >>> indices = np.array([[0, 0], [1, 0]])  # one group in each of two samples
        >>> counts, index_counts = np.array([1, 2]), np.array([1, 1])
        >>> turnout.group_points_stacked(features, counts, indices, index_counts).tolist()
        [[[1.0, 1.0], [10.0, 10.0]], [[3.0, 2.0], [30.0, 20.0]]]
    """
    result: R = _core.group_points_stacked(features, counts, indices, index_counts, out)
    return result


def group_points_stacked_backward(
    grad_out: Source[R],
    counts: Array,
    indices: Array,
    index_counts: Array,
    rows: Int,
    *,
    out: R | None = None,
) -> R:
    """The gradient of :func:`group_points_stacked` with respect to ``features``, which has ``rows`` rows.

    ``grad_features[i, c]`` is the sum of ``grad_out[p, c, s]`` over all p and s whose row is i, in the order
    of p and s, computed as in :func:`group_points_backward`.

    Example:
        >>> grad = np.array([[[0.5, 0.25]], [[1.0, 2.0]]], np.float32)
        >>> counts, index_counts = np.array([1, 2]), np.array([1, 1])
        >>> indices = np.array([[0, 0], [1, 0]])
        >>> turnout.group_points_stacked_backward(grad, counts, indices, index_counts, 3).tolist()
        [[0.75], [2.0], [1.0]]
    """
    result: R = _core.group_points_stacked_backward(grad_out, counts, indices, index_counts, rows, out)
    return result


def three_interpolate(features: Source[R], indices: Array, weights: Array, *, out: R | None = None) -> R:
    """Interpolates features from three points each: a sum with weights.

    ::

        out[b, c, p] = (w[0] * f[i[0]] + w[1] * f[i[1]]) + w[2] * f[i[2]]
        f = features[b, c], i = indices[b, p], w = weights[b, p]

    Each product and sum is rounded, in float64 for float64 and in float32 otherwise; the result is rounded
    once.

    Args:
        features: ``[B, C, N]``, float32, float64, float16 or bfloat16.
        indices: ``[B, P, 3]``, int32 or int64, each 0 .. N-1.
        weights: ``[B, P, 3]``, float64 for float64 features, otherwise float32.
        out: the array to write to.

    Returns:
        out: ``[B, C, P]``, dtype of ``features``.

    Example:
        >>> features = np.array([[[1.0, 2.0, 4.0]]], np.float32)
        >>> weights = np.array([[[0.5, 0.25, 0.25]]], np.float32)
        >>> turnout.three_interpolate(features, np.array([[[2, 0, 1]]]), weights).tolist()
        [[[2.75]]]
    """
    result: R = _core.three_interpolate(features, indices, weights, out)
    return result


def three_interpolate_backward(
    grad_out: Source[R], indices: Array, weights: Array, rows: Int, *, out: R | None = None
) -> R:
    """The gradient of :func:`three_interpolate` with respect to ``features``, which has ``rows`` points.

    ``grad_features[b, c, i]`` is the sum of ``grad_out[b, c, p] * weights[b, p, k]`` over all p and k with
    ``indices[b, p, k] == i``, in the order of p and k. Each product is rounded before it is added.

    Example:
        >>> weights = np.array([[[0.5, 0.25, 0.25]]], np.float32)
        >>> grad = np.array([[[4.0]]], np.float32)
        >>> turnout.three_interpolate_backward(grad, np.array([[[2, 0, 2]]]), weights, 3).tolist()
        [[[1.0, 0.0, 3.0]]]
    """
    result: R = _core.three_interpolate_backward(grad_out, indices, weights, rows, out)
    return result


def three_interpolate_stacked(
    features: Source[R], indices: Array, weights: Array, *, out: R | None = None
) -> R:
    """:func:`three_interpolate` for stacked samples: features are ``[N, C]``, indices are rows of them.

    ``out[p, c]`` is computed as in :func:`three_interpolate` with ``f = features[:, c]``,
    ``i = indices[p]`` and ``w = weights[p]``; ``indices`` and ``weights`` are ``[P, 3]``.

    Example:
        >>> features = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]], np.float32)
        >>> weights = np.array([[0.5, 0.25, 0.25]], np.float32)
        >>> turnout.three_interpolate_stacked(features, np.array([[2, 0, 1]]), weights).tolist()
        [[2.75, 27.5]]
    """
    result: R = _core.three_interpolate_stacked(features, indices, weights, out)
    return result


def three_interpolate_stacked_backward(
    grad_out: Source[R], indices: Array, weights: Array, rows: Int, *, out: R | None = None
) -> R:
    """The gradient of :func:`three_interpolate_stacked` with respect to ``features``.

    It is defined like :func:`three_interpolate_backward`, with ``grad_out`` ``[P, C]`` and the result
    ``[rows, C]``.

    Example:
        >>> weights = np.array([[0.5, 0.25, 0.25]], np.float32)
        >>> grad = np.array([[4.0]], np.float32)
        >>> turnout.three_interpolate_stacked_backward(grad, np.array([[2, 0, 2]]), weights, 3).tolist()
        [[1.0], [0.0], [3.0]]
    """
    result: R = _core.three_interpolate_stacked_backward(grad_out, indices, weights, rows, out)
    return result
