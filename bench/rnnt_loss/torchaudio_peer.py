"""torchaudio's RNN-T operator, loaded from its library, because importing the package may fail."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from harness import Entry, console
from rnnt_loss.shapes import Utterances
from rnnt_loss.turnout_entries import leaves


def is_loaded() -> bool:
    spec = importlib.util.find_spec("torchaudio")
    if spec is None:
        console.print("torchaudio is not installed, so its operator is skipped")
        return False
    for path in sorted((Path(spec.origin).parent / "lib").glob("*torchaudio*.so")):
        try:
            torch.ops.load_library(str(path))
        except OSError as error:
            console.print(f"{path.name} does not load: {error}")
    return hasattr(torch.ops.torchaudio, "rnnt_loss_forward") or hasattr(torch.ops.torchaudio, "rnnt_loss")


def joint(u: Utterances) -> Entry:
    """Computes losses and gradients, both in its forward call."""
    (logits,) = leaves(u.logits)
    text, frames, symbols = (x.int() for x in (u.text, u.boundary[:, 3], u.boundary[:, 2]))
    frames, symbols = frames.contiguous(), symbols.contiguous()
    operator = getattr(torch.ops.torchaudio, "rnnt_loss_forward", None) or torch.ops.torchaudio.rnnt_loss
    kept: list[torch.Tensor] = []

    def run() -> None:
        losses, gradients = operator(logits.detach(), text, frames, symbols, 0, -1.0, True)
        kept[:] = [losses.sum(), gradients]

    return Entry("torchaudio's operator", run, lambda: tuple(x.numpy() for x in kept), every=4)
