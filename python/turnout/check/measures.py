"""Measures how far a result is from its definition: diff1, diff2 and diff3 of MLU-OPS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Added to denominators, so that the measures are defined for a baseline of zeros.
_TINY = 1e-9
# Where the baseline is smaller than this, diff3 is an absolute error.
_SMALL = {"float32": 1e-6, "float16": 1e-4}


@dataclass(frozen=True)
class Differences:
    """All are NaN if the arrays do not have NaN and infinities at the same positions."""

    diff1: float  # sum |e - b| / sum |b|
    diff2: float  # sqrt(sum (e - b)^2 / sum b^2)
    diff3: float  # max |e - b| / |b|; an absolute error where b is small

    def within(self, limit: float) -> bool:
        """Whether a result passes. A limit of 0 requires equal values; others bound diff1 and diff2."""
        if limit == 0:
            return self.diff3 == 0
        return self.diff1 <= limit and self.diff2 <= limit


def differences(evaluated: np.ndarray, baseline: np.ndarray) -> Differences:
    """Returns the measures of one output.

    Elements are equal where both arrays have NaN or the same infinity; the finite elements are compared. Any
    other value that is not finite makes all measures NaN, which exceeds every limit.
    """
    if evaluated.shape != baseline.shape:
        raise ValueError(f"a result has shape {evaluated.shape}, expected {baseline.shape}")
    if bool((evaluated == baseline).all()):  # exact also for integers that float64 cannot represent
        return Differences(0.0, 0.0, 0.0)
    e, b = evaluated.astype(np.float64), baseline.astype(np.float64)
    finite = np.isfinite(b)
    with np.errstate(invalid="ignore"):
        agree = (np.isfinite(e) == finite) & (finite | (e == b) | (np.isnan(e) & np.isnan(b)))
    if not agree.all():
        return Differences(np.nan, np.nan, np.nan)
    e, b = e[finite], b[finite]
    error, size = np.abs(e - b), np.abs(b)
    small = size < _SMALL.get(evaluated.dtype.name, 0.0)
    return Differences(
        float(error.sum() / (size.sum() + _TINY)),
        float(np.sqrt((error**2).sum() / ((size**2).sum() + _TINY))),
        float(np.max(np.where(small, error, error / (size + _TINY)), initial=0.0)),
    )
