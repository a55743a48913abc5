"""How a Turnout operator becomes a torch operator."""

from __future__ import annotations

import ctypes
import pathlib
from collections.abc import Callable, Sequence

import torch
from torch.autograd import forward_ad

from turnout import _core

_library = torch.library.Library("turnout", "FRAGMENT")
_is_grad_enabled = torch.is_grad_enabled
_below_autograd = torch._C._after_autograd_keyset
_cpu_key = torch._C.DispatchKey.CPU
# Of plain CPU tensors: no mode, no subclass, nothing to be traced. There are few such sets of keys, and to
# find their bits here takes 0.6 us less than to ask the set each time.
_plain_keysets: set[int] = set()


def define(
    schema: str,
    cpu: Callable,
    fake: Callable,
    *,
    save: Callable | None = None,
    backward: Callable | None = None,
    refuse: Sequence[str] = (),
) -> torch._ops.OpOverload:
    """Defines ``torch.ops.turnout.<schema>`` with its CPU kernel and its shape function.

    One with a derivative has ``save(ctx, inputs, output)`` and ``backward(ctx, *grads)`` as well, which are
    as for ``torch.library.register_autograd``. One that could have a derivative but has none names the
    arguments whose gradients it would drop, to ``refuse`` them.
    """
    name = schema[: schema.index("(")]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, cpu, "CPU")
    torch.library.register_fake(f"turnout::{name}", fake, lib=_library)
    op = getattr(torch.ops.turnout, name).default
    if backward is not None:
        _library.impl(name, _autograd_kernel(op, cpu, save, backward), "Autograd", with_keyset=True)
    elif refuse:
        _library.impl(name, _refusing_kernel(op, cpu, refuse), "Autograd", with_keyset=True)
    return op


def _below(op, cpu: Callable) -> Callable:
    """The operator without what autograd does, for kernels that stand above it."""

    def below(keyset, arguments):
        if keyset.raw_repr() in _plain_keysets:
            return cpu(*arguments)
        lower = keyset & _below_autograd
        if lower.highestPriorityTypeId() == _cpu_key:
            _plain_keysets.add(keyset.raw_repr())
            return cpu(*arguments)
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(lower, *arguments)

    return below


def _autograd_kernel(op, cpu: Callable, save: Callable, backward: Callable) -> Callable:
    """What ``torch.library.register_autograd`` makes, with less around the call.

    On plain CPU tensors the CPU kernel is called without a second way through the dispatcher. A small
    moe_re_routing takes 10 us instead of 14, and 26 instead of 44 when a gradient is recorded.
    """
    arity, defaults = cpu.__code__.co_argcount, cpu.__defaults__ or ()
    names = [argument.name for argument in op._schema.arguments]
    tensors = [i for i, argument in enumerate(op._schema.arguments) if "Tensor" in str(argument.type)]
    below = _below(op, cpu)

    class Differentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *arguments_and_keyset):
            *arguments, keyset = arguments_and_keyset
            output = below(keyset, arguments)
            save(ctx, arguments, output)
            return output

        @staticmethod
        def backward(ctx, *grads):
            return *backward(ctx, *grads), None

    def kernel(keyset, *arguments):
        if forward_ad._current_level >= 0:
            refuse_tangents(op._opname, dict(zip(names, arguments, strict=False)))
        if _is_grad_enabled():
            if len(arguments) < arity:  # torch leaves out what has its default value
                arguments += defaults[len(arguments) - arity :]
            for i in tensors:
                if arguments[i] is not None and arguments[i].requires_grad:
                    return Differentiable.apply(*arguments, keyset)
        return below(keyset, arguments)

    return kernel


def _refusing_kernel(op, cpu: Callable, refuse: Sequence[str]) -> Callable:
    """An operator without a derivative must not drop a gradient in silence.

    The CPU kernel could not tell: torch.func hands it tensors that are bare of what it follows.
    """
    refused = {i: argument.name for i, argument in enumerate(op._schema.arguments) if argument.name in refuse}
    below = _below(op, cpu)

    def kernel(keyset, *arguments):
        if forward_ad._current_level >= 0:
            refuse_tangents(op._opname, {name: arguments[i] for i, name in refused.items()})
        if _is_grad_enabled():
            for i in refused:
                if arguments[i].requires_grad:
                    raise NotImplementedError(
                        f"{op._opname}: {refused[i]} requires grad, but this operator has no gradient yet; "
                        f"pass {refused[i]}.detach(), or call it under torch.no_grad()"
                    )
        return below(keyset, arguments)

    return kernel


def refuse_tangents(op: str, arguments: dict[str, object]) -> None:
    """No operator has a derivative of forward mode, and none drops a tangent in silence.

    Called only while ``forward_ad._current_level``, which is that of torch.func as well, is 0 or more: to
    look at tensors for a tangent takes 1 us for each.
    """
    if not torch._C._is_fwd_grad_enabled():
        return
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) and forward_ad.unpack_dual(value).tangent is not None:
            raise NotImplementedError(
                f"{op}: {name} has a tangent of forward-mode differentiation, which this operator does not "
                f"follow; use reverse mode, or pass torch.autograd.forward_ad.unpack_dual({name}).primal"
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
