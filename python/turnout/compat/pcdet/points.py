"""The functions of pcdet's compiled modules that sample points and find neighbours."""

from __future__ import annotations

from torch import Tensor

from turnout.compat import _points
from turnout.compat._extension import Checks
from turnout.torch.messages import own_messages

# -- pcdet.ops.pointnet2.pointnet2_batch, and sampling of both ----------------------------------------------


@own_messages(samples="m", initial="temp_tensor")
def farthest_point_sampling_wrapper(
    b: int, n: int, m: int, points_tensor: Tensor, temp_tensor: Tensor, idx_tensor: Tensor
) -> int:
    checks = Checks("farthest_point_sampling_wrapper", b=b, n=n, m=m)
    _points.write_samples(
        checks, ("points_tensor", points_tensor), ("temp_tensor", temp_tensor), ("idx_tensor", idx_tensor)
    )
    return 1


@own_messages("ball_query_wrapper")
def ball_query_wrapper(
    b: int,
    n: int,
    m: int,
    radius: float,
    nsample: int,
    new_xyz_tensor: Tensor,
    xyz_tensor: Tensor,
    idx_tensor: Tensor,
) -> int:
    checks = Checks("ball_query_wrapper", b=b, n=n, m=m, nsample=nsample)
    queries, points = ("new_xyz_tensor", new_xyz_tensor), ("xyz_tensor", xyz_tensor)
    _points.write_balls(checks, queries, points, ("idx_tensor", idx_tensor), radius)
    return 1


@own_messages(known="known_tensor", unknown="unknown_tensor")
def three_nn_wrapper(
    b: int,
    n: int,
    m: int,
    unknown_tensor: Tensor,
    known_tensor: Tensor,
    dist2_tensor: Tensor,
    idx_tensor: Tensor,
) -> None:
    _points.write_three_nn(
        Checks("three_nn_wrapper", b=b, n=n, m=m),
        ("unknown_tensor", unknown_tensor),
        ("known_tensor", known_tensor),
        ("dist2_tensor", dist2_tensor),
        ("idx_tensor", idx_tensor),
    )


# -- pcdet.ops.pointnet2.pointnet2_stack ---------------------------------------------------------------------


@own_messages(counts="xyz_batch_cnt_tensor", sample_counts="num_sampled_points_tensor", initial="temp_tensor")
def stack_farthest_point_sampling_wrapper(
    points_tensor: Tensor,
    temp_tensor: Tensor,
    xyz_batch_cnt_tensor: Tensor,
    idx_tensor: Tensor,
    num_sampled_points_tensor: Tensor,
) -> int:
    _points.write_stacked_samples(
        Checks("stack_farthest_point_sampling_wrapper"),
        ("points_tensor", points_tensor),
        ("temp_tensor", temp_tensor),
        ("xyz_batch_cnt_tensor", xyz_batch_cnt_tensor),
        ("idx_tensor", idx_tensor),
        ("num_sampled_points_tensor", num_sampled_points_tensor),
    )
    return 1


@own_messages(
    "ball_query_wrapper",
    counts="xyz_batch_cnt_tensor",
    new_counts="new_xyz_batch_cnt_tensor",
    xyz="xyz_tensor",
    new_xyz="new_xyz_tensor",
)
def stack_ball_query_wrapper(
    B: int,  # noqa: N803
    M: int,  # noqa: N803
    radius: float,
    nsample: int,
    new_xyz_tensor: Tensor,
    new_xyz_batch_cnt_tensor: Tensor,
    xyz_tensor: Tensor,
    xyz_batch_cnt_tensor: Tensor,
    idx_tensor: Tensor,
) -> int:
    _points.write_stacked_balls(
        Checks("ball_query_wrapper", B=B, M=M, nsample=nsample),
        ("new_xyz_tensor", new_xyz_tensor),
        ("new_xyz_batch_cnt_tensor", new_xyz_batch_cnt_tensor),
        ("xyz_tensor", xyz_tensor),
        ("xyz_batch_cnt_tensor", xyz_batch_cnt_tensor),
        ("idx_tensor", idx_tensor),
        radius,
    )
    return 1


@own_messages(new_coords="new_coords_tensor", point_indices="point_indices_tensor")
def voxel_query_wrapper(
    M: int,  # noqa: N803
    R1: int,  # noqa: N803
    R2: int,  # noqa: N803
    R3: int,  # noqa: N803
    nsample: int,
    radius: float,
    z_range: int,
    y_range: int,
    x_range: int,
    new_xyz_tensor: Tensor,
    xyz_tensor: Tensor,
    new_coords_tensor: Tensor,
    point_indices_tensor: Tensor,
    idx_tensor: Tensor,
) -> int:
    _points.write_voxel_query(
        Checks("voxel_query_wrapper", M=M, Z=R1, Y=R2, X=R3, nsample=nsample),
        ("new_xyz_tensor", new_xyz_tensor),
        ("xyz_tensor", xyz_tensor),
        ("new_coords_tensor", new_coords_tensor),
        ("point_indices_tensor", point_indices_tensor),
        ("idx_tensor", idx_tensor),
        radius,
        (z_range, y_range, x_range),
    )
    return 1


@own_messages(
    "three_nn_wrapper",
    unknown_counts="unknown_batch_cnt_tensor",
    known_counts="known_batch_cnt_tensor",
    unknown="unknown_tensor",
    known="known_tensor",
)
def stack_three_nn_wrapper(
    unknown_tensor: Tensor,
    unknown_batch_cnt_tensor: Tensor,
    known_tensor: Tensor,
    known_batch_cnt_tensor: Tensor,
    dist2_tensor: Tensor,
    idx_tensor: Tensor,
) -> None:
    _points.write_stacked_three_nn(
        Checks("three_nn_wrapper"),
        ("unknown_tensor", unknown_tensor),
        ("unknown_batch_cnt_tensor", unknown_batch_cnt_tensor),
        ("known_tensor", known_tensor),
        ("known_batch_cnt_tensor", known_batch_cnt_tensor),
        ("dist2_tensor", dist2_tensor),
        ("idx_tensor", idx_tensor),
    )
