"""turnout.compat.pcdet: OpenPCDet's compiled modules, and torch without a GPU."""

import importlib
import importlib.machinery
import multiprocessing
import sys

import numpy as np
import pytest
import torch
from detector_packages import PCDET, write

from turnout.compat import pcdet as ours
from turnout.compat import spconv as our_spconv
from turnout.compat.pcdet.ops import MODULES

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
]
STUBS = ("SharedArray", "av2")
IOU3D = "pcdet.ops.iou3d_nms.iou3d_nms_cuda"
ROIAWARE = "pcdet.ops.roiaware_pool3d.roiaware_pool3d_cuda"
OFFERED = [(module, name) for module, table in MODULES.items() for name in table if table[name] is not None]


def forget():
    for name in [name for name in sys.modules if name.split(".")[0] == "pcdet"]:
        del sys.modules[name]


@pytest.fixture
def package(tmp_path, monkeypatch):
    if importlib.util.find_spec("pcdet") is not None:
        pytest.skip("pcdet is installed")
    write(tmp_path, PCDET)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    ours.uninstall()
    forget()


def boxes_of(*rows):
    """x, y, dx, dy, heading with z 0 and height 2."""
    rows = [[x, y, 0, dx, dy, 2, heading] for x, y, dx, dy, heading in rows]
    return torch.tensor(rows, dtype=torch.float32)


CAR = boxes_of((0, 0, 4, 2, 0.3))

# -- traps -------------------------------------------------------------------------------------------------


def test_wrappers_that_allocate_on_a_gpu(package):
    """torch.cuda.FloatTensor and .cuda(), which raise without a GPU."""
    with pytest.raises((ImportError, NameError)):
        importlib.import_module("pcdet.ops.iou3d_nms.iou3d_nms_utils")
    forget()
    ours.install(stub=STUBS)
    utils = importlib.import_module("pcdet.ops.iou3d_nms.iou3d_nms_utils")
    assert utils.overlaps(CAR, CAR).tolist() == [[pytest.approx(8)]]
    boxes = boxes_of((0, 0, 4, 2, 0.3), (20, 0, 4, 2, 0), (0.5, 0, 4, 2, 0.3))
    assert utils.nms(boxes, torch.tensor([0.5, 0.1, 0.9]), 0.3).tolist() == [2, 1]
    assert utils.nms(boxes[:0], torch.zeros(0), 0.3).tolist() == []
    head = importlib.import_module("pcdet.models").Head().cuda().cuda(0)
    assert head(torch.ones(2, 3)).shape == (2, 1)
    assert torch.cuda.current_device() == torch.device("cpu")
    assert torch.cuda.IntTensor(2, 3).device == torch.cuda.LongTensor(2).device == torch.device("cpu")
    assert not torch.cuda.is_available()
    ours.uninstall()
    with pytest.raises(Exception, match=r"(?i)cuda|nvidia"):
        utils.overlaps(CAR, CAR)
    with pytest.raises(Exception, match=r"(?i)cuda|nvidia"):
        torch.ones(1).cuda()


def test_histograms_of_integers(package):
    """torch counts integers on a GPU only."""
    values = torch.tensor([0, 2, 2, -1, 3, 4, 12])
    ours.install()
    assert torch.histc(values, bins=4, min=0, max=3).tolist() == [1, 0, 2, 1]
    assert torch.histc(values.int(), bins=2, min=0, max=12).tolist() == [5, 1]
    assert torch.histc(values.int(), 3).dtype == torch.int32
    assert torch.histc(values, 13).tolist() == torch.histc(values.double(), 13).tolist()
    assert torch.histc(torch.full((5,), 7), 2).tolist() == torch.histc(torch.full((5,), 7.0), 2).tolist()
    assert torch.histc(values[:0], 2, out=values[:0]).tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="bins"):
        torch.histc(values.double(), 0)
    ours.uninstall()
    with pytest.raises(NotImplementedError):
        torch.histc(values, 4)


