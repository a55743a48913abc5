"""Experts on several processes: sends tokens to the process of their expert, and the results back."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from turnout.torch.exchange import in_graph, named_failures, world_size
from turnout.torch.messages import own_messages
from turnout.torch.moe_permute import moe_token_permute, moe_token_unpermute
from turnout.torch.moe_re_routing import moe_re_routing, moe_re_routing_inverse

__all__ = ["expert_parallel"]


@own_messages(permute_tokens="tokens")
def expert_parallel(
    tokens: torch.Tensor,
    indices: torch.Tensor,
    gates: torch.Tensor | None,
    experts: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    num_experts: int,
    *,
    group: Any = None,
    timeout: float = 300.0,
) -> torch.Tensor:
    """The gate-weighted sum of the experts' outputs for the tokens of this process.

    ::

        output[i, :] = sum over k of gates[i, k] * expert[indices[i, k]](tokens[i, :])

    Expert ``e`` is on process ``e // (num_experts / processes)``. No token is dropped, so outputs and
    gradients do not depend on the number of processes. The gradients of an expert's parameters are those of
    the sum of the losses of all processes; if the loss is a mean over all tokens, divide them by the number
    of processes. Every process must take part in every exchange, forward and backward, even without tokens.

    Args:
        tokens: ``[samples, hidden]``. The number of tokens may differ between processes and may be 0.
        indices: experts, ``[samples]`` or ``[samples, choices]``, int32 or int64, ``0 .. num_experts-1``.
        gates: shaped like ``indices``; None means all ones.
        experts: called once as ``experts(rows, counts)``. ``rows [n, hidden]`` has the tokens of this
            process's experts, grouped by expert, with ``counts[e]`` rows (int64) for expert ``e``. Must
            return ``[n, width]``.
        num_experts: number of experts of all processes, a multiple of the number of processes.
        group: a process group whose backend has all_to_all_single. None means all processes, or only this
            one without torch.distributed.
        timeout: seconds to wait for the other processes in an exchange.

    Raises:
        RuntimeError: if another process failed, did not enter the exchange in time or sent rows of another
            size; the message names its rank.

    Example:
        >>> def experts(rows, counts):  # the two experts of this process: times 10, and times 100
        ...     return rows * torch.tensor([10.0, 100.0]).repeat_interleave(counts).unsqueeze(1)
        ...
        >>> tokens = torch.tensor([[1.0], [2.0], [3.0]])
        >>> chosen = torch.tensor([1, 0, 1])
        >>> output = turnout.torch.expert_parallel(tokens, chosen, None, experts, num_experts=2)
        >>> output.tolist()
        [[100.0], [20.0], [300.0]]
    """
    exchange = _Exchange(group, timeout)
    if num_experts % exchange.world != 0:
        raise ValueError(
            f"expert_parallel: num_experts is {num_experts}, expected a multiple of the {exchange.world} "
            "processes"
        )
    if indices.numel() and not bool(((indices >= 0) & (indices < num_experts)).all()):
        raise ValueError(f"expert_parallel: indices has values outside 0 .. {num_experts - 1}")
    permuted, order = moe_token_permute(tokens, indices)
    counts = torch.bincount(indices.reshape(-1).long(), minlength=num_experts).view(exchange.world, -1)
    arriving = exchange.counts(counts, permuted)
    sent, received = counts.sum(1).tolist(), arriving.sum(1).tolist()
    rows = exchange.rows(in_graph(permuted), sent, received)
    routed, _, index, per_expert = moe_re_routing(rows, arriving)
    results = experts(routed, per_expert)
    if results.dim() != 2 or results.shape[0] != routed.shape[0]:
        raise ValueError(
            f"expert_parallel: experts returned shape {list(results.shape)}, expected "
            f"[{routed.shape[0]}, width]"
        )
    exchange.check_results(results)
    returned = exchange.rows(in_graph(moe_re_routing_inverse(results, index)), received, sent)
    if gates is None:
        gates = torch.ones(indices.shape, dtype=returned.dtype)
    return moe_token_unpermute(returned, order, gates)


class _Exchange:
    """The exchanges of one call, within a group of processes or within this process only."""

    def __init__(self, group: Any, timeout: float) -> None:
        self.group, self.timeout = group, timeout
        self.is_alone = not (dist.is_available() and dist.is_initialized())
        self.world = world_size(group)

    def counts(self, counts: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """How many rows each process ``[source, local expert]`` sends to this one."""
        # The values on which all processes must agree are sent with the counts.
        common = [rows.shape[1], rows.element_size(), counts.shape[1]]
        received = self.small(torch.cat([torch.tensor(common).expand(self.world, -1), counts], dim=1))
        for source, (width, size, experts) in enumerate(received[:, :3].tolist()):
            if [width, size, experts] != common:
                raise RuntimeError(
                    f"expert_parallel: rank {source} sends rows of {width} elements of {size} bytes for "
                    f"{experts} experts per process, expected {common[0]} elements of {common[1]} bytes for "
                    f"{common[2]}"
                )
            if bool((received[source] < 0).any()):
                raise RuntimeError(f"expert_parallel: rank {source} sends a negative number of rows")
        return received[:, 3:].contiguous()

    def check_results(self, results: torch.Tensor) -> None:
        """Raises unless all experts return rows of one size; gloo would mix them up or end the process."""
        own = [results.shape[1], results.element_size()]
        for source, (width, size) in enumerate(self.small(torch.tensor(own).repeat(self.world, 1)).tolist()):
            if [width, size] != own:
                raise RuntimeError(
                    f"expert_parallel: the experts of rank {source} return rows of {width} elements of "
                    f"{size} bytes, expected {own[0]} elements of {own[1]} bytes as on this rank"
                )

    def small(self, message: torch.Tensor) -> torch.Tensor:
        """Sends row r of ``message`` to rank r and returns the rows that the ranks sent to this one."""
        received = torch.empty_like(message)
        self.run(received, message)
        return received

    def rows(self, rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        """Sends ``sent[r]`` rows to each rank r and receives ``received[r]`` from it; differentiable."""
        return rows if self.is_alone else _ExchangedRows.apply(rows, sent, received, self)

    def run(self, output: torch.Tensor, input: torch.Tensor, *splits: list[int]) -> None:
        if self.is_alone:
            output.copy_(input)
            return
        with named_failures("expert_parallel", self.group, self.timeout):
            work = dist.all_to_all_single(output, input, *splits, group=self.group, async_op=True)
            work.wait(datetime.timedelta(seconds=self.timeout))


class _ExchangedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, sent, received, exchange):
        ctx.sent, ctx.received, ctx.exchange = sent, received, exchange
        output = rows.new_empty((sum(received), rows.shape[1]))
        exchange.run(output, rows.contiguous(), received, sent)
        return output

    @staticmethod
    def backward(ctx, grad):
        return _ExchangedRows.apply(grad, ctx.received, ctx.sent, ctx.exchange), None, None, None
