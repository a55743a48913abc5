"""Features of neighbours with NumPy: the largest of each neighbourhood, and back to all points."""

import numpy as np

import turnout

random = np.random.default_rng(0)
xyz = random.uniform(0, 10, (1, 4096, 3)).astype(np.float32)
features = random.normal(size=(1, 16, 4096)).astype(np.float32)  # [batch, channels, points]

# A layer of PointNet++ without its network: neighbours of samples, their features, and the maximum of each
chosen = turnout.furthest_point_sample(xyz, 512)
centres = turnout.gather_points(xyz.transpose(0, 2, 1).copy(), chosen).transpose(0, 2, 1).copy()
idx, _ = turnout.ball_query(xyz, centres, 0.8, 16)
grouped = turnout.group_points(features, idx)
pooled = grouped.max(axis=3)
print(f"grouped {list(grouped.shape)}, pooled {list(pooled.shape)}")

# Its counterpart: each point gets the features of the three nearest samples, weighted by distance
dist2, nearest = turnout.three_nn(xyz, centres)
weights = 1 / (np.sqrt(dist2) + 1e-8)
weights /= weights.sum(axis=2, keepdims=True)
back = turnout.three_interpolate(pooled, nearest, weights.astype(np.float32))
print(f"interpolated {list(back.shape)}")
assert np.array_equal(grouped[0, :, 7, 3], features[0, :, idx[0, 7, 3]])
assert np.allclose(back[0][:, chosen[0]], pooled[0], atol=1e-3)  # a sample is nearest to itself

# Output:
#   grouped [1, 16, 512, 16], pooled [1, 16, 512]
#   interpolated [1, 16, 4096]
