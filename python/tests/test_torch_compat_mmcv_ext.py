"""mmcv._ext: the functions of mmcv's compiled module, and the wrappers that ask for a GPU."""

import importlib
import inspect
import sys

import numpy as np
import pytest
import torch
from detector_packages import MMCV, write

from turnout.compat import mmcv as ours
from turnout.compat.mmcv import ext, mmdet3d

pytestmark = pytest.mark.torch
PACKAGES = {"mmcv", "mmdet3d", "mmengine", "projects"}
SIZE, RANGE = (0.5, 0.25, 4.0), (0.0, -1.0, -3.0, 4.0, 1.0, 1.0)
# The names of arguments in mmcv's bindings; wrappers pass all but the tensors by name.
SIGNATURES = {
    "iou3d_boxes_overlap_bev_forward": "boxes_a boxes_b ans_iou",
    "iou3d_nms3d_forward": "boxes keep num_out nms_overlap_thresh",
    "iou3d_nms3d_normal_forward": "boxes keep num_out nms_overlap_thresh",
    "box_iou_rotated": "boxes1 boxes2 ious mode_flag aligned",
    "nms_rotated": "dets scores order dets_sorted labels iou_threshold multi_label",
    "nms": "boxes scores iou_threshold offset",
    "points_in_boxes_cpu_forward": "boxes_tensor pts_tensor pts_indices_tensor",
    "points_in_boxes_part_forward": "boxes_tensor pts_tensor box_idx_of_points_tensor",
    "points_in_boxes_all_forward": "boxes_tensor pts_tensor box_idx_of_points_tensor",
    "hard_voxelize_forward": "points voxel_size coors_range voxels coors num_points_per_voxel voxel_num "
    "max_points max_voxels NDim deterministic",
    "dynamic_voxelize_forward": "points voxel_size coors_range coors NDim",
    "dynamic_point_to_voxel_forward": "feats coors reduce_type",
    "dynamic_point_to_voxel_backward": "grad_feats grad_reduced_feats feats reduced_feats coors_idx "
    "reduce_count reduce_type",
    "ball_query_forward": "new_xyz_tensor xyz_tensor idx_tensor b n m min_radius max_radius nsample",
    "furthest_point_sampling_forward": "points_tensor temp_tensor idx_tensor b n m",
    "furthest_point_sampling_with_dist_forward": "points_tensor temp_tensor idx_tensor b n m",
    "knn_forward": "xyz_tensor new_xyz_tensor idx_tensor dist2_tensor b n m nsample",
    "stack_ball_query_forward": "new_xyz_tensor new_xyz_batch_cnt xyz_tensor xyz_batch_cnt idx_tensor "
    "max_radius nsample",
    "three_nn_forward": "unknown_tensor known_tensor dist2_tensor idx_tensor b n m",
    "group_points_forward": "points_tensor idx_tensor out_tensor b c n npoints nsample",
    "group_points_backward": "grad_out_tensor idx_tensor grad_points_tensor b c n npoints nsample",
    "gather_points_forward": "points_tensor idx_tensor out_tensor b c n npoints",
    "gather_points_backward": "grad_out_tensor idx_tensor grad_points_tensor b c n npoints",
    "three_interpolate_forward": "points_tensor idx_tensor weight_tensor out_tensor b c m n",
    "three_interpolate_backward": "grad_out_tensor idx_tensor weight_tensor grad_points_tensor b c n m",
    "stack_group_points_forward": "features_tensor features_batch_cnt_tensor idx_tensor idx_batch_cnt_tensor "
    "out_tensor b c m nsample",
    "stack_group_points_backward": "grad_out_tensor idx_tensor idx_batch_cnt_tensor "
    "features_batch_cnt_tensor grad_features_tensor b c m n nsample",
    "roiaware_pool3d_forward": "rois pts pts_feature argmax pts_idx_of_voxels pooled_features pool_method",
    "roiaware_pool3d_backward": "pts_idx_of_voxels argmax grad_out grad_in pool_method",
    "roipoint_pool3d_forward": "xyz boxes3d pts_feature pooled_features pooled_empty_flag",
    "assign_score_withk_forward": "points centers scores knn_idx output B N0 N1 M K O aggregate",
    "assign_score_withk_backward": "grad_out points centers scores knn_idx grad_points grad_centers "
    "grad_scores B N0 N1 M K O aggregate",
    "sigmoid_focal_loss_forward": "input target weight output gamma alpha",
    "sigmoid_focal_loss_backward": "input target weight grad_input gamma alpha",
}
MISSING = [name for name, function in ext.TABLE.items() if function is None]


