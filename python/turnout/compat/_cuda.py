"""CUDA's names in torch on a machine without a GPU: what they name is on the CPU."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from turnout.compat._install import Undo, set_attribute, undo_all

_KINDS = ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _itself(self: Any, *arguments: Any, **options: Any) -> Any:
    """Returns the object: it is where it is to be."""
    return self


def _current_device() -> torch.device:
    return torch.device("cpu")


def _histogram_of_integers(values: Tensor, bins: int, least: int, greatest: int) -> Tensor:
    """The counts that torch has on a GPU: the bin of a value is found without rounding."""
    values = values.flatten().long()
    if least == greatest and len(values):
        least, greatest = (int(value) for value in values.aminmax())
    if least == greatest:
        least, greatest = least - 1, greatest + 1
    inside = values[(values >= least) & (values <= greatest)]
    places = (inside - least) * bins // (greatest - least)
    return places.clamp_(max=bins - 1).bincount(minlength=bins)


def _count_integers() -> Undo:
    """Lets torch.histc take integers on the CPU; Pointcept evaluates with it."""
    original = torch.histc

    @functools.wraps(original)
    def histc(
        input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None
    ) -> Tensor:
        if input.device.type != "cpu" or input.dtype not in _INTEGERS or bins < 1 or min > max:
            return original(input, bins=bins, min=min, max=max, out=out)
        counts = _histogram_of_integers(input, bins, int(min), int(max)).to(input.dtype)
        return counts if out is None else out.resize_(bins).copy_(counts)

    return set_attribute(torch, "histc", histc)


def replace_cuda() -> Undo:
    """Lets a program that allocates on a GPU, and moves tensors and modules there, run on the CPU.

    ``Tensor.cuda()`` and ``Module.cuda()`` return the object itself, ``torch.cuda.FloatTensor`` and its like
    are torch's own, and ``torch.cuda.current_device()`` is the CPU. ``torch.cuda.is_available()`` still says
    False. ``torch.histc`` takes integers, as on a GPU.
    """
    steps = [set_attribute(owner, "cuda", _itself) for owner in (torch.Tensor, torch.nn.Module)]
    steps += [
        set_attribute(torch.cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
        for kind in _KINDS
        if hasattr(torch, f"{kind}Tensor")
    ]
    steps.append(set_attribute(torch.cuda, "current_device", _current_device))
    steps.append(_count_integers())
    return lambda: undo_all(steps)
