"""Grouping, gathering and interpolation as compiled modules call them: into given tensors, with given sizes.

The functions take what an argument is called beside its value, so that messages name it. Results are copied,
gradients are added to what is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from turnout.compat._extension import Checks

F32 = (torch.float32,)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INDICES = (torch.int32, torch.int64)

_ops = torch.ops.turnout


@contextmanager
def index_errors(function: str, **names: str) -> Iterator[None]:
    """Renames arguments in messages of operators; an index out of range is an IndexError."""
    try:
        yield
    except ValueError as error:
        message = str(error).partition(": ")[2]
        for own, name in names.items():
            message = re.sub(rf"\b{own}\b", name, message)
        kind = IndexError if re.match(rf"{names.get('indices', 'indices')}\[", message) else ValueError
        raise kind(f"{function}: {message}") from None


class Call:
    """The tensors of one call, checked against its sizes."""

    def __init__(self, function: str, dtypes: tuple[torch.dtype, ...], **sizes: object) -> None:
        self._function = function
        self._dtypes = dtypes
        self._checks = Checks(function, **sizes)
        self._names: dict[str, str] = {}

    def floats(self, value: Tensor, dims: str, name: str, dtype: torch.dtype | None = None) -> Tensor:
        return self._checks.tensor(name, value, dims, *((dtype,) if dtype else self._dtypes))

    def indices(self, value: Tensor, dims: str, name: str) -> Tensor:
        self._names["indices"] = name
        return self._checks.tensor(name, value, dims, *INDICES)

    def counts(self, value: Tensor, dims: str, name: str, own: str = "counts") -> Tensor:
        self._names[own] = name
        return self._checks.tensor(name, value, dims, *INDICES)

    def run(self, op, *arguments) -> Tensor:
        with index_errors(self._function, **self._names):
            return op(*arguments)


def write_group(call: Call, points: Tensor, idx: Tensor, out: Tensor, suffix: str = "") -> None:
    points = call.floats(points, "b c n", f"points{suffix}")
    idx = call.indices(idx, "b npoints nsample", f"idx{suffix}")
    out = call.floats(out, "b c npoints nsample", f"out{suffix}", points.dtype)
    out.copy_(call.run(_ops.group_points, points, idx))


def add_group_grad(call: Call, grad_out: Tensor, idx: Tensor, grad_points: Tensor, suffix: str = "") -> None:
    grad = call.floats(grad_out, "b c npoints nsample", f"grad_out{suffix}")
    idx = call.indices(idx, "b npoints nsample", f"idx{suffix}")
    to = call.floats(grad_points, "b c n", f"grad_points{suffix}", grad.dtype)
    to += call.run(_ops.group_points_backward, grad, idx, to.shape[2])


def write_gather(call: Call, points: Tensor, idx: Tensor, out: Tensor, suffix: str = "") -> None:
    points = call.floats(points, "b c n", f"points{suffix}")
    idx = call.indices(idx, "b npoints", f"idx{suffix}")
    out = call.floats(out, "b c npoints", f"out{suffix}", points.dtype)
    out.copy_(call.run(_ops.gather_points, points, idx))


def add_gather_grad(call: Call, grad_out: Tensor, idx: Tensor, grad_points: Tensor, suffix: str = "") -> None:
    grad = call.floats(grad_out, "b c npoints", f"grad_out{suffix}")
    idx = call.indices(idx, "b npoints", f"idx{suffix}")
    to = call.floats(grad_points, "b c n", f"grad_points{suffix}", grad.dtype)
    to += call.run(_ops.gather_points_backward, grad, idx, to.shape[2])


def _lane(weights: Tensor) -> Tensor:
    return weights if weights.dtype == torch.float64 else weights.float()


def write_interpolation(
    call: Call, points: Tensor, idx: Tensor, weight: Tensor, out: Tensor, suffix: str = ""
) -> None:
    points = call.floats(points, "b c m", f"points{suffix}")
    idx = call.indices(idx, "b n 3", f"idx{suffix}")
    weight = call.floats(weight, "b n 3", f"weight{suffix}", points.dtype)
    out = call.floats(out, "b c n", f"out{suffix}", points.dtype)
    out.copy_(call.run(_ops.three_interpolate, points, idx, _lane(weight)))


def add_interpolation_grad(
    call: Call, grad_out: Tensor, idx: Tensor, weight: Tensor, grad_points: Tensor, suffix: str = ""
) -> None:
    grad = call.floats(grad_out, "b c n", f"grad_out{suffix}")
    idx = call.indices(idx, "b n 3", f"idx{suffix}")
    weight = call.floats(weight, "b n 3", f"weight{suffix}", grad.dtype)
    to = call.floats(grad_points, "b c m", f"grad_points{suffix}", grad.dtype)
    to += call.run(_ops.three_interpolate_backward, grad, idx, _lane(weight), to.shape[2])


def write_stacked_group(
    call: Call, features: Tensor, counts: Tensor, idx: Tensor, idx_counts: Tensor, out: Tensor,
    suffix: str = "",
) -> None:  # fmt: skip
    features = call.floats(features, "n c", f"features{suffix}")
    counts = call.counts(counts, "b", f"features_batch_cnt{suffix}")
    idx = call.indices(idx, "m nsample", f"idx{suffix}")
    idx_counts = call.counts(idx_counts, "b", f"idx_batch_cnt{suffix}", "index_counts")
    out = call.floats(out, "m c nsample", f"out{suffix}", features.dtype)
    out.copy_(call.run(_ops.group_points_stacked, features, counts, idx, idx_counts))


def add_stacked_group_grad(
    call: Call, grad_out: Tensor, idx: Tensor, idx_counts: Tensor, counts: Tensor, grad_features: Tensor,
    suffix: str = "",
) -> None:  # fmt: skip
    grad = call.floats(grad_out, "m c nsample", f"grad_out{suffix}")
    idx = call.indices(idx, "m nsample", f"idx{suffix}")
    idx_counts = call.counts(idx_counts, "b", f"idx_batch_cnt{suffix}", "index_counts")
    counts = call.counts(counts, "b", f"features_batch_cnt{suffix}")
    to = call.floats(grad_features, "n c", f"grad_features{suffix}", grad.dtype)
    to += call.run(_ops.group_points_stacked_backward, grad, counts, idx, idx_counts, len(to))


def write_stacked_interpolation(
    call: Call, features: Tensor, idx: Tensor, weight: Tensor, out: Tensor
) -> None:
    features = call.floats(features, "m c", "features")
    idx = call.indices(idx, "n 3", "idx")
    weight = call.floats(weight, "n 3", "weight", features.dtype)
    out = call.floats(out, "n c", "out", features.dtype)
    out.copy_(call.run(_ops.three_interpolate_stacked, features, idx, _lane(weight)))


def add_stacked_interpolation_grad(
    call: Call, grad_out: Tensor, idx: Tensor, weight: Tensor, grad_features: Tensor
) -> None:
    grad = call.floats(grad_out, "n c", "grad_out")
    idx = call.indices(idx, "n 3", "idx")
    weight = call.floats(weight, "n 3", "weight", grad.dtype)
    to = call.floats(grad_features, "m c", "grad_features", grad.dtype)
    to += call.run(_ops.three_interpolate_stacked_backward, grad, idx, _lane(weight), len(to))
