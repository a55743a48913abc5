"""torch_cluster's names for clouds of points: ``turnout.compat.torch_cluster``.

Example:
    >>> from turnout.compat.torch_cluster import grid_cluster
    >>> pos = torch.tensor([[0.0, 0.0], [11.0, 9.0], [2.0, 8.0], [2.0, 2.0], [8.0, 3.0]])
    >>> grid_cluster(pos, torch.tensor([5.0, 5.0])).tolist()
    [0, 5, 3, 0, 1]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from turnout import torch as own
from turnout.compat._extension import widened
from turnout.compat._install import Installation, missing
from turnout.torch.messages import own_messages

__all__ = [
    "fps",
    "grid_cluster",
    "install",
    "knn",
    "knn_graph",
    "nearest",
    "radius",
    "radius_graph",
    "uninstall",
]

__version__ = "1.6.3"  # the release that these functions follow

_FAR = 1e10  # the squared distance from which turnout.torch.knn does not find a point


def _points(function: str, name: str, value: torch.Tensor) -> torch.Tensor:
    """Points of up to three columns as ``[N, 3]``; the columns that are added contribute 0 to distances."""
    points = value.detach().unsqueeze(1) if value.dim() == 1 else value.detach()
    if points.dim() != 2 or not 1 <= points.shape[1] <= 3:
        raise ValueError(
            f"{function}: {name} has shape {list(value.shape)}, expected [points, columns] with 1 to 3 "
            "columns"
        )
    points = points if points.is_floating_point() else points.float()
    return torch.nn.functional.pad(widened(points), (0, 3 - points.shape[1]))


def _counts(
    function: str, name: str, batch: torch.Tensor | None, rows: int, examples: int | None
) -> torch.Tensor:
    """The points of each example; without ``batch`` all are those of one."""
    if batch is None:
        counts = torch.tensor([rows])
    else:
        if batch.is_floating_point() or list(batch.shape) != [rows]:
            raise ValueError(
                f"{function}: {name} has shape {list(batch.shape)} and dtype {batch.dtype}, expected "
                f"integers [{rows}], the example of each point"
            )
        if (batch.diff() < 0).any() or (batch[:1] < 0).any():
            raise ValueError(f"{function}: {name} is not ascending from 0 or more, expected sorted examples")
        counts = torch.bincount(batch.long().cpu())
    if examples is not None:
        if len(counts) > examples and batch is not None:
            raise ValueError(
                f"{function}: {name} has example {len(counts) - 1}, expected less than {examples}"
            )
        counts = torch.nn.functional.pad(counts, (0, examples - len(counts)))
    return counts


def _lengths(function: str, ptr: torch.Tensor | Sequence[int], rows: int) -> torch.Tensor:
    """The points of each example, given where they begin and end."""
    bounds = torch.as_tensor(ptr).cpu().long()
    is_valid = bounds.dim() == 1 and bool(len(bounds)) and bounds[0] == 0 and bounds[-1] == rows
    if not is_valid or (bounds.diff() < 0).any():
        raise ValueError(
            f"{function}: ptr is {bounds.tolist()}, expected numbers that ascend from 0 to {rows}"
        )
    return bounds.diff()


def _examples(
    function: str,
    x: torch.Tensor,
    y: torch.Tensor,
    batch_x: torch.Tensor | None,
    batch_y: torch.Tensor | None,
    batch_size: int | None,
) -> Iterator[tuple[int, torch.Tensor, int, torch.Tensor]]:
    """The points of both tensors in each example, each with its first row."""
    x, y = _points(function, "x", x), _points(function, "y", y)
    counts = (
        _counts(function, "batch_x", batch_x, len(x), batch_size),
        _counts(function, "batch_y", batch_y, len(y), batch_size),
    )
    examples = max(map(len, counts))
    of_x, of_y = (torch.nn.functional.pad(one, (0, examples - len(one))).tolist() for one in counts)
    first_x = first_y = 0
    for points, queries in zip(x.split(of_x), y.split(of_y), strict=True):
        yield first_x, points, first_y, queries
        first_x, first_y = first_x + len(points), first_y + len(queries)


def _pairs(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat(parts, dim=1) if parts else torch.empty((2, 0), dtype=torch.int64)


def _edges(of_y: int, of_x: int, rows: torch.Tensor, is_found: torch.Tensor) -> torch.Tensor:
    """Pairs ``[2, edges]`` of a row of y and a row of x, given the rows of x that each query has found."""
    query, place = is_found.nonzero(as_tuple=True)
    return torch.stack([query + of_y, rows[query, place].long() + of_x])


def _without_loops(pairs: torch.Tensor, most: int) -> torch.Tensor:
    """The pairs of different rows, at most ``most`` of each query; queries are in ascending order."""
    pairs = pairs[:, pairs[0] != pairs[1]]
    counts = pairs[0].bincount()
    place = torch.arange(pairs.shape[1]) - (counts.cumsum(0) - counts)[pairs[0]]
    return pairs[:, place < most]


def _directed(function: str, pairs: torch.Tensor, flow: str) -> torch.Tensor:
    if flow not in ("source_to_target", "target_to_source"):
        raise ValueError(f"{function}: flow is {flow!r}, expected 'source_to_target' or 'target_to_source'")
    return pairs.flip(0) if flow == "source_to_target" else pairs


def _refuse_cosine(function: str, cosine: bool) -> None:
    if cosine:
        raise NotImplementedError(
            f"{function}: cosine is True, expected False: Turnout has Euclidean distances"
        )


@own_messages()
@torch.no_grad()
def grid_cluster(
    pos: torch.Tensor, size: torch.Tensor, start: torch.Tensor | None = None, end: torch.Tensor | None = None
) -> torch.Tensor:
    """The cell of each point ``[N, D]`` in a grid of cells of ``size [D]``, int64 ``[N]``.

    Cells are numbered from ``start``, by default the least coordinates, to ``end``, by default the greatest;
    the first column varies fastest.
    """
    points = pos.unsqueeze(1) if pos.dim() == 1 else pos
    columns = points.shape[1] if points.dim() == 2 else 0
    if points.dim() != 2:
        raise ValueError(f"grid_cluster: pos has shape {list(pos.shape)}, expected [points, columns]")
    for name, value in (("size", size), ("start", start), ("end", end)):
        if value is not None and list(value.shape) != [columns]:
            raise ValueError(
                f"grid_cluster: {name} has shape {list(value.shape)}, expected [{columns}], the "
                "columns of pos"
            )
    if not len(points):
        return torch.empty(0, dtype=torch.int64)
    first = points.amin(0) if start is None else start.to(points)
    last = points.amax(0) if end is None else end.to(points)
    cells = ((last - first) / size.to(points)).long() + 1
    strides = torch.cat([cells.new_ones(1), cells.cumprod(0)[:-1]])
    return (((points - first) / size.to(points)).long() * strides).sum(1)


@own_messages()
@torch.no_grad()
def fps(
    src: torch.Tensor,
    batch: torch.Tensor | None = None,
    ratio: float | torch.Tensor | None = None,
    random_start: bool = True,
    batch_size: int | None = None,
    ptr: torch.Tensor | Sequence[int] | None = None,
) -> torch.Tensor:
    """Furthest point samples of each example: rows of ``src``, int64.

    An example of n points has ``ceil(ratio * n)`` samples, by default half of them. The first one is random,
    or the first point. Points have 1 to 3 columns. ``ptr``, the first row of each example and the number of
    rows, replaces ``batch``.
    """
    points = _points("fps", "src", src)
    if ptr is None:
        counts = _counts("fps", "batch", batch, len(points), batch_size)
    else:
        counts = _lengths("fps", ptr, len(points))
    share = torch.as_tensor(0.5 if ratio is None else ratio, dtype=torch.float32).cpu()
    wanted = (counts * share).ceil().long()
    rows = torch.arange(len(points))
    if random_start:
        # Sampling begins with the first row of an example: exchange it for a random one.
        first = (counts.cumsum(0) - counts)[counts > 0]
        chosen = first + (torch.rand(len(first)) * counts[counts > 0]).long()
        rows[first], rows[chosen] = chosen, first
    return rows[own.furthest_point_sample_stacked(points[rows], counts, wanted).long()]


@own_messages()
@torch.no_grad()
def knn(
    x: torch.Tensor,
    y: torch.Tensor,
    k: int,
    batch_x: torch.Tensor | None = None,
    batch_y: torch.Tensor | None = None,
    cosine: bool = False,
    num_workers: int = 1,
    batch_size: int | None = None,
) -> torch.Tensor:
    """The ``k`` nearest points of ``x`` of each point of ``y``: pairs of a row of y and a row of x.

    The result is int64 ``[2, pairs]``. The pairs of a point are in ascending order of the distance, those at
    the same distance by row. There are fewer if the example has fewer points. Points have 1 to 3 columns,
    ``batch_x`` and ``batch_y`` ascend, and ``cosine`` must be False. ``num_workers`` is ignored;
    ``batch_size`` is the number of examples.
    """
    del num_workers
    _refuse_cosine("knn", cosine)
    parts = []
    for of_x, points, of_y, queries in _examples("knn", x, y, batch_x, batch_y, batch_size):
        rows, squares = own.knn(points, queries, min(k, len(points)))
        parts.append(_edges(of_y, of_x, rows, squares < _FAR))
    return _pairs(parts)


@own_messages()
def knn_graph(
    x: torch.Tensor,
    k: int,
    batch: torch.Tensor | None = None,
    loop: bool = False,
    flow: str = "source_to_target",
    cosine: bool = False,
    num_workers: int = 1,
    batch_size: int | None = None,
) -> torch.Tensor:
    """The edges between each point and its ``k`` nearest ones, int64 ``[2, edges]``; see :func:`knn`.

    Row 0 has the neighbours and row 1 the points, with ``flow="target_to_source"`` the other way around.
    Without ``loop``, a point is not its own neighbour.
    """
    _refuse_cosine("knn_graph", cosine)
    pairs = knn(x, x, k if loop else k + 1, batch, batch, False, num_workers, batch_size)
    return _directed("knn_graph", pairs if loop else _without_loops(pairs, k), flow)


@own_messages()
@torch.no_grad()
def radius(
    x: torch.Tensor,
    y: torch.Tensor,
    r: float,
    batch_x: torch.Tensor | None = None,
    batch_y: torch.Tensor | None = None,
    max_num_neighbors: int = 32,
    num_workers: int = 1,
    batch_size: int | None = None,
    ignore_same_index: bool = False,
) -> torch.Tensor:
    """The points of ``x`` closer than ``r`` to each point of ``y``: pairs of a row of y and a row of x.

    If there are more than ``max_num_neighbors``, those with the lowest rows are found. With
    ``ignore_same_index``, a row of y is not paired with the same row of x. Otherwise as :func:`knn`.
    """
    del num_workers
    parts = []
    most = max_num_neighbors + bool(ignore_same_index)
    for of_x, points, of_y, queries in _examples("radius", x, y, batch_x, batch_y, batch_size):
        rows, found = own.ball_query(points, queries, r, min(most, len(points)))
        parts.append(_edges(of_y, of_x, rows, torch.arange(rows.shape[1]) < found[:, None]))
    pairs = _pairs(parts)
    return _without_loops(pairs, max_num_neighbors) if ignore_same_index else pairs


@own_messages()
def radius_graph(
    x: torch.Tensor,
    r: float,
    batch: torch.Tensor | None = None,
    loop: bool = False,
    max_num_neighbors: int = 32,
    flow: str = "source_to_target",
    num_workers: int = 1,
    batch_size: int | None = None,
) -> torch.Tensor:
    """The edges between points closer than ``r``; otherwise as :func:`knn_graph` and :func:`radius`."""
    pairs = radius(x, x, r, batch, batch, max_num_neighbors, num_workers, batch_size, not loop)
    return _directed("radius_graph", pairs, flow)


@own_messages()
def nearest(
    x: torch.Tensor,
    y: torch.Tensor,
    batch_x: torch.Tensor | None = None,
    batch_y: torch.Tensor | None = None,
) -> torch.Tensor:
    """The nearest point of ``y`` for each point of ``x``: rows of y, int64 ``[N]``; see :func:`knn`."""
    pairs = knn(y, x, 1, batch_y, batch_x)
    if pairs.shape[1] != len(x):
        alone = int((torch.bincount(pairs[0], minlength=len(x)) == 0).nonzero()[0])
        raise ValueError(f"nearest: y has no point for x[{alone}], expected one in each example of x")
    return pairs[1]


# -- in torch_cluster's place ------------------------------------------------------------------------------

_functions = {name: globals()[name] for name in __all__ if name not in ("install", "uninstall")}
_MISSING = ("graclus_cluster", "neighbor_sampler", "random_walk")
__getattr__ = missing("torch_cluster", _MISSING, ", ".join(_functions))


def _attribute(name: str) -> Any:
    """Returns the other attributes of the stand-in module."""
    return __version__ if name == "__version__" else __getattr__(name)


install, uninstall = Installation(
    "torch_cluster", {"torch_cluster": _functions}, getattr=_attribute
).functions("import torch_cluster")
