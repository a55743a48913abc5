"""Exchanges between processes, whose error messages name the ranks that did not respond."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

# How long processes whose exchange failed wait for each other's report, to find out which are missing.
_GRACE_SECONDS = 5.0


def world_size(group: Any = None) -> int:
    """The number of processes of the group; 1 without torch.distributed."""
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def in_graph(rows: torch.Tensor) -> torch.Tensor:
    """Makes the exchange of the rows run backward on every process, even if this one needs no gradient."""
    return rows if rows.requires_grad or not torch.is_grad_enabled() else rows.detach().requires_grad_()


@contextlib.contextmanager
def named_failures(caller: str, group: Any = None, timeout: float | None = None) -> Iterator[None]:
    """Wraps a collective and converts its error into one that names the ranks that did not take part."""
    try:
        yield
    except Exception as error:
        missing = _missing_ranks(group)
        who = f"rank {', '.join(map(str, missing))} did not respond" if missing else "all ranks report it"
        limit = "its timeout" if timeout is None else f"{timeout} s"
        raise RuntimeError(f"{caller}: an exchange failed or took more than {limit}: {who}") from error


def _missing_ranks(group: Any) -> list[int]:
    """The ranks that do not report a failed exchange, because they died or never entered it."""
    store = dist.distributed_c10d._get_default_store()
    key = f"turnout/failed/{(group or dist.group.WORLD).group_name}"
    own = dist.get_rank(group)
    end = time.monotonic() + _GRACE_SECONDS
    try:
        store.set(f"{key}/{own}", b"1")
        missing = set(range(dist.get_world_size(group))) - {own}
        while missing and time.monotonic() < end:
            missing = {rank for rank in missing if not store.check([f"{key}/{rank}"])}
            time.sleep(0.05)
        return sorted(missing)
    except Exception:
        return [0]  # the process that hosts the store
