"""The published comparisons of the RNN-T losses."""

from __future__ import annotations

import torch
from harness import Entry
from recorded import Case, Programs
from rnnt_loss import torch_peer, torchaudio_peer, turnout_entries
from rnnt_loss.shapes import JOINT, RECIPE, Scale, Utterances

import turnout.torch

TOLERANCE = 1e-3
PLAIN = "k2's formulas in PyTorch, over Turnout's recursion"
SMALL = Scale(2, 20, 5, 100)


def size_of(scale: Scale) -> str:
    return f"batch {scale.batch}, {scale.frames} frames, {scale.symbols} symbols, {scale.classes} classes"


def cases() -> list[Case]:
    joint = size_of(JOINT), "f32"
    both, recipe = "rnnt_loss and its gradient", "simple loss, pruning, pruned loss, gradients"
    found = [
        Case("rnnt_loss-forward", "rnnt_loss", *joint, PLAIN, "new", lambda: forward(JOINT)),
        Case("rnnt_loss-both", both, *joint, PLAIN, "new", lambda: with_gradient(JOINT)),
        Case("rnnt_loss-tiny", both, size_of(SMALL), "f32", PLAIN, "new", lambda: with_gradient(SMALL)),
    ]
    if torchaudio_peer.is_loaded():
        peer = "torchaudio's operator"
        found.append(
            Case("rnnt_loss-torchaudio", both, *joint, peer, "new", beside_torchaudio, serial_peer=True)
        )
    pruned = f"{size_of(RECIPE)}, {RECIPE.rows} rows"
    fused = "rnnt_loss_pruned_fused and its gradients", f"{pruned}, joiner of width {RECIPE.width}"
    found += [
        Case("rnnt_loss-recipe", recipe, pruned, "f32", PLAIN, "new", whole_recipe),
        Case("rnnt_loss-fused", *fused, "f32", f"{PLAIN}, joiner of PyTorch", "new", joiner),
    ]
    return found


def forward(scale: Scale) -> Programs:
    u = Utterances(scale)

    def entry(name: str, loss_of) -> Entry:
        kept: list[torch.Tensor] = []

        def run() -> None:
            kept[:] = [loss_of()]

        return Entry(name, run, lambda: kept[0].numpy())

    ours = lambda: turnout.torch.rnnt_loss(u.logits, u.text, 0, u.boundary, reduction="sum")  # noqa: E731
    peer = entry("torch", lambda: torch_peer.joint_loss(u.logits, u.text, u.boundary))
    return Programs(entry("turnout", ours), peer, tolerance=TOLERANCE)


def with_gradient(scale: Scale) -> Programs:
    u = Utterances(scale)
    return Programs(turnout_entries.joint(u), torch_peer.joint(u), tolerance=TOLERANCE)


def beside_torchaudio() -> Programs:
    u = Utterances(JOINT)
    expected = torch_peer.joint(u)
    expected.run()
    programs = turnout_entries.joint(u), torchaudio_peer.joint(u)
    return Programs(*programs, expected.result(), tolerance=TOLERANCE)


def whole_recipe() -> Programs:
    u = Utterances(RECIPE)
    return Programs(turnout_entries.recipe(u), torch_peer.recipe(u), tolerance=TOLERANCE)


def joiner() -> Programs:
    u = Utterances(RECIPE)
    return Programs(turnout_entries.fused(u), torch_peer.in_two_steps(u), tolerance=TOLERANCE)