def test_version_and_modules_that_are_not_compiled(package):
    ours.install()
    assert importlib.import_module("pcdet").__version__ == "0.6.0+turnout"
    # Its try statement does not help if the module is missing.
    ranks = importlib.import_module("pcdet.ops.ingroup_inds.ingroup_inds_op").ranks
    assert ranks is sys.modules["pcdet.ops.ingroup_inds.ingroup_inds_cuda"]


def test_version_of_the_package(package):
    (package / "pcdet" / "version.py").write_text("__version__ = '0.5.2+abc'")
    ours.install()
    assert importlib.import_module("pcdet").__version__ == "0.5.2+abc"


def test_overlap_has_a_margin_and_iou_exceeds_one(package):
    ours.install()
    compiled = importlib.import_module(IOU3D)
    small, moved = boxes_of((0, 0, 0.8, 0.6, 0)), boxes_of((0.005, 0, 0.8, 0.6, 0))
    iou = torch.zeros(1, 1)
    assert compiled.boxes_iou_bev_cpu(small, moved, iou) == 1
    assert iou.item() == pytest.approx(1.01258, abs=1e-5)
    end_to_end = boxes_of((0, 0, 4, 2, 0), (4.005, 0, 4, 2, 0))
    compiled.boxes_iou_bev_gpu(end_to_end[:1], end_to_end[1:], iou)
    assert iou.item() == pytest.approx(0.000625, abs=1e-6)


def test_points_in_boxes_has_two_borders(package):
    """1 cm in the function for the CPU, 0.01 mm in that for GPUs, and z is that of the centre."""
    ours.install()
    compiled = importlib.import_module(ROIAWARE)
    box = boxes_of((0, 0, 4, 2, 0))
    points = torch.tensor([[2.005, 0, 0], [2.000005, 0, 0], [0, 0, 0.999], [0, 0, 1.001], [2.02, 0, 0]])
    on_cpu = torch.full((1, 5), 7, dtype=torch.int32)
    assert compiled.points_in_boxes_cpu(box, points, on_cpu) == 1
    assert on_cpu.tolist() == [[1, 1, 1, 0, 0]]
    on_gpu = torch.full((1, 5), -1, dtype=torch.int32)
    assert compiled.points_in_boxes_gpu(box[None], points[None], on_gpu) == 1
    assert on_gpu.tolist() == [[-1, 0, 0, -1, -1]]
    # Padded rows of zeros have a point at the origin.
    first = torch.full((1, 1), -1, dtype=torch.int32)
    compiled.points_in_boxes_gpu(torch.zeros(1, 2, 7), torch.zeros(1, 1, 3), first)
    assert first.tolist() == [[0]]


# -- the modules -------------------------------------------------------------------------------------------


def test_all_functions_exist(package):
    ours.install()
    assert [len(table) for table in MODULES.values()] == [8, 4, 1, 9, 13, 2, 1]
    for module, table in MODULES.items():
        found = importlib.import_module(module)
        assert importlib.util.find_spec(module) is found.__spec__
        assert all(callable(getattr(found, name)) for name in table)


def test_no_function_is_missing():
    assert [
        (module, name) for module, table in MODULES.items() for name in table if table[name] is None
    ] == []


def test_aligned_functions(package):
    ours.install()
    compiled = importlib.import_module(IOU3D)
    boxes = boxes_of((0, 0, 4, 2, 0), (5, 5, 2, 2, 1))
    moved = boxes_of((1, 0, 4, 2, 0), (5, 5, 2, 2, 1 + np.pi / 4))
    for name, expected in (
        ("boxes_aligned_overlap_bev_gpu", [6, 8 * (2**0.5 - 1)]),
        ("paired_boxes_overlap_bev_gpu", [6, 8 * (2**0.5 - 1)]),
        ("boxes_aligned_iou_bev_cpu", [0.6, 0.707107]),
    ):
        ans = torch.zeros(2, 1)
        assert getattr(compiled, name)(boxes, moved, ans) == 1
        assert ans[:, 0].tolist() == pytest.approx(expected, abs=1e-4)


