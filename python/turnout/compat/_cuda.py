"""CUDA's names in torch on a machine without a GPU: what they name is on the CPU."""

from __future__ import annotations

from typing import Any

import torch

from turnout.compat._install import Undo, set_attribute, undo_all

_KINDS = ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")


def _itself(self: Any, *arguments: Any, **options: Any) -> Any:
    """Returns the object: it is where it is to be."""
    return self


def _current_device() -> torch.device:
    return torch.device("cpu")


def replace_cuda() -> Undo:
    """Lets a program that allocates on a GPU, and moves tensors and modules there, run on the CPU.

    ``Tensor.cuda()`` and ``Module.cuda()`` return the object itself, ``torch.cuda.FloatTensor`` and its like
    are torch's own, and ``torch.cuda.current_device()`` is the CPU. ``torch.cuda.is_available()`` still says
    False.
    """
    steps = [set_attribute(owner, "cuda", _itself) for owner in (torch.Tensor, torch.nn.Module)]
    steps += [
        set_attribute(torch.cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
        for kind in _KINDS
        if hasattr(torch, f"{kind}Tensor")
    ]
    steps.append(set_attribute(torch.cuda, "current_device", _current_device))
    return lambda: undo_all(steps)
