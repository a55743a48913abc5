"""mmcv's sparse modules: the base class, and a sequence."""

from __future__ import annotations

from typing import Any

import torch

from turnout.torch import nn


class SparseModule(nn.SparseModule):
    """The base of mmcv's sparse modules, and of those that model files derive from it."""


def is_spconv_module(module: Any) -> bool:
    """Whether a module takes a sparse tensor."""
    return isinstance(module, SparseModule)


class SparseSequential(nn.SparseSequential, SparseModule):
    """As :class:`turnout.torch.nn.SparseSequential`, but features are replaced in place, as mmcv does.

    The tensor that an ordinary module gets first is changed: that of the caller, if the sequence begins with
    such a module.
    """

    def replace_features(self, x: nn.SparseTensor, features: torch.Tensor) -> nn.SparseTensor:
        x.features = features
        return x
