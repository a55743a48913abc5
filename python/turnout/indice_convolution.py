"""Sparse convolution and pooling along given pairs, and their gradients."""

from __future__ import annotations

from typing import Any

from turnout import _core

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

Array = Any  # of NumPy, torch, or any library that speaks DLPack
Int = Any  # anything with __index__


def indice_convolution_forward(
    features: Array,
    filters: Array,
    indice_pairs: Array,
    indice_num: Array,
    num_act_out: Int,
    *,
    bias: Array | None = None,
    inverse: bool = False,
    subm: bool = False,
    index: Array | None = None,
    out: Array | None = None,
) -> Array:
    """A sparse convolution along the pairs of :func:`turnout.get_indice_pairs`.

    ::

        features_out = zeros(num_act_out, out_channels)
        for each kernel offset k, for j in range(indice_num[k]):
            i, o = indice_pairs[k, 0, j], indice_pairs[k, 1, j]      # exchanged by inverse
            features_out[o] += features[i] @ filters[k]
        features_out += bias

    Sums are in float32 (float64 for float64), in ascending ``k`` and ``j``; the bias is last; results are
    rounded once. They are the same bits for any number of threads. A pair that names a row that is not there
    is refused, with its ``k`` and ``j``; entries beyond ``indice_num`` are not read.

    Arrays are in CPU memory; all but ``filters`` are contiguous; read-only inputs are fine. On an error
    nothing is written.

    Args:
        features: ``[rows, in_channels]``, float32, float64, float16 or bfloat16.
        filters: ``[k..., in_channels, out_channels]`` or ``[offsets, in_channels, out_channels]``, dtype of
            ``features``. A strided view is read in place: ``weight.transpose(1, 2, 3, 4, 0)`` of one that is
            ``[out, k..., in]``.
        indice_pairs: ``[offsets, 2, columns]``, int32.
        indice_num: ``[offsets]``, int32 or int64: how many pairs each offset has.
        num_act_out: rows of the result.
        bias: ``[out_channels]``, dtype of ``features``.
        inverse: from the outputs of an earlier convolution back to its inputs, along its pairs.
        subm: of a submanifold convolution: the offset with the most pairs, the first of equals, maps every
            row to itself, and its pairs are not read. Only with repeated sites that changes the result.
        index: from :func:`indice_convolution_index` for these pairs; saves the time to build it.
        out: where to write.

    Returns:
        features_out: ``[num_act_out, out_channels]``, ``out`` or a new array: a torch tensor when
            ``features`` is one, else a NumPy array.

    Raises:
        ValueError: arguments that do not fit together, with a sentence that names the first one.
        TypeError: something that is no array, or no integer.
    """
    return _core.indice_convolution_forward(
        features, filters, indice_pairs, indice_num, num_act_out, bias, inverse, subm, index, out, False
    )


def indice_convolution_backward_data(
    output_grad: Array,
    filters: Array,
    indice_pairs: Array,
    indice_num: Array,
    num_act_in: Int,
    *,
    inverse: bool = False,
    subm: bool = False,
    index: Array | None = None,
    out: Array | None = None,
) -> Array:
    """The gradient of ``features`` of :func:`indice_convolution_forward`, for that of its result.

    ::

        input_grad = zeros(num_act_in, in_channels)
        for each kernel offset k, for j in range(indice_num[k]):
            i, o = indice_pairs[k, 0, j], indice_pairs[k, 1, j]      # exchanged by inverse
            input_grad[i] += output_grad[o] @ filters[k].T

    Arguments, sums and errors are as there; ``num_act_in`` is the number of rows of ``features``. ``index``
    is for the opposite ``inverse``: it leads from the rows of ``output_grad`` to those of the result.
    """
    return _core.indice_convolution_backward_data(
        output_grad, filters, indice_pairs, indice_num, num_act_in, inverse, subm, index, out, False
    )


