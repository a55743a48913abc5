"""mmcv's sparse modules: the base class, and a sequence."""

from __future__ import annotations

import copy
from typing import Any

import torch

from turnout.torch import nn


class SparseModule(nn.SparseModule):
    """The base of mmcv's sparse modules, also for classes that model files derive."""


def is_spconv_module(module: Any) -> bool:
    """Whether a module takes a sparse tensor."""
    return isinstance(module, SparseModule)


def is_sparse_conv(module: Any) -> bool:
    """Whether a module is a sparse convolution."""
    return isinstance(module, nn.SparseConvolution)


class SparseSequential(nn.SparseSequential, SparseModule):
    """Like :class:`turnout.torch.nn.SparseSequential`, but replaces features in place, as mmcv does.

    The first torch module in the sequence modifies the tensor it is given: the caller's, if it is first.
    """

    def replace_features(self, x: nn.SparseTensor, features: torch.Tensor) -> nn.SparseTensor:
        x.features = features
        return x

    def fused(self) -> SparseSequential:
        """Returns a sequence for inference, with each ``BatchNorm1d`` folded into the convolution before it.

        Its results are those of this sequence in eval mode. This sequence is unchanged and shares its other
        modules. mmcv's drops the convolution's bias and adds eps to the deviation, not to the variance.
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
    """Returns a copy of the convolution that normalizes its outputs with the running statistics."""
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
    """Removes ``grid``, which nothing uses here."""

    def forward(self, x: nn.SparseTensor) -> nn.SparseTensor:
        x.grid = None
        return x