def test_ranks_of_dsvt(package):
    ours.install()
    compiled = importlib.import_module("pcdet.ops.ingroup_inds.ingroup_inds_cuda")
    ranks = torch.full((5, 2), -7)[:, 0]
    assert compiled.forward(torch.tensor([3, 1, 3, 3, 1]), ranks) is None
    assert ranks.tolist() == [0, 0, 1, 2, 1]
    with pytest.raises(ValueError, match=r"^forward: group_inds\[1\] is -1, expected 0 or more"):
        compiled.forward(torch.tensor([3, -1, 3, 3, 1]), ranks)
    with pytest.raises(TypeError, match=r"^forward: out_inds is int32, expected int64"):
        compiled.forward(torch.tensor([3]), torch.zeros(1, dtype=torch.int32))


def test_pooling_of_bevfusion(package):
    """Makes the calls of pcdet's bev_pool: rows sorted by cell, and extents as tensors."""
    ours.install()
    compiled = importlib.import_module("pcdet.ops.bev_pool.bev_pool_ext")
    rng = torch.Generator().manual_seed(5)
    b, d, h, w = extents = tuple(torch.tensor(n) for n in (2, 1, 4, 3))
    limits = torch.stack([h, w, d, b])
    geom = (torch.rand(40, 4, generator=rng) * limits).int()
    feats = torch.rand(40, 5, generator=rng)
    ranks = geom[:, 0] * (w * d * b) + geom[:, 1] * (d * b) + geom[:, 2] * b + geom[:, 3]
    order = ranks.argsort()
    feats, geom, ranks = feats[order], geom[order], ranks[order]
    starts = torch.cat([torch.tensor([True]), ranks[1:] != ranks[:-1]]).nonzero()[:, 0].int()
    lengths = torch.cat([starts[1:], torch.tensor([40])]).int() - starts
    out = compiled.bev_pool_forward(feats, geom, lengths, starts, *extents)
    expected = torch.zeros(2, 1, 4, 3, 5).index_put(
        tuple(geom[:, k].long() for k in (3, 2, 0, 1)), feats, accumulate=True
    )
    torch.testing.assert_close(out, expected)
    grad = torch.rand(out.shape, generator=rng)
    grads = compiled.bev_pool_backward(grad, geom, lengths, starts, *extents)
    assert torch.equal(grads, grad[tuple(geom[:, k].long() for k in (3, 2, 0, 1))])
    # The first half of the intervals, and intervals in another order.
    half, back = len(starts) // 2, torch.arange(len(starts) - 1, -1, -1)
    some = compiled.bev_pool_backward(grad, geom, lengths[:half], starts[:half], *extents)
    assert torch.equal(some[: starts[half]], grads[: starts[half]]) and not some[starts[half] :].any()
    assert torch.equal(compiled.bev_pool_forward(feats, geom, lengths[back], starts[back], *extents), out)
    none = torch.zeros(0, dtype=torch.int32)
    assert not compiled.bev_pool_forward(feats, geom, none, none, *extents).any()


def test_intervals_of_bevfusion(package):
    ours.install()
    compiled = importlib.import_module("pcdet.ops.bev_pool.bev_pool_ext")
    feats = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    geom = torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [7, 7, 7, 7]], dtype=torch.int32)
    lengths, starts = torch.tensor([2, 2], dtype=torch.int32), torch.tensor([0, 2], dtype=torch.int32)
    # An interval belongs to the cell of its first row, and a later one of the same cell replaces the sum.
    out = compiled.bev_pool_forward(feats, geom, lengths, starts, 1, 1, 1, 2)
    assert out.flatten().tolist() == [0, 12]
    grads = compiled.bev_pool_backward(torch.tensor([3.0, 5.0]).reshape(1, 1, 1, 2, 1), geom, lengths, starts,
                                       1, 1, 1, 2)  # fmt: skip
    assert grads.flatten().tolist() == [5, 5, 5, 5]
    with pytest.raises(
        IndexError, match=r"^bev_pool_forward: geom_feats\[3, 0\] is 7, expected 0 \.\. 0, below h"
    ):
        compiled.bev_pool_forward(feats, geom, lengths[:1] - 1, starts[:1] + 3, 1, 1, 1, 2)
    with pytest.raises(IndexError, match=r"^bev_pool_forward: interval 1 has 2 rows from row 3 on"):
        compiled.bev_pool_forward(feats, geom, lengths, starts + torch.tensor([0, 1]).int(), 1, 1, 1, 2)
    with pytest.raises(TypeError, match=r"^bev_pool_forward: w is of type float, expected an integer"):
        compiled.bev_pool_forward(feats, geom, lengths, starts, 1, 1, 1, 2.5)


