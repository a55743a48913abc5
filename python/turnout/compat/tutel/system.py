"""Tutel's ``system``: processes, time, and files by rank."""

from __future__ import annotations

import os
import re
import time
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from turnout.compat.tutel.groups import create_groups_from_world
from turnout.torch.messages import own_messages

__all__ = [
    "apply_rank_size_from_pattern",
    "get_local_session",
    "init_data_model_parallel",
    "load",
    "record_time",
    "save",
]

_session: SimpleNamespace | None = None


@own_messages()
def init_data_model_parallel(group_count: int = 1, backend: str = "nccl") -> SimpleNamespace:
    """Describes the processes that torchrun started, or this process alone if its environment is not set.

    Initialises torch.distributed. The backend 'nccl', for GPUs, is replaced by 'gloo'. ``group_count`` is the
    number of model groups, which must divide the number of processes.
    """
    global _session
    _session = create_groups_from_world(group_count, include_init=backend)
    return _session


def get_local_session() -> SimpleNamespace:
    """Returns the result of the last :func:`init_data_model_parallel`."""
    if _session is None:
        raise RuntimeError("get_local_session: no session exists, expected init_data_model_parallel() first")
    return _session


def record_time(is_cuda: bool | None = None) -> float:
    """Returns the time in seconds."""
    del is_cuda
    return time.time()


def apply_rank_size_from_pattern(filename: str, rank: int, size: int, create_dir: bool = True) -> str:
    """Returns ``filename`` with ``{rank}`` and ``{size}`` replaced, and creates its folder."""
    if "{rank}" not in filename:
        warnings.warn(
            f"apply_rank_size_from_pattern: {filename!r} has no {{rank}}, so all processes use one file",
            stacklevel=2,
        )
    name = re.sub(r"\{size\}", str(size), re.sub(r"\{rank\}", str(rank), filename))
    folder = os.path.dirname(name)
    if create_dir and folder:
        os.makedirs(folder, exist_ok=True)
    return name


def save(t: torch.Tensor, path: str) -> None:
    """Writes a tensor as a .npy file with exactly this name."""
    with open(path, "wb") as file:
        np.save(file, t.detach().cpu().numpy(), allow_pickle=False)


def load(path: str, device: Any = None) -> torch.Tensor:
    """Reads a file that :func:`save` wrote."""
    return torch.from_numpy(np.load(path, allow_pickle=False)).to(device or "cpu")
