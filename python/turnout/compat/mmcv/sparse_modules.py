"""mmcv's sparse modules: the base class, and a sequence."""

from __future__ import annotations

import copy
from typing import Any

import torch

from turnout.torch import nn


class SparseModule(nn.SparseModule):
    """The base of mmcv's sparse modules, and of those that model files derive from it."""


def is_spconv_module(module: Any) -> bool:
    """Whether a module takes a sparse tensor."""
    return isinstance(module, SparseModule)


def is_sparse_conv(module: Any) -> bool:
    """Whether a module is a sparse convolution."""
    return isinstance(module, nn.SparseConvolution)


class SparseSequential(nn.SparseSequential, SparseModule):
    """As :class:`turnout.torch.nn.SparseSequential`, but features are replaced in place, as mmcv does.

    The tensor that an ordinary module gets first is changed: that of the caller, if the sequence begins with
    such a module.
    """

    def replace_features(self, x: nn.SparseTensor, features: torch.Tensor) -> nn.SparseTensor:
        x.features = features
        return x

    def fused(self) -> SparseSequential:
        """For inference: a sequence with each ``BatchNorm1d`` behind a convolution folded into that one.

        Its results are those of this sequence in eval mode. This one stays as it is; they share the other
        modules. mmcv's drops the bias of the convolution and adds eps to the deviation, not to the variance.
        """
        made: list[torch.nn.Module] = []
        for module in self._in_order():
            if made and isinstance(module, torch.nn.BatchNorm1d) and is_sparse_conv(made[-1]):
                made[-1] = _folded(made[-1], module)
            else:
                made.append(module)
        return SparseSequential(*made)


@torch.no_grad()
def _folded(convolution: Any, norm: torch.nn.BatchNorm1d) -> Any:
    """A copy of the convolution that normalizes its outputs with the running statistics."""
    if norm.running_mean is None or norm.running_var is None:
        raise ValueError("SparseSequential.fused: a BatchNorm1d has no running statistics, expected some")
    scale = torch.rsqrt(norm.running_var + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight
    bias = -norm.running_mean * scale
    if convolution.bias is not None:
        bias = bias + convolution.bias * scale
    if norm.bias is not None:
        bias = bias + norm.bias
    made = copy.deepcopy(convolution)
    made.weight.mul_(scale)
    made.bias = torch.nn.Parameter(bias.to(made.weight.dtype))
    return made


class ToDense(SparseModule):
    """``dense()`` as a module."""

    def forward(self, x: nn.SparseTensor) -> torch.Tensor:
        return x.dense()


class RemoveGrid(SparseModule):
    """Forgets ``grid``, which nothing uses here."""

    def forward(self, x: nn.SparseTensor) -> nn.SparseTensor:
        x.grid = None
        return x
