"""Points of clouds, as torch operators: samples that cover them, points within a radius, nearest points.

Results have no gradient: they are constants, and tensors that require grad are detached.
"""

from __future__ import annotations

import torch

from turnout.points import ranges_of
from turnout.torch.messages import own_messages
from turnout.torch.registration import constant

__all__ = [
    "ball_query",
    "ball_query_stacked",
    "furthest_point_sample",
    "furthest_point_sample_by_distances",
    "furthest_point_sample_stacked",
    "knn",
    "three_nn",
    "three_nn_stacked",
    "voxel_query",
]

_sample = torch.ops.turnout.furthest_point_sample.default
_sample_stacked = torch.ops.turnout.furthest_point_sample_stacked.default
_sample_by_distances = torch.ops.turnout.furthest_point_sample_by_distances.default
_ball_query = torch.ops.turnout.ball_query.default
_ball_query_stacked = torch.ops.turnout.ball_query_stacked.default
_voxel_query = torch.ops.turnout.voxel_query.default
_three_nn = torch.ops.turnout.three_nn.default
_three_nn_stacked = torch.ops.turnout.three_nn_stacked.default
_knn = torch.ops.turnout.knn.default

constant("furthest_point_sample", "furthest_point_sample_stacked", "furthest_point_sample_by_distances")
constant("three_nn", "three_nn_stacked", "knn")


@own_messages()
def furthest_point_sample(
    xyz: torch.Tensor, samples: int, initial: torch.Tensor | None = None
) -> torch.Tensor:
    """Samples of a cloud that cover it: each next one is the point that is furthest from those before.

    ``xyz`` is ``[N, 3]`` or ``[B, N, 3]``. Returns rows, int32, ``[samples]`` or ``[B, samples]``. The
    definition is that of :func:`turnout.furthest_point_sample`. Tensors may be strided.

    Example:
        >>> xyz = torch.zeros(5, 3)
        >>> xyz[:, 0] = torch.tensor([0.0, 1.0, 2.0, 3.0, 10.0])
        >>> turnout.torch.furthest_point_sample(xyz, 4).tolist()
        [0, 4, 3, 1]
    """
    return _sample(xyz, samples, initial)[0]


