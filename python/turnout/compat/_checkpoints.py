"""Checkpoints with numbers of NumPy, such as OpenPCDet's, which torch.load refuses from torch 2.6 on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from turnout.compat._install import Undo


def allow_numpy_numbers() -> Undo | None:
    """Lets torch.load read numbers of NumPy by default; they cannot run code.

    Returns what undoes it, or None where torch reads everything by default.
    """
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
        return None
    scalar = np.float64(0).__reduce__()[0]
    dtypes = {type(np.dtype(kind)) for kind in "?bBhHiIlLqQefd"}
    named = [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    added: list[Any] = [*named, np.dtype, *dtypes]
    before = torch.serialization.get_safe_globals()
    added = [one for one in added if one not in before]
    torch.serialization.add_safe_globals(added)

    def undo() -> None:
        others = [one for one in torch.serialization.get_safe_globals() if one not in added]
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(others)

    return undo
