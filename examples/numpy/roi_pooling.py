"""Pooling of the points in boxes with NumPy: a grid of features for each box, and a sample of its points."""

import numpy as np

import turnout

random = np.random.default_rng(0)
boxes = np.array([[10, 0, 1, 4, 2, 2, 0.3], [20, 5, 1, 4, 2, 2, 1.2], [90, 90, 1, 4, 2, 2, 0]], np.float32)
points = random.uniform([5, -5, 0], [25, 10, 2], (20000, 3)).astype(np.float32)
features = random.normal(size=(20000, 8)).astype(np.float32)

# 6 x 3 x 2 cells in the directions of each box, with the largest features of their points
pooled = turnout.roiaware_pool3d(boxes, points, features, [6, 3, 2])
print(f"pooled {list(pooled.shape)}, {np.count_nonzero(pooled.any(axis=4))} cells with points")

# The first 128 points of each box, repeated if there are fewer
sampled, empty = turnout.roipoint_pool3d(points[None], features[None], boxes[None], 128)
inside = turnout.points_in_boxes(points, boxes)
print(f"sampled {list(sampled.shape)}, empty {empty[0].tolist()}")
first = np.flatnonzero(inside == 0)
assert np.array_equal(sampled[0, 0, :50, :3], points[first[:50]])
assert not pooled[2].any()

# Output:
#   pooled [3, 6, 3, 2, 8], 72 cells with points
#   sampled [1, 3, 128, 11], empty [0, 0, 1]
