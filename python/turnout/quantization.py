"""Rounds the weights of experts to 8 or 4 bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["check_shape", "quantize_each"]


def check_shape(shape: tuple[int, ...], bits: int) -> None:
    """Raises if weights of this shape cannot be rounded to this many bits."""
    if len(shape) != 3:
        raise ValueError(
            f"quantize_experts: weight has {len(shape)} dimensions, expected 3: [experts, rows, depth]"
        )
    if bits not in (8, 4):
        raise ValueError(f"quantize_experts: bits is {bits!r}, expected 8 or 4")
    if bits == 4 and shape[2] % 32:
        raise ValueError(
            f"quantize_experts: weight.shape[2] is {shape[2]}, expected a multiple of 32 for 4 bits"
        )


def quantize_each(
    shape: tuple[int, ...], of_expert: Callable[[int], np.ndarray], bits: int
) -> tuple[np.ndarray, np.ndarray]:
    """:func:`quantize_experts` for weights that a function returns in float32, one expert at a time."""
    check_shape(shape, bits)
    experts, rows, depth = shape
    values = np.empty((experts, rows, depth if bits == 8 else depth // 2), np.int8 if bits == 8 else np.uint8)
    scale = np.empty((experts, rows, 1 if bits == 8 else depth // 32), np.float32)
    for expert in range(experts):
        values[expert], scale[expert] = (
            _to_8_bits(of_expert(expert)) if bits == 8 else _to_4_bits(of_expert(expert))
        )
        if not np.isfinite(scale[expert]).all():
            raise ValueError(f"quantize_experts: weight[{expert}] has a value that is not finite")
    return values, scale


def _rounded(weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # for values that are not finite, which the caller rejects
        return np.rint(weight / np.where(scale == 0, 1, scale))


def _to_8_bits(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = np.abs(weight).max(axis=1, keepdims=True, initial=0) / np.float32(127)
    return np.nan_to_num(_rounded(weight, scale)), scale


def _to_4_bits(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows, depth = weight.shape
    groups = weight.reshape(rows, depth // 32, 32)
    scale = np.take_along_axis(groups, np.abs(groups).argmax(axis=2, keepdims=True), axis=2) / np.float32(-8)
    bits = (np.nan_to_num(_rounded(groups, scale)).clip(-8, 7) + 8).astype(np.uint8)
    return (bits[..., :16] | bits[..., 16:] << 4).reshape(rows, depth // 2), scale[..., 0]
