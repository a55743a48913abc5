"""Tutel's groups of processes: model groups of neighbours, and data groups across them."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from turnout.compat.tutel.collectives import get_world_rank, get_world_size
from turnout.torch.messages import own_messages

# All processes must create a group together, so later calls reuse the groups of the first.
_made: dict[int, tuple[Any, SimpleNamespace]] = {}


@own_messages()
def create_groups_from_world(
    group_count: int, include_init: str | None = None, parent_group: Any = None
) -> SimpleNamespace:
    """Creates ``group_count`` groups of neighbouring processes, or groups of ``-group_count`` processes.

    ``include_init`` is the backend for initialising torch.distributed from torchrun's environment; 'nccl',
    for GPUs, is replaced by 'gloo'. Without that environment there is one process, and its groups are None.
    A second call returns the groups of the first.
    """
    if parent_group not in (None, dist.group.WORLD):
        raise ValueError(
            "create_groups_from_world: parent_group has only some processes, expected None or all of them"
        )
    if include_init and not dist.is_initialized() and {"WORLD_SIZE", "RANK"} <= os.environ.keys():
        dist.init_process_group("gloo" if include_init == "nccl" else include_init)
    size, rank = get_world_size(), get_world_rank()
    count = size // -group_count if group_count < 0 and size % group_count == 0 else group_count
    if count < 1 or size % count != 0:
        raise ValueError(
            f"create_groups_from_world: group_count is {group_count}, expected a divisor of {size} processes"
        )
    world, groups = _made.get(count, (None, None))
    if groups is None or world is not dist.group.WORLD:
        groups = _make(count, size, rank)
        _made[count] = dist.group.WORLD, groups
    return groups


def _own_group(rank: int, sets: list[range]) -> Any:
    """Creates a group for each set, together with all processes, and returns this process's group."""
    groups = [dist.new_group(list(members)) for members in sets]
    return next(group for group, members in zip(groups, sets, strict=True) if rank in members)


def _make(count: int, size: int, rank: int) -> SimpleNamespace:
    model_size = size // count
    data_group = model_group = None
    if dist.is_initialized():
        model_group = _own_group(rank, [range(i, i + model_size) for i in range(0, size, model_size)])
        data_group = _own_group(rank, [range(i, size, model_size) for i in range(model_size)])

    def dist_print(*arguments: Any, **options: Any) -> None:
        if rank == 0:
            print(*arguments, **options, flush=True)

    return SimpleNamespace(
        global_size=size,
        global_rank=rank,
        local_size=int(os.environ.get("LOCAL_WORLD_SIZE", size)),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        local_device=torch.device("cpu"),
        group_count=count,
        data_rank=rank // model_size,
        data_size=count,
        data_group=data_group,
        model_rank=rank % model_size,
        model_size=model_size,
        model_group=model_group,
        global_group=dist.group.WORLD,
        is_distributed=dist.is_initialized(),
        is_cuda=False,
        dist_print=dist_print,
    )
