"""Names of pointops, the package of point operators of Pointcept: ``turnout.compat.pointops``.

Clouds follow each other in the rows of one tensor; ``offset`` has the end of each.

Example:
    >>> from turnout.compat import pointops
    >>> xyz = torch.zeros(4, 3)
    >>> xyz[:, 0] = torch.tensor([0.0, 1.0, 5.0, 9.0])
    >>> idx, dist = pointops.knn_query(2, xyz, torch.tensor([3, 4]))
    >>> idx.tolist()  # the second cloud has one point; -1 marks a missing neighbour
    [[0, 1], [1, 0], [2, 1], [3, -1]]
"""

from __future__ import annotations

from typing import Any

import torch

from turnout import torch as own
from turnout.compat._install import Installation, missing
from turnout.torch.messages import own_messages

__all__ = [
    "batch2offset",
    "farthest_point_sampling",
    "grouping",
    "grouping2",
    "install",
    "interpolation",
    "interpolation2",
    "knn_query",
    "knn_query_and_group",
    "offset2batch",
    "query_and_group",
    "uninstall",
]

_FAR = 1e10  # the squared distance of a neighbour that does not exist


def _counts(function: str, name: str, offset: torch.Tensor, rows: int | None) -> torch.Tensor:
    """The rows of each cloud. ``rows`` is what they must sum to; None: anything."""
    if offset.dim() != 1 or offset.is_floating_point():
        raise ValueError(
            f"{function}: {name} has shape {list(offset.shape)} and dtype {offset.dtype}, "
            "expected integers [clouds]"
        )
    counts = torch.diff(offset.cpu(), prepend=offset.new_zeros(1).cpu())
    if (counts < 0).any():
        raise ValueError(f"{function}: {name} is {offset.tolist()}, expected ascending ends of clouds")
    if rows is not None and int(counts.sum()) != rows:
        raise ValueError(
            f"{function}: {name} ends with {int(counts.sum())}, expected {rows}, the number of rows"
        )
    return counts


