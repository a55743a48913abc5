"""How a Turnout operator becomes a torch operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from turnout import _core
from turnout.torch.sentences import add_speaker
from turnout.torch.tracing import checked, refusing

_library = torch.library.Library("turnout", "FRAGMENT")
_is_grad_enabled = torch.is_grad_enabled
_is_in_torch_func = torch._C._are_functorch_transforms_active
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
    scalars: Callable | None = None,
) -> torch._ops.OpOverload:
    """Defines ``torch.ops.turnout.<schema>`` with its CPU kernel and its shape function.

    One with a derivative has ``save(ctx, inputs, output)`` and ``backward(ctx, *grads)`` as well, which are
    as for ``torch.library.register_autograd``. One that could have a derivative but has none names the
    arguments whose gradients it would drop, to ``refuse`` them. ``scalars``: see :func:`tracing.checked`.
    """
    name = schema[: schema.index("(")]
    add_speaker(name)
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    op = getattr(torch.ops.turnout, name).default
    _library.impl(name, cpu, "CPU")
    torch.library.register_fake(f"turnout::{name}", checked(op, fake, scalars), lib=_library)
    _library.impl(name, refusing(op), "CompositeExplicitAutograd")
    if hasattr(torch.library, "register_vmap"):  # torch 2.5; before it torch loops by itself
        torch.library.register_vmap(f"turnout::{name}", _vmap_rule(op), lib=_library)
    if save is not None and backward is not None:
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

    def forward(ctx, *arguments_and_keyset):
        *arguments, keyset = arguments_and_keyset
        output = below(keyset, arguments)
        save(ctx, arguments, output)
        return output

    def backward_of_all(ctx, *grads):
        return *backward(ctx, *grads), None

    # The node of the graph has this name, and Backward behind it.
    node = "".join(part.capitalize() for part in op._opname.split("_"))
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward_of_all)}
    differentiable: Any = type(node, (torch.autograd.Function,), methods)

    def forward_on_one_level(ctx, *arguments_and_keyset):
        with torch.enable_grad():  # which the levels below this one look at
            return forward(ctx, *arguments_and_keyset)

    # Inside of torch.func a kernel is called for one level of transforms, and below() goes on to the next.
    # A torch.autograd.Function would start again at the first.
    on_one_level: Any = type(
        node, (_SingleLevelFunction,), {**methods, "forward": staticmethod(forward_on_one_level)}
    )

    def kernel(keyset, *arguments):
        if forward_ad._current_level >= 0:
            refuse_tangents(op._opname, dict(zip(names, arguments, strict=False)))
        if _is_grad_enabled():
            if len(arguments) < arity:  # torch leaves out what has its default value
                arguments += defaults[len(arguments) - arity :]
            for i in tensors:
                if arguments[i] is not None and arguments[i].requires_grad:
                    if not _is_in_torch_func():
                        return differentiable.apply(*arguments, keyset)
                    with enable_single_level_autograd_function():
                        return on_one_level.apply(*arguments, keyset)
        return below(keyset, arguments)

    return kernel


def _vmap_rule(op) -> Callable:
    """One call for each sample of ``torch.vmap``: what torch does too, with a warning."""

    def rule(info, dims, *arguments):
        if info.batch_size == 0:
            raise ValueError(f"{op._opname}: torch.vmap has no samples, expected at least one")
        samples = [
            op(*(x.select(d, i) if isinstance(d, int) else x for x, d in zip(arguments, dims, strict=True)))
            for i in range(info.batch_size)
        ]
        if isinstance(samples[0], torch.Tensor):
            return _stacked(op, samples), 0
        results = tuple(_stacked(op, parts) for parts in zip(*samples, strict=True))
        return results, (0,) * len(results)

    return rule


def _stacked(op, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    for i, part in enumerate(parts):
        if part.shape != parts[0].shape:
            raise ValueError(
                f"{op._opname}: a result has shape {list(parts[0].shape)} for the first sample of torch.vmap "
                f"and {list(part.shape)} for sample {i}, expected one shape; call it for each sample"
            )
    return torch.stack(list(parts))


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


_core.find_torch_threads(torch)
