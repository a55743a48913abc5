"""Points of a scan with NumPy: samples that cover it, their neighbours, and features for all points."""

import numpy as np

import turnout

random = np.random.default_rng(0)
# A wall, the ground and a sphere, with a centimetre of noise
wall = random.uniform([0, 10, 0], [20, 10, 5], (4000, 3))
ground = random.uniform([0, 0, 0], [20, 10, 0], (10000, 3))
sphere = random.normal(size=(2000, 3))
sphere = [10, 5, 1] + sphere / np.linalg.norm(sphere, axis=1, keepdims=True)
xyz = np.concatenate([wall, ground, sphere]) + random.normal(0, 0.01, (16000, 3))
xyz = random.permutation(xyz).astype(np.float32)

centres = xyz[turnout.furthest_point_sample(xyz, 1024)]
idx, found = turnout.ball_query(xyz, centres, 0.3, 32)
print(f"{len(centres)} samples, {found.mean():.1f} of 32 neighbours found on average")

# How flat the surface is around each sample: the least eigenvalue of its neighbours' covariances
near = xyz[idx] - xyz[idx].mean(axis=1, keepdims=True)
flatness = np.linalg.eigvalsh(np.einsum("csi,csj->cij", near, near))[:, 0].astype(np.float32)

# Each point gets the mean of the three samples that are nearest, weighted by distance
dist2, nearest = turnout.three_nn(xyz, centres)
weights = 1 / (np.sqrt(dist2) + 1e-8)
of_points = (flatness[nearest] * weights).sum(axis=1) / weights.sum(axis=1)
on_sphere = np.abs(np.linalg.norm(xyz - np.float32([10, 5, 1]), axis=1) - 1) < 0.05
ratio = np.median(of_points[on_sphere]) / np.median(of_points[~on_sphere])
print(f"the sphere is {ratio:.0f} times less flat than the rest")
assert found.min() >= 1
assert ratio > 5

# Output:
#   1024 samples, 13.8 of 32 neighbours found on average
#   the sphere is 6 times less flat than the rest
