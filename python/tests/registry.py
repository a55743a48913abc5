"""A valid call of every operator, derived from the library's registry."""

import numpy as np
import torch

import turnout.torch  # noqa: F401 (defines the operators)
from turnout import _core

ROWS = {row["op"]: row for row in _core.schemas()}


def arguments_of(op):
    """Returns the arguments by name, in schema order, with arrays as torch tensors."""
    return {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in _core.example(op).items()
    }


CALLS = {op: arguments_of(op) for op in ROWS}
TENSORS = [
    (op, name)
    for op, call in CALLS.items()
    for name, value in call.items()
    if isinstance(value, torch.Tensor)
]


def floating_arguments(op):
    """Returns the names of floating-point tensors, if a result is floating-point as well."""
    if not any(result["is_floating"] for result in ROWS[op]["results"]):
        return []
    return [one["name"] for one in ROWS[op]["parameters"] if one["is_floating"] and one["name"] in CALLS[op]]


def first_floating_result(op, results):
    if isinstance(results, torch.Tensor):
        return results
    return next(
        result
        for result, row in zip(results, ROWS[op]["results"], strict=True)
        if row["is_floating"] and result.numel() > 0
    )
