"""Simulated LiDAR scans: deterministic, complete, and with shadows behind objects."""

import numpy as np
import pytest

from turnout.simulate import CLASSES, Scan, lidar_scan
from turnout.simulate.rays import Blob, Post, Rays, Solid
from turnout.simulate.street import Street, block

SEEDS = range(3)


@pytest.fixture(scope="module", params=SEEDS)
def scan(request) -> Scan:
    return lidar_scan(request.param)


def in_frame_of(box, points):
    """Converts points to the coordinates of a box: along, across and up from its centre."""
    cos, sin = np.cos(box[6]), np.sin(box[6])
    x, y, z = (points[:, :3].astype(np.float64) - box[:3]).T
    return np.stack((cos * x + sin * y, cos * y - sin * x, z), axis=1)


def test_shapes_and_counts(scan):
    assert [array.dtype for array in scan] == [np.float32, np.float32, np.int32, np.int32]
    assert scan.points.shape[1] == 4 and 100_000 < len(scan.points) < 64 * 2048
    assert scan.boxes.shape == (len(scan.labels), 7) and len(scan.boxes) > 10
    assert scan.instance.shape == (len(scan.points),)
    assert set(scan.labels) <= set(range(len(CLASSES))) and {0, 1, 2} & set(scan.labels)
    assert all(np.isfinite(array).all() for array in scan)
    assert scan.points[:, 3].min() >= 0 and scan.points[:, 3].max() <= 1
    assert np.linalg.norm(scan.points[:, :3], axis=1).max() < 80.2
    assert (np.abs(scan.boxes[:, 6]) <= np.float32(np.pi)).all()


def test_the_same_seed_gives_the_same_scan_and_another_seed_another_street(scan):
    again = [lidar_scan(seed) for seed in SEEDS]
    same = [all(np.array_equal(a, b) for a, b in zip(scan, one, strict=True)) for one in again]
    assert sum(same) == 1
    middles = [one.boxes[:, :3] for one in again]
    assert not set(map(tuple, middles[0])) & set(map(tuple, middles[1]))


def test_points_of_an_object_are_on_its_surface(scan):
    """They are in its box, except for noise; those of a van are on one of its faces."""
    for number, (box, label) in enumerate(zip(scan.boxes, scan.labels, strict=True)):
        places = in_frame_of(box, scan.points[scan.instance == number])
        assert len(places) >= 5
        outside = np.abs(places) - box[3:6] / 2
        assert outside.max() < 0.09
        if CLASSES[label] == "van":
            nose = (places[:, 0] + 0.6 * (places[:, 2] + 0.05 * box[5]) - box[3] / 2) / np.hypot(1, 0.6)
            bottom = -places[:, 2] - box[5] / 2 + 0.25
            assert np.abs(np.column_stack((outside, nose, bottom))).min(axis=1).max() < 0.09


def test_only_points_of_an_object_are_in_its_box(scan):
    for number, box in enumerate(scan.boxes):
        inside = (np.abs(in_frame_of(box, scan.points)) < box[3:6] / 2 - 0.09).all(axis=1)
        assert set(scan.instance[inside]) <= {number}


def test_no_pulse_passes_through_a_vehicle(scan):
    """Nothing returns from behind the lower body, which is solid in cars and vans alike."""
    distance = np.linalg.norm(scan.points[:, :3], axis=1).astype(np.float64)
    for box in scan.boxes[scan.labels < 2].astype(np.float64):
        low, high = 0.25 - box[5] / 2, -0.12 * box[5]  # between the wheels and the bonnet
        solid = block(0.8 * box[3], 0.9 * box[4], low, high)
        normals, offsets = np.array(solid)[:, :3], np.array(solid)[:, 3]
        origin = in_frame_of(box, np.zeros((1, 3)))[0]
        direction = (in_frame_of(box, scan.points) - origin) / distance[:, None]
        speed = direction @ normals.T
        speed[speed == 0] = 1e-12  # a ray parallel to a plane
        crossing = (offsets - normals @ origin) / speed
        enter = np.where(speed < 0, crossing, -np.inf).max(axis=1)
        leave = np.where(speed > 0, crossing, np.inf).min(axis=1)
        behind = (enter > 0) & (enter < leave - 0.05) & (distance > enter + 0.5)
        assert not behind.any()


