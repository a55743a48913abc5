"""Groups points into pillars with NumPy: finds the pillar of each point and the maximum of each pillar."""

import numpy as np

import turnout

random = np.random.default_rng(0)
points = random.uniform([-10, -10, 0, 0], [50, 50, 3, 1], (20_000, 4)).astype(
    np.float32
)  # x, y, z, reflectance
coors = turnout.voxelize(points, [0.5, 0.5, 3.0], [0, 0, 0, 40, 40, 3])  # z, y, x of each point's pillar
pillars, pillar_coors, pillar_of, count = turnout.dynamic_scatter_forward(points, coors, "max")

outside = int((pillar_of < 0).sum())
print(f"{len(points)} points, {outside} of them out of range, in {len(pillars)} pillars")
print(f"the fullest pillar, {pillar_coors[count.argmax()].tolist()}, has {count.max()} points")
assert count.sum() + outside == len(points)
assert np.array_equal(pillars[7], points[pillar_of == 7].max(axis=0))

# Output:
#   20000 points, 11175 of them out of range, in 4801 pillars
#   the fullest pillar, [0, 3, 9], has 8 points
