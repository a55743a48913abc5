"""Reductions of consecutive rows, ranks within groups, and pooling into a bird's-eye view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from turnout import _core

if TYPE_CHECKING:
    from turnout.typing import Array, Int, R, SegmentReduce, Source

__all__ = ["bev_pool", "bev_pool_backward", "gather_csr", "ingroup_indices", "segment_csr"]


@overload
def segment_csr(
    src: Source[R],
    indptr: Array,
    reduce: SegmentReduce = "sum",
    return_arg: Literal[False] = False,
    *,
    out: R | None = None,
) -> R: ...
@overload
def segment_csr(
    src: Source[R],
    indptr: Array,
    reduce: SegmentReduce = "sum",
    *,
    return_arg: Literal[True],
    out: tuple[R | None, R | None] | None = None,
) -> tuple[R, R]: ...
def segment_csr(
    src: Source[R],
    indptr: Array,
    reduce: SegmentReduce = "sum",
    return_arg: bool = False,
    *,
    out: R | tuple[R | None, R | None] | None = None,
) -> R | tuple[R, R]:
    """The sum, mean, minimum or maximum of each segment, a range of consecutive rows.

    ::

        out[s] = reduce(src[indptr[s]], .., src[indptr[s + 1] - 1])

    A segment without rows is 0. Minima and maxima are those of :func:`scatter_min` and :func:`scatter_max`:
    the first of equal rows counts, and NaN is never taken. Where nothing is taken, ``out`` is 0 and ``arg``
    is the number of rows. Integers wrap around; 16-bit floats are added in float32 and rounded once. Results
    have the same bits for any number of threads.

    Arrays must be in CPU memory. Inputs may be read-only or strided (strided ones are copied first); ``out``
    must be contiguous. A failing call writes nothing.

    Args:
        src: ``[rows, ...]``, float32, float64, float16, bfloat16, int32 or int64; for a mean, floats only.
        indptr: ``[segments + 1]``, int32 or int64, ascending from 0 or more to at most ``rows``. Rows before
            the first and after the last segment are not read.
        reduce: 'sum', 'mean', 'min' or 'max'.
        return_arg: also return the row that each minimum or maximum comes from.
        out: the array to write to; with ``return_arg`` a tuple of ``out`` and ``arg``, with None to allocate
            one.

    Returns:
        out: ``[segments, ...]``, dtype of ``src``: ``out`` or a new array, a torch tensor if ``src`` is one,
        otherwise a NumPy array.
        arg: with ``return_arg``, the same shape, int64; for sums and means the number of rows everywhere.

    Raises:
        ValueError: an argument has an invalid shape, dtype or value; the message names the first one.
        TypeError: an argument is not an array.

    Example:
        >>> src = np.array([[1.0, 9.0], [2.0, 8.0], [4.0, 0.0]], np.float32)
        >>> indptr = np.array([0, 2, 2, 3])  # segment 1 has no rows
        >>> turnout.segment_csr(src, indptr).tolist()
        [[3.0, 17.0], [0.0, 0.0], [4.0, 0.0]]
        >>> out, arg = turnout.segment_csr(src, indptr, "max", return_arg=True)
        >>> out.tolist(), arg.tolist()  # 3, the number of rows, means none
        ([[2.0, 9.0], [0.0, 0.0], [4.0, 0.0]], [[1, 0], [3, 3], [2, 2]])
    """
    if return_arg:
        both: tuple[R, R] = _core.segment_csr(src, indptr, reduce, True, out)
        return both
    given = None if out is None else (out,)
    result: R = _core.segment_csr(src, indptr, reduce, False, given)[0]
    return result


def gather_csr(src: Source[R], indptr: Array, rows: Int | None = None, *, out: R | None = None) -> R:
    """Copies the row of each segment to all rows of the segment: the inverse of :func:`segment_csr`.

    ``out[i] = src[s]`` for ``indptr[s] <= i < indptr[s + 1]``; rows in no segment are 0.

    Args:
        src: ``[segments, ...]``, float32, float64, float16, bfloat16, int32 or int64.
        indptr: ``[segments + 1]``, int32 or int64, ascending from 0 or more.
        rows: the number of rows of the result; None means the last element of ``indptr``.
        out: the array to write to.

    Returns:
        out: ``[rows, ...]``, dtype of ``src``: ``out`` or a new array.

    Example:
        >>> src = np.array([[1.0], [2.0], [4.0]], np.float32)
        >>> turnout.gather_csr(src, np.array([0, 2, 2, 3]), rows=4).tolist()
        [[1.0], [1.0], [4.0], [0.0]]
    """
    result: R = _core.gather_csr(src, indptr, rows, out)
    return result


def ingroup_indices(groups: Source[R], *, out: R | None = None) -> R:
    """The rank of each row within its group: the number of rows before it that are in the same group.

    Memory depends on the number of rows, not on the group numbers.

    Args:
        groups: ``[rows]``, int32 or int64: the group of each row, 0 or more.
        out: the array to write to.

    Returns:
        out: ``[rows]``, int64: ``out`` or a new array.

    Raises:
        ValueError: a group is negative, or an argument has an invalid shape or dtype.
        TypeError: an argument is not an array.

    Example:
        >>> turnout.ingroup_indices(np.array([3, 1, 3, 3, 1])).tolist()
        [0, 0, 1, 2, 1]
    """
    result: R = _core.ingroup_indices(groups, out)
    return result


def bev_pool(
    feats: Source[R],
    coords: Array,
    batch: Int,
    depth: Int,
    height: Int,
    width: Int,
    *,
    out: R | None = None,
) -> R:
    """Sums features into the cells of a grid, as BEVFusion does with those of its cameras.

    ::

        h, w, d, b = coords[i]
        out[b, :, d, h, w] = the sum of all feats[i] with these coords, in ascending order of i

    A cell without rows is 0. The rows need not be sorted. 16-bit floats are added in float32 and rounded
    once. Results have the same bits for any number of threads.

    Args:
        feats: ``[rows, channels]``, float32, float64, float16 or bfloat16.
        coords: ``[rows, 4]``, int32 or int64: h, w, d and the batch number of each row.
        batch, depth, height, width: the extents of the grid.
        out: the array to write to.

    Returns:
        out: ``[batch, channels, depth, height, width]``, dtype of ``feats``: ``out`` or a new array.

    Raises:
        ValueError: coordinates are outside of the grid, or an argument has an invalid shape or dtype.
        TypeError: an argument is not an array or an integer where one is expected.

    Example:
        >>> feats = np.array([[1.0], [2.0], [4.0]], np.float32)
        >>> coords = np.array([[0, 1, 0, 0], [1, 2, 0, 0], [0, 1, 0, 0]])
        >>> turnout.bev_pool(feats, coords, 1, 1, 2, 3)[0, 0, 0].tolist()
        [[0.0, 5.0, 0.0], [0.0, 0.0, 2.0]]
    """
    result: R = _core.bev_pool(feats, coords, batch, depth, height, width, out)
    return result


def bev_pool_backward(grad_out: Source[R], coords: Array, *, out: R | None = None) -> R:
    """The gradient of :func:`bev_pool` with respect to ``feats``: each row gets that of its cell.

    Example:
        >>> grad = np.arange(6, dtype=np.float32).reshape(1, 1, 1, 2, 3)
        >>> coords = np.array([[0, 1, 0, 0], [1, 2, 0, 0], [0, 1, 0, 0]])
        >>> turnout.bev_pool_backward(grad, coords).tolist()
        [[1.0], [5.0], [1.0]]
    """
    result: R = _core.bev_pool_backward(grad_out, coords, out)
    return result