def test_nms_normal_ignores_the_heading(package):
    ours.install()
    compiled = importlib.import_module(IOU3D)
    boxes = boxes_of((0, 0, 4, 1, 0), (0, 0, 4, 1, np.pi / 2), (9, 0, 4, 1, 0))
    for name, kept in (("nms_gpu", [0, 1, 2]), ("nms_normal_gpu", [0, 2])):
        keep = torch.full((3,), -7)
        count = getattr(compiled, name)(boxes, keep, 0.5)
        assert keep[:count].tolist() == kept
        assert keep[count:].tolist() == [-7] * (3 - count)


def test_boxes_may_require_grad_and_be_views(package):
    ours.install()
    compiled = importlib.import_module(IOU3D)
    boxes = torch.cat([CAR, CAR + 1], 1).requires_grad_()[:, :7]
    ans = torch.zeros(3, 2)[1:2, ::2]
    compiled.boxes_overlap_bev_gpu(boxes, boxes, ans)
    assert ans.tolist() == [[pytest.approx(8)]]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"boxes_a": torch.zeros(2, 7).double()}, TypeError, "boxes_a is float64, expected float32"),
        ({"boxes_a": [1]}, TypeError, "boxes_a is of type list, expected a torch.Tensor"),
        ({"boxes_b": torch.zeros(3, 5)}, ValueError, "boxes_b has shape [3, 5], expected [3, 7]: [M, 7]"),
        ({"boxes_b": torch.zeros(7)}, ValueError, "boxes_b has shape [7], expected [any, 7]: [M, 7]"),
        ({"ans_overlap": torch.zeros(3, 2)}, ValueError, "has shape [3, 2], expected [2, 3]: [N, M]"),
        ({"ans_overlap": torch.zeros(2, 3).int()}, TypeError, "ans_overlap is int32, expected float32"),
    ],
)
def test_wrong_arguments(package, change, error, message):
    ours.install()
    arguments = {"boxes_a": torch.zeros(2, 7), "boxes_b": torch.zeros(3, 7), "ans_overlap": torch.ones(2, 3)}
    with pytest.raises(error) as caught:
        importlib.import_module(IOU3D).boxes_overlap_bev_gpu(**{**arguments, **change})
    assert str(caught.value).startswith("boxes_overlap_bev_gpu: ") and message in str(caught.value)
    assert (arguments["ans_overlap"] == 1).all()


def _in_child(queue):
    compiled = importlib.import_module(IOU3D)
    boxes, iou = CAR.repeat(64, 1), torch.zeros(64, 64)
    compiled.boxes_iou_bev_cpu(boxes, boxes, iou)
    inside = torch.zeros(64, 5000, dtype=torch.int32)
    importlib.import_module(ROIAWARE).points_in_boxes_cpu(boxes, torch.zeros(5000, 3), inside)
    queue.put((iou.min().item(), inside.min().item()))


def _in_worker(queue):
    torch.set_num_threads(1)  # as workers of a DataLoader do: OpenMP's threads do not survive a fork
    _in_child(queue)


def test_in_a_worker_that_was_forked(package):
    """As in a DataLoader, after the parent has used its threads."""
    ours.install()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    _in_child(queue)
    assert queue.get() == (pytest.approx(1), 1)
    child = context.Process(target=_in_worker, args=(queue,), daemon=True)
    child.start()
    assert queue.get(timeout=60) == (pytest.approx(1), 1)
    child.join()
    assert child.exitcode == 0


# -- tensors that are not on the CPU -----------------------------------------------------------------------

