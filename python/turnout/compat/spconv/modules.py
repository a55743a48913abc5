"""spconv's sparse modules: the base class, a sequence, and torch modules that also take sparse tensors."""

from __future__ import annotations

from typing import Any

import torch

from turnout.torch import nn
from turnout.torch.nn.module import features_of

_COUNT = "max_num_voxels_during_training"


class SparseModule(nn.SparseModule):
    """The base of spconv's sparse modules, also for classes that model files derive."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.name = name
        self._sparse_unique_name = ""


class SparseSequential(nn.SparseSequential, SparseModule):
    """Like :class:`turnout.torch.nn.SparseSequential`. Input tensors are not modified."""


class VoxelCounter(SparseModule):
    """A module that can record its largest number of outputs in a buffer."""

    def count_voxels(self) -> None:
        """Adds the buffer; for constructors. Checkpoints without it can still be loaded."""
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
    """A torch module that also takes a sparse tensor, whose features it replaces."""

    def forward(self, input: Any) -> Any:
        if isinstance(input, nn.SparseTensor):
            return input.with_features(features_of(self, input, super().forward))
        return super().forward(input)


class SparseBatchNorm(_OnFeatures, torch.nn.BatchNorm1d):
    """``torch.nn.BatchNorm1d``, also for sparse tensors."""


class SparseSyncBatchNorm(_OnFeatures, torch.nn.SyncBatchNorm):
    """``torch.nn.SyncBatchNorm``, also for sparse tensors. torch cannot train it on a CPU."""


class SparseReLU(_OnFeatures, torch.nn.ReLU):
    """``torch.nn.ReLU``, also for sparse tensors."""


class SparseIdentity(_OnFeatures, torch.nn.Identity):
    """``torch.nn.Identity``, also for sparse tensors."""


class Identity(torch.nn.Module):
    """Returns its input."""

    def forward(self, input: Any) -> Any:
        return input

    def input_spatial_size(self, out_size: Any) -> Any:
        return out_size


class ToDense(SparseModule):
    """``dense()`` as a module."""

    def forward(self, x: nn.SparseTensor) -> torch.Tensor:
        return x.dense()


class RemoveGrid(SparseModule):
    """Removes ``grid``, which nothing uses here."""

    def forward(self, x: nn.SparseTensor) -> nn.SparseTensor:
        x.grid = None
        return x


def is_spconv_module(module: Any) -> bool:
    return isinstance(module, (SparseModule, SparseBatchNorm, SparseReLU))


def is_sparse_conv(module: Any) -> bool:
    return isinstance(module, nn.SparseConvolution)


def assign_name_for_sparse_modules(module: torch.nn.Module) -> None:
    """Sets the name of each sparse module in ``module`` to its qualified name there."""
    for name, child in module.named_modules():
        if isinstance(child, SparseModule):
            child._sparse_unique_name = name
