"""The operators in plain NumPy, slow and readable, and a check of the installed ones against them."""

from __future__ import annotations

import numpy as np

import turnout


def _wide(dtype):
    """The type that elements are computed in."""
    return np.float64 if dtype == np.float64 else np.float32


def moe_dispatch_forward(gates, indices, locations, input, capacity, num_experts, *, out=None):
    """The definition of ``turnout.moe_dispatch_forward``."""
    dispatch = out
    if dispatch is None:
        dispatch = np.zeros((num_experts * capacity, input.shape[1]), input.dtype)
    wide = _wide(input.dtype)
    routing = (np.atleast_2d(a) for a in (gates, indices, locations))  # [choices, samples]
    with np.errstate(all="ignore"):
        for gate_row, index_row, location_row in zip(*routing, strict=True):
            for i in range(input.shape[0]):
                expert, slot = int(index_row[i]), int(location_row[i])
                if 0 <= expert < num_experts and 0 <= slot < capacity:
                    product = gate_row[i].astype(wide) * input[i].astype(wide)
                    dispatch[expert * capacity + slot] = product.astype(input.dtype)
    return dispatch


def _check_moe_dispatch_forward(rng: np.random.Generator) -> None:
    choices, samples, hidden, capacity, num_experts = 2, 37, 19, 5, 3
    arguments = (
        rng.standard_normal((choices, samples)).astype(np.float32),
        rng.integers(-1, num_experts + 1, (choices, samples)),
        rng.integers(-1, capacity + 1, (choices, samples)),
        rng.standard_normal((samples, hidden)).astype(np.float32),
        capacity,
        num_experts,
    )
    np.testing.assert_array_equal(turnout.moe_dispatch_forward(*arguments), moe_dispatch_forward(*arguments))


def moe_re_routing(
    tokens, expert_token_num_per_rank, *, per_token_scales=None, expert_token_num_type=1, idx_type=0
):
    """The definition of ``turnout.moe_re_routing``."""
    counts = expert_token_num_per_rank
    ranks, experts = counts.shape
    permute_tokens = np.empty_like(tokens)
    permute_scales = None if per_token_scales is None else np.empty_like(per_token_scales)
    permute_token_idx = np.empty(len(tokens), np.int32)
    for r in range(ranks):
        for e in range(experts):
            source = counts[:r].sum() + counts[r, :e].sum()
            row = counts[:, :e].sum() + counts[:r, e].sum()
            for k in range(counts[r, e]):
                permute_tokens[row + k] = tokens[source + k]
                if permute_scales is not None:
                    permute_scales[row + k] = per_token_scales[source + k]
                if idx_type == 0:
                    permute_token_idx[row + k] = source + k
                else:
                    permute_token_idx[source + k] = row + k
    num = counts.sum(axis=0, dtype=counts.dtype)
    if expert_token_num_type == 0:
        num = np.cumsum(num, dtype=counts.dtype)
    return permute_tokens, permute_scales, permute_token_idx, num


def moe_re_routing_inverse(permute_tokens, permute_token_idx, *, idx_type=0):
    """The definition of ``turnout.moe_re_routing_inverse``."""
    tokens = np.empty_like(permute_tokens)
    for i, position in enumerate(permute_token_idx):
        if idx_type == 0:
            tokens[position] = permute_tokens[i]
        else:
            tokens[i] = permute_tokens[position]
    return tokens


def _check_moe_re_routing(rng: np.random.Generator) -> None:
    counts = rng.integers(0, 4, (5, 7))
    rows = int(counts.sum())
    arguments = rng.integers(-128, 128, (rows, 19), np.int8), counts
    for choice in (0, 1):
        options = {
            "per_token_scales": rng.standard_normal((rows, 3)).astype(np.float32),
            "expert_token_num_type": choice,
            "idx_type": choice,
        }
        results = turnout.moe_re_routing(*arguments, **options)
        for actual, expected in zip(results, moe_re_routing(*arguments, **options), strict=True):
            np.testing.assert_array_equal(actual, expected)


def _check_moe_re_routing_inverse(rng: np.random.Generator) -> None:
    arguments = rng.standard_normal((37, 19)), rng.permutation(37)
    for idx_type in (0, 1):
        actual = turnout.moe_re_routing_inverse(*arguments, idx_type=idx_type)
        np.testing.assert_array_equal(actual, moe_re_routing_inverse(*arguments, idx_type=idx_type))