COMPILED = """
def nms_gpu(boxes, keep, thresh):
    return 'compiled', boxes.device.type
"""


def test_other_devices_without_a_compiled_module(package):
    ours.install()
    with pytest.raises(NotImplementedError) as caught:
        importlib.import_module(IOU3D).nms_gpu(torch.zeros(1, 7, device="meta"), torch.zeros(1).long(), 0.1)
    assert str(caught.value) == f"nms_gpu: a tensor is on meta, expected the CPU: {IOU3D} is not compiled"


def test_other_devices_go_to_the_file_of_the_compiled_module(package, monkeypatch):
    (package / "pcdet/ops/iou3d_nms/iou3d_nms_cuda.py").write_text(COMPILED)
    ours.install()
    monkeypatch.setattr(importlib.machinery, "EXTENSION_SUFFIXES", [".py"])
    nms = importlib.import_module(IOU3D).nms_gpu
    assert nms(torch.zeros(1, 7, device="meta"), torch.zeros(1).long(), 0.1) == ("compiled", "meta")
    assert nms(CAR, torch.zeros(1).long(), 0.1) == 1


def test_other_devices_go_to_the_loaded_module(package):
    (package / "pcdet/version.py").write_text("__version__ = '1'")
    (package / "pcdet/ops/iou3d_nms/iou3d_nms_cuda.py").write_text(COMPILED)
    loaded = importlib.import_module(IOU3D)
    theirs = loaded.nms_gpu
    with pytest.raises(RuntimeError, match="pcdet is imported already"):
        ours.install()
    ours.install(force=True)
    assert importlib.import_module(IOU3D) is loaded
    assert loaded.nms_gpu(torch.zeros(1, 7, device="meta"), None, 0.1) == ("compiled", "meta")
    assert loaded.nms_gpu(CAR, torch.zeros(1).long(), 0.1) == 1
    ours.uninstall()
    assert loaded.nms_gpu is theirs and not hasattr(loaded, "boxes_iou_bev_cpu")


# -- install and uninstall ---------------------------------------------------------------------------------


def state():
    names = {
        name for name in sys.modules if name.split(".")[0] in ("pcdet", "spconv", "torch_scatter", "av2")
    }
    cuda = [torch.Tensor.cuda, torch.nn.Module.cuda, torch.cuda.FloatTensor, torch.cuda.current_device]
    cuda.append(torch.histc)
    others = ["cuda" in vars(torch.Tensor), "int" in vars(np), torch.nn.MultiheadAttention.forward]
    return names, cuda, [*sys.meta_path], others


def test_uninstall_undoes_everything(package):
    before = state()
    for _ in range(2):
        ours.install(stub=STUBS)
        ours.install()
        assert np.int is int
        assert importlib.import_module("spconv.pytorch").SubMConv3d is our_spconv.SubMConv3d
        importlib.import_module("av2.geometry")
        ours.uninstall()
        ours.uninstall()
        assert state() == before
        assert not hasattr(np, "int")


def test_spconv_that_is_installed_by_somebody_else_stays(package):
    our_spconv.install()
    try:
        ours.install()
        ours.uninstall()
        assert importlib.import_module("spconv.pytorch").SubMConv3d is our_spconv.SubMConv3d
    finally:
        our_spconv.uninstall()


def test_without_the_shim(package):
    before = state()[1]
    ours.install(cuda_is_cpu=False, stub=STUBS)
    assert state()[1] == before
    with pytest.raises(RuntimeError, match="no CUDA"):
        importlib.import_module("pcdet.datasets.kitti.kitti_object_eval_python.eval")


def test_stubs_can_be_imported_and_not_used(package):
    ours.install(stub=(*STUBS, "numpy"))
    models = importlib.import_module("pcdet.models")
    assert importlib.import_module("numpy") is np
    for name, use in (("attach", lambda: models.SharedArray.attach("x")), ("SE3", lambda: models.SE3(1))):
        with pytest.raises(NotImplementedError) as caught:
            use()
        assert str(caught.value) == (
            f"{name}: SharedArray, av2 can be imported, but not used: see "
            "turnout.compat.pcdet.install(stub=...)"
        )
    assert importlib.util.find_spec("kornia_of_nobody") is None
    with pytest.raises(TypeError, match="stub is 'av2', expected a sequence of names"):
        ours.uninstall()
        forget()
        ours.install(stub="av2")


