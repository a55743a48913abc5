"""The functions of ``mmcv._ext`` that sample points and find neighbours."""

from __future__ import annotations

from torch import Tensor

from turnout.compat import _points
from turnout.compat._extension import Checks
from turnout.torch.messages import own_messages


@own_messages(samples="m")
def furthest_point_sampling_forward(
    points_tensor: Tensor, temp_tensor: Tensor, idx_tensor: Tensor, b: int, n: int, m: int
) -> None:
    checks = Checks("furthest_point_sampling_forward", b=b, n=n, m=m)
    _points.write_samples(
        checks, ("points_tensor", points_tensor), ("temp_tensor", temp_tensor), ("idx_tensor", idx_tensor)
    )


@own_messages(samples="m")
def furthest_point_sampling_with_dist_forward(
    points_tensor: Tensor, temp_tensor: Tensor, idx_tensor: Tensor, b: int, n: int, m: int
) -> None:
    """``points_tensor`` is a matrix of distances, ``[b, n, n]``."""
    checks = Checks("furthest_point_sampling_with_dist_forward", b=b, n=n, m=m)
    tensors = ("points_tensor", points_tensor), ("temp_tensor", temp_tensor), ("idx_tensor", idx_tensor)
    _points.write_samples(checks, *tensors, matrix=True)


@own_messages(radius="max_radius")
def ball_query_forward(
    new_xyz_tensor: Tensor,
    xyz_tensor: Tensor,
    idx_tensor: Tensor,
    b: int,
    n: int,
    m: int,
    min_radius: float,
    max_radius: float,
    nsample: int,
) -> None:
    _points.write_balls(
        Checks("ball_query_forward", b=b, n=n, m=m, nsample=nsample),
        ("new_xyz_tensor", new_xyz_tensor),
        ("xyz_tensor", xyz_tensor),
        ("idx_tensor", idx_tensor),
        max_radius,
        min_radius,
        has_centre=True,
        dtypes=_points.FLOATS,
    )


@own_messages(
    radius="max_radius",
    counts="xyz_batch_cnt",
    new_counts="new_xyz_batch_cnt",
    xyz="xyz_tensor",
    new_xyz="new_xyz_tensor",
)
def stack_ball_query_forward(
    new_xyz_tensor: Tensor,
    new_xyz_batch_cnt: Tensor,
    xyz_tensor: Tensor,
    xyz_batch_cnt: Tensor,
    idx_tensor: Tensor,
    max_radius: float,
    nsample: int,
) -> None:
    _points.write_stacked_balls(
        Checks("stack_ball_query_forward", nsample=nsample),
        ("new_xyz_tensor", new_xyz_tensor),
        ("new_xyz_batch_cnt", new_xyz_batch_cnt),
        ("xyz_tensor", xyz_tensor),
        ("xyz_batch_cnt", xyz_batch_cnt),
        ("idx_tensor", idx_tensor),
        max_radius,
        dtypes=_points.FLOATS,
    )


@own_messages(known="known_tensor", unknown="unknown_tensor")
def three_nn_forward(
    unknown_tensor: Tensor,
    known_tensor: Tensor,
    dist2_tensor: Tensor,
    idx_tensor: Tensor,
    b: int,
    n: int,
    m: int,
) -> None:
    _points.write_three_nn(
        Checks("three_nn_forward", b=b, n=n, m=m),
        ("unknown_tensor", unknown_tensor),
        ("known_tensor", known_tensor),
        ("dist2_tensor", dist2_tensor),
        ("idx_tensor", idx_tensor),
        dtypes=_points.FLOATS,
        takes_wide_rows=True,
    )


@own_messages()
def knn_forward(
    xyz_tensor: Tensor,
    new_xyz_tensor: Tensor,
    idx_tensor: Tensor,
    dist2_tensor: Tensor,
    b: int,
    n: int,
    m: int,
    nsample: int,
) -> None:
    _points.write_nearest(
        Checks("knn_forward", b=b, n=n, m=m, nsample=nsample),
        ("xyz_tensor", xyz_tensor),
        ("new_xyz_tensor", new_xyz_tensor),
        ("idx_tensor", idx_tensor),
        ("dist2_tensor", dist2_tensor),
    )


FUNCTIONS = (
    ball_query_forward,
    furthest_point_sampling_forward,
    furthest_point_sampling_with_dist_forward,
    knn_forward,
    stack_ball_query_forward,
    three_nn_forward,
)
