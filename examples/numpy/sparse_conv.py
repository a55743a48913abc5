"""Computes a sparse convolution with NumPy: the index pairs of a scan's voxels, then the convolution."""

import numpy as np

import turnout

random = np.random.default_rng(0)
shape = (8, 64, 64)
cells = np.unique(random.integers(0, shape, (3000, 3)), axis=0).astype(np.int32)
sites = np.concatenate([np.zeros((len(cells), 1), np.int32), cells], axis=1)  # batch, z, y, x
features = random.standard_normal((len(sites), 8), dtype=np.float32)
filters = random.standard_normal((27, 8, 16), dtype=np.float32) / 15

out_sites, pairs, num = turnout.get_indice_pairs(sites, 1, shape, kernel_size=3, stride=2, padding=1)
out = turnout.indice_convolution_forward(features, filters, pairs, num, len(out_sites))
print(f"{len(sites)} sites, {num.sum()} pairs, {len(out_sites)} outputs of {out.shape[1]} channels")

# Check one output: sum over the inputs in its window.
at = len(out_sites) // 2
expected = np.zeros(16, np.float32)
for k, offset in enumerate(np.ndindex(3, 3, 3)):
    where = 2 * out_sites[at, 1:] + offset - 1
    for i in np.flatnonzero((sites[:, 1:] == where).all(axis=1)):
        expected += features[i] @ filters[k]
assert np.allclose(out[at], expected, atol=1e-4)

# Output:
#   2857 sites, 8767 pairs, 3629 outputs of 16 channels
