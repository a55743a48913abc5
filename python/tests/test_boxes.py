"""Boxes from NumPy: worked values, order of suppression, borders of boxes, out=, errors and threads."""

from pathlib import Path

import numpy as np
import pytest

import turnout

NAN = np.nan
OVERLAPS = ("boxes_overlap_bev", "boxes_iou_bev", "boxes_iou3d")
SUPPRESSIONS = {"nms3d": 7, "nms3d_normal": 7, "nms_rotated": 5, "nms": 4}


def bev(x=0.0, y=0.0, heading=0.0, dx=4.0, dy=2.0, z=0.0, dz=1.5):
    return np.array([[x, y, z, dx, dy, dz, heading]], np.float32)


def rotated(x=0.0, y=0.0, angle=0.0, w=4.0, h=2.0):
    return np.array([[x, y, w, h, angle]], np.float32)


def random_boxes(rng, count, numbers=7, spread=10.0, dtype=np.float32):
    x, y, z = rng.uniform(-spread, spread, (3, count))
    dx, dy, dz = rng.uniform(0.5, 5, (3, count))
    heading = rng.uniform(-7, 7, count)
    columns = {
        7: (x, y, z / 5, dx, dy, dz, heading),
        5: (x, y, dx, dy, heading),
        4: (x, y, x + dx, y + dy),
    }
    return np.stack(columns[numbers], 1).astype(dtype)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (bev(heading=0.3), bev(heading=0.3), 1),
        (bev(heading=0.3), bev(heading=0.3 + np.pi), 1),
        (bev(dx=0.8, dy=0.6), bev(0.005, dx=0.8, dy=0.6), 1.01258),  # the margin of 1 cm
        (bev(), bev(heading=0.001), 1.00125),
        (bev(), bev(4.005), 0.000625),
        (bev(), bev(0, 2.005), 0.001252),
        (bev(), bev(4.02), 0),
        (bev(), bev(0, 2.02), 0),
        (bev(dx=2), bev(dx=2, heading=np.pi / 4), 0.707107),
        (bev(), bev(heading=np.pi / 2), 1 / 3),
        (bev(), bev(1), 0.6),
        (bev(x=NAN), bev(), 0),
        (bev(), bev(dx=NAN), 0),
        (bev(dx=0), bev(), 0),
    ],
)
def test_iou_bev_worked_values(a, b, expected):
    np.testing.assert_allclose(turnout.boxes_iou_bev(a, b), [[expected]], atol=2e-6, rtol=1e-5)
    np.testing.assert_allclose(turnout.boxes_iou_bev(a, b, aligned=True), [expected], atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (rotated(angle=0.3), rotated(angle=0.3), 1),
        (rotated(w=0.8, h=0.6), rotated(0.005, w=0.8, h=0.6), 0.987578),
        (rotated(), rotated(4), 0),
        (rotated(w=2), rotated(w=2, angle=np.pi / 4), 0.707107),
        # Below the tolerances of the algorithm; the value is that of mmcv's.
        (rotated(w=0.001, h=0.001), rotated(0.0005, w=0.001, h=0.001), 0.142857),
    ],
)
def test_iou_rotated_worked_values(a, b, expected):
    np.testing.assert_allclose(turnout.box_iou_rotated(a, b), [[expected]], atol=2e-6)
    np.testing.assert_allclose(turnout.box_iou_rotated(a, b, aligned=True), [expected], atol=2e-6)


def test_iof_divides_by_the_first_box():
    half, whole = rotated(0.5, w=1), rotated(w=2)
    assert turnout.box_iou_rotated(half, whole, "iof") == 1
    assert turnout.box_iou_rotated(whole, half, "iof") == 0.5


def test_the_order_of_a_pair_is_part_of_the_definition(rng):
    """Both orders are near to each other, and equal for the aligned and the pairwise form."""
    a, b = random_boxes(rng, 50, spread=3), random_boxes(rng, 50, spread=3)
    for name in OVERLAPS:
        pairs = getattr(turnout, name)(a, b)
        assert (np.diag(pairs) == getattr(turnout, name)(a, b, aligned=True)).all()
        np.testing.assert_allclose(pairs, getattr(turnout, name)(b, a).T, rtol=1e-3, atol=1e-3)


