"""Records results of mmcv's operators for the CPU, with which python/tests/test_boxes.py compares.

`python bench/boxes/record_mmcv.py` writes python/tests/data/boxes_mmcv.npz. The inputs are stored, too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from boxes import mmcv_peer

FILE = Path(__file__).resolve().parents[2] / "python/tests/data/boxes_mmcv.npz"
THRESHOLDS = (0.05, 0.3, 0.6)


def main() -> None:
    mmcv = mmcv_peer.load()
    random = np.random.default_rng(0)

    def boxes(count: int) -> np.ndarray:
        low, high = [-8, -8, 0, 0.6, 0.6, 1, -4], [8, 8, 2, 5, 3, 2, 4]
        return random.uniform(low, high, (count, 7)).astype(np.float32)

    a, b = (boxes(50)[:, [0, 1, 3, 4, 6]].copy() for _ in range(2))
    recorded = {"rotated_a": a, "rotated_b": b}
    for number, mode in enumerate(("iou", "iof")):
        for aligned in (False, True):
            out = torch.zeros(50 if aligned else 2500)
            mmcv.box_iou_rotated(torch.from_numpy(a), torch.from_numpy(b), out, number, aligned)
            name = f"rotated_{mode}{'_aligned' if aligned else ''}"
            recorded[name] = out.numpy().reshape(-1 if aligned else (50, 50))

    many = boxes(200)
    scores = random.permutation(200).astype(np.float32)  # no two are equal: mmcv's sort is not stable
    flat, half = many[:, [0, 1, 3, 4, 6]].copy(), many[:, 3:5] / 2
    upright = np.hstack([many[:, :2] - half, many[:, :2] + half])
    recorded |= {"rotated": flat, "upright": upright, "scores": scores, "thresholds": np.array(THRESHOLDS)}
    order = torch.from_numpy(np.argsort(-scores).copy())
    for number, threshold in enumerate(THRESHOLDS):
        tensors = torch.from_numpy(flat), torch.from_numpy(scores), order, torch.from_numpy(flat)[order]
        kept = mmcv.nms_rotated(*tensors, torch.zeros(0), threshold, 0)
        recorded[f"nms_rotated_{number}"] = kept.numpy()
        for offset in (0, 1):
            kept = mmcv.nms(torch.from_numpy(upright), torch.from_numpy(scores), threshold, offset)
            recorded[f"nms_{number}_{offset}"] = kept.numpy()

    points = random.uniform([-9, -9, -0.5], [9, 9, 4], (2000, 3)).astype(np.float32)
    inside = torch.zeros(50, 2000, dtype=torch.int32)
    mmcv.points_in_boxes_cpu_forward(torch.from_numpy(many[:50].copy()), torch.from_numpy(points), inside)
    recorded |= {"boxes": many[:50], "points": points, "inside": np.packbits(inside.numpy().astype(bool))}
    np.savez_compressed(FILE, **recorded)
    print(f"{FILE}: {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
