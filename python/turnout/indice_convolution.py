"""Sparse convolution and pooling along given pairs, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import Array, Int, PoolInit, R, Source

__all__ = [
    "indice_avg_pool_backward",
    "indice_avg_pool_forward",
    "indice_convolution_backward_data",
    "indice_convolution_backward_filter",
    "indice_convolution_forward",
    "indice_convolution_index",
    "indice_max_pool_backward",
    "indice_max_pool_forward",
]


def indice_convolution_forward(
    features: Source[R],
    filters: Array,
    indice_pairs: Array,
    indice_num: Array,
    num_act_out: Int,
    *,
    bias: Array | None = None,
    index: Array | None = None,
    inverse: bool = False,
    subm: bool = False,
    out: R | None = None,
) -> R:
    """A sparse convolution along the pairs of :func:`turnout.get_indice_pairs`.

    ::

        features_out = zeros(num_act_out, out_channels)
        for each kernel offset k, for j in range(indice_num[k]):
            i, o = indice_pairs[k, 0, j], indice_pairs[k, 1, j]      # exchanged by inverse
            features_out[o] += features[i] @ filters[k]
        features_out += bias

    Sums are in float32 (float64 for float64), in ascending ``k`` and ``j``, then the bias; results are
    rounded once. They have the same bits for any number of threads. A pair with a row out of range is an
    error that names its ``k`` and ``j``; entries beyond ``indice_num`` are not read.

    Arrays must be in CPU memory, and all but ``filters`` contiguous; inputs may be read-only. A failing call
    writes nothing.

    Args:
        features: ``[rows, in_channels]``, float32, float64, float16 or bfloat16.
        filters: ``[k..., in_channels, out_channels]`` or ``[offsets, in_channels, out_channels]``, dtype of
            ``features``. Strided views are read in place, such as ``weight.transpose(1, 2, 3, 4, 0)`` of a
            weight ``[out, k..., in]``.
        indice_pairs: ``[offsets, 2, columns]``, int32.
        indice_num: ``[offsets]``, int32 or int64: the number of pairs of each offset.
        num_act_out: the number of rows of the result.
        bias: ``[out_channels]``, dtype of ``features``.
        inverse: go from the outputs of an earlier convolution back to its inputs, along its pairs.
        subm: a submanifold convolution: the offset with the most pairs (the first of equals) maps every row
            to itself, and its pairs are not read. This changes the result only if sites are repeated.
        index: from :func:`indice_convolution_index` for these pairs; saves the time to build it.
        out: the array to write to.

    Returns:
        features_out: ``[num_act_out, out_channels]``, ``out`` or a new array: a torch tensor if ``features``
            is one, otherwise a NumPy array.

    Raises:
        ValueError: an argument has an invalid shape, dtype or value; the message names the first one.
        TypeError: an argument is not an array or an integer where one is expected.

    Example:
        >>> sites = np.array([[0, 0], [0, 1], [0, 5]], np.int32)  # batch number, x
        >>> _, pairs, num = turnout.get_indice_pairs(sites, 1, [6], 3, subm=True)
        >>> features = np.array([[1.0], [2.0], [3.0]], np.float32)
        >>> filters = np.array([10.0, 1.0, 100.0], np.float32).reshape(3, 1, 1)  # left, centre, right
        >>> turnout.indice_convolution_forward(features, filters, pairs, num, 3, subm=True).tolist()
        [[201.0], [12.0], [3.0]]
    """
    return _core.indice_convolution_forward(
        features, filters, indice_pairs, indice_num, num_act_out, bias, index, inverse, subm, out
    )


def indice_convolution_backward_data(
    output_grad: Source[R],
    filters: Array,
    indice_pairs: Array,
    indice_num: Array,
    num_act_in: Int,
    *,
    index: Array | None = None,
    inverse: bool = False,
    subm: bool = False,
    out: R | None = None,
) -> R:
    """The gradient of :func:`indice_convolution_forward` with respect to ``features``.

    ::

        input_grad = zeros(num_act_in, in_channels)
        for each kernel offset k, for j in range(indice_num[k]):
            i, o = indice_pairs[k, 0, j], indice_pairs[k, 1, j]      # exchanged by inverse
            input_grad[i] += output_grad[o] @ filters[k].T

    Arguments, sums and errors are as in the forward call; ``num_act_in`` is the number of rows of
    ``features``. ``index`` is that of the opposite ``inverse``, from the rows of ``output_grad`` to those of
    the result.

    Example:
        >>> sites = np.array([[0, 0], [0, 1], [0, 5]], np.int32)  # batch number, x
        >>> _, pairs, num = turnout.get_indice_pairs(sites, 1, [6], 3, subm=True)
        >>> filters = np.array([10.0, 1.0, 100.0], np.float32).reshape(3, 1, 1)  # left, centre, right
        >>> grad = np.array([[1.0], [0.0], [1.0]], np.float32)
        >>> turnout.indice_convolution_backward_data(grad, filters, pairs, num, 3, subm=True).tolist()
        [[1.0], [100.0], [1.0]]
    """
    return _core.indice_convolution_backward_data(
        output_grad, filters, indice_pairs, indice_num, num_act_in, index, inverse, subm, out
    )


def indice_convolution_index(
    indice_pairs: Source[R],
    indice_num: Array,
    rows: Int,
    out_rows: Int,
    *,
    inverse: bool = False,
    subm: bool = False,
    out: R | None = None,
) -> R:
    """An index of the pairs by output row, to keep between convolutions along the same pairs.

    A convolution without ``index`` builds one in each call, which takes up to a fifth of its time. The
    results have the same bits with and without it. ::

        index = indice_convolution_index(pairs, num, rows, out_rows)
        grad_index = indice_convolution_index(pairs, num, out_rows, rows, inverse=True)
        y = indice_convolution_forward(x, filters, pairs, num, out_rows, index=index)
        dx = indice_convolution_backward_data(dy, filters, pairs, num, rows, index=grad_index)

    One index works for any number of channels, dtype and number of threads. An index with a row or an offset
    out of range is an error; the index of other pairs of the same size gives the results for those pairs. Its
    contents are not documented and may differ between releases.

    Args:
        indice_pairs: ``[offsets, 2, columns]``, int32.
        indice_num: ``[offsets]``, int32 or int64.
        rows: the number of rows of ``features``.
        out_rows: the number of rows of the result.
        inverse, subm: those of the convolution.
        out: the array to write to.

    Returns:
        index: ``[n]``, int64, ``out`` or a new array.

    Raises:
        ValueError: an argument has an invalid shape, dtype or value; the message names the first one.

    Example:
        >>> sites = np.array([[0, 0], [0, 1], [0, 5]], np.int32)  # batch number, x
        >>> _, pairs, num = turnout.get_indice_pairs(sites, 1, [6], 3, subm=True)
        >>> index = turnout.indice_convolution_index(pairs, num, 3, 3, subm=True)
        >>> features = np.array([[1.0], [2.0], [3.0]], np.float32)
        >>> filters = np.array([10.0, 1.0, 100.0], np.float32).reshape(3, 1, 1)
        >>> out = turnout.indice_convolution_forward(features, filters, pairs, num, 3, subm=True, index=index)
        >>> out.tolist()
        [[201.0], [12.0], [3.0]]
    """
    return _core.indice_convolution_index(indice_pairs, indice_num, rows, out_rows, inverse, subm, out)


def indice_convolution_backward_filter(
    features: Source[R],
    output_grad: Array,
    indice_pairs: Array,
    indice_num: Array,
    *,
    inverse: bool = False,
    subm: bool = False,
    out: R | None = None,
) -> R:
    """The gradient of :func:`indice_convolution_forward` with respect to ``filters``.

    ::

        filters_grad[k] = sum(outer(features[i], output_grad[o]) for the pairs (i, o) of offset k)

    ``filters_grad`` is ``[offsets, in_channels, out_channels]``; 0 for an offset without pairs. Pairs are
    summed 512 at a time, and these sums are added in order. Otherwise this is like the forward call.

    Example:
        >>> sites = np.array([[0, 0], [0, 1], [0, 5]], np.int32)  # batch number, x
        >>> _, pairs, num = turnout.get_indice_pairs(sites, 1, [6], 3, subm=True)
        >>> features = np.array([[1.0], [2.0], [3.0]], np.float32)
        >>> grad = np.array([[1.0], [0.0], [1.0]], np.float32)
        >>> turnout.indice_convolution_backward_filter(features, grad, pairs, num, subm=True).tolist()
        [[[0.0]], [[4.0]], [[2.0]]]
    """
    return _core.indice_convolution_backward_filter(
        features, output_grad, indice_pairs, indice_num, inverse, subm, out
    )


def indice_max_pool_forward(
    features: Source[R],
    indice_pairs: Array,
    indice_num: Array,
    num_act_out: Int,
    *,
    init: PoolInit = "zero",
    out: R | None = None,
) -> R:
    """The maximum of each window, along the pairs of :func:`turnout.get_indice_pairs`.

    ::

        features_out = full((num_act_out, channels), init)
        for each kernel offset k, for j in range(indice_num[k]):
            i, o = indice_pairs[k, 0, j], indice_pairs[k, 1, j]
            features_out[o] = where(features[i] > features_out[o], features[i], features_out[o])

    ``init`` is "zero", so that windows of negative numbers give 0, or "lowest", the lowest finite number. NaN
    is ignored. Arguments and errors are as for :func:`indice_convolution_forward`.

    Example:
        >>> sites = np.array([[0, 0], [0, 1], [0, 5]], np.int32)  # batch number, x
        >>> out_sites, pairs, num = turnout.get_indice_pairs(sites, 1, [6], 2, 2)  # windows of 2, stride 2
        >>> features = np.array([[1.0], [2.0], [3.0]], np.float32)
        >>> turnout.indice_max_pool_forward(features, pairs, num, len(out_sites)).tolist()
        [[2.0], [3.0]]
    """
    return _core.indice_max_pool_forward(features, indice_pairs, indice_num, num_act_out, init, out)


def indice_max_pool_backward(
    features: Source[R],
    features_out: Array,
    output_grad: Array,
    indice_pairs: Array,
    indice_num: Array,
    *,
    out: R | None = None,
) -> R:
    """The gradient of :func:`indice_max_pool_forward` with respect to ``features``.

    ::

        input_grad = zeros_like(features)
        for each kernel offset k, for j in range(indice_num[k]):
            i, o = indice_pairs[k, 0, j], indice_pairs[k, 1, j]
            input_grad[i] += where(features[i] == features_out[o], output_grad[o], 0)

    Every input that equals the maximum gets the gradient.

    Example:
        >>> sites = np.array([[0, 0], [0, 1], [0, 5]], np.int32)  # batch number, x
        >>> out_sites, pairs, num = turnout.get_indice_pairs(sites, 1, [6], 2, 2)  # windows of 2, stride 2
        >>> features = np.array([[1.0], [2.0], [3.0]], np.float32)
        >>> pooled = turnout.indice_max_pool_forward(features, pairs, num, len(out_sites))
        >>> grad = np.array([[0.5], [0.25]], np.float32)
        >>> turnout.indice_max_pool_backward(features, pooled, grad, pairs, num).tolist()
        [[0.0], [0.5], [0.25]]
    """
    return _core.indice_max_pool_backward(features, features_out, output_grad, indice_pairs, indice_num, out)


def indice_avg_pool_forward(
    features: Source[R], indice_pairs: Array, indice_num: Array, num_act_out: Int, *, out: R | None = None
) -> R:
    """The mean of each window over its pairs, along the pairs of :func:`turnout.get_indice_pairs`.

    ::

        features_out[o] = mean(features[i] for the pairs (i, o) of all offsets)       # 0 without a pair

    Sums are in float32 (float64 for float64), in ascending ``k`` and ``j``, and rounded once. Arguments and
    errors are as for :func:`indice_convolution_forward`.

    Example:
        >>> sites = np.array([[0, 0], [0, 1], [0, 5]], np.int32)  # batch number, x
        >>> out_sites, pairs, num = turnout.get_indice_pairs(sites, 1, [6], 2, 2)  # windows of 2, stride 2
        >>> features = np.array([[1.0], [2.0], [3.0]], np.float32)
        >>> turnout.indice_avg_pool_forward(features, pairs, num, len(out_sites)).tolist()
        [[1.5], [3.0]]
    """
    return _core.indice_avg_pool_forward(features, indice_pairs, indice_num, num_act_out, out)


def indice_avg_pool_backward(
    output_grad: Source[R], indice_pairs: Array, indice_num: Array, num_act_in: Int, *, out: R | None = None
) -> R:
    """The gradient of :func:`indice_avg_pool_forward` with respect to ``features``.

    ::

        input_grad = zeros(num_act_in, channels)
        for each pair (i, o):
            input_grad[i] += output_grad[o] / the number of pairs of o

    Example:
        >>> sites = np.array([[0, 0], [0, 1], [0, 5]], np.int32)  # batch number, x
        >>> out_sites, pairs, num = turnout.get_indice_pairs(sites, 1, [6], 2, 2)  # windows of 2, stride 2
        >>> grad = np.array([[0.5], [0.25]], np.float32)
        >>> turnout.indice_avg_pool_backward(grad, pairs, num, 3).tolist()
        [[0.25], [0.25], [0.25]]
    """
    return _core.indice_avg_pool_backward(output_grad, indice_pairs, indice_num, num_act_in, out)
