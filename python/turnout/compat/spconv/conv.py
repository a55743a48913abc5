"""spconv's sparse convolutions."""

from __future__ import annotations

import math
import os
from typing import Any

import torch
from torch.nn import functional

from turnout.compat import _sparse
from turnout.compat.spconv.core import ConvAlgo, default_algo
from turnout.compat.spconv.core import IndiceData as IndiceData
from turnout.compat.spconv.core import SparseConvTensor as SparseConvTensor
from turnout.compat.spconv.core import expand_nd as expand_nd
from turnout.compat.spconv.modules import SparseModule as SparseModule
from turnout.compat.spconv.modules import VoxelCounter
from turnout.torch import nn
from turnout.torch.indice_pairs import Ints

__all__ = [
    "SparseConv1d",
    "SparseConv2d",
    "SparseConv3d",
    "SparseConv4d",
    "SparseConvTranspose1d",
    "SparseConvTranspose2d",
    "SparseConvTranspose3d",
    "SparseConvTranspose4d",
    "SparseConvolution",
    "SparseInverseConv1d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SparseInverseConv4d",
    "SubMConv1d",
    "SubMConv2d",
    "SubMConv3d",
    "SubMConv4d",
]

# The dimension of the output channels in each weight layout.
_LAYOUTS = {"KRSC": 0, "RSKC": -2, "RSCK": -1}

# Keyed by the names of cumm.tensorview.gemm.Activation.
_ACTIVATIONS = {
    "None_": lambda x, alpha: x,
    "ReLU": lambda x, alpha: functional.relu(x),
    "Sigmoid": lambda x, alpha: functional.sigmoid(x),
    "LeakyReLU": functional.leaky_relu,
}


