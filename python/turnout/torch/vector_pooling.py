"""Lists of the neighbours of queries, and vector pooling over them, as torch operators.

``vector_pool`` has gradients of any order with respect to ``features``; the other results are constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from turnout.torch.messages import own_messages
from turnout.torch.registration import constant, gradient

if TYPE_CHECKING:
    from turnout.typing import NeighborRegion, VectorPoolMode

__all__ = ["neighbor_lists", "three_nn_of_lists", "vector_pool"]

_lists = torch.ops.turnout.neighbor_lists.default
_three_nn = torch.ops.turnout.three_nn_of_lists.default
_pool = torch.ops.turnout.vector_pool.default
_pool_backward = torch.ops.turnout.vector_pool_backward.default
_ALL = 2**31 - 1

constant("three_nn_of_lists")


@gradient(
    "vector_pool",
    of="features",
    saves="cell_counts grouped",
    shapes="features",
    constant="local_xyz cell_counts grouped",
)
def _(saved, grad, *_constants):
    sizes = saved.features_shape
    return {"features": _pool_backward(grad, saved.cell_counts, saved.grouped, *sizes, saved.mode)}


# Linear in grad_pooled: the derivative pools the rows that `grouped` names.
@gradient("vector_pool_backward", of="grad_pooled", saves="cell_counts grouped", shapes="grad_pooled")
def _(saved, grad):
    queries, cells, slots = saved.grad_pooled_shape
    channels = grad.shape[1]
    row, query, cell = saved.grouped.long().unbind(1)
    at = query * cells + cell.clamp(min=0)
    values = torch.where((cell >= 0)[:, None], grad[row], 0)
    if saved.mode == "mean":
        values = values * (1 / saved.cell_counts.reshape(-1)[at].clamp(min=1).to(grad.dtype))[:, None]
    if saved.mode == "first":
        values = values * (torch.arange(channels) >= channels - slots)
    to = grad.new_zeros(queries * cells, slots)
    for first in range(0, channels if slots > 0 else 0, max(slots, 1)):
        part = values[:, first : first + slots]
        to = to.index_add(0, at, torch.nn.functional.pad(part, (0, slots - part.shape[1])))
    return {"grad_pooled": to.reshape(queries, cells, slots)}


@own_messages()
def neighbor_lists(
    xyz: torch.Tensor,
    counts: torch.Tensor,
    new_xyz: torch.Tensor,
    new_counts: torch.Tensor,
    radius: float,
    nsample: int = _ALL,
    region: NeighborRegion = "cube",
) -> tuple[torch.Tensor, torch.Tensor]:
    """The points in a cube or ball around each query, as lists that follow each other in one tensor.

    Returns rows, int32, and starts, int64 ``[M + 1]``: the list of query q is
    ``rows[starts[q] : starts[q + 1]]``. The definition is that of :func:`turnout.neighbor_lists`. Tensors may
    be strided.

    Example:
        >>> xyz = torch.tensor([[1.0, 0, 0], [5, 5, 5], [1, 1, -1]])
        >>> one, query = torch.tensor([1]), torch.zeros(1, 3)
        >>> rows, starts = turnout.torch.neighbor_lists(xyz, torch.tensor([3]), query, one, 1.0)
        >>> rows.tolist(), starts.tolist()
        ([0, 2], [0, 2])
    """
    return _lists(xyz, counts, new_xyz, new_counts, radius, nsample, region)


@own_messages()
def three_nn_of_lists(
    xyz: torch.Tensor, centers: torch.Tensor, rows: torch.Tensor, starts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The three points of each query's list that are nearest to each of the query's centers.

    ``centers`` are ``[M, G, 3]``. Returns dist2, the squares of the distances, and idx, int32, both
    ``[M, G, 3]``. The definition is that of :func:`turnout.three_nn_of_lists`. Results are constants: tensors
    that require grad are detached.

    Example:
        >>> xyz = torch.zeros(4, 3)
        >>> xyz[:, 0] = torch.tensor([0.0, 1.0, 2.0, 5.0])
        >>> rows, starts = torch.tensor([0, 2, 3]), torch.tensor([0, 3])
        >>> dist2, idx = turnout.torch.three_nn_of_lists(xyz, xyz[None, 3:], rows, starts)
        >>> idx.tolist(), dist2.tolist()
        ([[[3, 2, 0]]], [[[0.0, 9.0, 25.0]]])
    """
    return _three_nn(xyz, centers, rows, starts)


@own_messages()
def vector_pool(
    xyz: torch.Tensor,
    features: torch.Tensor,
    new_xyz: torch.Tensor,
    rows: torch.Tensor,
    starts: torch.Tensor,
    radius: float,
    grid: Sequence[int],
    slots: int,
    mode: VectorPoolMode = "mean",
    nsample: int = _ALL,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pools the features of the neighbours of each query in the cells of a cube around it.

    Returns pooled ``[M, X * Y * Z, slots]``, local_xyz ``[M, X * Y * Z, 3]``, cell_counts
    ``[M, X * Y * Z]`` and grouped ``[entries, 3]``, both int32. The definition is that of
    :func:`turnout.vector_pool`. ``features`` has gradients of any order through pooled; the other results are
    constants.

    Example:
        >>> xyz = torch.tensor([[-0.5, 0, 0], [-0.2, 0, 0], [0.5, 0, 0]])
        >>> features = torch.tensor([[1.0], [2.0], [4.0]], requires_grad=True)
        >>> query, one = torch.zeros(1, 3), torch.tensor([1])
        >>> lists = turnout.torch.neighbor_lists(xyz, torch.tensor([3]), query, one, 1.0)
        >>> pooled = turnout.torch.vector_pool(xyz, features, query, *lists, 1.0, (2, 1, 1), 1)[0]
        >>> pooled.flatten().tolist()
        [1.5, 4.0]
        >>> pooled.sum().backward()
        >>> features.grad.flatten().tolist()
        [0.5, 0.5, 1.0]
    """
    return _pool(xyz, features, new_xyz, rows, starts, radius, grid, slots, mode, nsample)