def test_iou3d_is_that_of_its_parts(rng):
    a, b = random_boxes(rng, 40), random_boxes(rng, 30)
    overlap = turnout.boxes_overlap_bev(a, b)
    top = np.minimum((a[:, 2] + a[:, 5] / 2)[:, None], (b[:, 2] + b[:, 5] / 2)[None])
    bottom = np.maximum((a[:, 2] - a[:, 5] / 2)[:, None], (b[:, 2] - b[:, 5] / 2)[None])
    shared = overlap * np.maximum(top - bottom, np.float32(0))
    volumes = a[:, 3:6].prod(1)[:, None] + b[:, 3:6].prod(1)[None]
    expected = shared / np.maximum(volumes - shared, np.float32(1e-6))
    assert (turnout.boxes_iou3d(a, b) == expected).all()
    assert (expected > 0).sum() > 20


def test_float64_is_computed_in_float64(rng):
    a, b = (
        random_boxes(rng, 40, spread=4, dtype=np.float64),
        random_boxes(rng, 40, spread=4, dtype=np.float64),
    )
    for name in OVERLAPS:
        wide = getattr(turnout, name)(a, b)
        assert wide.dtype == np.float64
        narrow = getattr(turnout, name)(a.astype(np.float32), b.astype(np.float32))
        assert (wide != narrow).any()
        np.testing.assert_allclose(wide, narrow, rtol=1e-2, atol=1e-3)
    assert turnout.box_iou_rotated(a[:, [0, 1, 3, 4, 6]], b[:, [0, 1, 3, 4, 6]]).dtype == np.float64


