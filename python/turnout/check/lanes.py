"""The types in which elements are computed."""

import numpy as np


def wide_type(dtype):
    """Returns the type in which elements of `dtype` are computed."""
    return np.float64 if dtype == np.float64 else np.float32
