"""Boxes from torch: results are constants, transforms and compiled code work, messages name the function."""

import pytest
import torch

import turnout.torch

pytestmark = pytest.mark.torch

tt = turnout.torch
OVERLAPS = (tt.boxes_overlap_bev, tt.boxes_iou_bev, tt.boxes_iou3d)


@pytest.fixture
def boxes():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(60, 7, generator=generator) * 4 + 0.5
    x[:, :2] = torch.rand(60, 2, generator=generator) * 20
    return x


def flat(x):
    return x[:, [0, 1, 3, 4, 6]]


def test_results_are_those_of_numpy(boxes):
    a, b = boxes[:30], boxes[30:]
    for function in OVERLAPS:
        numpy = getattr(turnout, function.__name__)
        for aligned in (False, True):
            expected = torch.from_numpy(numpy(a.numpy(), b.numpy(), aligned))
            assert torch.equal(function(a, b, aligned), expected)
    assert torch.equal(
        tt.box_iou_rotated(flat(a), flat(b), "iof"),
        torch.from_numpy(turnout.box_iou_rotated(flat(a).numpy(), flat(b).numpy(), "iof")),
    )
    scores = boxes[:, 6]
    for name, numbers in {"nms3d": 7, "nms3d_normal": 7, "nms_rotated": 5, "nms": 4}.items():
        x = {7: boxes, 5: flat(boxes), 4: torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 3:5]], 1)}[numbers]
        kept = getattr(tt, name)(x, scores, 0.1)
        assert kept.dtype == torch.int64
        assert kept.tolist() == getattr(turnout, name)(x.numpy(), scores.numpy(), 0.1).tolist()
        assert getattr(tt, name)(x, scores, 0.1, max_keep=3).tolist() == kept[:3].tolist()
    points = boxes[:, :3].contiguous()
    for keep_all in (False, True):
        found = tt.points_in_boxes(points, boxes, "bottom", 0.0, keep_all)
        assert found.dtype == torch.int32
        expected = turnout.points_in_boxes(points.numpy(), boxes.numpy(), "bottom", 0.0, keep_all)
        assert torch.equal(found, torch.from_numpy(expected))


def test_boxes_that_require_grad_are_detached(boxes):
    a, b = boxes[:30].clone().requires_grad_(), boxes[30:].clone().requires_grad_()
    for function in (*OVERLAPS, lambda p, q: tt.box_iou_rotated(flat(p), flat(q))):
        result = function(a, b)
        assert not result.requires_grad
        assert torch.equal(result, function(a.detach(), b.detach()))
    assert not tt.nms3d(a, a[:, 6], 0.1).requires_grad
    assert not tt.points_in_boxes(a[:, :3], b).requires_grad
    # A loss that has an overlap as a weight has the gradient of its other factors.
    (tt.boxes_iou_bev(a, b, aligned=True) * a[:, 0]).sum().backward()
    assert torch.equal(a.grad[:, 0], tt.boxes_iou_bev(a, b, aligned=True))
    assert a.grad[:, 1:].abs().sum() == 0
    assert b.grad is None


def test_transforms_take_overlaps_for_constants(boxes):
    a, b = boxes[:5], boxes[5:10]

    def weighted(x):
        return (tt.boxes_iou_bev(x, b, aligned=True) * x[:, 0]).sum()

    grad = torch.func.grad(weighted)(a)
    assert torch.equal(grad[:, 0], tt.boxes_iou_bev(a, b, aligned=True))
    _, tangent = torch.func.jvp(weighted, (a,), (torch.ones_like(a),))
    assert torch.allclose(tangent, tt.boxes_iou_bev(a, b, aligned=True).sum())


def test_vmap(boxes):
    samples = boxes.reshape(4, 15, 7)
    expected = torch.stack([tt.boxes_iou3d(x, x) for x in samples])
    assert torch.equal(torch.vmap(tt.boxes_iou3d)(samples, samples), expected)
    points = samples[..., :3].contiguous()
    batched = torch.vmap(tt.points_in_boxes)(points, samples)
    assert torch.equal(batched, tt.points_in_boxes(points, samples))


def test_opcheck(boxes):
    ops = torch.ops.turnout
    a, b = boxes[:6].clone().requires_grad_(), boxes[6:10]
    for call in (
        (ops.boxes_overlap_bev.default, (a, b)),
        (ops.boxes_iou3d_aligned.default, (a[:4], b)),
        (ops.box_iou_rotated.default, (flat(a), flat(b), "iof")),
        (ops.nms3d.default, (boxes, boxes[:, 6], 0.1)),
        (ops.nms_rotated.default, (flat(boxes), None, 0.1, 5)),
        (ops.points_in_boxes.default, (boxes[:, :3], boxes)),
        (ops.points_in_boxes_all.default, (boxes[:, :3], boxes, "bottom", 0.0)),
    ):
        torch.library.opcheck(*call)


def test_compiled(boxes):
    def detect(x, scores):
        kept = tt.nms3d(x, scores, 0.1)
        return tt.boxes_iou_bev(x[kept], x)

    torch.compiler.reset()
    compiled = torch.compile(detect, fullgraph=True, backend="aot_eager")
    scores = boxes[:, 6].clone()
    assert torch.equal(compiled(boxes, scores), detect(boxes, scores))


def test_messages_name_the_function(boxes):
    with pytest.raises(ValueError, match=r"^boxes_iou_bev: boxes_b.shape\[0\] is 3, expected 60"):
        tt.boxes_iou_bev(boxes, boxes[:3], aligned=True)
    with pytest.raises(TypeError, match=r"^boxes_iou3d: boxes_b is of type list, expected a torch.Tensor"):
        tt.boxes_iou3d(boxes, [1.0])
    with pytest.raises(ValueError, match=r"^points_in_boxes: z is 'top'"):
        tt.points_in_boxes(boxes[:, :3], boxes, "top", all=True)
    with pytest.raises(ValueError, match=r"^nms3d: scores.shape\[0\] is 59, expected 60"):
        tt.nms3d(boxes, boxes[:-1, 0], 0.1)