@own_messages()
@torch.no_grad()
def knn_query(
    nsample: int,
    xyz: torch.Tensor,
    offset: torch.Tensor,
    new_xyz: torch.Tensor | None = None,
    new_offset: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The ``nsample`` nearest points of each query's cloud: rows of ``xyz``, int32, and distances.

    Equal distances are ordered by row. A neighbour that does not exist has row -1 and distance 1e5. Without
    ``new_xyz`` and ``new_offset``, the queries are the points themselves.
    """
    if new_xyz is None or new_offset is None:
        new_xyz, new_offset = xyz, offset
    counts = _counts("knn_query", "offset", offset, len(xyz)).tolist()
    new_counts = _counts("knn_query", "new_offset", new_offset, len(new_xyz)).tolist()
    if len(counts) != len(new_counts):
        raise ValueError(
            f"knn_query: new_offset has {len(new_counts)} clouds, expected {len(counts)}, those of offset"
        )
    rows, squares = [], []
    first = 0
    for cloud, queries in zip(xyz.split(counts), new_xyz.split(new_counts), strict=True):
        idx, dist2 = own.knn(cloud, queries, nsample)
        rows.append(torch.where(dist2 < _FAR, idx + first, -1))
        squares.append(dist2)
        first += len(cloud)
    return torch.cat(rows), torch.cat(squares).float().sqrt()


@own_messages()
@torch.no_grad()
def farthest_point_sampling(
    xyz: torch.Tensor, offset: torch.Tensor, new_offset: torch.Tensor
) -> torch.Tensor:
    """Furthest point samples of each cloud: rows of ``xyz``, int32. ``new_offset`` has the samples' ends."""
    counts = _counts("farthest_point_sampling", "offset", offset, len(xyz))
    wanted = _counts("farthest_point_sampling", "new_offset", new_offset, None)
    return own.furthest_point_sample_stacked(xyz, counts, wanted)


def _rows_or_zero(rows: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """``rows[idx]``, ``[m, nsample, c]``, with zeros for -1."""
    padded = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
    chosen = torch.where(idx < 0, len(rows), idx).flatten().long()
    return padded.index_select(0, chosen).view(*idx.shape, -1)


def grouping(
    idx: torch.Tensor,
    feat: torch.Tensor,
    xyz: torch.Tensor,
    new_xyz: torch.Tensor | None = None,
    with_xyz: bool = False,
) -> torch.Tensor:
    """The features of neighbours, ``[m, nsample, c]``; zeros where ``idx`` is -1.

    With ``with_xyz``, positions relative to the query come first: ``[m, nsample, 3 + c]``.
    """
    grouped = _rows_or_zero(feat, idx)
    if not with_xyz:
        return grouped
    centre = (xyz if new_xyz is None else new_xyz).unsqueeze(1)
    relative = torch.where((idx < 0).unsqueeze(2), 0, _rows_or_zero(xyz, idx) - centre)
    return torch.cat([relative, grouped], dim=2)


def grouping2(input: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """``input[idx]``, ``[m, nsample, c]``; every row of ``idx`` exists."""
    return input.index_select(0, idx.flatten().long()).view(*idx.shape, -1)


def interpolation(
    xyz: torch.Tensor,
    new_xyz: torch.Tensor,
    feat: torch.Tensor,
    offset: torch.Tensor,
    new_offset: torch.Tensor,
    k: int = 3,
) -> torch.Tensor:
    """Features at ``new_xyz``: the mean of the ``k`` nearest ones, weighted by 1 / (distance + 1e-8)."""
    idx, dist = knn_query(k, xyz, offset, new_xyz, new_offset)
    weight = 1 / (dist + 1e-8)
    weight = weight / weight.sum(dim=1, keepdim=True)
    # A missing neighbour is the last row, as in pointops, with a weight that its distance of 1e5 makes small.
    rows = torch.where(idx < 0, idx + len(feat), idx)
    return (grouping2(feat, rows) * weight.unsqueeze(2)).sum(dim=1)


interpolation2 = interpolation


def knn_query_and_group(
    feat: torch.Tensor,
    xyz: torch.Tensor,
    offset: torch.Tensor | None = None,
    new_xyz: torch.Tensor | None = None,
    new_offset: torch.Tensor | None = None,
    idx: torch.Tensor | None = None,
    nsample: int | None = None,
    with_xyz: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`knn_query` unless ``idx`` is given, then :func:`grouping`; returns features and rows."""
    if idx is None:
        if nsample is None or offset is None:
            raise ValueError(
                "knn_query_and_group: nsample or offset is None, expected both because idx is None"
            )
        idx, _ = knn_query(nsample, xyz, offset, new_xyz, new_offset)
    return grouping(idx, feat, xyz, new_xyz, with_xyz), idx


def query_and_group(
    nsample: int,
    xyz: torch.Tensor,
    new_xyz: torch.Tensor | None,
    feat: torch.Tensor,
    idx: torch.Tensor | None,
    offset: torch.Tensor,
    new_offset: torch.Tensor,
    dilation: int = 0,
    with_feat: bool = True,
    with_xyz: bool = True,
) -> Any:
    """Neighbours at every ``dilation + 1``-th place by distance, and their features.

    A cloud with fewer points than that takes uses a smaller dilation. Returns features, with positions
    relative to the query before them if ``with_xyz``, and rows; without ``with_feat`` only the rows.
    """
    queries = xyz if new_xyz is None else new_xyz
    if idx is None:
        total = 1 + (nsample - 1) * (dilation + 1)
        nearest, _ = knn_query(total, xyz, offset, queries, new_offset)
        counts = _counts("query_and_group", "offset", offset, len(xyz)).tolist()
        new_counts = _counts("query_and_group", "new_offset", new_offset, len(queries)).tolist()
        parts = []
        for count, found in zip(counts, nearest.split(new_counts), strict=True):
            step = dilation + 1 if count >= total else (count - 1) / max(nsample - 1, 1)
            parts.append(found[:, [int(step * i) for i in range(nsample)]])
        idx = torch.cat(parts)
    if not with_feat:
        return idx
    grouped = grouping2(feat, idx)
    if with_xyz:
        grouped = torch.cat([grouping2(xyz, idx) - queries.unsqueeze(1), grouped], dim=2)
    return grouped, idx


def offset2batch(offset: torch.Tensor) -> torch.Tensor:
    """The number of its cloud for each row, int64."""
    counts = _counts("offset2batch", "offset", offset, None)
    return torch.arange(len(counts)).repeat_interleave(counts)


def batch2offset(batch: torch.Tensor) -> torch.Tensor:
    """The ends of clouds, int32, given the number of its cloud for each row."""
    return batch.bincount().cumsum(0).int()


# -- in pointops' place ------------------------------------------------------------------------------------

_functions: dict[str, Any] = {
    name: globals()[name] for name in __all__ if name not in ("install", "uninstall")
}
# The two ball queries read and write out of bounds in pointops itself.
_MISSING = (
    *("ball_query", "random_ball_query", "ball_query_and_group", "subtraction", "aggregation"),
    *("attention_relation_step", "attention_fusion_step"),
)
__getattr__ = missing("pointops", _MISSING, ", ".join(_functions))

install, uninstall = Installation("pointops", {"pointops": _functions}, getattr=__getattr__).functions(
    "import pointops"
)
