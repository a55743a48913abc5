"""The scales of index pairs (design document 001) and of the convolutions that use them."""

from __future__ import annotations

from functools import cache

import numpy as np

import turnout
from turnout import check
from turnout.check.scales.case import Cases, Data

cases = Cases("001")


def _sites(count: int, batch: int, space: tuple[int, int, int]) -> np.ndarray:
    """Returns distinct sites near the ground of a round scene, in the scan order of a rotating sensor."""
    random = np.random.default_rng(0)
    depth, *sides = space
    per_frame, frames = count // batch, []
    # A third of the cells within the sensor's reach are occupied, as where beams are dense.
    reach = min(np.sqrt(3 * per_frame / np.pi), min(sides) / 2 - 1)
    for n in range(batch):
        turn = np.sort(random.uniform(0, 2 * np.pi, 6 * per_frame))
        away = reach * np.sqrt(random.random(len(turn)))
        y, x = (away * f(turn) + side / 2 for f, side in zip((np.sin, np.cos), sides, strict=True))
        z = depth / 3 + 2 * np.sin(x / 40) + random.normal(0, 0.4, len(turn))
        sites = np.stack((z, y, x), axis=1).astype(np.int64)
        _, first = np.unique(np.ravel_multi_index(tuple(sites.T), space), return_index=True)
        frames.append(np.insert(sites[np.sort(first)[:per_frame]], 0, n, axis=1))
    return np.concatenate(frames).astype(np.int32)


