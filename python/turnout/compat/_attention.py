"""Integer masks of torch.nn.MultiheadAttention, such as those of OpenPCDet's DSVT, which torch 2 refuses."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from turnout.compat._install import Undo, set_attribute


def accept_integer_masks() -> Undo:
    """Lets the module take a ``key_padding_mask`` of integers: keys are ignored where it is not 0."""
    original = torch.nn.MultiheadAttention.forward

    @functools.wraps(original)
    def forward(
        self: torch.nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor,
        key_padding_mask: Tensor | None = None, *arguments: Any, **options: Any,
    ) -> Any:  # fmt: skip
        if key_padding_mask is not None and not key_padding_mask.is_floating_point():
            key_padding_mask = key_padding_mask.bool()
        return original(self, query, key, value, key_padding_mask, *arguments, **options)

    return set_attribute(torch.nn.MultiheadAttention, "forward", forward)
