"""Mixture of experts: tokens into their experts' buffers, as torch operators."""

from __future__ import annotations

import torch

from turnout import _core
from turnout.torch.library import define
from turnout.torch.sentences import own_sentences

__all__ = ["moe_dispatch_forward"]


def _forward_cpu(gates, indices, locations, input, capacity, num_experts):
    return _core.moe_dispatch_forward(
        gates.contiguous(),
        indices.contiguous(),
        locations.contiguous(),
        input.contiguous(),
        capacity,
        num_experts,
        None,
        True,
    )


def _forward_fake(gates, indices, locations, input, capacity, num_experts):
    return input.new_empty((num_experts * capacity, input.shape[1]))


_forward = define(
    "moe_dispatch_forward(Tensor gates, Tensor indices, Tensor locations, Tensor input, SymInt capacity, "
    "SymInt num_experts) -> Tensor",
    _forward_cpu,
    _forward_fake,
    refuse=("gates", "input"),
)


@own_sentences()
def moe_dispatch_forward(
    gates: torch.Tensor,
    indices: torch.Tensor,
    locations: torch.Tensor,
    input: torch.Tensor,
    capacity: int,
    num_experts: int,
) -> torch.Tensor:
    """Copies each token, times its gate, to its slot in its expert's buffer; other slots are zero.

    The definition is that of :func:`turnout.moe_dispatch_forward`. Tensors may be strided. There is no
    gradient yet: tensors that require grad are refused while grad mode is on.
    """
    return _forward(gates, indices, locations, input, capacity, num_experts)