def _change_layout(module: torch.nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Converts weights before loading: SPCONV_SAVED_WEIGHT_LAYOUT gives the layout in the checkpoint.

    This is a hook, so that a loader that a model file adds to SparseModule is still called.
    """
    layout, key = os.environ.get("SPCONV_SAVED_WEIGHT_LAYOUT", ""), f"{prefix}weight"
    if not layout or key not in state_dict:
        return
    if layout not in _LAYOUTS:
        known = ", ".join(_LAYOUTS)
        raise ValueError(f"load_state_dict: SPCONV_SAVED_WEIGHT_LAYOUT is {layout!r}, expected {known}")
    state_dict[key] = state_dict[key].movedim(_LAYOUTS[layout], 0).contiguous()


class SparseConvolution(nn.SparseConvolution, VoxelCounter):
    """The base of spconv's convolutions, with its weight ``[out_channels, k..., in_channels]``.

    - A kernel of one offset without stride is a matrix product with ``weight.view(in_channels,
      out_channels)``. This reinterprets the memory and is not the transpose that the layout suggests.
      Checkpoints are trained that way.
    - ``indice_key``: submanifold layers share pairs by name and must agree in kernel, dilation, spatial shape
      and rows. An inverse layer needs the name of an earlier layer or pool; any other layer needs a new name.
    - ``algo``, ``fp32_accum`` and ``large_kernel_fast_algo`` are accepted and have no effect.
    - ``act_type`` is an activation of the output: a member of cumm's ``Activation`` or its name, ``"ReLU"``,
      ``"Sigmoid"``, ``"LeakyReLU"`` (whose slope is ``act_alpha``) or ``"None_"``. ``act_beta`` is not used.
    """

    out_channels_first = True

    def __init__(
        self,
        ndim: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints = 3,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        subm: bool = False,
        output_padding: Ints = 0,
        transposed: bool = False,
        inverse: bool = False,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        record_voxel_count: bool = False,
        act_type: Any = None,
        act_alpha: float = 0,
        act_beta: float = 0,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            *(ndim, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, subm),
            *(output_padding, transposed, inverse, indice_key),
        )
        if self.conv1x1 and not subm and any(self.padding):
            raise ValueError(
                f"{type(self).__name__}: padding is {self.padding}, expected 0 for a kernel of one offset "
                "without stride"
            )
        activation = "None_" if act_type is None else getattr(act_type, "name", act_type)
        if activation not in _ACTIVATIONS:
            known = ", ".join(_ACTIVATIONS)
            raise ValueError(f"{type(self).__name__}: act_type is {act_type!r}, expected one of {known}")
        self.act_type, self.act_alpha, self.act_beta = act_type, act_alpha, act_beta
        self._activation = activation
        volume = math.prod(self.kernel_size)
        self.name = name
        self.algo = algo or default_algo(volume, 128 if large_kernel_fast_algo else 32)
        self.fp32_accum = fp32_accum
        self.record_voxel_count = record_voxel_count
        self._register_load_state_dict_pre_hook(_change_layout, with_module=True)
        if record_voxel_count and not subm and not inverse:
            self.count_voxels()
        self.to(device=device, dtype=dtype)

    def is_inverseable(self) -> bool:
        return self.indice_key is not None and not self.subm

    def keeps_sites(self) -> bool:
        return math.prod(self.kernel_size) == 1 and (self.subm or all(s == 1 for s in self.stride))

    def matrix(self) -> torch.Tensor:
        return self.weight.reshape(self.in_channels, self.out_channels)

    def find_pairs(self, x: nn.SparseTensor) -> nn.Pairs:
        pairs = self.named_pairs(x)
        if pairs is not None and not self.inverse and not (self.subm and pairs.geometry.subm):
            raise ValueError(
                f"{type(self).__name__}: indice_key {self.indice_key!r} names the pairs of an earlier layer, "
                "and only submanifold layers share theirs; expected a new name"
            )
        return super().find_pairs(x)

    def out_sites(self, x: nn.SparseTensor, pairs: nn.Pairs) -> tuple[torch.Tensor, Any]:
        indices, shape = super().out_sites(x, pairs)
        # Model files modify the sites of an output in place, which must not change those of the input.
        return indices.clone() if self.subm else indices, shape

    def forward(self, input: nn.SparseTensor, add_input: nn.SparseTensor | None = None) -> nn.SparseTensor:
        out = super().forward(input)
        self.record_voxels(out.features.shape[0])
        if add_input is not None:
            out = out + add_input
        if self._activation != "None_":
            out = out.with_features(_ACTIVATIONS[self._activation](out.features, self.act_alpha))
        return out


class _SparseConv(SparseConvolution):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        record_voxel_count: bool = False,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            *(self.rank, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias),
            transposed=self.is_transposed,
            indice_key=indice_key,
            algo=algo,
            fp32_accum=fp32_accum,
            record_voxel_count=record_voxel_count,
            large_kernel_fast_algo=large_kernel_fast_algo,
            name=name,
        )

    rank: int
    is_transposed = False


class _SparseConvTranspose(_SparseConv):
    is_transposed = True


class _SubMConv(SparseConvolution):
    """Stride and padding are accepted and ignored."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            *(self.rank, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias),
            subm=True,
            indice_key=indice_key,
            algo=algo,
            fp32_accum=fp32_accum,
            large_kernel_fast_algo=large_kernel_fast_algo,
            name=name,
        )

    rank: int


class _SparseInverseConv(SparseConvolution):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        indice_key: str,
        bias: bool = True,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            *(self.rank, in_channels, out_channels, kernel_size),
            bias=bias,
            inverse=True,
            indice_key=indice_key,
            algo=algo,
            fp32_accum=fp32_accum,
            large_kernel_fast_algo=large_kernel_fast_algo,
            name=name,
        )

    rank: int


SparseConv1d, SparseConv2d, SparseConv3d, SparseConv4d = _sparse.for_each_rank(_SparseConv)
SubMConv1d, SubMConv2d, SubMConv3d, SubMConv4d = _sparse.for_each_rank(_SubMConv)
SparseConvTranspose1d, SparseConvTranspose2d, SparseConvTranspose3d, SparseConvTranspose4d = (
    _sparse.for_each_rank(_SparseConvTranspose)
)
SparseInverseConv1d, SparseInverseConv2d, SparseInverseConv3d, SparseInverseConv4d = _sparse.for_each_rank(
    _SparseInverseConv
)
