"""Tutel's routing: the experts and slots of each token, the capacity, and the balancing losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from turnout.compat.tutel.collectives import get_world_size, simple_all_reduce
from turnout.torch.messages import own_messages
from turnout.torch.moe_routing import moe_locations

Group = Any
# (experts, indices, locations, gates, capacity, dispatch_count)
Critical = tuple[int, list[torch.Tensor], list[torch.Tensor], list[torch.Tensor], int, torch.Tensor]


def gshard_loss(scores_w_noise: torch.Tensor, top_ids: torch.Tensor) -> torch.Tensor:
    """``E / N^2 * sum_e (sum of scores of e) * (first choices of e)``; a differentiable 0 without tokens."""
    samples, experts = scores_w_noise.shape
    first = torch.bincount(top_ids[:, 0], minlength=experts)
    return _gshard_loss(scores_w_noise, first, experts, samples)


def global_gshard_loss(scores_w_noise: torch.Tensor, top_ids: torch.Tensor, group: Group) -> torch.Tensor:
    """Combines the scores of this process with the first choices of all processes.

    The mean over the processes, of the loss and of its gradient, is :func:`gshard_loss` of all tokens.
    """
    experts = scores_w_noise.shape[1]
    first = simple_all_reduce(torch.bincount(top_ids[:, 0], minlength=experts), group=group)
    return _gshard_loss(scores_w_noise, first, experts * get_world_size(group), int(first.sum()))


def _gshard_loss(scores: torch.Tensor, first: torch.Tensor, factor: int, samples: int) -> torch.Tensor:
    """``factor / samples^2 * sum_e (sum of scores of e) * first[e]``."""
    if samples == 0:
        return scores.sum()
    return torch.sum(scores.sum(dim=0) * first.to(scores.dtype)) * (factor / (samples * samples))


def load_importance_loss(
    scores_wo_noise: torch.Tensor, topk_logits: torch.Tensor, num_global_experts: int, gate_noise: float
) -> torch.Tensor:
    """Averages two squared coefficients of variation: of the experts' scores and of their load."""
    if not gate_noise > 0:
        raise ValueError(f"load_importance_loss: gate_noise is {gate_noise}, expected more than 0")

    def variation(x: torch.Tensor) -> torch.Tensor:
        return x.var() / (x.mean() ** 2 + 1e-10)

    scores = scores_wo_noise.float()
    normal = torch.distributions.Normal(
        scores.new_zeros(1), scores.new_full((1,), gate_noise / num_global_experts)
    )
    load = normal.cdf(scores - topk_logits[:, -1:].float()).sum(0)
    return (variation(scores.sum(0)) + variation(load)) / 2.0


def _top_ids(scores: torch.Tensor, k: int) -> torch.Tensor:
    """Returns the experts with the k largest scores; among equal scores, the smaller expert is first."""
    more = min(k + 1, scores.shape[1])
    values, ids = torch.topk(scores.detach(), more, dim=1)
    if bool((values[:, 1:] == values[:, :-1]).any()):
        ids = torch.sort(scores.detach(), dim=1, descending=True, stable=True).indices
    return ids[:, :k].contiguous()