def get_indice_pairs(
    indices,
    batch_size,
    spatial_shape,
    kernel_size=3,
    stride=1,
    padding=0,
    dilation=1,
    output_padding=0,
    *,
    subm=False,
    transpose=False,
):
    """The definition of ``turnout.get_indice_pairs``, for arguments that it accepts."""
    dims = indices.shape[1] - 1
    size, whole, s, p, t, add = (
        np.broadcast_to(value, dims).tolist()
        for value in (spatial_shape, kernel_size, stride, padding, dilation, output_padding)
    )
    kernel = [size[d] if whole[d] == -1 else whole[d] for d in range(dims)]
    if subm:
        p = [kernel[d] // 2 * t[d] for d in range(dims)]
        limit = size
    elif transpose:
        limit = [(size[d] - 1) * s[d] - 2 * p[d] + kernel[d] + add[d] for d in range(dims)]
    else:
        limit = [(size[d] + 2 * p[d] - t[d] * (kernel[d] - 1) - 1) // s[d] + 1 for d in range(dims)]
        limit = [1 if whole[d] == -1 else limit[d] for d in range(dims)]

    def output_of(site, k):
        """The site that this one meets under offset k; None if there is none."""
        n, *x = site
        output = [n]
        for d in range(dims):
            if transpose:
                o, rest = x[d] * s[d] - p[d] + k[d] * t[d], 0
            else:
                o, rest = divmod(x[d] + p[d] - k[d] * t[d], s[d])
            if rest != 0 or not 0 <= o < limit[d]:
                return None
            output.append(o)
        return tuple(output)

    sites = [tuple(site) for site in indices.tolist()]
    offsets = list(np.ndindex(*kernel))  # the last dimension fastest
    met = [[output_of(site, k) for site in sites] for k in offsets]
    outputs = sites if subm else sorted({site for row in met for site in row if site is not None})
    row_of = {site: row for row, site in enumerate(outputs)}  # of equal sites the last
    indice_pairs = np.full((len(offsets), 2, len(sites)), -1, np.int32)
    indice_num = np.zeros(len(offsets), np.int32)
    for k, row in enumerate(met):
        for i, site in enumerate(row):
            if site in row_of:
                indice_pairs[k, :, indice_num[k]] = i, row_of[site]
                indice_num[k] += 1
    return np.array(outputs, indices.dtype).reshape(-1, dims + 1), indice_pairs, indice_num


def _check_get_indice_pairs(rng: np.random.Generator) -> None:
    indices = np.stack([rng.integers(0, n, 60) for n in (2, 5, 6, 7)], axis=1).astype(np.int32)
    arguments = indices, 2, (5, 6, 7)
    for options in (
        {"stride": 2, "padding": (0, 1, 1)},
        {"dilation": (1, 2, 1), "subm": True},
        {"kernel_size": 2, "stride": 2, "output_padding": 1, "transpose": True},
    ):
        results = turnout.get_indice_pairs(*arguments, **options)
        for actual, expected in zip(results, get_indice_pairs(*arguments, **options), strict=True):
            np.testing.assert_array_equal(actual, expected)


def _log_add(x, y):
    if x < y:
        x, y = y, x
    return x + np.log1p(np.exp(y - x)) if y - x >= np.log(np.finfo(np.float64).eps) else x


def _boxes(px, py, boundary):
    if boundary is None:
        boundary = [(0, 0, px.shape[1], py.shape[2])] * len(px)
    for b, row in enumerate(boundary):
        s_begin, t_begin, s_end, t_end = map(int, row)
        if s_begin <= s_end and t_begin <= t_end:
            yield b, s_begin, t_begin, s_end, t_end


def mutual_information_forward(px, py, *, boundary=None):
    """The definition of ``turnout.mutual_information_forward``, in float64."""
    px, py = px.astype(np.float64), py.astype(np.float64)
    off = px.shape[2] == py.shape[2]  # modified: a symbol takes a frame as well
    p = np.full((len(px), px.shape[1] + 1, py.shape[2] + 1), -np.inf)
    ans = np.zeros(len(px))
    with np.errstate(all="ignore"):
        for b, s_begin, t_begin, s_end, t_end in _boxes(px, py, boundary):
            for s in range(s_begin, s_end + 1):
                for t in range(t_begin, t_end + 1):
                    symbol = blank = -np.inf
                    if s > s_begin and t - off >= t_begin:
                        symbol = p[b, s - 1, t - off] + px[b, s - 1, t - off]
                    if t > t_begin:
                        blank = p[b, s, t - 1] + py[b, s, t - 1]
                    is_start = s == s_begin and t == t_begin
                    p[b, s, t] = 0 if is_start else _log_add(symbol, blank)
            ans[b] = p[b, s_end, t_end]
    return p, ans


def mutual_information_backward(px, py, p, ans_grad, *, boundary=None):
    """The definition of ``turnout.mutual_information_backward``, in float64, and what overwrites ans_grad."""
    lowest, largest = p.dtype.type(-1e30).astype(np.float64), np.finfo(p.dtype).max
    px, py, p = (x.astype(np.float64) for x in (px, py, p))
    off = px.shape[2] == py.shape[2]
    px_grad, py_grad = np.zeros_like(px), np.zeros_like(py)
    reached = ans_grad.astype(np.float64)
    p = np.where(p < lowest, lowest, p)

    def weight(start, step, end):
        """Of two unreachable cells the order of the sum matters: -1e30 swallows what is added."""
        sum_ = start + step - end if start == end == lowest else start - end + step
        value = np.exp(sum_)
        return value if np.isfinite(sum_) and value <= largest else 0.0

    with np.errstate(all="ignore"):
        for b, s_begin, t_begin, s_end, t_end in _boxes(px, py, boundary):
            g = np.zeros(p.shape[1:])
            for s in range(s_end, s_begin - 1, -1):
                for t in range(t_end, t_begin - 1, -1):
                    if s == s_end and t == t_end:
                        g[s, t] = reached[b]
                    if s < s_end and t + off <= t_end:
                        term = weight(p[b, s, t], px[b, s, t], p[b, s + 1, t + off])
                        px_grad[b, s, t] = g[s + 1, t + off] * term
                        g[s, t] += px_grad[b, s, t]
                    if t < t_end:
                        term = weight(p[b, s, t], py[b, s, t], p[b, s, t + 1])
                        py_grad[b, s, t] = g[s, t + 1] * term
                        g[s, t] += py_grad[b, s, t]
            reached[b] = g[s_begin, t_begin]
    return px_grad, py_grad, reached


def mutual_information_forward_backward(px, py, *, boundary=None):
    """The definition of ``turnout.mutual_information_forward_backward``, in float64."""
    p, ans = mutual_information_forward(px, py, boundary=boundary)
    grads = mutual_information_backward(px, py, p, np.ones(len(px)), boundary=boundary)
    return ans, *grads[:2]


def _lattices(rng: np.random.Generator):
    """Arguments of both modes, with boundaries, of which one is empty, and with -inf."""
    for columns in (12, 11):
        px, py = (rng.uniform(-3, 0, shape).astype(np.float32) for shape in ((3, 6, columns), (3, 7, 11)))
        px[0, :, :4] = -np.inf
        yield (px, py), {"boundary": np.array([(0, 0, 6, 11), (1, 2, 5, 9), (3, 1, 2, 8)])}


def _check_mutual_information_forward(rng: np.random.Generator) -> None:
    for arguments, options in _lattices(rng):
        results = turnout.mutual_information_forward(*arguments, **options)
        for actual, expected in zip(results, mutual_information_forward(*arguments, **options), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def _check_mutual_information_backward(rng: np.random.Generator) -> None:
    for arguments, options in _lattices(rng):
        p = turnout.mutual_information_forward(*arguments, **options)[0]
        ans_grad = rng.standard_normal(3).astype(np.float32)
        expected = mutual_information_backward(*arguments, p, ans_grad, **options)
        results = turnout.mutual_information_backward(
            *arguments, p, ans_grad, **options, overwrite_ans_grad=True
        )
        for actual, wanted in zip((*results, ans_grad), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-6)


def _check_mutual_information_forward_backward(rng: np.random.Generator) -> None:
    for arguments, options in _lattices(rng):
        results = turnout.mutual_information_forward_backward(*arguments, **options)
        expected = mutual_information_forward_backward(*arguments, **options)
        for actual, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-6)


def voxelize(points, voxel_size, point_cloud_range, *, max_points=-1, max_voxels=-1):
    """The definition of ``turnout.voxelize``."""
    real = _wide(points.dtype)
    size, ends = (np.asarray(numbers, np.float64).astype(real) for numbers in (voxel_size, point_cloud_range))
    extent = (ends[3:] - ends[:3]) / size
    grid = np.trunc(extent) + (extent - np.trunc(extent) >= 0.5)  # rounded, halves away from zero
    with np.errstate(all="ignore"):
        cell = np.floor((points[:, :3].astype(real) - ends[:3]) / size)
    inside = ((cell >= 0) & (cell < grid)).all(axis=1)  # not so of NaN
    coors = np.full((len(points), 3), -1, np.int32)
    coors[inside] = cell[inside, ::-1]
    if max_points == -1 and max_voxels == -1:
        return coors

    kept = {}  # in the order of their first points
    for i in np.flatnonzero(inside):
        zyx = tuple(coors[i].tolist())
        if zyx in kept or len(kept) < max_voxels:
            kept.setdefault(zyx, []).append(i)
    voxels = np.zeros((len(kept), max_points, points.shape[1]), points.dtype)
    num = np.zeros(len(kept), np.int32)
    for v, rows in enumerate(kept.values()):
        num[v] = min(len(rows), max_points)
        voxels[v, : num[v]] = points[rows[: num[v]]]
    return voxels, np.array(list(kept), np.int32).reshape(-1, 3), num


def dynamic_scatter_forward(feats, coors, reduce_type="max"):
    """The definition of ``turnout.dynamic_scatter_forward``."""
    wide = _wide(feats.dtype)
    points_of = {}
    for i, row in enumerate(coors.tolist()):
        if min(row) >= 0:
            points_of.setdefault(tuple(row), []).append(i)
    voxels = sorted(points_of)
    voxel_feats = np.empty((len(voxels), feats.shape[1]), feats.dtype)
    point2voxel_map = np.full(len(coors), -1, np.int32)
    voxel_points_count = np.empty(len(voxels), np.int32)
    with np.errstate(all="ignore"):
        for v, row in enumerate(voxels):
            point2voxel_map[points_of[row]] = v
            voxel_points_count[v] = len(points_of[row])
            reduced = np.full(feats.shape[1], -np.inf if reduce_type == "max" else 0, wide)
            for i in points_of[row]:
                x = feats[i].astype(wide)
                reduced = np.where(x > reduced, x, reduced) if reduce_type == "max" else reduced + x
            if reduce_type == "mean":
                reduced = reduced / wide(voxel_points_count[v])
            voxel_feats[v] = reduced.astype(feats.dtype)
    voxel_coors = np.array(voxels, coors.dtype).reshape(-1, coors.shape[1])
    return voxel_feats, voxel_coors, point2voxel_map, voxel_points_count


def dynamic_scatter_backward(
    grad_voxel_feats, feats, voxel_feats, point2voxel_map, voxel_points_count, reduce_type="max"
):
    """The definition of ``turnout.dynamic_scatter_backward``."""
    dtype, wide = grad_voxel_feats.dtype, _wide(grad_voxel_feats.dtype)
    grad_feats = np.zeros((len(point2voxel_map), grad_voxel_feats.shape[1]), dtype)
    given = np.zeros(grad_voxel_feats.shape, np.bool_)  # the gradient of a maximum goes to one point
    with np.errstate(all="ignore"):
        for i, v in enumerate(point2voxel_map):
            if v < 0:
                continue
            grad = grad_voxel_feats[v]
            if reduce_type == "mean":
                grad = (grad.astype(wide) / wide(voxel_points_count[v])).astype(dtype)
            elif reduce_type == "max":
                takes = (feats[i] == voxel_feats[v]) & ~given[v]
                given[v] |= takes
                grad = np.where(takes, grad, dtype.type(0))
            grad_feats[i] = grad
    return grad_feats


def _check_voxelize(rng: np.random.Generator, **limits) -> None:
    arguments = rng.uniform(-1, 5, (60, 4)).astype(np.float32), (0.5, 0.7, 4), (0, 0, -1, 4, 4, 3)
    actual, expected = (f(*arguments, **limits) for f in (turnout.voxelize, voxelize))
    for one, wanted in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, wanted)


def _check_voxelize_hard(rng: np.random.Generator) -> None:
    _check_voxelize(rng, max_points=2, max_voxels=20)


def _scattered(rng: np.random.Generator):
    """Arguments of each reduction, with equal features and points in no voxel."""
    for reduce_type in ("max", "mean", "sum"):
        feats = rng.integers(-3, 4, (60, 19)).astype(np.float32)
        yield feats, rng.integers(-1, 3, (60, 3)).astype(np.int32), reduce_type


def _check_dynamic_scatter_forward(rng: np.random.Generator) -> None:
    for arguments in _scattered(rng):
        results = turnout.dynamic_scatter_forward(*arguments)
        for actual, expected in zip(results, dynamic_scatter_forward(*arguments), strict=True):
            np.testing.assert_array_equal(actual, expected)


def _check_dynamic_scatter_backward(rng: np.random.Generator) -> None:
    for feats, coors, reduce_type in _scattered(rng):
        voxel_feats, _, *index = turnout.dynamic_scatter_forward(feats, coors, reduce_type)
        grad = rng.standard_normal(voxel_feats.shape).astype(np.float32)
        arguments = grad, feats, voxel_feats, *index, reduce_type
        actual = turnout.dynamic_scatter_backward(*arguments)
        np.testing.assert_array_equal(actual, dynamic_scatter_backward(*arguments))


CHECKS = {
    "dynamic_scatter_backward": _check_dynamic_scatter_backward,
    "dynamic_scatter_forward": _check_dynamic_scatter_forward,
    "get_indice_pairs": _check_get_indice_pairs,
    "moe_dispatch_forward": _check_moe_dispatch_forward,
    "moe_re_routing": _check_moe_re_routing,
    "moe_re_routing_inverse": _check_moe_re_routing_inverse,
    "mutual_information_backward": _check_mutual_information_backward,
    "mutual_information_forward": _check_mutual_information_forward,
    "mutual_information_forward_backward": _check_mutual_information_forward_backward,
    "voxelize": _check_voxelize,
    "voxelize_hard": _check_voxelize_hard,
}
