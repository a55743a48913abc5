"""The pairs of input and output sites of sparse convolutions, for each kernel offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import Int, Ints, R, Source

__all__ = ["get_indice_pairs", "indice_pairs_output_shape"]


def get_indice_pairs(
    indices: Source[R],
    batch_size: Int,
    spatial_shape: Ints,
    kernel_size: Ints = 3,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    output_padding: Ints = 0,
    *,
    subm: bool = False,
    transpose: bool = False,
    out: tuple[R | None, R | None, R | None] | None = None,
) -> tuple[R, R, R]:
    """The pairs of input and output sites of a sparse convolution, for each offset of its kernel.

    ::

        for each kernel offset k (the last dimension fastest), for each input row r with site (n, x):
            (n, o) is its output if, in every dimension, 0 <= o < output_shape and
                x + padding - k * dilation == o * stride
                o == x * stride - padding + k * dilation        # transpose
            out_indices[q] = (n, o)                             # q: its position among all outputs
            indice_pairs[k, 0, indice_num[k]] = r
            indice_pairs[k, 1, indice_num[k]] = q
            indice_num[k] += 1

    Outputs are in ascending ``(n, o)``, the pairs of an offset in ascending input row; unused elements of
    ``indice_pairs`` are -1. ``output_shape`` is that of :func:`indice_pairs_output_shape`.

    Submanifold (``subm``): the outputs are the input sites, in their order, and pairs with any other output
    are dropped. If sites are repeated, all of them are inputs and the last one is the output. Kernels must be
    odd and the stride 1. ``padding`` is ignored, as in mmcv and spconv, and is ``kernel_size // 2 *
    dilation``. (C and C++ use a given padding.)

    Arrays must be in CPU memory. Inputs may be read-only or strided (strided ones are copied first); ``out``
    must be contiguous. A failing call writes nothing.

    Args:
        indices: ``[rows, 1 + dims]``, int32 or int64: batch number and coordinates of each site, in any
            order; 1 to 4 dims. A value out of range is an error that names its row.
        batch_size: the number of batch elements; batch numbers are below it.
        spatial_shape: the shape of the input, one extent for each dimension.
        kernel_size: an integer, or one for each dimension, as for the arguments below; -1 means the whole
            extent, which gives one output (not with ``subm`` or ``transpose``).
        stride: between outputs; with ``transpose`` between inputs.
        padding: on both sides; ignored with ``subm``.
        dilation: between kernel offsets. It may differ from 1 together with ``stride``.
        output_padding: added to the output shape of ``transpose``.
        subm: outputs are the input sites.
        transpose: the transposed convolution.
        out: a tuple of arrays to write to, in the order of the results, with None to allocate one. Unused
            rows of ``out_indices`` become -1.

    Returns:
        out_indices: ``[outputs, 1 + dims]``, dtype of ``indices``.
        indice_pairs: ``[kernel_volume, 2, rows]``, int32.
        indice_num: ``[kernel_volume]``, int32: the number of pairs of each offset.

        Each is the array from ``out`` or a new one: a torch tensor if ``indices`` is one, otherwise a NumPy
        array.

    Raises:
        ValueError: an argument has an invalid shape, dtype or value; the message names the first one.
        TypeError: an argument is not an array, an integer or a tuple where one is expected.

    Example:
        >>> sites = np.array([[0, 0], [0, 1], [0, 5]], np.int32)  # batch number, x
        >>> out_sites, pairs, num = turnout.get_indice_pairs(sites, 1, [6], kernel_size=2, stride=2)
        >>> out_sites.tolist()
        [[0, 0], [0, 2]]
        >>> num.tolist()  # one pair with the kernel's first offset, two with its second
        [1, 2]
        >>> pairs[1, :, :2].tolist()  # input rows 1 and 2, output rows 0 and 1
        [[1, 2], [0, 1]]
    """
    return _core.get_indice_pairs(
        indices,
        batch_size,
        spatial_shape,
        kernel_size,
        stride,
        padding,
        dilation,
        output_padding,
        subm,
        transpose,
        out,
    )


def indice_pairs_output_shape(
    spatial_shape: Ints,
    kernel_size: Ints = 3,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
    output_padding: Ints = 0,
    *,
    subm: bool = False,
    transpose: bool = False,
) -> tuple[int, ...]:
    """The spatial shape of the outputs of :func:`get_indice_pairs`, for the same arguments.

    ::

        (spatial_shape + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1
        (spatial_shape - 1) * stride - 2 * padding + kernel_size + output_padding        # transpose
        spatial_shape                                                                    # subm

    and 1 where ``kernel_size`` is -1.

    Example:
        >>> turnout.indice_pairs_output_shape([41, 1600, 1408], 3, 2, 1)  # a layer that halves the grid
        (21, 800, 704)
    """
    return _core.indice_pairs_output_shape(
        spatial_shape, kernel_size, stride, padding, dilation, output_padding, subm, transpose
    )
