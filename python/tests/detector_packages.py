"""Small packages that call compiled modules and CUDA as OpenPCDet, mmcv and mmdetection3d do."""

from __future__ import annotations

from pathlib import Path

# A detector's package: no version.py, compiled modules that are not there, and tensors of torch.cuda.
PCDET = {
    "pcdet/__init__.py": "from .version import __version__",
    "pcdet/ops/__init__.py": "",
    "pcdet/ops/iou3d_nms/__init__.py": "",
    "pcdet/ops/iou3d_nms/iou3d_nms_utils.py": """
import torch
from . import iou3d_nms_cuda

def overlaps(a, b):
    ans = torch.cuda.FloatTensor(torch.Size((len(a), len(b)))).zero_()
    iou3d_nms_cuda.boxes_overlap_bev_gpu(a.contiguous(), b.contiguous(), ans)
    return ans

def paired(a, b):
    ans = torch.cuda.FloatTensor(torch.Size((len(a), 1))).zero_()
    iou3d_nms_cuda.paired_boxes_overlap_bev_gpu(a.contiguous(), b.contiguous(), ans)
    return ans

def nms(boxes, scores, thresh):
    order = scores.sort(0, descending=True)[1]
    keep = torch.LongTensor(len(boxes))
    count = iou3d_nms_cuda.nms_gpu(boxes[order].contiguous(), keep, thresh)
    return order[keep[:count].cuda()]
""",
    "pcdet/ops/ingroup_inds/__init__.py": "",
    "pcdet/ops/ingroup_inds/ingroup_inds_op.py": """
try:
    from . import ingroup_inds_cuda
except ImportError:
    pass
ranks = ingroup_inds_cuda
""",
    "pcdet/datasets/__init__.py": "",
    "pcdet/datasets/kitti/__init__.py": "",
    "pcdet/datasets/kitti/kitti_object_eval_python/__init__.py": "",
    "pcdet/datasets/kitti/kitti_object_eval_python/rotate_iou.py": "raise RuntimeError('no CUDA')",
    "pcdet/datasets/kitti/kitti_object_eval_python/eval.py": "from .rotate_iou import rotate_iou_gpu_eval",
    "pcdet/models.py": """
import SharedArray
import torch
from av2.geometry.se3 import SE3

class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.mean = torch.zeros(3).cuda()

    def forward(self, x):
        return self.layer(x.float().cuda(non_blocking=True) - self.mean)
""",
}

# mmcv without its compiled module: wrappers that look their functions up in it, some of which ask for a GPU.
MMCV = {
    "mmcv/__init__.py": "__version__ = '2.1.0'",
    "mmcv/utils.py": """
import importlib

def load_ext(name, functions):
    module = importlib.import_module('mmcv.' + name)
    for function in functions:
        assert hasattr(module, function), function
    return module
""",
    "mmcv/ops/__init__.py": """
from .furthest_point_sample import furthest_point_sample
from .iou3d import nms3d
from .knn import knn
from .points_in_boxes import points_in_boxes_all, points_in_boxes_part
""",
    "mmcv/ops/furthest_point_sample.py": """
import torch
from ..utils import load_ext
ext = load_ext('_ext', ['furthest_point_sampling_forward'])

class FurthestPointSampling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, points, number):
        indices = torch.cuda.IntTensor(len(points), number)
        temp = torch.cuda.FloatTensor(*points.shape[:2]).fill_(1e10)
        ext.furthest_point_sampling_forward(points, temp, indices, b=1, n=2, m=number)
        return indices

furthest_point_sample = FurthestPointSampling.apply
""",
    "mmcv/ops/knn.py": """
import torch
from ..utils import load_ext
ext = load_ext('_ext', ['knn_forward'])

class KNN(torch.autograd.Function):
    @staticmethod
    def forward(ctx, k, xyz, center=None, transposed=False):
        torch.cuda.set_device(torch.cuda.current_device())

knn = KNN.apply
""",
    "mmcv/ops/points_in_boxes.py": """
import torch
from ..utils import load_ext
ext = load_ext('_ext', ['points_in_boxes_part_forward', 'points_in_boxes_all_forward'])

def points_in_boxes_part(points, boxes):
    torch.cuda.set_device(torch.cuda.current_device())

def points_in_boxes_all(points, boxes):
    torch.cuda.set_device(torch.cuda.current_device())
""",
    "mmcv/ops/iou3d.py": """
import torch
from ..utils import load_ext
ext = load_ext('_ext', ['iou3d_nms3d_forward', 'nms_rotated'])

def nms3d(boxes, scores, threshold):
    order = scores.sort(0, descending=True)[1]
    keep, count = boxes.new_zeros(len(boxes), dtype=torch.long), boxes.new_zeros((), dtype=torch.long)
    ext.iou3d_nms3d_forward(boxes[order].contiguous(), keep, count, nms_overlap_thresh=threshold)
    return order[keep[:count]]
""",
    "mmdet3d/__init__.py": "",
    # It does not go through mmcv.ops.
    "mmdet3d/models.py": """
import torch
from mmcv.utils import load_ext
ext = load_ext('_ext', ['dynamic_voxelize_forward', 'hard_voxelize_forward'])

def voxelize(points, size, ends, most, voxels):
    size, ends = torch.tensor(size), torch.tensor(ends)
    out = points.new_zeros((voxels, most, points.shape[1]))
    coors = points.new_zeros((voxels, 3), dtype=torch.int)
    counts, number = points.new_zeros(voxels, dtype=torch.int), torch.zeros((), dtype=torch.long)
    ext.hard_voxelize_forward(points, size, ends, out, coors, counts, number,
        max_points=most, max_voxels=voxels, NDim=3, deterministic=True)
    return out[:number], coors[:number], counts[:number]

def coordinates(points, size, ends):
    coors = points.new_zeros((len(points), 3), dtype=torch.int)
    ext.dynamic_voxelize_forward(points, torch.tensor(size), torch.tensor(ends), coors, NDim=3)
    return coors
""",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
