"""The base class of sparse modules, and a sequence of modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from turnout.torch.nn.tensor import SparseTensor


class SparseModule(torch.nn.Module):
    """A module that takes a :class:`SparseTensor`. Other modules in a sequence take its features.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> class Double(turnout.torch.nn.SparseModule):
        ...     def forward(self, x):
        ...         return x.with_features(2 * x.features)
        ...
        >>> Double()(x).features.tolist()
        [[2.0], [4.0], [6.0]]
    """


class SparseSequential(SparseModule):
    """A sequence of modules: sparse ones, and ordinary ones that transform the features.

    Takes modules, one ``OrderedDict`` of them, or keywords; :meth:`add` appends one. If there are no rows,
    ordinary modules are skipped, because most batch normalizations fail without rows; their parameters then
    have zero gradients, not missing ones. Once a module returns an ordinary tensor, later modules get that.

    Under ``torch.compile`` nothing is skipped, and a tensor needs at least two rows.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> convolution = turnout.torch.nn.SubMConv(1, 1, 16, 3)
        >>> layers = turnout.torch.nn.SparseSequential(convolution, torch.nn.ReLU())
        >>> layers(x).features.shape
        torch.Size([3, 16])
    """

    def __init__(self, *args: Any, **kwargs: torch.nn.Module) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            named = list(args[0].items())
        else:
            named = [(str(i), module) for i, module in enumerate(args)]
        for name, module in [*named, *kwargs.items()]:
            self.add(module, name)

    def add(self, module: torch.nn.Module, name: str | None = None) -> None:
        """Appends a module; its default name is its position."""
        if name is None:
            name = str(len(self._modules))
        if name in self._modules:
            raise KeyError(f"{type(self).__name__}: there is a module {name!r} already")
        self.add_module(name, module)

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, index: int) -> torch.nn.Module:
        if not -len(self) <= index < len(self):
            raise IndexError(f"{type(self).__name__}: index {index} is out of range for {len(self)} modules")
        return self._in_order()[index]

    def _in_order(self) -> list[torch.nn.Module]:
        return [module for module in self._modules.values() if module is not None]

    def forward(self, x: Any) -> Any:
        for module in self._in_order():
            if isinstance(x, SparseTensor) and not isinstance(module, SparseModule):
                x = self.replace_features(x, features_of(module, x))
            else:
                x = module(x)
        return x

    def replace_features(self, x: SparseTensor, features: torch.Tensor) -> SparseTensor:
        return x.with_features(features)


def _few_rows() -> str:  # without the number, because the message of a compiled check is a constant
    return "SparseSequential: features has fewer than 2 rows, expected 2 or more in a compiled network"


def features_of(
    module: torch.nn.Module, x: SparseTensor, run: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> torch.Tensor:
    """Returns the result of an ordinary module, or of ``run`` in its place, for the features of ``x``."""
    rows = x.features.shape[0]
    if torch.compiler.is_compiling():
        torch._check(rows >= 2, _few_rows)
    elif rows == 0 and not isinstance(module, torch.nn.SyncBatchNorm):  # that one waits for all processes
        features = x.features
        for parameter in module.parameters():
            if parameter.requires_grad and torch.is_grad_enabled():
                features = features + parameter.sum()  # zero gradients, which other processes wait for
        return features
    return (run or module)(x.features)
