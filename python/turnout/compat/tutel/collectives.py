"""Tutel's collectives, over torch.distributed; a single process need not initialise it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from turnout.torch.exchange import named_failures, world_size

Group = Any  # a ProcessGroup, or None for all processes


def get_world_size(group: Group = None) -> int:
    """Returns the number of processes in the group, or 1 without torch.distributed."""
    return world_size(group)


def get_world_rank(group: Group = None) -> int:
    """Returns the rank of this process in the group, or 0 without torch.distributed."""
    return dist.get_rank(group) if dist.is_available() and dist.is_initialized() else 0


def barrier(group: Group = None) -> None:
    """Waits for all processes of the group."""
    if get_world_size(group) > 1:
        with named_failures("barrier", group):
            dist.barrier(group=group)


def simple_all_reduce(
    t: torch.Tensor, group: Group = None, op: Any = dist.ReduceOp.SUM, inplace: bool = False
) -> torch.Tensor:
    """Returns the sum (or ``op``) over all processes; for a single process, ``t`` itself."""
    if get_world_size(group) == 1:
        return t
    output = t.contiguous() if inplace else t.clone(memory_format=torch.contiguous_format)
    with named_failures("simple_all_reduce", group):
        dist.all_reduce(output, op=op, group=group)
    return output


def simple_broadcast(t: torch.Tensor, src: int, group: Group = None) -> torch.Tensor:
    """Returns the tensor of process ``src``."""
    if get_world_size(group) == 1:
        return t
    output = t.clone(memory_format=torch.contiguous_format)
    with named_failures("simple_broadcast", group):
        dist.broadcast(output, src=src, group=group)
    return output


def simple_all_gather(t: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Concatenates the tensors of all processes in dimension 0."""
    world = get_world_size(group)
    if world == 1:
        return t
    parts = [torch.empty_like(t, memory_format=torch.contiguous_format) for _ in range(world)]
    with named_failures("simple_all_gather", group):
        dist.all_gather(parts, t.contiguous(), group=group)
    return torch.cat(parts)


def simple_split(t: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Returns this process's part of dimension 0."""
    world = get_world_size(group)
    if t.shape[0] % world != 0:
        raise ValueError(
            f"simple_split: t.shape[0] is {t.shape[0]}, expected a multiple of {world} processes"
        )
    return t.chunk(world, dim=0)[get_world_rank(group)].contiguous()


def simple_reduce_scatter(t: torch.Tensor, group: Group = None) -> torch.Tensor:
    """Returns this process's part of the sum over all processes."""
    return simple_split(simple_all_reduce(t, group), group)


class _ZeroGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part, group):
        ctx.group = group
        return simple_all_gather(part, group)

    @staticmethod
    def backward(ctx, grad):
        return simple_reduce_scatter(grad, ctx.group), None


def zero_gather(
    input: torch.Tensor, full_shape: Sequence[int] | None = None, group: Group = None
) -> torch.Tensor:
    """Joins the parts of all processes in one tensor; its gradient is this process's part of the sum.

    ``full_shape`` has at most as many elements as the parts: padding by :func:`zero_scatter` is cut off.
    """
    gathered = _ZeroGather.apply(input, group)
    if full_shape is None:
        return gathered
    shape = torch.Size(full_shape)
    if shape.numel() > gathered.numel():
        raise ValueError(
            f"zero_gather: full_shape is {list(shape)}, expected at most the {gathered.numel()} elements "
            "that all processes have"
        )
    return gathered.reshape(-1)[: shape.numel()].view(shape)


def zero_scatter(
    input: torch.Tensor, scatter_fn: Callable, group: Group = None
) -> tuple[torch.Tensor, torch.Size]:
    """Returns this process's part of the elements, and the shape of the whole.

    ``scatter_fn`` is :func:`simple_split` or :func:`simple_reduce_scatter`. The elements are padded with
    zeros to a multiple of the number of processes.
    """
    flat = input.reshape(-1)
    filling = -flat.numel() % get_world_size(group)
    return scatter_fn(torch.nn.functional.pad(flat, (0, filling)), group=group), input.shape


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, group):
        ctx.group = group
        output = torch.empty_like(input, memory_format=torch.contiguous_format)
        with named_failures("all_to_all", group):
            dist.all_to_all_single(output, input.contiguous(), group=group)
        return output

    @staticmethod
    def backward(ctx, grad):
        return _AllToAll.apply(grad, ctx.group), None


def all_to_all(
    input: torch.Tensor, input_dim: int, output_dim: int, use_2dh: bool = False, group: Group = None
) -> torch.Tensor:
    """Splits ``output_dim`` over the processes and joins ``input_dim`` from them; differentiable.

    ``(1, 0)``: ``[experts, capacity, hidden]`` to ``[experts / processes, processes * capacity, hidden]``,
    with the slots of each process together. ``(0, 1)`` is the inverse. ``use_2dh`` is ignored.
    """
    del use_2dh
    world = get_world_size(group)
    if world == 1:
        return input
    if (input_dim, output_dim) not in ((1, 0), (0, 1)):
        raise ValueError(
            f"all_to_all: input_dim, output_dim is ({input_dim}, {output_dim}), expected (1, 0) or (0, 1)"
        )
    size = input.shape[output_dim]
    if size % world != 0:
        raise ValueError(
            f"all_to_all: input.shape[{output_dim}] is {size}, expected a multiple of {world} processes"
        )
    parts = input.unflatten(output_dim, (world, size // world))
    if output_dim == 1:
        return _AllToAll.apply(parts.transpose(0, 1), group).flatten(0, 1)
    received = _AllToAll.apply(parts, group)  # [source, local expert, slot, ..]
    return received.transpose(0, 1).flatten(1, 2)