def round_up(value: int, step: int) -> int:
    """Returns the smallest multiple of ``step`` that is at least ``value``."""
    return -(-value // step) * step


def _capacity(
    factor: float, top_k: int, samples: int, experts: int, counts: torch.Tensor, alignment: int, group: Group
) -> int:
    per_expert = (samples + experts - 1) // experts
    if factor > 0:
        capacity = top_k * int(factor * per_expert)
    else:
        largest = counts.max() if counts.numel() else counts.new_zeros(())
        capacity = int(simple_all_reduce(largest, group=group, op=dist.ReduceOp.MAX))
        if factor < 0:
            capacity = min(capacity, top_k * int(-factor * per_expert))
    return round_up(capacity, alignment)


@own_messages()
def extract_critical(
    scores: torch.Tensor,
    top_k: int,
    loss_fn: Callable | None = gshard_loss,
    capacity_factor: float = 1.0,
    batch_prioritized_routing: bool = False,
    normalize_gate: bool = True,
    alignment: int = 1,
    group: Group = None,
    inequivalent_tokens: bool = False,
) -> tuple[Critical, torch.Tensor | None]:
    """Computes the experts, slots and gates of each token from ``scores [samples, experts]``, and the loss.

    Returns ``((experts, indices, locations, gates, capacity, dispatch_count), loss)``. ``indices``,
    ``locations`` (int32) and ``gates`` are lists of ``[samples]``, one per choice. Among equal scores, the
    smaller expert is first. ``dispatch_count`` counts all choices of each expert, kept or not, and has the
    attribute ``topk_ids [samples, choices]``. The gates of more than one choice are divided by their sum,
    unless ``normalize_gate`` is False. A ``capacity_factor`` above 0 fixes the capacity, 0 chooses one that
    keeps all tokens, and a negative one takes the smaller of the two.
    """
    if scores.dim() != 2:
        raise ValueError(
            f"extract_critical: scores has {scores.dim()} dimensions, expected [samples, experts]"
        )
    samples, experts = scores.shape
    k = min(int(top_k), experts)
    topk_ids = _top_ids(scores, k)
    loss = None if loss_fn is None else loss_fn(scores, topk_ids)
    gates = scores.gather(1, topk_ids)
    if k > 1 and normalize_gate:
        gates = gates / gates.sum(1, keepdim=True).clamp(min=torch.finfo(scores.dtype).eps)
    priority = scores.detach().amax(1) if batch_prioritized_routing and samples else None
    locations, counts = moe_locations(topk_ids, experts, priority=priority)
    if inequivalent_tokens:
        samples = int(simple_all_reduce(torch.tensor(samples), group=group, op=dist.ReduceOp.MAX))
    capacity = _capacity(float(capacity_factor), k, samples, experts, counts, alignment, group)
    counts.topk_ids = topk_ids
    lists = [list(t.unbind(1)) for t in (topk_ids.int(), locations, gates)]
    return (experts, *lists, capacity, counts), loss


def get_dispatch_count(critical: Critical) -> torch.Tensor:
    """Returns the number of choices of each expert."""
    return critical[-1]


def get_topk_selection(critical: Critical) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the experts ``[samples, choices]`` of each token, and the number of choices of each expert."""
    return critical[-1].topk_ids, critical[-1]


def get_reversed_sample_ids(critical: Critical, return_id_type: str = "sample_id") -> torch.Tensor:
    """Each slot's token ``[experts, capacity]``, or for 'top_id' which of its choices; -1 if none."""
    experts, indices, locations, _, capacity, _ = critical
    if return_id_type not in ("sample_id", "top_id"):
        raise ValueError(
            f"get_reversed_sample_ids: return_id_type is {return_id_type!r}, expected 'sample_id' or 'top_id'"
        )
    ids = torch.full((experts * capacity,), -1, dtype=torch.int32)
    for k, (expert, slot) in enumerate(zip(indices, locations, strict=True)):
        kept = (expert >= 0) & (expert < experts) & (slot >= 0) & (slot < capacity)
        rows = (expert.long() * capacity + slot)[kept]
        value = torch.arange(len(expert), dtype=torch.int32)[kept] if return_id_type == "sample_id" else k
        ids[rows] = value
    return ids.view(experts, capacity)


def fast_cumsum_sub_one(data: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Returns the running sum of ``data [samples, experts]`` along dimension 0, minus 1."""
    if data.dim() != 2 or dim != 0:
        raise ValueError(
            f"fast_cumsum_sub_one: data has {data.dim()} dimensions and dim is {dim}, expected 2 and 0"
        )
    return torch.cumsum(data, dim=0, dtype=data.dtype) - 1
