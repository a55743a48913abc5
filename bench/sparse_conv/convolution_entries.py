"""A layer over given pairs, its definition, and the programs that compute it: Turnout, spconv, torch."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from harness import Entry
from sparse_conv import spconv_peer
from sparse_conv.shapes import Sites
from sparse_conv.turnout_entries import arguments, logged_scratch

import turnout
import turnout.torch

Pair = tuple[torch.Tensor, torch.Tensor]

OPERATORS = torch.ops.turnout


class Layer:
    """A submanifold convolution 3x3x3 on given sites: pairs, features, filters [27, in, out], gradient."""

    def __init__(self, sites: Sites, channels: int, dtype: torch.dtype = torch.float32) -> None:
        assert sites.scale.subm
        self.sites, self.channels, self.rows = sites, channels, sites.scale.rows
        _, pairs, num = turnout.get_indice_pairs(sites.indices, **arguments(sites.scale))
        self.pairs, self.num = torch.from_numpy(pairs), torch.from_numpy(num)
        random = torch.Generator().manual_seed(1)
        shapes = (self.rows, channels), (self.rows, channels), (sites.scale.volume, channels, channels)
        made = (torch.randn(shape, generator=random).to(dtype) for shape in shapes)
        self.features, self.grad, self.filters = made

    @property
    def name(self) -> str:
        return f"{self.channels} channels, {self.sites.name}"

    @property
    def operations(self) -> float:
        """The multiplications and additions of the forward pass, or of one gradient."""
        return 2.0 * float(self.num.sum()) * self.channels**2

    @cached_property
    def lists(self) -> list[Pair]:
        """The int64 input and output rows of each offset, for torch's gather and scatter."""
        return lists_of(self.pairs, self.num)

    def definition(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Computes the outputs and both gradients in f64."""
        features, filters, grad = (x.double() for x in (self.features, self.filters, self.grad))
        results = (
            by_torch(self.lists, features, filters),
            *gradients_by_torch(self.lists, features, filters, grad),
        )
        return tuple(x.numpy() for x in results)


def lists_of(pairs: torch.Tensor, num: torch.Tensor) -> list[Pair]:
    return [tuple(pairs[k, side, :count].long() for side in (0, 1)) for k, count in enumerate(num.tolist())]


def by_torch(lists: list[Pair], features: torch.Tensor, filters: torch.Tensor) -> torch.Tensor:
    """gather + mm + index_add, for a submanifold layer."""
    out = features.new_zeros(features.shape[0], filters.shape[2])
    for (inputs, outputs), matrix in zip(lists, filters, strict=True):
        out.index_add_(0, outputs, features.index_select(0, inputs) @ matrix)
    return out


def gradients_by_torch(
    lists: list[Pair], features: torch.Tensor, filters: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    of_features, of_filters = torch.zeros_like(features), torch.empty_like(filters)
    for k, (inputs, outputs) in enumerate(lists):
        rows = grad.index_select(0, outputs)
        of_features.index_add_(0, inputs, rows @ filters[k].T)
        torch.mm(features.index_select(0, inputs).T, rows, out=of_filters[k])
    return of_features, of_filters


class Kept:
    def __init__(self) -> None:
        self.results: tuple[torch.Tensor, ...] = ()

    def arrays(self) -> tuple[np.ndarray, ...]:
        return tuple(x.float().numpy() for x in self.results)


def entry(name: str, call, *arguments, every: int = 1) -> Entry:
    """Returns an entry for `call(*arguments)`, which returns a tuple of tensors to verify."""
    kept = Kept()

    def run() -> None:
        kept.results = call(*arguments)

    return Entry(name, run, kept.arrays, every=every)


def forward(layer: Layer) -> list[Entry]:
    def turnout_() -> tuple[torch.Tensor]:
        pairs = layer.pairs, layer.num
        return (
            OPERATORS.indice_convolution_forward(
                layer.features, layer.filters, *pairs, layer.rows, subm=True
            ),
        )

    def torch_() -> tuple[torch.Tensor]:
        return (by_torch(layer.lists, layer.features, layer.filters),)

    return [entry("turnout", turnout_), entry("torch, gather + mm + index_add", torch_)]


def gradients(layer: Layer) -> list[Entry]:
    def turnout_() -> tuple[torch.Tensor, ...]:
        pairs = layer.pairs, layer.num
        return (
            OPERATORS.indice_convolution_backward_data(
                layer.grad, layer.filters, *pairs, layer.rows, subm=True
            ),
            OPERATORS.indice_convolution_backward_filter(layer.features, layer.grad, *pairs, subm=True),
        )

    def torch_() -> tuple[torch.Tensor, ...]:
        return gradients_by_torch(layer.lists, layer.features, layer.filters, layer.grad)

    return [entry("turnout", turnout_), entry("torch, gather + mm + index_add", torch_)]


def with_kept_index(layer: Layer) -> Entry:
    """The forward pass with an index of the pairs that is built once."""
    pairs = layer.pairs, layer.num
    index = OPERATORS.indice_convolution_index(*pairs, layer.rows, layer.rows, subm=True)

    def run() -> tuple[torch.Tensor]:
        return (
            OPERATORS.indice_convolution_forward(
                layer.features, layer.filters, *pairs, layer.rows, subm=True, index=index
            ),
        )

    return entry("turnout, kept index", run)


def scratch_bytes(layer: Layer) -> dict[str, int]:
    ours, theirs = forward(layer)[0], gradients(layer)[0]
    return {
        name: logged_scratch(f"indice_convolution_{name}", call)
        for name, call in (
            ("forward", ours.run),
            ("backward_data", theirs.run),
            ("backward_filter", theirs.run),
        )
    }


def with_spconv(layer: Layer) -> tuple[Entry, Entry]:
    """The forward pass and both gradients of spconv, over its own pairs."""
    forward_, backward = spconv_peer.convolution(layer.sites.scale, layer.sites.indices)
    filters = spconv_peer.krsc(layer.filters, layer.sites.scale.kernel)

    def gradients_() -> tuple[torch.Tensor, ...]:
        of_features, of_filters = backward(layer.features, filters, layer.grad)
        return of_features, spconv_peer.from_krsc(of_filters)

    return (
        entry("spconv", lambda: (forward_(layer.features, filters),)),
        entry("spconv", gradients_),
    )