def by_definition(iou, order, threshold):
    kept = []
    for i in order:
        if all(not iou[j, i] > np.float32(threshold) for j in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("threshold", [-0.5, 0.0, 0.01, 0.3, 0.7, 1.5])
def test_suppression_by_overlaps(rng, threshold):
    boxes, scores = random_boxes(rng, 300), rng.integers(0, 50, 300).astype(np.float32)
    order = np.argsort(-scores, kind="stable")
    expected = by_definition(turnout.boxes_iou_bev(boxes, boxes), order, threshold)
    assert turnout.nms3d(boxes, scores, threshold).tolist() == expected
    assert turnout.nms3d(boxes[order], None, threshold).tolist() == [list(order).index(i) for i in expected]
    flat = boxes[:, [0, 1, 3, 4, 6]]
    expected = by_definition(turnout.box_iou_rotated(flat, flat), order, threshold)
    assert turnout.nms_rotated(flat, scores, threshold).tolist() == expected


@pytest.mark.parametrize("op", SUPPRESSIONS)
def test_arguments_of_suppression(rng, op):
    function, boxes = getattr(turnout, op), random_boxes(rng, 200, SUPPRESSIONS[op])
    scores = rng.random(200)
    kept = function(boxes, scores, 0.1)
    assert kept.dtype == np.int64
    assert 1 < len(kept) < 200
    assert (np.diff(scores[kept]) <= 0).all()
    for most in (0, 1, 7, len(kept), 200, 999):
        assert function(boxes, scores, 0.1, max_keep=most).tolist() == kept[:most].tolist()
    # All float dtypes of scores have the same order if their values do.
    coarse = rng.integers(0, 100, 200).astype(np.float16)
    expected = function(boxes, coarse.astype(np.float64), 0.1).tolist()
    for dtype in (np.float16, np.float32):
        assert function(boxes, coarse.astype(dtype), 0.1).tolist() == expected
    out = np.full(300, -7)
    assert function(boxes, scores, 0.1, out=out).tolist() == kept.tolist()
    assert (out[len(kept) :] == -7).all()
    for message, call in {
        "threshold is nan": lambda: function(boxes, scores, NAN),
        "max_keep is -1": lambda: function(boxes, scores, 0.1, max_keep=-1),
        r"scores.shape\[0\] is 199": lambda: function(boxes, scores[:-1], 0.1),
        r"boxes.shape\[1\] is": lambda: function(boxes[:, :-1], scores, 0.1),
        "boxes has dtype float16": lambda: function(boxes.astype(np.float16), scores, 0.1),
    }.items():
        with pytest.raises(ValueError, match=f"^{op}: {message}"):
            call()


def test_offset_of_nms():
    boxes = np.array([[0, 0, 1, 1], [1, 1, 2, 2]], np.float32)
    assert turnout.nms(boxes, None, 0.1).tolist() == [0, 1]
    assert turnout.nms(boxes, None, 0.1, offset=1).tolist() == [0]
    with pytest.raises(ValueError, match=r"^nms: offset is 2, expected 0 \.\. 1"):
        turnout.nms(boxes, None, 0.1, 2)


def test_nan_scores_are_visited_first():
    boxes = np.concatenate([bev(), bev(0.1), bev(9), bev(9.1)])
    scores = np.array([3, NAN, 2, 5], np.float32)
    assert turnout.nms3d(boxes, scores, 0.5).tolist() == [1, 3]


@pytest.mark.parametrize("z", ["center", "bottom"])
@pytest.mark.parametrize("margin", [1e-5, 0.0, 1e-2])
@pytest.mark.parametrize("batch", [(), (3,), (0,)])
def test_points_in_boxes(rng, z, margin, batch):
    boxes = rng.uniform(0.5, 5, (*batch, 30, 7)).astype(np.float32)
    boxes[..., :2] = rng.uniform(-10, 10, (*batch, 30, 2))
    points = rng.uniform(-12, 12, (*batch, 500, 3)).astype(np.float32)
    points[..., 2] /= 3
    x, y, height, dx, dy, dz, heading = np.moveaxis(boxes[..., None, :, :], -1, 0)
    c = np.cos(-heading.astype(np.float64)).astype(np.float32)
    s = np.sin(-heading.astype(np.float64)).astype(np.float32)
    sx, sy = points[..., :, None, 0] - x, points[..., :, None, 1] - y
    middle = height if z == "center" else height + dz / 2
    bound = np.float64(np.float32(margin))
    inside = (abs(sx * c + sy * -s) < dx / 2.0 + bound) & (abs(sx * s + sy * c) < dy / 2.0 + bound)
    inside &= abs(points[..., :, None, 2] - middle) <= dz / 2
    found = turnout.points_in_boxes(points, boxes, z, margin, all=True)
    assert found.dtype == np.int32
    assert (found == inside).all()
    first = turnout.points_in_boxes(points, boxes, z, margin)
    assert first.dtype == np.int32
    assert (first == np.where(inside.any(-1), inside.argmax(-1), -1)).all()
    assert not batch or not batch[0] or inside.any()


def test_padding_and_nan_in_points_in_boxes():
    """Ground truth is padded with rows of zeros, which have a point at the origin if there is a margin."""
    zeros, origin = np.zeros((1, 7), np.float32), np.zeros((1, 3), np.float32)
    assert turnout.points_in_boxes(origin, zeros).tolist() == [0]
    assert turnout.points_in_boxes(origin, zeros, "bottom", 0).tolist() == [-1]
    for k in range(7):
        box = bev(dz=9)
        box[0, k] = NAN
        assert turnout.points_in_boxes(origin, box).tolist() == [-1]
    for k in range(3):
        point = origin.copy()
        point[0, k] = NAN
        assert turnout.points_in_boxes(point, bev(dz=9)).tolist() == [-1]


def test_empty_calls():
    none, some = np.zeros((0, 7), np.float32), bev()
    for name in OVERLAPS:
        assert getattr(turnout, name)(none, some).shape == (0, 1)
        assert getattr(turnout, name)(some, none).shape == (1, 0)
        assert getattr(turnout, name)(none, none, aligned=True).shape == (0,)
    for op, numbers in SUPPRESSIONS.items():
        empty = np.zeros((0, numbers), np.float32)
        assert getattr(turnout, op)(empty, np.zeros(0, np.float32), 0.5).shape == (0,)
        assert getattr(turnout, op)(empty, None, 0.5, max_keep=5).shape == (0,)
    points = np.zeros((4, 3), np.float32)
    assert turnout.points_in_boxes(points, none).tolist() == [-1] * 4
    assert turnout.points_in_boxes(points, none, all=True).shape == (4, 0)
    assert turnout.points_in_boxes(points[:0], some).shape == (0,)


@pytest.mark.parametrize("name", OVERLAPS)
def test_errors_of_overlaps(name):
    function, boxes = getattr(turnout, name), np.concatenate([bev(), bev()])
    for message, call in {
        r"boxes_a.shape\[1\] is 5, expected 7": lambda: function(boxes[:, :5], boxes),
        r"boxes_b.shape\[0\] is 1, expected 2": lambda: function(boxes, boxes[:1], aligned=True),
        "boxes_b has dtype float64, expected that of boxes_a": lambda: function(boxes, boxes.astype(float)),
        r"out.shape\[1\] is 3, expected 2": lambda: function(boxes, boxes, out=np.zeros((2, 3), np.float32)),
    }.items():
        with pytest.raises(ValueError, match=f"^{name}: {message}"):
            call()


def test_choices_are_checked():
    with pytest.raises(ValueError, match=r"^box_iou_rotated: mode is 'giou', expected one of 'iou', 'iof'"):
        turnout.box_iou_rotated(rotated(), rotated(), "giou")
    with pytest.raises(ValueError, match=r"^points_in_boxes: z is 'top', expected one of 'center', 'bottom'"):
        turnout.points_in_boxes(np.zeros((1, 3), np.float32), bev(), "top")


def test_strided_inputs_and_out(rng):
    wide = random_boxes(rng, 40, spread=4)
    a, b = wide[::2], np.asfortranarray(wide[1::2])
    expected = turnout.boxes_iou_bev(a.copy(), b.copy(order="C"))
    assert (turnout.boxes_iou_bev(a, b) == expected).all()
    out = np.empty((20, 20), np.float32)
    assert turnout.boxes_iou_bev(a, b, out=out) is out
    assert (out == expected).all()


def test_threads(rng):
    boxes, scores = random_boxes(rng, 3000, spread=40), rng.random(3000).astype(np.float32)
    points = rng.uniform(-40, 40, (50_000, 3)).astype(np.float32)
    before, results = turnout.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            turnout.set_num_threads(threads)
            results.append(
                (
                    turnout.boxes_iou_bev(boxes[:700], boxes),
                    turnout.nms3d(boxes, scores, 0.1),
                    turnout.nms(boxes[:, :4], scores, 0.3),
                    turnout.points_in_boxes(points, boxes),
                )
            )
    finally:
        turnout.set_num_threads(before)
    for others in results[1:]:
        for one, other in zip(results[0], others, strict=True):
            assert one.tobytes() == other.tobytes()


@pytest.fixture(scope="module")
def mmcv():
    """Inputs and results of mmcv's operators for the CPU: bench/boxes/record_mmcv.py has made the file."""
    with np.load(Path(__file__).parent / "data/boxes_mmcv.npz") as file:
        return dict(file)


@pytest.mark.parametrize("mode", ["iou", "iof"])
def test_overlaps_are_those_of_mmcv(mmcv, mode):
    a, b = mmcv["rotated_a"], mmcv["rotated_b"]
    expected = mmcv[f"rotated_{mode}"]
    assert (expected > 0.1).sum() > 50
    np.testing.assert_allclose(turnout.box_iou_rotated(a, b, mode), expected, atol=1e-5)
    aligned = turnout.box_iou_rotated(a, b, mode, aligned=True)
    np.testing.assert_allclose(aligned, mmcv[f"rotated_{mode}_aligned"], atol=1e-5)


@pytest.mark.parametrize("number", range(3))
def test_suppression_is_that_of_mmcv(mmcv, number):
    """Its function for the CPU suppresses at the threshold, too; no IoU here is that near to it."""
    threshold, scores = mmcv["thresholds"][number], mmcv["scores"]
    iou = turnout.box_iou_rotated(mmcv["rotated"], mmcv["rotated"])
    assert abs(iou - threshold).min() > 1e-6
    kept = turnout.nms_rotated(mmcv["rotated"], scores, threshold)
    assert kept.tolist() == mmcv[f"nms_rotated_{number}"].tolist()
    assert 10 < len(kept) < 200
    for offset in (0, 1):
        kept = turnout.nms(mmcv["upright"], scores, threshold, offset)
        assert kept.tolist() == mmcv[f"nms_{number}_{offset}"].tolist()


def test_points_in_boxes_are_those_of_mmcv(mmcv):
    boxes, points = mmcv["boxes"], mmcv["points"]
    expected = np.unpackbits(mmcv["inside"])[: len(boxes) * len(points)].reshape(len(boxes), len(points))
    assert expected.sum() > 500
    assert (turnout.points_in_boxes(points, boxes, "bottom", 0, all=True) == expected.T).all()
