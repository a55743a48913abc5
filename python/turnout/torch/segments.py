"""Reductions of consecutive rows, ranks and bird's-eye view pooling, as torch operators with gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from turnout.torch.messages import own_messages
from turnout.torch.registration import gradient
from turnout.torch.scatter import (
    _expanded,
    _refuse_outside,
    scatter_max,
    scatter_mean,
    scatter_min,
    scatter_sum,
)

if TYPE_CHECKING:
    from turnout.typing import SegmentReduce

__all__ = ["bev_pool", "gather_coo", "gather_csr", "ingroup_indices", "segment_coo", "segment_csr"]

_segment_csr = torch.ops.turnout.segment_csr.default
_gather_csr = torch.ops.turnout.gather_csr.default
_ingroup_indices = torch.ops.turnout.ingroup_indices.default
_bev_pool = torch.ops.turnout.bev_pool.default
_bev_pool_backward = torch.ops.turnout.bev_pool_backward.default


# A minimum or maximum needs its rows: those of the call, or those of a second call if it did not return them.
@gradient(
    "segment_csr",
    of="src",
    by="reduce",
    saves={"sum": "indptr", "mean": "indptr", "min": "src indptr arg", "max": "src indptr arg"},
    shapes="src",
    constant="arg",
    materialize=False,
)
def _(saved, grad, _):
    if grad is None:
        return {}
    rows = saved.src_shape[0]
    if saved.reduce == "sum":
        return {"src": _gather_csr(grad, saved.indptr, rows)}
    if saved.reduce == "mean":
        counts = saved.indptr.diff().clamp(min=1).reshape(-1, *[1] * (grad.dim() - 1))
        wide = grad if grad.dtype == torch.float64 else grad.float()
        return {"src": _gather_csr((wide / counts).to(grad.dtype), saved.indptr, rows)}
    arg = saved.arg
    if not saved.return_arg:
        with torch.no_grad():
            arg = _segment_csr(saved.src, saved.indptr, saved.reduce, True)[1]
    # Rows beyond the last one take the gradients of segments without a minimum or maximum.
    return {"src": grad.new_zeros((rows + 1, *grad.shape[1:])).scatter(0, arg, grad).narrow(0, 0, rows)}


@gradient("gather_csr", of="src", saves="indptr")
def _(saved, grad):
    return {"src": _segment_csr(grad, saved.indptr, "sum", False)[0]}


# Each of these is the derivative of its own gradient.


@gradient("bev_pool", of="feats", saves="coords")
def _(saved, grad):
    return {"feats": _bev_pool_backward(grad, saved.coords)}


@gradient("bev_pool_backward", of="grad_out", saves="coords", shapes="grad_out")
def _(saved, grad):
    batch, _, *extents = saved.grad_out_shape
    return {"grad_out": _bev_pool(grad, saved.coords, batch, *extents)}


# -- functions on tensors of any rank ----------------------------------------------------------------------


class _Batches:
    """Segments of the elements of a batch, ``indptr [.., segments + 1]``, as consecutive segments of rows.

    Between those of two elements there is one more segment, with the rows in none; it is dropped.
    """

    def __init__(self, name: str, tensor: torch.Tensor, indptr: torch.Tensor, rows: int | None) -> None:
        if indptr.dtype not in (torch.int32, torch.int64):
            dtype = str(indptr.dtype).removeprefix("torch.")
            raise ValueError(f"{name}: indptr has dtype {dtype}, expected int32, int64")
        self.leading = tensor.shape[: indptr.dim() - 1]
        shape = (*self.leading, indptr.shape[-1])
        if tensor.dim() < indptr.dim() or any(
            n not in (1, m) for n, m in zip(indptr.shape, shape, strict=True)
        ):
            raise ValueError(
                f"{name}: indptr has the shape {list(indptr.shape)}, expected one that expands to the first "
                f"{indptr.dim() - 1} dimensions of src, {list(tensor.shape)}"
            )
        given = indptr.expand(shape).reshape(-1, shape[-1])
        self.count = len(given)
        if rows is None:
            rows = int(given[-1, -1]) if given.numel() else 0
        self.rows = rows
        bad = (given < 0) | (given > rows)
        bad[:, 1:] |= given.diff(dim=1) < 0
        if bad.any():
            element, at = bad.nonzero()[0].tolist()
            least = 0 if at == 0 else max(int(given[element, at - 1]), 0)
            raise ValueError(
                f"{name}: indptr[{at}] of element {element} is {int(given[element, at])}, expected "
                f"{least} .. {rows}"
            )
        first = torch.arange(self.count, dtype=torch.int64) * rows
        starts = (given.long() + first[:, None]).reshape(-1)
        self.indptr = torch.cat([starts, starts.new_full((1,), self.count * rows)])


def _refuse_no_dims(name: str, indptr: torch.Tensor) -> None:
    if indptr.dim() == 0 or indptr.shape[-1] == 0:
        raise ValueError(
            f"{name}: indptr has the shape {list(indptr.shape)}, expected at least one dimension and element"
        )


@overload
def segment_csr(
    src: torch.Tensor,
    indptr: torch.Tensor,
    reduce: SegmentReduce = "sum",
    return_arg: Literal[False] = False,
) -> torch.Tensor: ...
@overload
def segment_csr(
    src: torch.Tensor, indptr: torch.Tensor, reduce: SegmentReduce = "sum", *, return_arg: Literal[True]
) -> tuple[torch.Tensor, torch.Tensor]: ...
@own_messages()
def segment_csr(
    src: torch.Tensor, indptr: torch.Tensor, reduce: SegmentReduce = "sum", return_arg: bool = False
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """The sum, mean, minimum or maximum of each segment, a range of consecutive rows.

    The definition is that of :func:`turnout.segment_csr`: a segment without rows is 0. With ``return_arg``
    the result is a tuple of out and arg, int64: the row of each minimum or maximum, or the number of rows.
    Tensors may be strided. ``src`` has gradients of any order; the whole gradient of a minimum or maximum
    goes to the first of equal rows.

    As in torch_scatter, ``indptr`` may have more dimensions: those before its last one expand to the first
    dimensions of ``src``, and the next dimension of ``src`` has the rows.

    Example:
        >>> src = torch.tensor([[1.0, 9.0], [2.0, 8.0], [4.0, 0.0]], requires_grad=True)
        >>> indptr = torch.tensor([0, 2, 2, 3])  # segment 1 has no rows
        >>> largest = turnout.torch.segment_csr(src, indptr, "max")
        >>> largest.tolist()
        [[2.0, 9.0], [0.0, 0.0], [4.0, 0.0]]
        >>> largest.sum().backward()
        >>> src.grad.tolist()
        [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    """
    # The gradient of a minimum or maximum needs arg.
    wanted = return_arg or (reduce in ("min", "max") and src.requires_grad and torch.is_grad_enabled())
    if indptr.dim() <= 1:
        out, arg = _segment_csr(src, indptr, reduce, wanted)
        return (out, arg) if return_arg else out
    _refuse_no_dims("segment_csr", indptr)
    dim = indptr.dim() - 1
    batches = _Batches("segment_csr", src, indptr, src.shape[dim] if src.dim() > dim else 0)
    rows = src.flatten(0, dim)
    out, arg = _segment_csr(rows, batches.indptr, reduce, wanted)
    shape = (batches.count, indptr.shape[-1], *rows.shape[1:])

    def unfolded(result):
        return result.reshape(shape)[:, :-1].reshape(*batches.leading, shape[1] - 1, *shape[2:])

    if not return_arg:
        return unfolded(out)
    first = torch.arange(batches.count).reshape(-1, *[1] * (len(shape) - 1)) * batches.rows
    local = torch.where(arg.reshape(shape) == len(rows), batches.rows, arg.reshape(shape) - first)
    return unfolded(out), unfolded(local)


@own_messages()
def gather_csr(src: torch.Tensor, indptr: torch.Tensor, rows: int | None = None) -> torch.Tensor:
    """Copies the row of each segment to all rows of the segment: the inverse of :func:`segment_csr`.

    The definition is that of :func:`turnout.gather_csr`: ``rows`` is by default the last element of
    ``indptr``, and rows in no segment are 0. ``indptr`` may have more dimensions, as in :func:`segment_csr`.
    ``src`` has gradients of any order.

    Example:
        >>> src = torch.tensor([[1.0], [2.0], [4.0]])
        >>> turnout.torch.gather_csr(src, torch.tensor([0, 2, 2, 3])).tolist()
        [[1.0], [1.0], [4.0]]
    """
    if indptr.dim() <= 1:
        return _gather_csr(src, indptr, rows)
    _refuse_no_dims("gather_csr", indptr)
    dim = indptr.dim() - 1
    batches = _Batches("gather_csr", src, indptr, rows)
    if src.shape[dim] != indptr.shape[-1] - 1:
        raise ValueError(
            f"gather_csr: src.shape[{dim}] is {src.shape[dim]}, expected {indptr.shape[-1] - 1}, "
            "the segments of indptr"
        )
    none = src.new_zeros((*src.shape[:dim], 1, *src.shape[dim + 1 :]))
    padded = torch.cat([src, none], dim).flatten(0, dim)
    out = _gather_csr(padded, batches.indptr, batches.count * batches.rows)
    return out.reshape(*batches.leading, batches.rows, *src.shape[dim + 1 :])


@own_messages()
def segment_coo(
    src: torch.Tensor, index: torch.Tensor, dim_size: int | None = None, reduce: SegmentReduce = "sum"
) -> torch.Tensor:
    """Reduces the rows of each group like torch_scatter's function of this name, with an ascending index.

    The last dimension of ``index`` is for the dimension of ``src`` with the same number; those before it
    expand to those of ``src``. The results are those of :func:`scatter_sum`, :func:`scatter_mean`,
    :func:`scatter_min` and :func:`scatter_max`, which accept any order; an ascending index is faster.

    Example:
        >>> src = torch.tensor([[1.0], [2.0], [4.0]])
        >>> turnout.torch.segment_coo(src, torch.tensor([0, 0, 2]), reduce="mean").tolist()
        [[1.5], [0.0], [4.0]]
    """
    functions: dict[str, Callable[..., Any]] = {
        "sum": scatter_sum,
        "mean": scatter_mean,
        "min": partial(scatter_min, return_arg=False),
        "max": partial(scatter_max, return_arg=False),
    }
    if reduce not in functions:
        raise ValueError(f"segment_coo: reduce is {reduce!r}, expected 'sum', 'mean', 'min' or 'max'")
    out: torch.Tensor = functions[reduce](src, index, max(index.dim() - 1, 0), dim_size)
    return out


@own_messages()
def gather_coo(src: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Copies the row of each group to the rows of the group: the inverse of :func:`segment_coo`.

    ``out[i] = src[index[i]]``. ``index`` may have more dimensions, as in :func:`segment_coo`.

    Example:
        >>> src = torch.tensor([[1.0], [2.0], [4.0]])
        >>> turnout.torch.gather_coo(src, torch.tensor([0, 0, 2])).tolist()
        [[1.0], [1.0], [4.0]]
    """
    dim = index.dim() - 1
    if not 0 <= dim < src.dim():
        raise ValueError(
            f"gather_coo: index has {index.dim()} dimensions, expected 1 .. {src.dim()}, at most those of src"
        )
    if not torch.compiler.is_compiling():
        _refuse_outside("gather_coo", index, src.shape[dim])
    if dim == 0:
        return src.index_select(0, index)
    like = src.new_empty(1).expand(*src.shape[:dim], index.shape[dim], *src.shape[dim + 1 :])
    return src.gather(dim, _expanded("gather_coo", index, like).long())


@own_messages()
def ingroup_indices(groups: torch.Tensor) -> torch.Tensor:
    """The rank of each row within its group: the number of rows before it that are in the same group.

    The definition is that of :func:`turnout.ingroup_indices`.

    Example:
        >>> turnout.torch.ingroup_indices(torch.tensor([3, 1, 3, 3, 1])).tolist()
        [0, 0, 1, 2, 1]
    """
    return _ingroup_indices(groups)


@own_messages()
def bev_pool(
    feats: torch.Tensor, coords: torch.Tensor, batch: int, depth: int, height: int, width: int
) -> torch.Tensor:
    """Sums features into the cells of a grid, as BEVFusion does with those of its cameras.

    Returns ``[batch, channels, depth, height, width]``. The definition is that of :func:`turnout.bev_pool`:
    a row of ``coords`` is h, w, d and the batch number, in any order of rows. ``feats`` has gradients of any
    order.

    Example:
        >>> feats = torch.tensor([[1.0], [2.0], [4.0]])
        >>> coords = torch.tensor([[0, 1, 0, 0], [1, 2, 0, 0], [0, 1, 0, 0]])
        >>> turnout.torch.bev_pool(feats, coords, 1, 1, 2, 3)[0, 0, 0].tolist()
        [[0.0, 5.0, 0.0], [0.0, 0.0, 2.0]]
    """
    return _bev_pool(feats, coords, batch, depth, height, width)