def test_checkpoints_with_numbers_of_numpy(package, tmp_path):
    """As the learning rates of a scheduler, which torch.load refuses by default from torch 2.6 on."""
    before = torch.serialization.get_safe_globals()
    saved = {"rate": np.float64(0.25), "step": np.int64(3), "seen": np.bool_(True), "weight": torch.ones(2)}
    torch.save(saved, tmp_path / "checkpoint.pth")
    ours.install()
    found = torch.load(tmp_path / "checkpoint.pth")
    assert (found["rate"], found["step"], found["seen"]) == (0.25, 3, True)
    torch.serialization.add_safe_globals([Hidden])
    torch.save({"other": Other()}, tmp_path / "other.pth")
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load(tmp_path / "other.pth", weights_only=True)
    ours.uninstall()
    left = torch.serialization.get_safe_globals()
    assert {*map(str, left)} == {*map(str, before), str(Hidden)}
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(before)


def test_integer_masks_of_attention(package):
    """DSVT passes one, which torch refuses from 2.0 on."""
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()
    tokens = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))
    mask = torch.tensor([[0, 0, 1], [0, 0, 0]], dtype=torch.int32)
    expected = attention(tokens, tokens, tokens, mask.bool())[0]
    infinite = torch.zeros(2, 3).masked_fill(mask.bool(), float("-inf"))
    ours.install()
    for given in (mask, mask.long(), mask.bool(), infinite):
        assert torch.equal(attention(tokens, tokens, tokens, given)[0], expected)
        assert torch.equal(attention(tokens, tokens, tokens, key_padding_mask=given)[0], expected)
    assert attention(tokens, tokens, tokens, need_weights=False)[1] is None
    ours.uninstall()
    with pytest.raises(AssertionError, match="key_padding_mask"):
        attention(tokens, tokens, tokens, mask)


class Hidden:
    pass


class Other:
    pass


# -- evaluation --------------------------------------------------------------------------------------------


@pytest.fixture
def rotate_iou(package):
    ours.install()
    return importlib.import_module("pcdet.datasets.kitti.kitti_object_eval_python.eval").rotate_iou_gpu_eval


def test_rotate_iou_criteria(rotate_iou):
    boxes = np.array([[0, 0, 4, 2, 0.3], [50, 0, 1, 1, 0]])
    query = np.array([[0, 0, 2, 1, 0.3], [0, 0, 4, 2, 0.3], [9, 9, 1, 1, 0]])
    for criterion, row in ((-1, [0.25, 1, 0]), (0, [1, 1, 0]), (1, [0.25, 1, 0]), (2, [2, 8, 0])):
        found = rotate_iou(boxes, query, criterion)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, [row, [0, 0, 0]], atol=1e-5)
    for rows, columns in ((0, 3), (2, 0)):
        assert rotate_iou(boxes[:rows], query[:columns], criterion=-1, device_id=3).shape == (rows, columns)
    with pytest.raises(ValueError, match=r"query_boxes has shape \[2, 7\], expected \[boxes, 5\]"):
        rotate_iou(boxes, np.zeros((2, 7)))


def test_rotate_iou_turns_clockwise(rotate_iou):
    """The end of a long box that is turned by 0.5 to the right, and the place where it is not."""
    box = np.array([[0, 0, 4, 0.5, 0.5]])
    end = 1.8 * np.array([np.cos(0.5), -np.sin(0.5)])
    query = np.array([[*end, 0.1, 0.1, 0.5], [end[0], -end[1], 0.1, 0.1, 0.5]])
    np.testing.assert_allclose(rotate_iou(box, query, 0), [[1, 0]], atol=1e-5)
    assert (box[0, 4], query[0, 4]) == (0.5, 0.5)
