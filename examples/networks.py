"""Sparse networks for LiDAR scans, used by the other examples: CenterPoint's middle encoder and a UNet.

Both are built from given layers: those of turnout.torch.nn, or of a package with spconv's names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch

from turnout.torch import nn


class Layers(NamedTuple):
    """The 3-D layers of one package, and its sequence of sparse and torch modules."""

    sequential: Callable
    subm: Callable  # (in_channels, out_channels, kernel_size, bias=, indice_key=)
    sparse: Callable  # (in_channels, out_channels, kernel_size, stride, padding, bias=, indice_key=)
    inverse: Callable  # (in_channels, out_channels, kernel_size, indice_key=, bias=)

    def normalized(self, convolution: torch.nn.Module, activation: bool = True) -> torch.nn.Module:
        """Returns the convolution followed by batch normalization and a ReLU."""
        modules = [convolution, torch.nn.BatchNorm1d(convolution.out_channels)]
        return self.sequential(*modules, *([torch.nn.ReLU()] if activation else []))


TURNOUT = Layers(
    nn.SparseSequential,
    partial(nn.SubMConv, 3),
    partial(nn.SparseConv, 3),
    partial(nn.SparseInverseConv, 3),
)


class Block(torch.nn.Module):
    def __init__(self, layers: Layers, channels: int, indice_key: str | None = None) -> None:
        super().__init__()
        first, second = (
            layers.subm(channels, channels, 3, bias=True, indice_key=indice_key) for _ in range(2)
        )
        self.first, self.second = layers.normalized(first), layers.normalized(second, activation=False)

    def forward(self, x: nn.SparseTensor) -> nn.SparseTensor:
        out = self.second(self.first(x))
        return out.with_features(torch.relu(out.features + x.features))


def encoder(
    layers: Layers = TURNOUT,
    inputs: int = 5,
    channels: Sequence[int] = (16, 32, 64, 128),
    share: bool = False,
) -> torch.nn.Sequential:
    """CenterPoint's middle encoder: a stem, four stages of two residual blocks, and a last downsampling.

    Stages 2, 3 and 4 begin with a convolution of stride 2. The last one halves the height only. CenterPoint
    does not name its pairs; Turnout's layers share them without names. With `share`, all layers on the same
    sites have the same name.
    """

    def key(stage: int) -> str | None:
        return f"stage{stage}" if share else None

    stem = layers.subm(inputs, channels[0], 3, bias=False, indice_key=key(1))
    parts = OrderedDict(stem=layers.normalized(stem))
    paddings = (None, 1, 1, (0, 1, 1))
    for number, (width, padding) in enumerate(zip(channels, paddings, strict=True), start=1):
        blocks = [Block(layers, width, key(number)) for _ in range(2)]
        if padding is not None:
            down = layers.sparse(channels[number - 2], width, 3, 2, padding, bias=False)
            blocks.insert(0, layers.normalized(down))
        parts[f"stage{number}"] = torch.nn.Sequential(*blocks)
    parts["final"] = layers.normalized(
        layers.sparse(channels[-1], channels[-1], (3, 1, 1), (2, 1, 1), 0, bias=False)
    )
    return torch.nn.Sequential(parts)


class UNet(torch.nn.Module):
    """Classifies every site, with convolutions of stride 2 and inverse convolutions over the same pairs."""

    def __init__(
        self,
        layers: Layers = TURNOUT,
        inputs: int = 5,
        channels: Sequence[int] = (16, 32, 64, 128),
        classes: int = 2,
    ) -> None:
        super().__init__()
        self.stem = layers.normalized(layers.subm(inputs, channels[0], 3, bias=False, indice_key="level0"))
        self.down, self.up, self.merge = (torch.nn.ModuleList() for _ in range(3))
        for level, (wide, narrow) in enumerate(zip(channels[1:], channels, strict=False), start=1):
            down = layers.sparse(narrow, wide, 3, 2, 1, bias=False, indice_key=f"down{level}")
            self.down.append(
                torch.nn.Sequential(layers.normalized(down), Block(layers, wide, f"level{level}"))
            )
            up = layers.inverse(wide, narrow, 3, indice_key=f"down{level}", bias=False)
            self.up.append(layers.normalized(up))
            merge = layers.subm(2 * narrow, narrow, 3, bias=False, indice_key=f"level{level - 1}")
            self.merge.append(layers.normalized(merge))
        self.head = torch.nn.Linear(channels[0], classes)

    def forward(self, x: nn.SparseTensor) -> torch.Tensor:
        """Returns the logits ``[rows, classes]``, in the order of the sites of `x`."""
        x = self.stem(x)
        passed = []
        for down in self.down:
            passed.append(x)
            x = down(x)
        for up, merge in zip(reversed(self.up), reversed(self.merge), strict=True):
            x, same_sites = up(x), passed.pop()
            x = merge(x.with_features(torch.cat((x.features, same_sites.features), dim=1)))
        return self.head(x.features)