def _pairs(indices, batch, space, stride, padding, subm):
    """The definition for a 3x3x3 kernel with array operations; turnout.check loops over sites in Python."""
    limit = (np.array(space) + 2 * np.array(padding) - 3) // stride + 1
    full = (batch, *limit)
    keys = []
    for offset in np.ndindex(3, 3, 3):
        moved = indices[:, 1:].astype(np.int64) + padding - np.array(offset)
        valid = np.all((moved >= 0) & (moved % stride == 0) & (moved // stride < limit), axis=1)
        outputs = np.where(valid[:, None], moved // stride, 0)
        keys.append(np.where(valid, np.ravel_multi_index((indices[:, 0], *outputs.T), full), -1))
    active = np.ravel_multi_index(tuple(indices.T), full) if subm else np.unique(keys)
    active = active[active >= 0]
    order = np.argsort(active)
    pairs = np.full((27, 2, len(indices)), -1, np.int32)
    counts = np.zeros(27, np.int32)
    for k, key in enumerate(keys):
        at = np.minimum(np.searchsorted(active[order], key), len(active) - 1)
        rows = np.flatnonzero(active[order][at] == key)
        counts[k] = len(rows)
        pairs[k, :, : len(rows)] = rows, order[at[rows]]
    return np.stack(np.unravel_index(active, full), axis=1).astype(np.int32), pairs, counts


_EXACT = {"out_indices": 0.0, "indice_pairs": 0.0, "indice_num": 0.0}


def _named_scale(count: int, space: tuple[int, int, int], stride: int, padding, subm: bool) -> Data:
    batch, options = 4, {"kernel_size": 3, "stride": stride, "padding": padding, "subm": subm}
    indices = _sites(count, batch, space)
    out = turnout.get_indice_pairs(indices, batch, space, **options)
    return Data(
        f"indices {len(indices)} x 4, batch 4, space {space}, kernel 3, stride {stride}, padding {padding}",
        lambda: turnout.get_indice_pairs(indices, batch, space, **options, out=out),
        lambda: _pairs(indices, batch, space, stride, padding, subm),
        _EXACT,
        bytes_moved=indices.nbytes + sum(x.nbytes for x in out),
    )


@cases.add("get_indice_pairs", "network scale, submanifold")
def _subm() -> Data:
    return _named_scale(248636, (41, 1440, 1440), 1, (1, 1, 1), True)


@cases.add("get_indice_pairs", "network scale, sparse")
def _sparse() -> Data:
    return _named_scale(149100, (11, 360, 360), 2, (0, 1, 1), False)


def _small(indices: list[tuple[int, ...]], batch: int, space: tuple[int, ...], **options) -> Data:
    sites = np.array(indices, np.int32)
    return Data(
        f"indices {len(sites)} x 4, batch {batch}, space {space}",
        lambda: turnout.get_indice_pairs(sites, batch, space, **options),
        lambda: check.get_indice_pairs(sites, batch, space, **options),
        _EXACT,
    )


@cases.add("get_indice_pairs", "boundary: large output index")
def _large_index() -> Data:
    """The last output index of a 1290^3 grid is 2^31 - 794,649."""
    far = 1290 - 1
    return _small([(0, far, far, far), (0, far - 1, far, far - 2), (0, 0, 0, 0)], 1, (1290,) * 3, padding=1)


@cases.add("get_indice_pairs", "boundary: coordinates next to both bounds")
def _bounds() -> Data:
    ends = [(n, z, y, x) for n in (0, 3) for z in (0, 1, 9, 10) for y in (0, 359) for x in (0, 359)]
    return _small(ends, 4, (11, 360, 360), stride=2, padding=(0, 1, 1))


@cache
def _layer() -> tuple[np.ndarray, np.ndarray, int]:
    """Returns the pairs of the submanifold scale and their number, the multiply-adds per channel pair."""
    indices = _sites(248636, 4, (41, 1440, 1440))
    _, pairs, num = turnout.get_indice_pairs(indices, 4, (41, 1440, 1440), padding=1, subm=True)
    return pairs, num, int(num.sum())


def _convolution(op: str, channels: int = 16) -> Data:
    pairs, num, count = _layer()
    rows, random = pairs.shape[2], np.random.default_rng(2)
    features, grad = (random.standard_normal((rows, channels), dtype=np.float32) for _ in range(2))
    filters = random.standard_normal((27, channels, channels), dtype=np.float32)
    arguments, result = {
        "indice_convolution_forward": ((features, filters, pairs, num, rows), "features_out"),
        "indice_convolution_backward_data": ((grad, filters, pairs, num, rows), "input_grad"),
        "indice_convolution_backward_filter": ((features, grad, pairs, num), "filters_grad"),
    }[op]
    run, define = getattr(turnout, op), getattr(check, op)

    def by_torch():
        import torch

        x, w = torch.from_numpy(features), torch.from_numpy(filters)
        ends = [torch.from_numpy(pairs[k, :, : num[k]]).long() for k in range(27)]

        def program() -> np.ndarray:
            total = torch.zeros(rows, channels)
            for k, (i, o) in enumerate(ends):
                total.index_add_(0, o, x[i] @ w[k])
            return total.numpy()

        return program

    out = run(*arguments)
    return Data(
        f"{rows} rows, {count} pairs, {channels} to {channels} channels",
        lambda: run(*arguments, out=out),
        lambda: define(*arguments),
        {result: 1e-5},
        operations=2 * count * channels * channels,
        torch=by_torch if op.endswith("forward") else None,
    )


@cases.add("indice_convolution_forward", "at the submanifold scale")
def _forward() -> Data:
    return _convolution("indice_convolution_forward")


@cases.add("indice_convolution_backward_data", "at the submanifold scale")
def _backward_data() -> Data:
    return _convolution("indice_convolution_backward_data")


@cases.add("indice_convolution_backward_filter", "at the submanifold scale")
def _backward_filter() -> Data:
    return _convolution("indice_convolution_backward_filter")


@cases.add("indice_convolution_backward_data", "MLU-OPS case 0")
def _shipped() -> Data:
    """Pairs are random, so an offset may repeat a row; its gradients are added."""
    random = np.random.default_rng(3)
    arguments = (
        random.standard_normal((10, 100), dtype=np.float32),
        random.standard_normal((3, 3, 210, 100), dtype=np.float32),
        random.integers(0, 9, (9, 2, 10), dtype=np.int32),
        np.full(9, 10, np.int32),
        10,
    )
    return Data(
        "output gradient 10 x 100, filters 3 x 3 x 210 x 100, pairs 9 x 2 x 10",
        lambda: turnout.indice_convolution_backward_data(*arguments),
        lambda: check.indice_convolution_backward_data(*arguments),
        {"input_grad": 1e-5},
    )