def indice_convolution_index(
    indice_pairs: Array,
    indice_num: Array,
    rows: Int,
    out_rows: Int,
    *,
    inverse: bool = False,
    subm: bool = False,
    out: Array | None = None,
) -> Array:
    """An index of the pairs by output row, to keep between convolutions along the same pairs.

    A convolution without ``index`` builds one in each call, which takes up to a fifth of its time. Results
    are bit-identical with and without it. ::

        index = indice_convolution_index(pairs, num, rows, out_rows)
        grad_index = indice_convolution_index(pairs, num, out_rows, rows, inverse=True)
        y = indice_convolution_forward(x, filters, pairs, num, out_rows, index=index)
        dx = indice_convolution_backward_data(dy, filters, pairs, num, rows, index=grad_index)

    One index is for any number of channels, dtype and number of threads. An index with a row or an offset out
    of range is refused; the index of other pairs of the same size gives their results. Its contents are not
    documented and may differ between releases.

    Args:
        indice_pairs: ``[offsets, 2, columns]``, int32.
        indice_num: ``[offsets]``, int32 or int64.
        rows: the number of rows of ``features``.
        out_rows: the number of rows of the result.
        inverse: of the convolution.
        subm: of the convolution.
        out: where to write.

    Returns:
        index: ``[n]``, int64, ``out`` or a new array.

    Raises:
        ValueError: arguments that do not fit together, with a sentence that names the first one.
    """
    return _core.indice_convolution_index(indice_pairs, indice_num, rows, out_rows, inverse, subm, out, False)


def indice_convolution_backward_filter(
    features: Array,
    output_grad: Array,
    indice_pairs: Array,
    indice_num: Array,
    *,
    inverse: bool = False,
    subm: bool = False,
    out: Array | None = None,
) -> Array:
    """The gradient of ``filters`` of :func:`indice_convolution_forward`, for that of its result.

    ::

        filters_grad[k] = sum(outer(features[i], output_grad[o]) for the pairs (i, o) of offset k)

    ``filters_grad`` is ``[offsets, in_channels, out_channels]``; 0 for an offset without pairs. Sums are made
    of 512 pairs at a time, and these added in order. All else is as there.
    """
    return _core.indice_convolution_backward_filter(
        features, output_grad, indice_pairs, indice_num, inverse, subm, out, False
    )


def indice_max_pool_forward(
    features: Array,
    indice_pairs: Array,
    indice_num: Array,
    num_act_out: Int,
    *,
    init: str = "zero",
    out: Array | None = None,
) -> Array:
    """The maximum of each window, along the pairs of :func:`turnout.get_indice_pairs`.

    ::

        features_out = full((num_act_out, channels), init)
        for each kernel offset k, for j in range(indice_num[k]):
            i, o = indice_pairs[k, 0, j], indice_pairs[k, 1, j]
            features_out[o] = where(features[i] > features_out[o], features[i], features_out[o])

    ``init`` is "zero", so that windows of negative numbers give 0, or "lowest": the lowest finite number. NaN
    never wins. Arguments and errors are as for :func:`indice_convolution_forward`.
    """
    return _core.indice_max_pool_forward(features, indice_pairs, indice_num, num_act_out, init, out, False)


def indice_max_pool_backward(
    features: Array,
    features_out: Array,
    output_grad: Array,
    indice_pairs: Array,
    indice_num: Array,
    *,
    out: Array | None = None,
) -> Array:
    """The gradient of ``features`` of :func:`indice_max_pool_forward`, for that of its result.

    ::

        input_grad = zeros_like(features)
        for each kernel offset k, for j in range(indice_num[k]):
            i, o = indice_pairs[k, 0, j], indice_pairs[k, 1, j]
            input_grad[i] += where(features[i] == features_out[o], output_grad[o], 0)

    Every input that equals the maximum gets the gradient.
    """
    return _core.indice_max_pool_backward(
        features, features_out, output_grad, indice_pairs, indice_num, out, False
    )


def indice_avg_pool_forward(
    features: Array, indice_pairs: Array, indice_num: Array, num_act_out: Int, *, out: Array | None = None
) -> Array:
    """The mean of each window over the pairs it has, along the pairs of :func:`turnout.get_indice_pairs`.

    ::

        features_out[o] = mean(features[i] for the pairs (i, o) of all offsets)       # 0 without a pair

    Sums are in float32 (float64 for float64), in ascending ``k`` and ``j``, and rounded once. Arguments and
    errors are as for :func:`indice_convolution_forward`.
    """
    return _core.indice_avg_pool_forward(features, indice_pairs, indice_num, num_act_out, out, False)


def indice_avg_pool_backward(
    output_grad: Array, indice_pairs: Array, indice_num: Array, num_act_in: Int, *, out: Array | None = None
) -> Array:
    """The gradient of ``features`` of :func:`indice_avg_pool_forward`, for that of its result.

    ::

        input_grad = zeros(num_act_in, channels)
        for each pair (i, o):
            input_grad[i] += output_grad[o] / the number of pairs of o
    """
    return _core.indice_avg_pool_backward(output_grad, indice_pairs, indice_num, num_act_in, out, False)