@pytest.fixture
def lite(tmp_path, monkeypatch):
    """mmcv without its compiled module, as mmcv-lite is, and a detector's package that uses it."""
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] in PACKAGES}
    for name in before:
        del sys.modules[name]
    write(tmp_path, MMCV)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    ours.uninstall()
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture
def compiled(lite):
    ours.install()
    return importlib.import_module("mmcv._ext")


def rows_of(*rows):
    return torch.tensor(rows, dtype=torch.float32)


# -- names -------------------------------------------------------------------------------------------------


def test_names(compiled):
    assert len(ext.TABLE) == 112
    assert all(callable(getattr(compiled, name)) for name in ext.TABLE)
    assert set(ext.TABLE) - set(MISSING) == {
        *SIGNATURES,
        "get_compiler_version",
        "get_compiling_cuda_version",
    }
    for name, arguments in SIGNATURES.items():
        assert list(inspect.signature(getattr(compiled, name)).parameters) == arguments.split()
    assert compiled.get_compiling_cuda_version() == "not available"
    assert "Turnout" in compiled.get_compiler_version()


@pytest.mark.parametrize("name", MISSING)
def test_missing_functions_say_so_when_they_are_called(compiled, name):
    with pytest.raises(NotImplementedError) as caught:
        getattr(compiled, name)(torch.zeros(1), b=1)
    assert str(caught.value).startswith(
        f"{name}: Turnout does not have this function of mmcv._ext; the page "
    )


# -- traps -------------------------------------------------------------------------------------------------


def test_wrappers_that_ask_for_a_gpu(lite):
    """Also functions that were imported before: those of autograd functions."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ImportError):
        importlib.import_module("mmcv.ops")
    for name in [name for name in sys.modules if name.split(".")[0] == "mmcv"]:
        del sys.modules[name]
    ours.install()
    ops = importlib.import_module("mmcv.ops")
    points = rows_of([0, 0, 0.5], [9, 9, 9])[None]
    boxes = rows_of([0, 0, 0, 4, 2, 1, 0.3])[None]
    assert ops.points_in_boxes_part(points, boxes).tolist() == [[0, -1]]
    assert ops.points_in_boxes_all(points=points, boxes=boxes).tolist() == [[[1], [0]]]
    assert sys.modules["mmcv.ops.points_in_boxes"].points_in_boxes_part(points, boxes).dtype == torch.int32
    assert ops.furthest_point_sample(points, 2).tolist() == [[0, 1]]
    assert ops.knn(2, points, points, False).tolist() == [[[0, 1], [1, 0]]]  # [B, k, M]
    with pytest.raises(ValueError, match=r"knn: k is 100, expected 1 .. 99"):
        ops.knn(100, points)


def test_wrappers_call_the_compiled_module_as_it_is(compiled, monkeypatch):
    """So that a function that it gets later works, with the arguments that mmcv passes."""
    ops = importlib.import_module("mmcv.ops")

    def sample(points, temp, indices, b, n, m):
        assert (b, n, m, tuple(temp.shape)) == (1, 5, 2, (1, 5)) and (temp == 1e10).all()
        indices.copy_(torch.tensor([[0, 3]]))

    def nearest(xyz, centers, indices, dist2, b, n, m, nsample):
        assert xyz.is_contiguous() and (b, n, m, nsample) == (1, 5, 4, 3)
        assert indices.shape == dist2.shape == (1, 4, 3)
        indices.copy_(torch.arange(12).view(1, 4, 3))

    monkeypatch.setattr(compiled, "furthest_point_sampling_forward", sample)
    monkeypatch.setattr(compiled, "knn_forward", nearest)
    points = torch.zeros(1, 5, 3, requires_grad=True)
    found = ops.furthest_point_sample(points, 2)
    assert found.tolist() == [[0, 3]] and not found.requires_grad
    found = ops.knn(3, points.transpose(1, 2), torch.zeros(1, 3, 4), True)
    assert found.tolist() == torch.arange(12).view(1, 4, 3).transpose(1, 2).tolist()


def test_modules_that_load_the_compiled_module_themselves(lite):
    """As mmdetection3d's voxelization, which names in mmcv.ops do not reach."""
    ours.install()
    models = importlib.import_module("mmdet3d.models")
    random = np.random.default_rng(0)
    points = torch.from_numpy(random.uniform([0, -1, -3, 0], [4.5, 1, 1, 1], (200, 4)).astype(np.float32))
    expected = ours.voxelization(points, SIZE, RANGE, 3, 20)
    for found, wanted in zip(models.voxelize(points, SIZE, RANGE, 3, 20), expected, strict=True):
        assert torch.equal(found, wanted)
    assert torch.equal(models.coordinates(points, SIZE, RANGE), ours.voxelization(points, SIZE, RANGE, -1))


