"""Turnout's losses, with gradients, as the benchmarks call them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from harness import Entry
from rnnt_loss.shapes import Utterances

from turnout.torch import (
    do_rnnt_pruning,
    get_rnnt_prune_ranges,
    rnnt_loss,
    rnnt_loss_pruned,
    rnnt_loss_pruned_fused,
    rnnt_loss_simple,
)


def leaves(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [x.detach().clone().requires_grad_() for x in tensors]


def with_gradients(name: str, loss_of: Callable[[], torch.Tensor], inputs: list[torch.Tensor]) -> Entry:
    kept: list[torch.Tensor] = []

    def run() -> None:
        loss = loss_of()
        kept[:] = [loss.detach(), *torch.autograd.grad(loss, inputs)]

    return Entry(name, run, lambda: tuple(x.numpy() for x in kept))


def joint(u: Utterances) -> Entry:
    (logits,) = leaves(u.logits)
    return with_gradients(
        "turnout rnnt_loss", lambda: rnnt_loss(logits, u.text, 0, u.boundary, reduction="sum"), [logits]
    )


def recipe(u: Utterances) -> Entry:
    """Simple loss, ranges, pruning, pruned loss and gradients; logits are the sum of the pruned inputs."""
    lm, am = leaves(u.lm, u.am)

    def loss_of() -> torch.Tensor:
        simple, grads = rnnt_loss_simple(lm, am, u.text, 0, u.boundary, reduction="sum", return_grad=True)
        ranges = get_rnnt_prune_ranges(*grads, u.boundary, u.scale.rows)
        am_rows, lm_rows = do_rnnt_pruning(am, lm, ranges)
        pruned = rnnt_loss_pruned(
            am_rows + lm_rows, u.text, ranges, 0, u.boundary, reduction="sum", overwrite_logits=True
        )
        return 0.5 * simple + pruned

    return with_gradients("turnout", loss_of, [lm, am])


def band(u: Utterances) -> torch.Tensor:
    """Returns the ranges for the joiner's comparisons, from the simple loss."""
    _, grads = rnnt_loss_simple(u.lm, u.am, u.text, 0, u.boundary, return_grad=True)
    return get_rnnt_prune_ranges(*grads, u.boundary, u.scale.rows)


def in_two_steps(u: Utterances) -> Entry:
    inputs = leaves(u.hidden_am, u.hidden_lm, u.weight, u.bias)
    am, lm, weight, bias = inputs
    ranges = band(u)

    def loss_of() -> torch.Tensor:
        am_rows, lm_rows = do_rnnt_pruning(am, lm, ranges)
        logits = torch.nn.functional.linear(torch.tanh(am_rows + lm_rows), weight, bias)
        return rnnt_loss_pruned(logits, u.text, ranges, 0, u.boundary, reduction="sum", overwrite_logits=True)

    return with_gradients("turnout, joiner of torch and rnnt_loss_pruned", loss_of, inputs)


def fused(u: Utterances) -> Entry:
    inputs = leaves(u.hidden_am, u.hidden_lm, u.weight, u.bias)
    *joiner, bias = inputs
    ranges = band(u)

    def loss_of() -> torch.Tensor:
        return rnnt_loss_pruned_fused(*joiner, u.text, ranges, "tanh", 0, bias, u.boundary, reduction="sum")

    return with_gradients("turnout rnnt_loss_pruned_fused", loss_of, inputs)