@own_messages()
def furthest_point_sample_stacked(
    xyz: torch.Tensor,
    counts: torch.Tensor,
    sample_counts: torch.Tensor,
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    """Samples of clouds that follow each other in the rows of one tensor.

    ``counts`` and ``sample_counts`` are the rows and the samples of each cloud. Returns rows of ``xyz``,
    int32, ``[sum of sample_counts]``. The definition is that of
    :func:`turnout.furthest_point_sample_stacked`.

    Example:
        >>> xyz = torch.zeros(6, 3)
        >>> xyz[:, 0] = torch.tensor([0.0, 1.0, 2.0, 50.0, 54.0, 52.0])
        >>> counts, wanted = torch.tensor([3, 3]), torch.tensor([2, 2])
        >>> turnout.torch.furthest_point_sample_stacked(xyz, counts, wanted).tolist()
        [0, 2, 3, 4]
    """
    return _sample_stacked(xyz, counts, sample_counts, initial)[0]


@own_messages()
def furthest_point_sample_by_distances(
    matrix: torch.Tensor, samples: int, initial: torch.Tensor | None = None
) -> torch.Tensor:
    """Furthest point sampling by a matrix of distances, ``[N, N]`` or ``[B, N, N]``.

    The definition is that of :func:`turnout.furthest_point_sample_by_distances`; otherwise as
    :func:`furthest_point_sample`.

    Example:
        >>> matrix = torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]])
        >>> turnout.torch.furthest_point_sample_by_distances(matrix, 3).tolist()
        [0, 2, 1]
    """
    return _sample_by_distances(matrix, samples, initial)[0]


@own_messages()
def ball_query(
    xyz: torch.Tensor, new_xyz: torch.Tensor, radius: float, nsample: int, min_radius: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first points within a radius of each query, by ascending row.

    ``xyz`` is ``[N, 3]`` or ``[B, N, 3]``, ``new_xyz`` ``[M, 3]`` or ``[B, M, 3]``. Returns idx, int32,
    ``[M, nsample]`` or ``[B, M, nsample]``, and found, int32: how many points are found. The definition is
    that of :func:`turnout.ball_query`. Tensors may be strided.

    Example:
        >>> xyz = torch.zeros(4, 3)
        >>> xyz[:, 0] = torch.tensor([0.0, 1.0, 2.0, 3.0])
        >>> idx, found = turnout.torch.ball_query(xyz, xyz[1:3] + 0.1, 1.2, 4)
        >>> idx.tolist(), found.tolist()
        ([[0, 1, 2, 0], [1, 2, 3, 1]], [3, 3])
    """
    return _ball_query(xyz, new_xyz, radius, nsample, min_radius)


@own_messages()
def ball_query_stacked(
    xyz: torch.Tensor,
    counts: torch.Tensor,
    new_xyz: torch.Tensor,
    new_counts: torch.Tensor,
    radius: float,
    nsample: int,
    min_radius: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first points within a radius of each query, of clouds that follow each other in one tensor.

    Rows in idx begin with 0 in each cloud. The definition is that of :func:`turnout.ball_query_stacked`;
    otherwise as :func:`ball_query`.

    Example:
        >>> xyz = torch.zeros(4, 3)
        >>> xyz[:, 0] = torch.tensor([0.0, 1.0, 50.0, 51.0])
        >>> two, one = torch.tensor([2, 2]), torch.tensor([1, 1])
        >>> idx, found = turnout.torch.ball_query_stacked(xyz, two, xyz[1:3], one, 0.5, 2)
        >>> idx.tolist(), found.tolist()
        ([[1, 1], [0, 0]], [1, 1])
    """
    return _ball_query_stacked(xyz, counts, new_xyz, new_counts, radius, nsample, min_radius)


@own_messages()
def voxel_query(
    xyz: torch.Tensor,
    new_xyz: torch.Tensor,
    new_coords: torch.Tensor,
    point_indices: torch.Tensor,
    radius: float,
    nsample: int,
    ranges: tuple[int, int, int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first points within a radius of each query, among those of the voxels around it.

    ``new_coords`` are ``[M, 4]``: the batch element, z, y, x of each query; ``point_indices`` are
    ``[B, Z, Y, X]``: the row of a voxel's point, negative if it has none; ``ranges`` are voxels in z, y and
    x. The definition is that of :func:`turnout.voxel_query`; otherwise as :func:`ball_query`.

    Example:
        >>> xyz = torch.tensor([[0.5, 0.5, 0.5], [1.5, 0.5, 0.5], [4.5, 0.5, 0.5]])
        >>> grid = torch.tensor([[[[0, 1, -1, -1, 2]]]])
        >>> at = torch.tensor([[0, 0, 0, 1]])
        >>> idx, found = turnout.torch.voxel_query(xyz, xyz[1:2], at, grid, 2.0, 3, (0, 0, 2))
        >>> idx.tolist(), found.tolist()
        ([[0, 1, 0]], [2])
    """
    z_range, y_range, x_range = ranges_of(ranges)
    arguments = xyz, new_xyz, new_coords, point_indices, radius, z_range, y_range, x_range, nsample
    return _voxel_query(*arguments)


@own_messages()
def three_nn(unknown: torch.Tensor, known: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The three points of ``known`` that are nearest to each point of ``unknown``.

    ``unknown`` is ``[M, 3]`` or ``[B, M, 3]``, ``known`` ``[N, 3]`` or ``[B, N, 3]``. Returns dist2, the
    squares of the distances, and idx, int32, ``[M, 3]`` or ``[B, M, 3]``. The definition is that of
    :func:`turnout.three_nn`. Tensors may be strided.

    Example:
        >>> known = torch.zeros(4, 3)
        >>> known[:, 0] = torch.tensor([0.0, 1.0, 2.0, 5.0])
        >>> dist2, idx = turnout.torch.three_nn(known[3:] - 1, known)
        >>> idx.tolist(), dist2.tolist()
        ([[3, 2, 1]], [[3.0, 6.0, 11.0]])
    """
    return _three_nn(unknown, known)


@own_messages()
def three_nn_stacked(
    unknown: torch.Tensor, unknown_counts: torch.Tensor, known: torch.Tensor, known_counts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The three nearest points in clouds that follow each other in the rows of one tensor.

    Rows in idx are those of ``known``. The definition is that of :func:`turnout.three_nn_stacked`; otherwise
    as :func:`three_nn`.

    Example:
        >>> known = torch.zeros(5, 3)
        >>> known[:, 0] = torch.tensor([0.0, 1.0, 50.0, 51.0, 53.0])
        >>> one, at = torch.tensor([0, 1]), torch.tensor([2, 3])
        >>> dist2, idx = turnout.torch.three_nn_stacked(known[2:3], one, known, at)
        >>> idx.tolist(), dist2.tolist()
        ([[2, 3, 4]], [[0.0, 1.0, 9.0]])
    """
    return _three_nn_stacked(unknown, unknown_counts, known, known_counts)


@own_messages()
def knn(xyz: torch.Tensor, new_xyz: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k points of a cloud that are nearest to each query.

    ``xyz`` is ``[N, 3]`` or ``[B, N, 3]``, ``new_xyz`` ``[M, 3]`` or ``[B, M, 3]``. Returns idx, int32, and
    dist2, the squares of the distances, ``[M, k]`` or ``[B, M, k]``. The definition is that of
    :func:`turnout.knn`. Tensors may be strided.

    Example:
        >>> xyz = torch.zeros(4, 3)
        >>> xyz[:, 0] = torch.tensor([0.0, 1.0, 2.0, 5.0])
        >>> idx, dist2 = turnout.torch.knn(xyz, xyz[2:], 2)
        >>> idx.tolist(), dist2.tolist()
        ([[2, 1], [3, 2]], [[0.0, 1.0], [0.0, 9.0]])
    """
    return _knn(xyz, new_xyz, k)