def test_overlap_without_a_margin(compiled):
    """The other overlap, in which neighbours do not meet and the IoU is at most one."""
    small = rows_of([0, 0, 0.8, 0.6, 0])
    ious = torch.zeros(1)
    compiled.box_iou_rotated(small, rows_of([0.005, 0, 0.8, 0.6, 0]), ious, mode_flag=0, aligned=False)
    assert ious.item() == pytest.approx(0.987578, abs=1e-5)
    overlap = torch.zeros(1, 1)
    boxes = rows_of([0, 0, 0, 0.8, 0.6, 1, 0], [0.005, 0, 0, 0.8, 0.6, 1, 0])
    compiled.iou3d_boxes_overlap_bev_forward(boxes[:1], boxes[1:], overlap)
    assert overlap.item() == pytest.approx(0.483, abs=1e-3)


def test_points_in_boxes_without_a_border(compiled):
    """z is that of the bottom, and a point on the border is outside."""
    box = rows_of([0, 0, 0, 4, 2, 1, 0])
    points = rows_of([2, 0, 0.5], [1.999, 0, 0.5], [0, 0, 1], [0, 0, -0.1], [0, 0, 1.1])
    expected = [0, 1, 1, 0, 0]
    inside = torch.full((1, 5), 7, dtype=torch.int32)
    compiled.points_in_boxes_cpu_forward(box, points, inside)
    assert inside.tolist() == [expected]
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        points, box = points.to(dtype), box.to(dtype)
        points[1, 0] = 1.9
        first = torch.full((1, 5), -1, dtype=torch.int32)
        compiled.points_in_boxes_part_forward(box[None], points[None], first)
        assert first.tolist() == [[0 if one else -1 for one in expected]]
        every = torch.zeros((1, 5, 1), dtype=torch.int32)
        compiled.points_in_boxes_all_forward(box[None], points[None], every)
        assert every[0, :, 0].tolist() == expected
    # Rows of zeros, with which boxes are padded, are empty.
    first = torch.full((1, 1), -1, dtype=torch.int32)
    compiled.points_in_boxes_part_forward(torch.zeros(1, 2, 7), torch.zeros(1, 1, 3), first)
    assert first.tolist() == [[-1]]


def test_nms_rotated_keeps_boxes_at_the_threshold(compiled):
    """As on a GPU; mmcv on the CPU suppresses them. Labels are ignored on both."""
    dets = rows_of([0, 0, 3, 1, 0], [1, 0, 3, 1, 0])  # IoU 1/2
    scores, order = torch.tensor([0.9, 0.8]), torch.tensor([0, 1])
    none = torch.zeros(0, dtype=torch.int32)
    assert compiled.nms_rotated(dets, scores, order, dets, none, 0.5, 0).tolist() == [0, 1]
    assert compiled.nms_rotated(dets, scores, order, dets, none, 0.49, 0).tolist() == [0]
    labels = torch.tensor([0, 1])
    with_labels = torch.cat([dets, labels[:, None]], 1)
    assert compiled.nms_rotated(with_labels, scores, order, with_labels, labels, 0.49, 1).tolist() == [0]


