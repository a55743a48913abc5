"""What elements are computed in."""

import numpy as np


def wide_type(dtype):
    """The type that elements are computed in."""
    return np.float64 if dtype == np.float64 else np.float32
