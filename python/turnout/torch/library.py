"""How a Turnout operator becomes a torch operator."""

from __future__ import annotations

import ctypes
import pathlib
from collections.abc import Callable

import torch

from turnout import _core

_library = torch.library.Library("turnout", "FRAGMENT")


def define(schema: str, cpu: Callable, fake: Callable) -> torch._ops.OpOverload:
    """Defines ``torch.ops.turnout.<schema>`` with its CPU kernel and its shape function."""
    name = schema[: schema.index("(")]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, cpu, "CPU")
    torch.library.register_fake(f"turnout::{name}", fake, lib=_library)
    return getattr(torch.ops.turnout, name).default


def refuse_gradients(op: str, **tensors: torch.Tensor) -> None:
    """An operator without a derivative must not drop a gradient in silence."""
    for name, tensor in tensors.items():
        if tensor.requires_grad:
            raise NotImplementedError(
                f"{op}: {name} requires grad, but this operator has no gradient yet; pass {name}.detach(), "
                "or call it under torch.no_grad()"
            )


def _use_torch_threads() -> None:
    """Hands torch's own parallel loop to the library; releases without it leave us our own threads."""
    path = pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        libtorch = ctypes.CDLL(str(path))  # loaded already: this finds it
        functions = (libtorch.torch_parallel_for, libtorch.torch_get_num_threads)
    except (OSError, AttributeError):
        return
    _core.use_torch_threads(*(ctypes.cast(f, ctypes.c_void_p).value for f in functions))


_use_torch_threads()