# -- functions ---------------------------------------------------------------------------------------------


def test_nms_rotated_takes_the_given_order(compiled):
    dets = rows_of([0, 0, 3, 1, 0], [9, 0, 3, 1, 0], [0.1, 0, 3, 1, 0])
    scores, order = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 2, 1])
    none = torch.zeros(0, dtype=torch.int32)
    assert compiled.nms_rotated(dets, scores, order, dets[order], none, 0.5, 0).tolist() == [0, 1]
    # Without an order, as mmcv calls it for other devices
    assert compiled.nms_rotated(dets, scores, order[:0], dets, none, 0.5, 0).tolist() == [2, 1]


def test_nms(compiled):
    boxes = rows_of([0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6])
    scores = torch.tensor([0.2, 0.9, 0.5])
    assert compiled.nms(boxes, scores, iou_threshold=0.5, offset=0).tolist() == [1, 2]
    assert compiled.nms(boxes, scores, 0.97, 1).tolist() == [1, 2, 0]
    assert compiled.nms(boxes[:0], scores[:0], 0.5, 0).tolist() == []


def test_nms3d(compiled):
    boxes = rows_of([0, 0, 0, 4, 1, 1, 0], [0, 0, 0, 4, 1, 1, np.pi / 2], [0.1, 0, 5, 4, 1, 1, 0])
    for name, kept in (("iou3d_nms3d_forward", [0, 1]), ("iou3d_nms3d_normal_forward", [0])):
        keep, number = torch.full((3,), -7), torch.zeros((), dtype=torch.int64)
        getattr(compiled, name)(boxes, keep, number, nms_overlap_thresh=0.5)
        assert keep[:number].tolist() == kept
    ops = importlib.import_module("mmcv.ops")
    assert ops.nms3d(boxes, torch.tensor([0.1, 0.2, 0.3]), 0.5).tolist() == [2, 1]


def test_box_iou_rotated(compiled):
    boxes1 = rows_of([0, 0, 4, 2, 0.3], [0, 0, 2, 2, 0])
    boxes2 = rows_of([0, 0, 4, 2, 0.3], [0, 0, 2, 2, np.pi / 4], [9, 9, 1, 1, 0])
    ious = torch.zeros(6)
    compiled.box_iou_rotated(boxes1, boxes2, ious, mode_flag=0, aligned=False)
    assert ious.view(2, 3)[0, 0] == pytest.approx(1) and ious[2] == ious[5] == 0
    assert ious.view(2, 3)[1, 1] == pytest.approx(0.707107, abs=1e-5)
    pairs = torch.zeros(2)
    compiled.box_iou_rotated(boxes1, boxes2[:2], pairs, mode_flag=1, aligned=True)
    assert pairs.tolist() == pytest.approx([1, 2 * (2**0.5 - 1)], abs=1e-4)
    with pytest.raises(ValueError, match=r"ious has shape \[6\], expected \[2\]"):
        compiled.box_iou_rotated(boxes1, boxes2[:2], ious, mode_flag=1, aligned=True)
    with pytest.raises(ValueError, match="mode_flag is 2, expected 0 or 1"):
        compiled.box_iou_rotated(boxes1, boxes2, ious, 2, False)
    with pytest.raises(TypeError, match="boxes1 is float64, expected float32"):
        compiled.box_iou_rotated(boxes1.double(), boxes2, ious, 0, False)


