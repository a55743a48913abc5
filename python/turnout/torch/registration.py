"""Registers the torch operators, in one loop over the library's registry, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import make_dataclass
from operator import itemgetter
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from turnout import _core
from turnout.torch.tracing import checked, derived_fake, refusing

_library = torch.library.Library("turnout", "FRAGMENT")
_is_grad_enabled = torch.is_grad_enabled
_is_in_torch_func = torch._C._are_functorch_transforms_active
_below_autograd = torch._C._after_autograd_keyset
_cpu_key = torch._C.DispatchKey.CPU
# The key sets of plain CPU tensors, without modes, subclasses and tracing. There are few of them, and looking
# up their bits takes 0.6 us less than querying the key set.
_plain_keysets: set[int] = set()
_cpu_kernels: dict[str, Callable] = {}
_has_gradient: set[str] = set()
_constants: set[str] = set()
_rows: dict[str, dict[str, Any]] = {row["op"]: row for row in _core.schemas()}


def define_operators() -> None:
    """Defines ``torch.ops.turnout.<name>`` for every operator: CPU kernel, shape function, vmap rule.

    Other kinds of tensors are refused.
    """
    for name, row in _rows.items():
        _library.define(row["schema"], tags=(torch.Tag.pt2_compliant_tag,))
        op = _operator(name)
        _cpu_kernels[name] = getattr(_core.torch, name)
        _library.impl(name, _cpu_kernels[name], "CPU")
        torch.library.register_fake(f"turnout::{name}", checked(op, derived_fake(row)), lib=_library)
        _library.impl(name, refusing(op), "CompositeExplicitAutograd")
        if hasattr(torch.library, "register_vmap"):  # torch 2.5; before it torch loops by itself
            torch.library.register_vmap(f"turnout::{name}", _vmap_rule(op), lib=_library)


def _operator(name: str) -> torch._ops.OpOverload:
    return getattr(torch.ops.turnout, name).default


def has_gradient(op: str) -> bool:
    return op in _has_gradient


def is_constant(op: str) -> bool:
    return op in _constants


def constant(*names: str) -> None:
    """Declares that results of these operators are constants: tensors that require grad are detached."""
    for name in names:
        _constants.add(name)
        kernel = _refusing_kernel(_operator(name), _cpu_kernels[name], ())
        _library.impl(name, kernel, "Autograd", with_keyset=True)


def refuse_missing_gradients() -> None:
    """Makes operators without a :func:`gradient` refuse tensors that require grad.

    Operators whose results are integers or :func:`constant` have no gradient to refuse. Called when all
    gradients are known.
    """
    for name, row in _rows.items():
        if name in _constants:
            continue
        if name not in _has_gradient and any(result["is_floating"] for result in row["results"]):
            refused = [one["name"] for one in row["parameters"] if one["is_floating"]]
            kernel = _refusing_kernel(_operator(name), _cpu_kernels[name], refused)
            _library.impl(name, kernel, "Autograd", with_keyset=True)


def gradient(
    name: str,
    *,
    of: str,
    saves: str | dict[Any, str] = "",
    by: str = "",
    shapes: str = "",
    constant: str = "",
    materialize: bool = True,
) -> Callable[[Callable], Callable]:
    """Decorates the gradient of an operator with respect to the arguments ``of``.

    The function is called as ``gradient(saved, *grads)`` and returns a dict of gradients by argument.
    ``saved`` has the tensors that ``saves`` names, arguments or results, all arguments that are not tensors,
    and ``needs``, which says for each argument whether its gradient is needed. ``shapes`` names arguments of
    which only the shape is needed: ``saved.x_shape``. ``constant`` names results without a gradient. Without
    ``materialize``, the gradient of an unused result is None instead of zeros. Names are checked when the
    module is imported.

    ``saves`` may have an entry for each value of the argument ``by``, so that a call keeps no more than it
    needs. ``saved`` then has None for tensors that the entry does not name.
    """
    if name not in _rows:
        raise ValueError(f"gradient: there is no operator {name}")
    op = _operator(name)
    arguments = [argument.name for argument in op._schema.arguments]
    results = [result["name"] for result in _rows[name]["results"]]
    by_value: dict[Any, str] = saves if isinstance(saves, dict) else {"": saves}
    all_saved = list(dict.fromkeys(one for names in by_value.values() for one in names.split()))
    is_tensor = ["Tensor" in str(argument.type) for argument in op._schema.arguments]
    tensors = [one for one, is_one in zip(arguments, is_tensor, strict=True) if is_one]
    for what, names, known in (
        ("of", of.split(), tensors),
        ("saves", all_saved, arguments + results),
        ("shapes", shapes.split(), arguments),
        ("constant", constant.split(), results),
    ):
        for one in names:
            if one not in known:
                raise ValueError(
                    f"gradient of {name}: {what} names {one}, expected one of {', '.join(known)}"
                )
    is_single = len(op._schema.returns) == 1
    # Places in the arguments, the results and None, by the value of the argument `by`.
    everything: list[str | None] = [*arguments, *results, None]
    saved_of = {
        value: _picker([everything.index(one if one in names.split() else None) for one in all_saved])
        for value, names in by_value.items()
    }
    by_index = arguments.index(by) if by else None
    values = [i for i, tensor in enumerate(is_tensor) if not tensor]
    constants_of = _picker([results.index(one) for one in constant.split()])
    values_of = _picker(values)
    shaped_of = _picker([arguments.index(one) for one in shapes.split()])
    # The first argument of forward() is the key set, which has no gradient.
    needs_of = _RecordsByValues("Needs", ["keyset", *arguments])
    gradient_names = (None, *arguments)
    differentiable = frozenset(of.split())
    shape_names = [f"{one}_shape" for one in shapes.split()]
    saved_type = _record("Saved", [*all_saved, *(arguments[i] for i in values), *shape_names, "needs"])

    def save(ctx, inputs, output):
        if not materialize:
            ctx.set_materialize_grads(False)
        if constant:
            ctx.mark_non_differentiable(*constants_of((output,) if is_single else output))
        pick = saved_of["" if by_index is None else inputs[by_index]]
        ctx.save_for_backward(*pick((*inputs, output, None) if is_single else (*inputs, *output, None)))
        if shapes:
            ctx.turnout_values = (*values_of(inputs), *[x.shape for x in shaped_of(inputs)])
        else:
            ctx.turnout_values = values_of(inputs)

    def decorate(function: Callable) -> Callable:
        def backward(ctx, *grads):
            needs = needs_of[ctx.needs_input_grad]
            found = function(saved_type(*ctx.saved_tensors, *ctx.turnout_values, needs), *grads)
            if not differentiable.issuperset(found):
                unknown = ", ".join(found.keys() - differentiable)
                raise ValueError(f"gradient of {name}: returns {unknown}, expected one of {of}")
            return tuple(map(found.get, gradient_names))

        _has_gradient.add(name)
        kernel = _autograd_kernel(op, _cpu_kernels[name], save, backward)
        _library.impl(name, kernel, "Autograd", with_keyset=True)
        return function

    return decorate


def _record(name: str, fields: list[str]) -> Callable[..., Any]:
    """A class with these attributes. A named tuple would take 1 us more per backward pass."""
    return make_dataclass(name, fields, slots=True, eq=False)


class _RecordsByValues(dict):
    """Records by their values, each created once, which saves 0.4 us per backward pass."""

    def __init__(self, name: str, fields: list[str]) -> None:
        self._make = _record(name, fields)

    def __missing__(self, values: tuple) -> Any:
        return self.setdefault(values, self._make(*values))


def _picker(positions: list[int]) -> Callable[[Sequence], tuple]:
    """Returns the entries at these positions. A comprehension would take 0.1 us more per call."""
    if len(positions) > 1:
        return itemgetter(*positions)
    if positions:
        only = positions[0]
        return lambda entries: (entries[only],)
    return lambda entries: ()


def _below(op, cpu: Callable) -> Callable:
    """The operator below autograd, for key sets that are not in ``_plain_keysets`` yet.

    For the others, kernels call ``cpu`` themselves, which saves 0.1 us per call.
    """

    def below(keyset, arguments):
        lower = keyset & _below_autograd
        if lower.highestPriorityTypeId() == _cpu_key:
            _plain_keysets.add(keyset.raw_repr())
            return cpu(*arguments)
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(lower, *arguments)

    return below


def _autograd_kernel(op, cpu: Callable, save: Callable, backward: Callable) -> Callable:
    """Does what ``torch.library.register_autograd`` does, with less overhead.

    On plain CPU tensors it calls the CPU kernel without dispatching again. A small moe_re_routing takes 10 us
    instead of 14, and 26 us instead of 44 with a recorded gradient.
    """
    defaults = [argument.default_value for argument in op._schema.arguments]
    arity = len(defaults)
    names = [argument.name for argument in op._schema.arguments]
    tensors = [i for i, argument in enumerate(op._schema.arguments) if "Tensor" in str(argument.type)]
    below = _below(op, cpu)

    def forward(ctx, keyset, *arguments):
        plain = keyset.raw_repr() in _plain_keysets
        output = cpu(*arguments) if plain else below(keyset, arguments)
        save(ctx, arguments, output)
        return output

    # The node of the graph has this name with the suffix Backward.
    node = "".join(part.capitalize() for part in op._opname.split("_"))
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    differentiable: Any = type(node, (torch.autograd.Function,), methods)

    def forward_on_one_level(ctx, keyset, *arguments):
        with torch.enable_grad():  # for the levels below this one
            return forward(ctx, keyset, *arguments)

    # Inside torch.func a kernel runs for one level of transforms, and below() continues with the next. A
    # torch.autograd.Function would start again with the first.
    on_one_level: Any = type(
        node, (_SingleLevelFunction,), {**methods, "forward": staticmethod(forward_on_one_level)}
    )

    def kernel(keyset, *arguments):
        if forward_ad._current_level >= 0:
            refuse_tangents(op._opname, dict(zip(names, arguments, strict=False)))
        if _is_grad_enabled():
            if len(arguments) < arity:  # torch omits arguments that have their default value
                arguments = (*arguments, *defaults[len(arguments) :])
            for i in tensors:
                if arguments[i] is not None and arguments[i].requires_grad:
                    if not _is_in_torch_func():
                        return differentiable.apply(keyset, *arguments)
                    with enable_single_level_autograd_function():
                        return on_one_level.apply(keyset, *arguments)
        return cpu(*arguments) if keyset.raw_repr() in _plain_keysets else below(keyset, arguments)

    return kernel


def _vmap_rule(op) -> Callable:
    """Calls the operator for each sample of ``torch.vmap``, as torch does, but without a warning."""

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
    """The kernel of an operator without a gradient, which refuses tensors that require grad.

    The CPU kernel cannot refuse them: torch.func passes it tensors that are stripped of their tracking state.
    """
    refused = {i: argument.name for i, argument in enumerate(op._schema.arguments) if argument.name in refuse}
    below = _below(op, cpu)

    def kernel(keyset, *arguments):
        if forward_ad._current_level >= 0:
            refuse_tangents(
                op._opname, {name: arguments[i] for i, name in refused.items() if i < len(arguments)}
            )
        if _is_grad_enabled():
            for i in refused:
                if i < len(arguments) and arguments[i] is not None and arguments[i].requires_grad:
                    raise NotImplementedError(
                        f"{op._opname}: {refused[i]} requires grad, but this operator has no gradient yet; "
                        f"pass {refused[i]}.detach(), or call it under torch.no_grad()"
                    )
        return cpu(*arguments) if keyset.raw_repr() in _plain_keysets else below(keyset, arguments)

    return kernel


def refuse_tangents(op: str, arguments: dict[str, object]) -> None:
    """Refuses tensors with tangents, because no operator supports forward-mode differentiation.

    Called only if ``forward_ad._current_level``, which torch.func shares, is 0 or more: looking for a tangent
    takes 1 us per tensor.
    """
    if not torch._C._is_fwd_grad_enabled():
        return
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor) and forward_ad.unpack_dual(value).tangent is not None:
            raise NotImplementedError(
                f"{op}: {name} has a tangent of forward-mode differentiation, which this operator does not "
                f"support; use reverse mode, or pass torch.autograd.forward_ad.unpack_dual({name}).primal"
            )


_core.find_torch_threads(torch)
define_operators()
