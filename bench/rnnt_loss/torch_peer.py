"""The formulas of the losses in plain torch with Turnout's recursion, which is what k2 computes."""

from __future__ import annotations

import torch
from harness import Entry
from rnnt_loss.shapes import Utterances
from rnnt_loss.turnout_entries import band, leaves, with_gradients

from turnout.torch import get_rnnt_prune_ranges, mutual_information_recursion


def _closed(px: torch.Tensor, boundary: torch.Tensor) -> torch.Tensor:
    """Forbids symbols after the last frame: adds a column of -inf there and at the end of each utterance."""
    px = torch.cat([px, px.new_full((*px.shape[:2], 1), -torch.inf)], 2)
    return px.scatter(2, boundary[:, 3].reshape(-1, 1, 1).expand(-1, px.shape[1], 1), -torch.inf)


def joint_loss(logits: torch.Tensor, text: torch.Tensor, boundary: torch.Tensor) -> torch.Tensor:
    n = logits.logsumexp(3)
    index = text[:, None, :, None].expand(-1, logits.shape[1], -1, -1)
    px = (logits[:, :, :-1].gather(3, index).squeeze(3) - n[:, :, :-1]).transpose(1, 2)
    py = (logits[..., 0] - n).transpose(1, 2)
    return -mutual_information_recursion(_closed(px, boundary), py.contiguous(), boundary).sum()


def simple_loss(
    lm: torch.Tensor, am: torch.Tensor, text: torch.Tensor, boundary: torch.Tensor
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    lm_max, am_max = lm.amax(2, keepdim=True), am.amax(2, keepdim=True)
    product = (lm - lm_max).exp() @ (am - am_max).exp().transpose(1, 2)
    n = (product + torch.finfo(lm.dtype).tiny).log() + lm_max + am_max.transpose(1, 2)
    of_am = am.gather(2, text.unsqueeze(1).expand(-1, am.shape[1], -1)).transpose(1, 2)
    px = of_am + lm[:, :-1].gather(2, text.unsqueeze(2)) - n[:, :-1]
    py = am[..., 0].unsqueeze(1) + lm[..., 0].unsqueeze(2) - n
    scores, grads = mutual_information_recursion(_closed(px, boundary), py, boundary, return_grad=True)
    return -scores.sum(), grads


def prune(am: torch.Tensor, lm: torch.Tensor, ranges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    batch, frames, rows = ranges.shape
    index = ranges.reshape(batch, frames * rows, 1).expand(-1, -1, lm.shape[2])
    return am.unsqueeze(2).expand(-1, -1, rows, -1), lm.gather(1, index).reshape(batch, frames, rows, -1)


def pruned_loss(
    logits: torch.Tensor, text: torch.Tensor, ranges: torch.Tensor, boundary: torch.Tensor
) -> torch.Tensor:
    batch, frames, _, _ = logits.shape
    symbols = text.shape[1]
    n = logits.logsumexp(3)
    blanks = torch.cat([text, torch.zeros_like(text[:, :1])], 1)
    at = blanks.unsqueeze(1).expand(-1, frames, -1).gather(2, ranges)
    px = logits.gather(3, at.unsqueeze(3)).squeeze(3) - n
    py = logits[..., 0] - n
    whole = logits.new_full((batch, frames, symbols + 1), -torch.inf)
    px = whole.scatter(2, ranges, px)[:, :, :-1].transpose(1, 2)
    py = whole.scatter(2, ranges, py).transpose(1, 2)
    return -mutual_information_recursion(_closed(px, boundary), py.contiguous(), boundary).sum()


def joint(u: Utterances) -> Entry:
    (logits,) = leaves(u.logits)
    return with_gradients("plain torch", lambda: joint_loss(logits, u.text, u.boundary), [logits])


def recipe(u: Utterances) -> Entry:
    lm, am = leaves(u.lm, u.am)

    def loss_of() -> torch.Tensor:
        simple, grads = simple_loss(lm, am, u.text, u.boundary)
        ranges = get_rnnt_prune_ranges(*grads, u.boundary, u.scale.rows)
        am_rows, lm_rows = prune(am, lm, ranges)
        return 0.5 * simple + pruned_loss(am_rows + lm_rows, u.text, ranges, u.boundary)

    return with_gradients("plain torch", loss_of, [lm, am])


def in_two_steps(u: Utterances) -> Entry:
    inputs = leaves(u.hidden_am, u.hidden_lm, u.weight, u.bias)
    am, lm, weight, bias = inputs
    ranges = band(u)

    def loss_of() -> torch.Tensor:
        am_rows, lm_rows = prune(am, lm, ranges)
        logits = torch.nn.functional.linear(torch.tanh(am_rows + lm_rows), weight, bias)
        return pruned_loss(logits, u.text, ranges, u.boundary)

    return with_gradients("plain torch, joiner and pruned loss", loss_of, inputs)