@pytest.mark.parametrize("reduce_type", ["max", "mean", "sum"])
def test_point_to_voxel(compiled, reduce_type):
    random = np.random.default_rng(1)
    feats = torch.from_numpy(random.standard_normal((50, 3)).astype(np.float32))
    coors = torch.from_numpy(random.integers(-1, 3, (50, 3)).astype(np.int32))
    voxels, rows, map_, counts = compiled.dynamic_point_to_voxel_forward(feats, coors, reduce_type)
    leaf = feats.clone().requires_grad_()
    expected, expected_rows = ours.dynamic_scatter(leaf, coors, reduce_type)
    assert torch.equal(voxels, expected) and torch.equal(rows, expected_rows)
    grad = torch.ones_like(voxels)
    grad_feats = torch.full_like(feats, 5)
    compiled.dynamic_point_to_voxel_backward(grad_feats, grad, feats, voxels, map_, counts, reduce_type)
    assert torch.equal(grad_feats, torch.autograd.grad(expected, leaf, grad)[0])


def test_voxels_refuse_results_of_another_shape(compiled):
    points, long = torch.zeros(5, 4), torch.zeros((), dtype=torch.int64)
    voxels, coors = torch.zeros(20, 3, 4), torch.zeros(20, 3, dtype=torch.int32)
    counts = torch.zeros(19, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"num_points_per_voxel has shape \[19\], expected \[20\]"):
        compiled.hard_voxelize_forward(points, SIZE, RANGE, voxels, coors, counts, long, 3, 20)
    with pytest.raises(ValueError, match=r"voxels has shape \[20, 3, 4\], expected \[20, 5, 4\]"):
        compiled.hard_voxelize_forward(points, SIZE, RANGE, voxels, coors, counts, long, 5, 20)
    with pytest.raises(ValueError, match="dynamic_voxelize_forward: NDim is 2, expected 3"):
        compiled.dynamic_voxelize_forward(points, SIZE, RANGE, coors[:5], NDim=2)
    with pytest.raises(ValueError, match=r"^dynamic_voxelize_forward: voxel_size\[0\] is 0, expected"):
        compiled.dynamic_voxelize_forward(points, (0, 1, 1), RANGE, coors[:5])


# -- losses ------------------------------------------------------------------------------------------------


def test_focal_loss(compiled):
    torch.manual_seed(0)
    logits = torch.randn(6, 3, requires_grad=True)
    target, weights = torch.tensor([0, 1, 2, 2, 1, 3]), torch.tensor([0.5, 1.0, 2.0])
    for gamma, rows, weight in ((2.0, 6, torch.empty(0)), (0.5, 5, weights)):
        x, classes = logits[:rows], target[:rows]
        is_class = torch.nn.functional.one_hot(classes, 4)[:, :3]
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(x, is_class.float(), reduction="none")
        scale = weight[classes][:, None] if len(weight) else 1
        wanted = torch.where(is_class == 1, 0.25, 0.75) * (1 - (-entropy).exp()) ** gamma * entropy * scale
        (gradient,) = torch.autograd.grad(wanted.sum(), x)
        out, grad = torch.zeros(rows, 3), torch.zeros(rows, 3)
        compiled.sigmoid_focal_loss_forward(x, classes, weight, out, gamma=gamma, alpha=0.25)
        compiled.sigmoid_focal_loss_backward(x, classes, weight, grad, gamma=gamma, alpha=0.25)
        torch.testing.assert_close(out, wanted)
        torch.testing.assert_close(grad, gradient)
    far = torch.tensor([[200.0], [-200.0]])
    out = torch.zeros(2, 1)
    compiled.sigmoid_focal_loss_backward(far, torch.tensor([1, 0]), torch.empty(0), out, 2.0, 0.25)
    assert torch.isfinite(out).all()
    with pytest.raises(IndexError, match=r"^sigmoid_focal_loss_forward: target\[5\] is 3, expected 0"):
        compiled.sigmoid_focal_loss_forward(logits, target, weights, torch.zeros(6, 3), 2.0, 0.25)


# -- projects of mmdetection3d -----------------------------------------------------------------------------


