"""Traced calls, as in torch.compile, whose tensors have shapes but no values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from turnout import _core

Scalars = dict[str, Any]
# The signatures' names for the values of scalars that torch's operators take as strings.
_choices = {
    (row["op"], scalar["name"]): scalar["values"].split()
    for row in _core.signatures()
    for scalar in row["scalars"]
}


def _name_of(dtype: torch.dtype) -> str:
    """The name in error messages, as in NumPy: ``float32``."""
    return str(dtype).removeprefix("torch.")


def value_of(number: int | torch.SymInt) -> int | None:
    """The value of an integer, in a traced call that of the example, or None if it is unknown.

    It adds no guard: an error is that of the example alone, and the call itself checks again.
    """
    if isinstance(number, torch.SymInt):
        node: Any = number.node
        return node.hint if node.has_hint() else None
    return number


def values_of(numbers: Any) -> tuple[int | None, ...]:
    return tuple(value_of(number) for number in numbers)


def checked(op: torch._ops.OpOverload, fake: Callable) -> Callable:
    """The shape function, after the checks of devices, ranks, dtypes and shapes that a real call has."""
    schema = [(argument.name, argument.default_value) for argument in op._schema.arguments]

    def kernel(*arguments, **named):
        bound = {name: named.get(name, default) for name, default in schema}
        bound.update(zip(bound, arguments, strict=False))
        _check(op._opname, bound)
        return fake(*bound.values())

    return kernel


def _check(op: str, bound: Scalars, sizes: dict[str, int] | None = None) -> None:
    refuse_devices(op, bound)
    descriptions = {
        name: (_name_of(value.dtype), values_of(value.shape))
        for name, value in bound.items()
        if isinstance(value, torch.Tensor)
    }
    _core.check_metadata(op, descriptions, _plain_scalars(op, bound), sizes or {})


def _plain_scalars(op: str, given: Scalars) -> Scalars:
    plain: Scalars = {}
    for name, value in given.items():
        if isinstance(value, (int, torch.SymInt)):
            plain[name] = value_of(value)
        elif isinstance(value, str):
            choices = _choices[op, name]
            if value not in choices:
                expected = ", ".join(f"'{choice}'" for choice in choices)
                raise ValueError(f"{op}: {name} is '{value}', expected one of {expected}")
            plain[name] = choices.index(value)
        elif isinstance(value, (list, tuple)):
            plain[name] = tuple(
                None if isinstance(number, torch.SymFloat) else value_of(number) for number in value
            )
    return plain


def derived_fake(row: dict[str, Any]) -> Callable:
    """The shape function of an operator, from the shapes of the results in its Signature."""
    op = row["op"]
    names = [parameter["name"] for parameter in row["parameters"]]
    given = [one["name"] for one in row["parameters"] if one["kind"] == "size"]
    # The sizes that shortened results start with, and the first result that has each.
    counted: dict[str, str] = {}
    for result in row["results"]:
        if result["is_shortened"] and result["dims"][0][0][0] in given:
            counted.setdefault(result["dims"][0][0][0], result["name"])

    def fake(*arguments):
        bound = dict(zip(names, arguments, strict=True))
        sizes, folded = _sizes_of(row["parameters"], bound)
        found = _computed[op](bound) if op in _computed else None
        for name in row["computed"]:
            if sizes.get(name) is None or op in _computed:
                size = found.get(name) if isinstance(found, dict) else found
                if size is None:
                    size = unknown_size(op, name, name in given and bound[name] is None)
                sizes[name] = size
        plain = {name: value_of(sizes[name]) for name in given}
        _check(op, bound, {name: size for name, size in plain.items() if size is not None})
        for name, result in counted.items():
            sizes[name] = unknown_size(op, result)
        results = [_new_result(one, bound, sizes, folded) for one in row["results"]]
        return results[0] if len(results) == 1 else tuple(results)

    return fake


# Functions that find computed sizes of operators without data.
_computed: dict[str, Callable[[dict[str, Any]], Any]] = {}


def computed_size(op: str) -> Callable[[Callable], Callable]:
    """Decorates a function that finds the computed size of ``op`` from a dict of its arguments.

    It returns None if the size depends on data; for several sizes, a dict of those that it knows.
    """

    def decorate(function: Callable) -> Callable:
        _computed[op] = function
        return function

    return decorate


def _sizes_of(
    parameters: list[dict[str, Any]], bound: dict[str, Any]
) -> tuple[dict[str, Any], dict[tuple[str, ...], list]]:
    """The sizes that shapes and integers determine; None for an optional dimension that is absent."""
    sizes: dict[str, Any] = {}
    for one in parameters:
        value = bound[one["name"]]
        if isinstance(value, (int, torch.SymInt)):
            sizes[one["name"]] = value
        elif isinstance(value, (list, tuple)) and all(isinstance(n, (int, torch.SymInt)) for n in value):
            sizes[one["name"]] = math.prod(value)  # the extent volume(name)
    folded: dict[tuple[str, ...], list] = {}
    for parameter in parameters:
        value = bound[parameter["name"]]
        if not isinstance(value, torch.Tensor):
            continue
        dims, shape = parameter["dims"], list(value.shape)
        dropped = len(shape) < len(dims)
        for names, factor, add, is_optional, is_folded in dims:
            if dropped and is_optional:
                sizes[names[0]] = None
                continue
            count = len(shape) - (len(dims) - 1) if is_folded else 1
            extents, shape = shape[:count], shape[count:]
            dims = dims[1:]
            if is_folded:
                folded.setdefault(tuple(names), extents)
            unknown = [name for name in names if name not in sizes]
            if len(unknown) == 1:
                known = factor * math.prod(sizes[name] for name in names if name in sizes) or 1
                extent = math.prod(extents) - add
                sizes[unknown[0]] = extent if len(names) == 1 and factor == 1 else extent // known
    return sizes, folded


def _new_result(
    result: dict[str, Any], bound: dict[str, Any], sizes: dict[str, Any], folded: dict[tuple[str, ...], list]
) -> torch.Tensor:
    like = bound[result["like"]] if result["like"] else None
    first = next(value for value in bound.values() if isinstance(value, torch.Tensor))
    if (result["with"] and bound[result["with"]] is None) or (
        result["request"] and not bound[result["request"]]
    ):
        return absent_result(result, bound)
    shape: list[Any] = []
    for names, factor, add, is_optional, is_folded in result["dims"]:
        if is_optional and sizes[names[0]] is None:
            continue
        if is_folded:
            shape += folded.get(tuple(names)) or [sizes[name] for name in names]
        else:
            shape.append(
                factor * math.prod(1 if sizes[name] is None else sizes[name] for name in names) + add
            )
    if like is None:
        return first.new_empty(shape, dtype=getattr(torch, result["dtype"]))
    if result["is_lane"]:
        is_double = like.dtype == torch.float64
        return like.new_empty(shape, dtype=torch.float64 if is_double else torch.float32)
    return like.new_empty(shape)


def absent_result(result: dict[str, Any], bound: dict[str, Any]) -> torch.Tensor:
    """An empty tensor in place of a result that a call does not have."""
    like = bound.get(result["like"])
    if like is not None:
        return like.new_empty((0,))
    first = next(value for value in bound.values() if isinstance(value, torch.Tensor))
    return first.new_empty((0,), dtype=getattr(torch, result["dtype"] or "float32"))


def refuse_devices(op: str, bound: Scalars) -> None:
    """Refuses a call whose tensors are on several devices."""
    first = None
    for name, value in bound.items():
        if not isinstance(value, torch.Tensor):
            continue
        first = first or (name, value.device)
        if value.device != first[1]:
            raise ValueError(
                f"{op}: {name} is on the device {value.device}, expected {first[1]} as {first[0]}"
            )


def refusing(op: torch._ops.OpOverload) -> Callable:
    """The kernel for tensors other than plain CPU and meta tensors, which it refuses."""
    names = [argument.name for argument in op._schema.arguments]

    def kernel(*arguments):
        bound = dict(zip(names, arguments, strict=False))
        for name, value in bound.items():
            if not isinstance(value, torch.Tensor):
                continue
            if not value.is_cpu:
                raise ValueError(f"{op._opname}: {name} is on the device {value.device}, expected cpu")
            if value.layout != torch.strided:
                raise ValueError(
                    f"{op._opname}: {name} has the layout {value.layout}, expected torch.strided"
                )
            if value.is_quantized:
                raise ValueError(
                    f"{op._opname}: {name} has dtype {_name_of(value.dtype)}, "
                    "expected one that is not quantized"
                )
        raise NotImplementedError(
            f"{op._opname}: arguments of this kind are not supported, expected plain tensors"
        )

    return kernel


def unknown_size(op: str, size: str, is_optional: bool = False) -> torch.SymInt:
    """A symbol for a size that depends on values. Fake tensors have symbols, meta tensors do not.

    ``is_optional``: the caller could have passed it.
    """
    try:
        context = torch.library.get_ctx()
    except RuntimeError:
        raise NotImplementedError(
            f"{op}: the size {size} {'is not given and ' if is_optional else ''}depends on values, which "
            "tensors on the device meta do not have; use fake tensors, or real ones"
        ) from None
    return context.new_dynamic_size()
