"""Boxes of a detector with NumPy: suppression, overlaps with the true boxes, and points in boxes."""

import numpy as np

import turnout

random = np.random.default_rng(0)
# x, y, z, dx, dy, dz, heading of 40 parked cars; a network finds each of them 50 times
x, y = np.meshgrid(np.arange(5) * 8.0, np.arange(8) * 4.0)
truth = np.zeros((40, 7), np.float32)
truth[:, 0], truth[:, 1] = x.ravel(), y.ravel()
truth[:, 3:] = 4.2, 1.8, 1.6, 0.3
found = np.repeat(truth, 50, axis=0)
found += random.normal(0, [0.15, 0.15, 0.05, 0.1, 0.05, 0.05, 0.05], found.shape).astype(np.float32)
scores = 1 / (1 + np.abs(found - np.repeat(truth, 50, axis=0)).sum(axis=1))  # the nearer, the better

kept = turnout.nms3d(found, scores, 0.1)
iou = turnout.boxes_iou3d(found[kept], truth)
print(f"{len(found)} boxes, {len(kept)} of them kept; least IoU with a true box {iou.max(axis=1).min():.2f}")

points = random.uniform([-4, -4, -2], [40, 34, 2], (100_000, 3)).astype(np.float32)
car = turnout.points_in_boxes(points, truth)
counts = np.bincount(car[car >= 0], minlength=len(truth))
print(f"{(car >= 0).mean():.1%} of the points are in a car; each has {counts.min()} to {counts.max()}")
assert len(kept) == len(truth)
assert sorted(iou.argmax(axis=1)) == list(range(40))
assert iou.max(axis=1).min() > 0.7
assert counts.min() > 100

# Output:
#   2000 boxes, 40 of them kept; least IoU with a true box 0.82
#   7.2% of the points are in a car; each has 156 to 204