def test_modules_of_projects(compiled):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    layer = sys.modules["projects.BEVFusion.bevfusion.ops.voxel.voxel_layer"]
    points = torch.rand(100, 4)
    expected = ours.voxelization(points, SIZE, RANGE, 3, 20)
    results = torch.zeros(20, 3, 4), torch.zeros(20, 3).int(), torch.zeros(20).int()
    number = layer.hard_voxelize(points, *results, list(SIZE), list(RANGE), 3, 20, 3, True)
    voxels, zyx, counts = expected
    for found, wanted in zip(results, (voxels, zyx.flip(1), counts), strict=True):
        assert torch.equal(found[:number], wanted)
    assert not results[1][number:].any()
    coors = torch.zeros(100, 3).int()
    layer.dynamic_voxelize(points, coors, list(SIZE), list(RANGE), 3)
    assert torch.equal(coors, ours.voxelization(points, SIZE, RANGE, -1).flip(1))
    one, range_ = torch.tensor([[3.5, 1.5, 0.5]]), [0, 0, 0, 4, 2, 1]
    layer.dynamic_voxelize(one, coors[:1], [1, 1, 1], range_, 3)
    assert coors[0].tolist() == [3, 1, 0]  # x, y, z
    assert [len(table) for table in mmdet3d.MODULES.values()] == [4, 2, 1]
    ranks = torch.zeros(3, dtype=torch.int64)
    module = sys.modules["projects.DSVT.dsvt.ops.ingroup_inds.ingroup_inds_cuda"]
    assert module.forward(torch.tensor([5, 2, 5]), ranks) is None
    assert ranks.tolist() == [0, 0, 1]
    pool = sys.modules["projects.BEVFusion.bevfusion.ops.bev_pool.bev_pool_ext"]
    cells = torch.zeros(2, 4, dtype=torch.int32)
    whole = torch.tensor([2], dtype=torch.int32), torch.tensor([0], dtype=torch.int32)
    assert pool.bev_pool_forward(torch.ones(2, 3), cells, *whole, 1, 1, 1, 1).tolist() == [[[[[2, 2, 2]]]]]
    rotate_iou = sys.modules["mmdet3d.evaluation.functional.kitti_utils.rotate_iou"].rotate_iou_gpu_eval
    assert rotate_iou(np.array([[0, 0, 4, 2, 0.3]]), np.array([[0, 0, 4, 2, 0.3]]))[0, 0] == pytest.approx(1)


# -- install and uninstall ---------------------------------------------------------------------------------


def test_uninstall_undoes_everything(lite):
    before = {name for name in sys.modules if name.split(".")[0] in PACKAGES} | {"mmcv"}
    for _ in range(2):
        ours.install()
        ours.install()
        importlib.import_module("mmcv.ops")
        ours.uninstall()
        assert {name for name in sys.modules if name.split(".")[0] in PACKAGES} <= before | {"mmcv.utils"}
        with pytest.raises(ImportError):
            importlib.import_module("mmcv.ops")
        assert not hasattr(sys.modules["mmcv"], "_ext") and not hasattr(sys.modules["mmcv"], "ops")
        for name in [name for name in sys.modules if name.startswith("mmcv.ops")]:
            del sys.modules[name]


def test_a_compiled_module_keeps_its_names(lite):
    """Those that Turnout does not have stay, and tensors on other devices go to the compiled functions."""
    (lite / "mmcv/_ext.py").write_text(
        "\n".join(f"def {name}(*a, **o): return '{name}', a, o" for name in ext.TABLE)
    )
    ours.install()
    compiled = importlib.import_module("mmcv._ext")
    assert compiled.roi_align_forward(1, b=2) == ("roi_align_forward", (1,), {"b": 2})
    assert compiled.get_compiler_version()[0] == "get_compiler_version"
    boxes = torch.zeros(1, 4)
    assert compiled.nms(boxes, torch.zeros(1), 0.5, 0).tolist() == [0]
    assert compiled.nms(boxes.to("meta"), torch.zeros(1), 0.5, 0)[0] == "nms"
    ops = importlib.import_module("mmcv.ops")
    assert ops.points_in_boxes_part(torch.zeros(1, 1, 3), torch.zeros(1, 0, 7)).tolist() == [[-1]]
    ours.uninstall()
    assert compiled.nms(boxes)[0] == "nms"
    assert sys.modules["mmcv.ops"] is ops and sys.modules["mmcv._ext"] is compiled
