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
import torch.distributed as dist

__all__ = [
    "apply_rank_size_from_pattern",
    "get_local_session",
    "init_data_model_parallel",
    "load",
    "record_time",
    "save",
]

_session: SimpleNamespace | None = None


def init_data_model_parallel(group_count: int = 1, backend: str = "nccl") -> SimpleNamespace:
    """The processes that torchrun started, or this one alone where its environment is not set.

    Initialises torch.distributed. The backend 'nccl' is for GPUs; here it becomes 'gloo'. ``group_count`` is
    the number of model groups, which must divide the number of processes.
    """
    global _session
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if group_count < 1 or size % group_count != 0:
        raise ValueError(
            f"init_data_model_parallel: group_count is {group_count}, expected a divisor of {size} processes"
        )
    distributed = "WORLD_SIZE" in os.environ and "RANK" in os.environ
    if distributed and not dist.is_initialized():
        dist.init_process_group("gloo" if backend == "nccl" else backend)
    model_size = size // group_count
    data_group = model_group = None
    if distributed:
        for first in range(0, size, model_size):
            members = list(range(first, first + model_size))
            group = dist.new_group(members)
            model_group = group if rank in members else model_group
        for offset in range(model_size):
            members = list(range(offset, size, model_size))
            group = dist.new_group(members)
            data_group = group if rank in members else data_group

    def dist_print(*arguments: Any, **options: Any) -> None:
        if rank == 0:
            print(*arguments, **options, flush=True)

    _session = SimpleNamespace(
        global_size=size,
        global_rank=rank,
        local_size=int(os.environ.get("LOCAL_WORLD_SIZE", size)),
        local_rank=local_rank,
        local_device=torch.device("cpu"),
        group_count=group_count,
        data_rank=rank // model_size,
        data_size=group_count,
        data_group=data_group,
        model_rank=rank % model_size,
        model_size=model_size,
        model_group=model_group,
        global_group=dist.group.WORLD if distributed else None,
        is_distributed=distributed,
        is_cuda=False,
        dist_print=dist_print,
    )
    return _session


def get_local_session() -> SimpleNamespace:
    """What the last :func:`init_data_model_parallel` returned."""
    if _session is None:
        raise RuntimeError("get_local_session: there is none yet, expected init_data_model_parallel() before")
    return _session


def record_time(is_cuda: bool | None = None) -> float:
    """The time in seconds."""
    del is_cuda
    return time.time()


def apply_rank_size_from_pattern(filename: str, rank: int, size: int, create_dir: bool = True) -> str:
    """``filename`` with ``{rank}`` and ``{size}`` replaced; its folder is made."""
    if "{rank}" not in filename:
        warnings.warn(
            f"apply_rank_size_from_pattern: {filename!r} has no {{rank}}: all processes use one file",
            stacklevel=2,
        )
    name = re.sub(r"\{size\}", str(size), re.sub(r"\{rank\}", str(rank), filename))
    folder = os.path.dirname(name)
    if create_dir and folder:
        os.makedirs(folder, exist_ok=True)
    return name


def save(t: torch.Tensor, path: str) -> None:
    """Writes a tensor as a .npy file of this very name."""
    with open(path, "wb") as file:
        np.save(file, t.detach().cpu().numpy(), allow_pickle=False)


def load(path: str, device: Any = None) -> torch.Tensor:
    """Reads what :func:`save` wrote."""
    return torch.from_numpy(np.load(path, allow_pickle=False)).to(device or "cpu")
