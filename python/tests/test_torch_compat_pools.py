"""Grouping, interpolation and RoI pooling of pcdet's and mmcv's compiled modules: what they write, errors."""

import pytest
import torch

import turnout.torch
from turnout.compat.mmcv import ext
from turnout.compat.pcdet import ops

pytestmark = pytest.mark.torch

tt = turnout.torch
BATCH = ops.MODULES["pcdet.ops.pointnet2.pointnet2_batch.pointnet2_batch_cuda"]
STACK = ops.MODULES["pcdet.ops.pointnet2.pointnet2_stack.pointnet2_stack_cuda"]
ROIAWARE = ops.MODULES["pcdet.ops.roiaware_pool3d.roiaware_pool3d_cuda"]
ROIPOINT = ops.MODULES["pcdet.ops.roipoint_pool3d.roipoint_pool3d_cuda"]


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def strided(*shape, dtype=torch.float32):
    """A tensor that is not contiguous."""
    return (
        torch.full((2, *shape[::-1]), 7.0, dtype=dtype)
        .movedim(0, -1)[..., 0]
        .permute(*reversed(range(len(shape))))
    )


def test_batches(generator):
    points = torch.randn(2, 3, 9, generator=generator)
    idx = torch.randint(0, 9, (2, 4, 5), generator=generator).int()
    out = strided(2, 3, 4, 5)
    assert BATCH["group_points_wrapper"](2, 3, 9, 4, 5, points, idx, out) == 1
    assert torch.equal(out, tt.group_points(points, idx))
    again = torch.zeros(2, 3, 4, 5)
    ext.TABLE["group_points_forward"](points, idx, again, b=2, c=3, n=9, npoints=4, nsample=5)
    assert torch.equal(out, again)
    grad = torch.ones(2, 3, 9)
    assert BATCH["group_points_grad_wrapper"](2, 3, 9, 4, 5, out, idx, grad) == 1
    expected = turnout.group_points_backward(out, idx, 9)
    assert torch.equal(grad, expected + 1)  # gradients are added to what is there
    ext.TABLE["group_points_backward"](out, idx, grad, b=2, c=3, n=9, npoints=4, nsample=5)
    assert torch.equal(grad, expected + 1 + expected)
    gathered = torch.zeros(2, 3, 4)
    assert BATCH["gather_points_wrapper"](2, 3, 9, 4, points, idx[..., 0], gathered) == 1
    assert torch.equal(gathered, out[..., 0])
    grad = torch.zeros(2, 3, 9)
    BATCH["gather_points_grad_wrapper"](2, 3, 9, 4, gathered, idx[..., 0], grad)
    assert torch.equal(grad, turnout.gather_points_backward(gathered, idx[..., 0].contiguous(), 9))
    ext.TABLE["gather_points_forward"](points, idx[..., 1], gathered, b=2, c=3, n=9, npoints=4)
    assert torch.equal(gathered, out[..., 1])
    ext.TABLE["gather_points_backward"](gathered, idx[..., 1], grad, b=2, c=3, n=9, npoints=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_interpolation(generator, dtype):
    points = torch.randn(2, 3, 9, generator=generator).to(dtype)
    idx = torch.randint(0, 9, (2, 5, 3), generator=generator).int()
    weight = torch.rand(2, 5, 3, generator=generator).to(dtype)
    out = torch.zeros(2, 3, 5, dtype=dtype)
    ext.TABLE["three_interpolate_forward"](points, idx, weight, out, b=2, c=3, m=9, n=5)
    lane = weight if dtype == torch.float64 else weight.float()
    assert torch.equal(out, tt.three_interpolate(points, idx, lane))
    grad = torch.zeros(2, 3, 9, dtype=dtype)
    ext.TABLE["three_interpolate_backward"](out, idx, weight, grad, b=2, c=3, n=5, m=9)
    assert torch.equal(grad, turnout.three_interpolate_backward(out, idx, lane, 9))
    if dtype == torch.float32:
        again, grads = torch.zeros_like(out), torch.zeros_like(grad)
        assert BATCH["three_interpolate_wrapper"](2, 3, 9, 5, points, idx, weight, again) is None
        assert BATCH["three_interpolate_grad_wrapper"](2, 3, 5, 9, out, idx, weight, grads) is None
        assert torch.equal(again, out) and torch.equal(grads, grad)


def test_stacked_samples(generator):
    features = torch.randn(7, 3, generator=generator)
    counts, idx_counts = torch.tensor([4, 0, 3]).int(), torch.tensor([2, 1, 1]).int()
    idx = torch.tensor([[3, 0], [1, 1], [0, 0], [2, 1]]).int()
    out = strided(4, 3, 2)
    assert STACK["group_points_wrapper"](3, 4, 3, 2, features, counts, idx, idx_counts, out) == 1
    assert torch.equal(out, tt.group_points_stacked(features, counts, idx, idx_counts))
    assert not out[2].any()  # an empty ball of a sample without points
    grad = torch.zeros(7, 3)
    assert STACK["group_points_grad_wrapper"](3, 4, 3, 7, 2, out, idx, idx_counts, counts, grad) == 1
    expected = turnout.group_points_stacked_backward(out.contiguous(), counts, idx, idx_counts, 7)
    assert torch.equal(grad, expected)
    again, grads = torch.zeros(4, 3, 2), torch.zeros(7, 3)
    ext.TABLE["stack_group_points_forward"](
        features, counts, idx, idx_counts, again, b=3, c=3, m=4, nsample=2
    )
    ext.TABLE["stack_group_points_backward"](
        out, idx, idx_counts, counts, grads, b=3, c=3, m=4, n=7, nsample=2
    )
    assert torch.equal(again, out) and torch.equal(grads, grad)
    rows, weight = torch.tensor([[6, 0, 1], [2, 2, 2]]).int(), torch.rand(2, 3, generator=generator)
    out = torch.zeros(2, 3)
    assert STACK["three_interpolate_wrapper"](features, rows, weight, out) is None
    assert torch.equal(out, tt.three_interpolate_stacked(features, rows, weight))
    grad = torch.zeros(7, 3)
    assert STACK["three_interpolate_grad_wrapper"](out, rows, weight, grad) is None
    assert torch.equal(grad, turnout.three_interpolate_stacked_backward(out, rows, weight, 7))


def test_errors_are_those_of_the_caller():
    points, idx, out = torch.zeros(1, 2, 3), torch.full((1, 1, 1), 3).int(), torch.full((1, 2, 1, 1), 7.0)
    with pytest.raises(IndexError, match=r"^group_points_wrapper: idx\[0, 0, 0\] is 3, expected 0 .. 2"):
        BATCH["group_points_wrapper"](1, 2, 3, 1, 1, points, idx, out)
    with pytest.raises(ValueError, match=r"^group_points_wrapper: points has shape \[1, 2, 3\], expected"):
        BATCH["group_points_wrapper"](1, 2, 4, 1, 1, points, idx, out)
    with pytest.raises(TypeError, match="points is float64, expected float32"):
        BATCH["group_points_wrapper"](1, 2, 3, 1, 1, points.double(), idx, out)
    assert (out == 7).all()
    one, out = torch.tensor([1]), torch.full((1, 3, 1), 7.0)
    with pytest.raises(ValueError, match=r"^group_points_wrapper: the features_batch_cnt add up to 1, exp"):
        STACK["group_points_wrapper"](1, 1, 3, 1, points[0], one, idx[0] * 0, one, out)
    assert (out == 7).all()


def scene(generator, dtype=torch.float32):
    rois = torch.rand(5, 7, generator=generator) * 2
    rois[:, 3:6] += 1
    rois[4, 0] = 50
    points = torch.rand(60, 3, generator=generator) * 3 - 0.5
    return rois.to(dtype), points.to(dtype), torch.randn(60, 4, generator=generator).to(dtype)


@pytest.mark.parametrize("library", ["pcdet", "mmcv"])
@pytest.mark.parametrize("method", ["max", "avg"])
def test_roiaware(generator, library, method):
    rois, points, features = scene(generator)
    forward = ROIAWARE["forward"] if library == "pcdet" else ext.TABLE["roiaware_pool3d_forward"]
    backward = ROIAWARE["backward"] if library == "pcdet" else ext.TABLE["roiaware_pool3d_backward"]
    rule = ("center", 1e-5) if library == "pcdet" else ("bottom", 0.0)
    argmax = torch.zeros(5, 2, 3, 2, 4, dtype=torch.int32)
    lists = torch.zeros(5, 2, 3, 2, 4, dtype=torch.int32)  # room for three points
    pooled = torch.full((5, 2, 3, 2, 4), 9.0)
    done = forward(rois, points, features, argmax, lists, pooled, int(method == "avg"))
    assert done == (1 if library == "pcdet" else None)
    x = features.clone().requires_grad_()
    expected = tt.roiaware_pool3d(rois, points, x, (2, 3, 2), 3, method, *rule)
    is_filled = lists[..., :1] > 0
    assert 5 < is_filled.sum() < is_filled.numel()
    assert torch.equal(pooled, torch.where(is_filled, expected, 9.0))  # other cells stay as they are
    cell_of, point_of = tt.roiaware_points(rois, points, (2, 3, 2), 3, *rule)
    rows = lists.reshape(-1, 4)
    for cell in range(len(rows)):
        its = point_of[cell_of == cell].tolist()
        assert rows[cell, : 1 + len(its)].tolist() == [len(its), *its]
        assert not rows[cell, 1 + len(its) :].any()
    if method == "max":
        assert torch.equal(argmax >= 0, is_filled.expand_as(argmax))
    else:
        assert not argmax.any()  # not written
    grad = torch.randn(pooled.shape, generator=generator)
    grads = torch.ones(60, 4)
    backward(lists, argmax, grad, grads, int(method == "avg"))
    torch.testing.assert_close(grads - 1, torch.autograd.grad(expected, x, grad)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_roiaware_takes_the_lowest_finite_number(generator, dtype):
    rois, points, features = scene(generator, dtype)
    features[:] = torch.tensor([torch.finfo(dtype).min, -torch.inf, torch.nan, 1])
    argmax, lists = torch.zeros(5, 1, 1, 1, 4).int(), torch.zeros(5, 1, 1, 1, 9).int()
    pooled = torch.full((5, 1, 1, 1, 4), 9.0, dtype=dtype)
    ext.TABLE["roiaware_pool3d_forward"](rois, points, features, argmax, lists, pooled, 0)
    assert lists[0].any()
    assert argmax[0].flatten().tolist() == [lists[0, 0, 0, 0, 1], -1, -1, lists[0, 0, 0, 0, 1]]
    assert pooled[0].flatten().tolist() == [torch.finfo(dtype).min, 9, 9, 1]


def test_roiaware_appends_to_lists_and_accepts_no_points(generator):
    rois, points, features = scene(generator)
    argmax, pooled = torch.zeros(5, 1, 1, 1, 4, dtype=torch.int32), torch.zeros(5, 1, 1, 1, 4)
    lists = torch.zeros(5, 1, 1, 1, 3, dtype=torch.int32)
    lists[4, 0, 0, 0, :2] = torch.tensor([1, 7])  # the list of a box without points
    ROIAWARE["forward"](rois, points, features, argmax, lists, pooled, 0)
    assert lists[4].flatten().tolist() == [1, 7, 0]
    assert torch.equal(pooled[4].flatten(), features[7]) and (argmax[4] == 7).all()
    ROIAWARE["forward"](rois, points[:0], features[:0], argmax, lists, pooled, 0)
    assert (argmax == -1).all()
    assert torch.equal(pooled[4].flatten(), features[7])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_roipoint(generator, dtype):
    rois, points, features = scene(generator, dtype)
    pooled, empty = torch.full((1, 5, 6, 7), 9.0, dtype=dtype), torch.zeros(1, 5, dtype=torch.int32)
    empty[0, 1] = 1  # set already: the box is skipped
    ext.TABLE["roipoint_pool3d_forward"](points[None], rois[None], features[None], pooled, empty)
    tensors = points[None].float(), features[None].float(), rois[None].float()
    expected, is_empty = tt.roipoint_pool3d(*tensors, 6, "bottom", 0.0)
    is_written = (is_empty == 0) & (torch.arange(5) != 1)
    assert is_written.any()
    assert torch.equal(pooled[is_written], expected[is_written].to(dtype))
    assert (pooled[~is_written] == 9).all()
    assert torch.equal(empty != 0, ~is_written)
    if dtype == torch.float32:
        assert ROIPOINT["forward"](points[None], rois[None], features[None], pooled, empty * 0) == 1


# -- the weighted sums of PAConv ---------------------------------------------------------------------------

SIZES = {"B": 2, "N0": 9, "N1": 5, "M": 3, "K": 4, "O": 6}


@pytest.fixture
def weighted(generator):
    """Features of points and of centres, scores and neighbours; one neighbour is outside the points."""
    points, centers = (torch.randn(2, 9, 3, 6, dtype=torch.float64, generator=generator) for _ in range(2))
    scores = torch.randn(2, 5, 4, 3, dtype=torch.float64, generator=generator)
    idx = torch.randint(0, 9, (2, 5, 4), generator=generator)
    idx[1, 2, 3] = 9
    return points, centers, scores, idx


def sums(points, centers, scores, idx):
    rows = idx.clamp(max=8)
    batch = torch.arange(2)[:, None, None]
    differences = points[batch, rows] - centers[batch[..., 0], rows[..., 0]].unsqueeze(2)
    found = torch.einsum("bqkmo,bqkm->boqk", differences, scores)
    return torch.where((idx < 9).unsqueeze(1), found, 0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_weighted_sums_of_neighbours(weighted, dtype):
    points, centers, scores, idx = weighted
    out = torch.ones(2, 6, 5, 4, dtype=dtype)
    given = [tensor.to(dtype) for tensor in (points, centers, scores)]
    ext.TABLE["assign_score_withk_forward"](*given, idx, out, **SIZES, aggregate=0)
    expected = 1 + sums(*(tensor.double() for tensor in given), idx)
    tolerance = 1e-2 if dtype == torch.float16 else 1e-5
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


def test_gradients_of_weighted_sums(weighted, generator):
    points, centers, scores, idx = weighted
    given = [tensor.requires_grad_() for tensor in (points, centers, scores)]
    grad = torch.randn(2, 6, 5, 4, dtype=torch.float64, generator=generator)
    expected = torch.autograd.grad(sums(*given, idx), given, grad)
    found = [torch.ones_like(tensor) for tensor in given]
    ext.TABLE["assign_score_withk_backward"](grad, *given, idx, *found, **SIZES, aggregate=0)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, 1 + other)


def test_the_centre_of_weighted_sums_is_a_point(weighted):
    points, centers, scores, idx = weighted
    idx[1, 3, 0] = -1
    out = torch.zeros(2, 6, 5, 4, dtype=torch.float64)
    with pytest.raises(
        IndexError, match=r"^assign_score_withk_forward: knn_idx\[1, 3, 0\] is -1, expected 0 .. 8"
    ):
        ext.TABLE["assign_score_withk_forward"](points, centers, scores, idx, out, **SIZES)
    with pytest.raises(ValueError, match=r"^assign_score_withk_forward: output has shape"):
        ext.TABLE["assign_score_withk_forward"](points, centers, scores, idx * 0, out[:, :5], **SIZES)
