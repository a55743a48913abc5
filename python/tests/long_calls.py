"""Calls that take about a second, one for each kind of loop, with arguments that need little memory.

Each function returns a call without arguments. `scale` multiplies its time.
"""

import numpy as np

import turnout


def dot_products(scale):
    """Loops over ranges of tokens."""
    choices, samples, hidden = 96 * scale, 12_000, 2048
    slots = np.zeros((choices, samples), np.int32)
    tokens, row = np.ones((samples, hidden), np.float32), np.ones((1, hidden), np.float32)
    return lambda: turnout.moe_dispatch_backward_gate(slots, slots, tokens, row, 1, 1)


def pairs(scale):
    """Loops over tasks of the pair search, many for each row offset of the kernel."""
    rng = np.random.default_rng(1)
    rows = 100_000 * scale
    sites = np.concatenate([np.zeros((rows, 1), np.int32), rng.integers(0, 200, (rows, 3), np.int32)], 1)
    return lambda: turnout.get_indice_pairs(sites, 1, [200, 200, 200], 9, 1, 4)


def _convolution(scale):
    rows, offsets, channels = 20_000 * scale, 27, 256
    both = np.broadcast_to(np.arange(rows, dtype=np.int32), (offsets, 2, rows)).copy()
    counts = np.full(offsets, rows, np.int32)
    features = np.ones((rows, channels), np.float32)
    filters = np.ones((offsets, channels, channels), np.float32)
    return features, filters, both, counts, rows


def convolution(scale):
    """Loops over blocks of output rows."""
    features, filters, both, counts, rows = _convolution(scale)
    return lambda: turnout.indice_convolution_forward(features, filters, both, counts, rows)


def filter_gradient(scale):
    """Loops over one long range per group of offsets."""
    features, _, both, counts, _ = _convolution(scale)
    return lambda: turnout.indice_convolution_backward_filter(features, features, both, counts)


def lattice(scale):
    """One range per lattice: a lattice with a NaN is computed cell by cell."""
    symbols, frames = 300 * scale, 40_000
    px, py = np.zeros((1, symbols, frames + 1), np.float32), np.zeros((1, symbols + 1, frames), np.float32)
    p = np.zeros((1, symbols + 1, frames + 1), np.float32)
    return lambda: turnout.mutual_information_backward(px, py, p, np.float32([np.nan]))


def sorted_rows(scale):
    """Sorts on one thread: the coordinates are too far apart to be packed into 64 bits."""
    rng = np.random.default_rng(1)
    points = 2_000_000 * scale
    coordinates = rng.integers(0, 2**60, (points, 3), np.int64)
    features = np.ones((points, 1), np.float32)
    return lambda: turnout.dynamic_scatter_forward(features, coordinates, "sum")


def suppression(scale):
    """Blocks of boxes that all overlap, and of which none suppresses another."""
    boxes = np.random.default_rng(1).uniform(1, 2, (6000 * scale, 7)).astype(np.float32)
    return lambda: turnout.nms3d(boxes, None, 9.0)


def points_in_large_boxes(scale):
    """Boxes without bounds, which each point is compared with."""
    boxes = np.tile(np.float32([1e9, 0, 0, 1, np.inf, 1, 0]), (1000, 1))
    points = np.zeros((500_000 * scale, 3), np.float32)
    return lambda: turnout.points_in_boxes(points, boxes)


ALL = [dot_products, pairs, convolution, filter_gradient, lattice, sorted_rows]


def sampling(scale):
    """One cloud on one thread."""
    xyz = np.random.default_rng(1).uniform(0, 40, (1_000_000 * scale, 3)).astype(np.float32)
    return lambda: turnout.furthest_point_sample(xyz, 200_000)


def nearest_points(scale):
    """Blocks of queries, for each of which many points are near."""
    xyz = np.random.default_rng(1).normal(size=(20_000 * scale, 3)).astype(np.float32)
    return lambda: turnout.knn(xyz, xyz, 200)


ALL += [suppression, points_in_large_boxes, sampling, nearest_points]
