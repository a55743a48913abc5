"""Shared by the tests of mutual information: lattices, and a definition fast enough for large ones."""

import numpy as np

MODES = {"regular": 1, "modified": 0}  # columns of px beyond the frames


def steps(rng, batch, symbols, frames, mode="regular", dtype=np.float32, low=-3.0):
    """Draws px and py, log-probabilities above `low`."""
    shapes = (batch, symbols, frames + MODES[mode]), (batch, symbols + 1, frames)
    return tuple(rng.uniform(low, 0, shape).astype(dtype) for shape in shapes)


def prune(px, py, width):
    """Sets -inf outside a band of `width` symbols around the diagonal, like pruned losses."""
    for x in (px, py):
        symbols, frames = np.indices(x.shape[1:])
        centre = frames * (px.shape[1] / max(py.shape[2], 1))
        x[:, abs(symbols - centre) > width / 2] = -np.inf


def boundaries(rng, batch, symbols, frames):
    """Cycles through the kinds: any box, the whole, one cell, one row, one column, the corner, empty."""
    rows = []
    for b in range(batch):
        s, t = np.sort(rng.integers(0, symbols + 1, 2)), np.sort(rng.integers(0, frames + 1, 2))
        rows.append(
            [
                (s[0], t[0], s[1], t[1]),
                (0, 0, symbols, frames),
                (s[0], t[0], s[0], t[0]),
                (s[0], t[0], s[0], t[1]),
                (s[0], t[0], s[1], t[0]),
                (symbols, frames, symbols, frames),
                (s[1], t[0], s[0] - (s[0] == s[1] and s[0] > 0), t[1]),
            ][b % 7]
        )
    return np.array(rows, np.int64).reshape(batch, 4)


def forward64(px, py):
    """Computes p of whole lattices in float64, one anti-diagonal of all lattices at a time."""
    px, py = px.astype(np.float64), py.astype(np.float64)
    symbols, frames, off = px.shape[1], py.shape[2], int(px.shape[2] == py.shape[2])
    p = np.full((len(px), symbols + 1, frames + 1), -np.inf)
    p[:, 0, 0] = 0
    for d in range(1, symbols + frames + 1):
        s = np.arange(max(0, d - frames), min(symbols, d) + 1)
        t = d - s
        terms = np.full((2, len(px), len(s)), -np.inf)
        has = (s > 0) & (t >= off)
        terms[0][:, has] = p[:, s[has] - 1, t[has] - off] + px[:, s[has] - 1, t[has] - off]
        has = t > 0
        terms[1][:, has] = p[:, s[has], t[has] - 1] + py[:, s[has], t[has] - 1]
        p[:, s, t] = np.logaddexp(*terms)
    return p


def backward64(px, py, p, ans_grad):
    """Computes gradients the same way. Requires p without NaN, and no overflow."""
    lowest = p.dtype.type(-1e30).astype(np.float64)
    px, py, p = (x.astype(np.float64) for x in (px, py, np.maximum(p, p.dtype.type(-1e30))))
    symbols, frames, off = px.shape[1], py.shape[2], int(px.shape[2] == py.shape[2])

    def weights(start, step, end):
        unreachable = (start == lowest) & (end == lowest)
        return np.exp(np.where(unreachable, start + step - end, start - end + step))

    x = weights(p[:, :-1, : px.shape[2]], px, p[:, 1:, off:])
    y = weights(p[:, :, :-1], py, p[:, :, 1:])
    g = np.zeros(p.shape)
    g[:, symbols, frames] = ans_grad
    for d in range(symbols + frames - 1, -1, -1):
        s = np.arange(max(0, d - frames), min(symbols, d) + 1)
        t = d - s
        has = (s < symbols) & (t + off <= frames)
        x[:, s[has], t[has]] *= g[:, s[has] + 1, t[has] + off]
        g[:, s[has], t[has]] += x[:, s[has], t[has]]
        has = t < frames
        y[:, s[has], t[has]] *= g[:, s[has], t[has] + 1]
        g[:, s[has], t[has]] += y[:, s[has], t[has]]
    return x, y


def diff1(actual, expected):
    """Returns mean error / mean magnitude. Values that are not finite must be equal."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    assert np.isfinite(actual[finite]).all()
    actual, expected = actual[finite], expected[finite]
    return abs(actual - expected).sum() / (abs(expected).sum() + 1e-9)
