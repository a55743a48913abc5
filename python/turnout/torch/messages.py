"""Makes error messages name the function that was called, and its arguments."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from turnout import _core

P = ParamSpec("P")
R = TypeVar("R")

# Operators and functions of this package, with whose names its messages begin.
_functions = {row["op"] for row in (*_core.signatures(), *_core.functions())}


def own_messages(
    name: str | None = None, *, of_class: bool = False, **arguments: str
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function that calls operators, so that error messages name the function and not them.

    ``name`` replaces the function's name in messages; a method ``of_class`` has the name of its class.
    ``arguments`` maps names of an operator to those of the function: ``kernel_size="ksize"``. Messages also
    name an argument that is annotated as a tensor and is not one. A call that succeeds takes 0.1 us longer.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        called = name or function.__name__
        _functions.add(called)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if torch.compiler.is_compiling():
                    raise
                who = type(args[0]).__name__ if of_class else called
                better = _no_tensor(function, who, args, kwargs) or _renamed(error, who, arguments)
                if better is None:
                    raise
                raise better from None

        return call

    return decorate


def _no_tensor(function: Callable, called: str, args: tuple, kwargs: dict) -> TypeError | None:
    """Returns the error for an argument that should be a torch tensor and is not, or None."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None  # Python's message names the argument
    for name, value in bound.items():
        wanted = str(signature.parameters[name].annotation).replace(" ", "")
        if wanted in ("torch.Tensor", "torch.Tensor|None"):
            values = {} if value is None and wanted.endswith("None") else {name: value}
        elif wanted == "Sequence[torch.Tensor]":
            if not hasattr(value, "__len__"):
                return TypeError(
                    f"{called}: {name} is of type {type(value).__name__}, expected a sequence of torch.Tensor"
                )
            values = {f"{name}[{i}]": value[i] for i in range(len(value))}
        elif wanted == "SparseTensor" and not hasattr(value, "indice_dict"):
            return TypeError(f"{called}: {name} is of type {type(value).__name__}, expected a SparseTensor")
        else:
            continue
        for what, one in values.items():
            if not isinstance(one, torch.Tensor):
                return TypeError(f"{called}: {what} is of type {type(one).__name__}, expected a torch.Tensor")
    return None


# Part of torch's message for a scalar whose type differs from the operator's schema.
_schema_mismatch = re.compile(
    r"turnout::\w+\(\) Expected a value of type '(.+?)' for argument '(\w+)' but instead found type '(.+?)'"
)
_plain_types = {
    "int": "an integer",
    "float": "a number",
    "bool": "True or False",
    "str": "a string",
    "List[int]": "a sequence of integers",
    "List[float]": "a sequence of numbers",
}


def _renamed(error: Exception, called: str, arguments: dict[str, str]) -> Exception | None:
    """Returns the error with the name of the function that was called, or None if nothing changes."""
    if isinstance(error, DynamicOutputShapeException):
        return NotImplementedError(
            f"{called}: a size depends on values, for which fake tensors need a mode with a ShapeEnv"
        )
    mismatch = _schema_mismatch.match(str(error))
    if mismatch:
        wanted, argument, found = mismatch.groups()
        own = arguments.get(argument, argument)
        return TypeError(f"{called}: {own} is of type {found}, expected {_plain_types.get(wanted, wanted)}")
    operator, colon, message = str(error).partition(": ")
    if not colon or operator not in _functions or (operator == called and not arguments):
        return None
    if arguments:
        inner = rf"\b({'|'.join(arguments)})\b"
        message = re.sub(inner, lambda found: arguments[found[0]], message)
    return type(error)(f"{called}: {message}")
