"""The definitions of the index pairs of a sparse convolution, and checks against them."""

from __future__ import annotations

import numpy as np

import turnout

__all__ = ["get_indice_pairs"]


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
        """The output site of this one under offset k, or None."""
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
    row_of = {site: row for row, site in enumerate(outputs)}  # the last of equal sites
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


CHECKS = {
    "get_indice_pairs": _check_get_indice_pairs,
}
