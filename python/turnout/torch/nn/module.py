"""What all sparse modules are, and a sequence of modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from turnout.torch.nn.tensor import SparseTensor


class SparseModule(torch.nn.Module):
    """A module that takes a :class:`SparseTensor`. In a sequence, any other module takes its features.

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
    """Modules one after the other: sparse ones, and ordinary ones that change the features.

    Takes modules, one ``OrderedDict`` of them, or keywords; :meth:`add` appends one. An ordinary module is
    left out where there are no rows, as most batch normalizations cannot do without; its parameters have
    zero gradients then, not missing ones. Once a module returns an ordinary tensor, those behind it get that.

    Under ``torch.compile`` there is no such branch, and a tensor needs two rows or more.

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
        """Appends a module; the name is its number unless one is given."""
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


def _few_rows() -> str:  # without the number: a message of a compiled check is a constant
    return "SparseSequential: features has fewer than 2 rows, expected 2 or more in a compiled network"


def features_of(
    module: torch.nn.Module, x: SparseTensor, run: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> torch.Tensor:
    """Those that an ordinary module, or ``run`` for it, makes of the features of ``x``."""
    rows = x.features.shape[0]
    if torch.compiler.is_compiling():
        torch._check(rows >= 2, _few_rows)
    elif rows == 0 and not isinstance(module, torch.nn.SyncBatchNorm):  # which needs all processes
        features = x.features
        for parameter in module.parameters():
            if parameter.requires_grad and torch.is_grad_enabled():
                features = features + parameter.sum()  # zero gradients, for processes that wait for them
        return features
    return (run or module)(x.features)
