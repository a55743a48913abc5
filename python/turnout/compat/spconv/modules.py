"""spconv's sparse modules: the base class, a sequence, and ordinary modules that also take sparse tensors."""

from __future__ import annotations

from typing import Any

import torch

from turnout.torch import nn
from turnout.torch.nn.module import features_of

_COUNT = "max_num_voxels_during_training"


class SparseModule(nn.SparseModule):
    """The base of spconv's sparse modules, and of those that model files derive from it."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.name = name
        self._sparse_unique_name = ""


class SparseSequential(nn.SparseSequential, SparseModule):
    """As :class:`turnout.torch.nn.SparseSequential`. The tensors it gets stay as they are."""


class VoxelCounter(SparseModule):
    """A module that records its largest number of outputs in a buffer of its state, if it is told to."""

    def count_voxels(self) -> None:
        """Called by a constructor: there is a buffer from now on, and checkpoints without it are accepted."""
        self.register_buffer(_COUNT, torch.zeros(1, dtype=torch.int32))
        self._register_load_state_dict_pre_hook(_add_count, with_module=True)

    def record_voxels(self, rows: int) -> None:
        count = self.get_max_num_voxels()
        if count is not None:
            count.copy_(count.clamp(min=rows))

    def get_max_num_voxels(self) -> torch.Tensor | None:
        return getattr(self, _COUNT, None)


def _add_count(module: torch.nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    state_dict.setdefault(prefix + _COUNT, torch.zeros(1, dtype=torch.int32))


class _OnFeatures:
    """A module of torch that gets a sparse tensor too, and then changes its features."""

    def forward(self, input: Any) -> Any:
        if isinstance(input, nn.SparseTensor):
            return input.with_features(features_of(self, input, super().forward))
        return super().forward(input)


class SparseBatchNorm(_OnFeatures, torch.nn.BatchNorm1d):
    """``torch.nn.BatchNorm1d``, of sparse tensors too."""


class SparseSyncBatchNorm(_OnFeatures, torch.nn.SyncBatchNorm):
    """``torch.nn.SyncBatchNorm``, of sparse tensors too. torch refuses to train it on a CPU."""


class SparseReLU(_OnFeatures, torch.nn.ReLU):
    """``torch.nn.ReLU``, of sparse tensors too."""


class SparseIdentity(_OnFeatures, torch.nn.Identity):
    """``torch.nn.Identity``, of sparse tensors too."""


class Identity(torch.nn.Module):
    """Returns what it gets."""

    def forward(self, input: Any) -> Any:
        return input

    def input_spatial_size(self, out_size: Any) -> Any:
        return out_size


class ToDense(SparseModule):
    """``dense()`` as a module."""

    def forward(self, x: nn.SparseTensor) -> torch.Tensor:
        return x.dense()


class RemoveGrid(SparseModule):
    """Forgets ``grid``, which nothing uses here."""

    def forward(self, x: nn.SparseTensor) -> nn.SparseTensor:
        x.grid = None
        return x


def is_spconv_module(module: Any) -> bool:
    return isinstance(module, (SparseModule, SparseBatchNorm, SparseReLU))


def is_sparse_conv(module: Any) -> bool:
    return isinstance(module, nn.SparseConvolution)


def assign_name_for_sparse_modules(module: torch.nn.Module) -> None:
    """Gives each sparse module in ``module`` the name it has there."""
    for name, child in module.named_modules():
        if isinstance(child, SparseModule):
            child._sparse_unique_name = name