def test_objects_do_not_overlap():
    """In plan view, no box contains a point of a grid on another."""
    for seed in range(20):
        boxes = np.array(Street(np.random.default_rng(seed)).boxes)
        steps = np.linspace(-0.5, 0.5, 9)
        grid = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
        for number, box in enumerate(boxes):
            others = np.delete(boxes, number, axis=0)
            cos, sin = np.cos(others[:, 6, None]), np.sin(others[:, 6, None])
            along, across = (grid[:, d] * others[:, 3 + d, None] for d in (0, 1))
            x, y = (
                others[:, 0, None] + cos * along - sin * across,
                others[:, 1, None] + sin * along + cos * across,
            )
            places = in_frame_of(box, np.stack((x.ravel(), y.ravel(), np.zeros(x.size)), axis=1))
            assert not (np.abs(places[:, :2]) < box[3:5] / 2).all(axis=1).any()


def test_min_points_keeps_every_box_or_only_clear_ones():
    every, clear = (lidar_scan(0, azimuths=512, min_points=least) for least in (0, 40))
    assert len(clear.boxes) < len(every.boxes)
    assert np.array_equal(every.points, clear.points)
    hits = np.bincount(every.instance[every.instance >= 0], minlength=len(every.boxes))
    assert np.array_equal(every.boxes[hits >= 40], clear.boxes)
    assert np.array_equal(np.bincount(clear.instance[clear.instance >= 0]), hits[hits >= 40])


def rays_ahead() -> Rays:
    return Rays(np.radians([-30.0, -0.5, 0.0, 0.5]), np.radians([1.0, 0.0, -1.0, -10.0]))


def wall(x: float, instance: int) -> Solid:
    planes = np.array(block(2, 4, -2, 2))
    return Solid(x, 0, 3, planes[:, :3], planes[:, 3] + planes[:, 0] * x, 0.5, instance)


@pytest.mark.parametrize("order", [(10, 20), (20, 10)])
def test_the_nearest_surface_wins(order):
    rays = rays_ahead()
    for x in order:
        rays.meet_solid(wall(x, instance=x))
    assert np.isinf(rays.distance[0]).all()
    assert (rays.instance[1:] == 10).all()
    np.testing.assert_allclose(rays.distance[2], 9 / np.cos(rays.elevation))
    np.testing.assert_allclose(rays.cosine[2], np.cos(rays.elevation))


def test_posts_have_a_bottom_and_a_top():
    rays = rays_ahead()
    rays.meet_post(Post(10, 0, 0.2, -1.0, 0.1, 0.5))
    assert np.isinf(rays.distance[2]).tolist() == [True, False, False, True]
    np.testing.assert_allclose(rays.distance[2, 1], 9.8)
    assert np.isinf(rays.distance[0]).all()


def test_foliage_lets_some_rays_through():
    solid, leaves = Rays(np.zeros(1), np.zeros(1000)), Rays(np.zeros(1), np.zeros(1000))
    random = np.random.default_rng(0)
    solid.meet_blob(Blob(10, 0, 0, 1, 2, 0, 0.5), random)
    leaves.meet_blob(Blob(10, 0, 0, 1, 2, 1.0, 0.5), random)
    np.testing.assert_allclose(solid.distance, 9)
    met = np.isfinite(leaves.distance)
    assert abs(met.mean() - (1 - np.exp(-2))) < 0.05
    assert leaves.distance[met].min() >= 9 and leaves.distance[met].max() <= 11


def test_a_step_of_the_ground_hides_what_is_behind_it():
    rays = Rays(np.zeros(1), np.radians(np.arange(0.0, -25.0, -0.5)))

    def height(x, y):
        return np.where((x > 10) & (x < 11), -0.5, -2.0)

    rays.meet_ground(height, lambda x, y: np.full_like(x, 0.2))
    met = np.isfinite(rays.distance[0])
    x, z = (rays.distance[0, met] * f(rays.elevation[met]) for f in (np.cos, np.sin))
    assert ((x > 9.9) & (x < 11.1) & (z > -1.9)).any()  # on the step
    assert not ((x > 11.1) & (x < 40)).any()  # its shadow: the ray over its edge reaches the ground at 44 m
    assert (x > 43).any()
    np.testing.assert_allclose(z[x < 9.9], -2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "lidar_scan: seed is -1, expected 0 or more"),
        ({"beams": 0}, "lidar_scan: beams is 0, expected 1 or more"),
        ({"azimuths": 0}, "lidar_scan: azimuths is 0, expected 1 or more"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        lidar_scan(**arguments)
