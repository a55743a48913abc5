"""Tutel's distributed optimizer, whose state is divided among the processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from turnout.compat.tutel.collectives import (
    get_world_size,
    simple_all_gather,
    simple_all_reduce,
    simple_reduce_scatter,
    simple_split,
    zero_scatter,
)


class TutelDistributedOptimizer:
    """Updates this process's experts and its part of all other parameters, then gathers the parts.

    ::

        optimizer = TutelDistributedOptimizer(model.parameters(), average_shared=True)
        optimizer = optimizer.warp_local(torch.optim.Adam, lr=1e-3)

    Parameters that ``moe_layer`` marked as experts stay on their process. The gradients of the others are
    summed over the processes of ``group``, or averaged with ``average_shared``. Every process takes part in
    every step. A parameter without a gradient on any process is not updated.
    """

    def __init__(
        self, params: Iterable[torch.nn.Parameter], group: Any = None, average_shared: bool = False
    ) -> None:
        every = list(params)
        self.params = [p for p in every if not hasattr(p, "_tutel_expert")]
        self.expert_params = [p for p in every if hasattr(p, "_tutel_expert")]
        self.group, self.average_shared = group, average_shared
        self.local_optim: torch.optim.Optimizer | None = None
        # Optimizers that treat a part as a whole parameter, for example for norms, see it flattened.
        self._parts = [zero_scatter(p.detach(), simple_split, group=group)[0].clone() for p in self.params]

    def warp_local(self, local_optim: Callable, *args: Any, **kwargs: Any) -> TutelDistributedOptimizer:
        """Creates this process's optimizer with ``local_optim(parameters, *args, **kwargs)``."""
        self.local_optim = local_optim(self._parts + self.expert_params, *args, **kwargs)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self.params + self.expert_params:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = torch.zeros_like(parameter.grad)

    @torch.no_grad()
    def step(self) -> None:
        if self.local_optim is None:
            raise RuntimeError(
                "TutelDistributedOptimizer.step: there is no optimizer, expected warp_local() first"
            )
        # A process without tokens may lack a gradient that others have; all must agree on what to sum.
        has_gradient = torch.tensor([p.grad is not None for p in self.params], dtype=torch.uint8)
        has_gradient = simple_all_reduce(has_gradient, group=self.group, op=dist.ReduceOp.MAX)
        for parameter, part, there in zip(self.params, self._parts, has_gradient.tolist(), strict=True):
            part.grad = None
            if there:
                grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                part.grad, _ = zero_scatter(grad, simple_reduce_scatter, group=self.group)
                if self.average_shared:
                    part.grad = part.grad / get_world_size(self.group)
        self.local_optim.step()
        for parameter, part, there in zip(self.params, self._parts, has_gradient.tolist(), strict=True):
            if there:
                whole = simple_all_gather(part, self.group)
                parameter.copy_(whole[: parameter.numel()].view_as(parameter))
