"""Products of groups of rows, and the expert block of a mixture, as torch operators with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from turnout import _core
from turnout.torch.messages import own_messages
from turnout.torch.moe_permute import _permute
from turnout.torch.moe_routing import _combine
from turnout.torch.registration import define

if TYPE_CHECKING:
    from turnout.typing import ExpertActivation

__all__ = [
    "grouped_experts",
    "grouped_mm",
    "moe_experts",
    "moe_experts_pack",
]


def _contiguous(tensor):
    return None if tensor is None else tensor.contiguous()


# -- grouped_mm --------------------------------------------------------------------------------------------


def _grouped_cpu(input, weight, offs, bias=None):
    return _core.grouped_mm(input.contiguous(), weight, offs.contiguous(), _contiguous(bias), None, True)


def _grouped_fake(input, weight, offs, bias=None):
    return input.new_empty((input.shape[0], weight.shape[2]))


def _grouped_save(ctx, inputs, output):
    input, weight, offs, bias = inputs
    ctx.save_for_backward(input, weight, offs)
    ctx.has_bias = bias is not None


def _grouped_gradients(ctx, grad):
    input, weight, offs = ctx.saved_tensors
    needs_input, needs_weight, _, needs_bias = ctx.needs_input_grad[:4]
    grad = grad.contiguous()
    grad_input = _grouped(grad, weight.mT, offs) if needs_input else None
    grad_weight = grad_bias = None
    if needs_weight and not needs_bias and weight.stride(1) == 1:  # gradients are laid out like the weights
        grad_weight = _grouped_backward(grad, input, offs)[0].mT
    elif needs_weight or needs_bias:
        grad_weight, grad_bias = _grouped_backward(input, grad, offs)
    return grad_input, grad_weight, None, grad_bias if needs_bias else None


def _grouped_backward_cpu(input, out_grad, offs):
    return _core.grouped_mm_backward_weight(
        input.contiguous(), out_grad.contiguous(), offs.contiguous(), True, None, True
    )


def _grouped_backward_fake(input, out_grad, offs):
    groups, depth, columns = offs.shape[0], input.shape[1], out_grad.shape[1]
    return input.new_empty((groups, depth, columns)), input.new_empty((groups, columns))


def _grouped_backward_save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _grouped_backward_gradients(ctx, grad_weight, grad_bias):
    input, out_grad, offs = ctx.saved_tensors
    needs_input, needs_out_grad = ctx.needs_input_grad[:2]
    return (
        _grouped(out_grad, grad_weight.mT, offs) if needs_input else None,
        _grouped(input, grad_weight, offs, grad_bias) if needs_out_grad else None,
        None,
    )


# -- the expert block --------------------------------------------------------------------------------------


def _gate_and_up(a, interleaved, gated):
    if not gated:
        return a, None
    return (a[:, ::2], a[:, 1::2]) if interleaved else a.chunk(2, dim=1)


def _activated(a, activation, interleaved, gated, alpha, limit):
    gate, up = _gate_and_up(a, interleaved, gated)
    match activation:
        case "silu":
            h = torch.nn.functional.silu(gate)
        case "gelu":
            h = torch.nn.functional.gelu(gate)
        case "gelu_tanh":
            h = torch.nn.functional.gelu(gate, approximate="tanh")
        case "relu":
            h = torch.relu(gate)
        case _:
            if limit is not None:
                gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            h, up = gate * torch.sigmoid(alpha * gate), up + 1
    return h if up is None else h * up


def _composed(x, ids, weights, w13, w2, w13_bias, w2_bias, *options):
    """The block out of differentiable operators, with the values between in the dtype of the weights.

    Choices without an expert are rows after those of all groups.
    """
    dtype = torch.promote_types(x.dtype, w13.dtype)
    experts = w13.shape[0]
    is_valid = (ids >= 0) & (ids < experts)
    keys = torch.where(is_valid, ids, experts)
    every = torch.arange(experts, dtype=keys.dtype, device=keys.device)
    offs = torch.searchsorted(keys.flatten().sort().values, every, right=True)
    rows, places = _permute(x.to(dtype), keys)
    places = torch.where(is_valid, places.view(keys.shape), -1)

    def multiply(rows, weight, bias):
        return _grouped(rows, weight.to(dtype).mT, offs, None if bias is None else bias.to(dtype))

    h = _activated(multiply(rows, w13, w13_bias), *options)
    y = multiply(h, w2, w2_bias)
    gates = weights.to(torch.promote_types(weights.dtype, dtype))
    return _combine(y, places, None, 1, gates).to(x.dtype)


def _experts_cpu(
    x, ids, weights, w13, w2, w13_bias, w2_bias, activation, interleaved, gated, alpha, limit
):  # fmt: skip
    return _core.moe_experts(
        x.contiguous(), ids.contiguous(), weights.contiguous(), w13, w2, _contiguous(w13_bias),
        _contiguous(w2_bias), activation, interleaved, False, gated, alpha, limit, None, True,
    )  # fmt: skip


def _experts_fake(x, ids, weights, w13, w2, w13_bias, w2_bias, activation, interleaved, gated, alpha, limit):
    return x.new_empty(x.shape)


def _experts_save(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:7])
    ctx.options = inputs[7:]


def _experts_gradients(ctx, grad):
    """Computes the values between once more, so that a forward pass keeps nothing but its arguments."""
    needs = ctx.needs_input_grad[:7]
    with torch.enable_grad():
        # The gradients stop at these views: topk_weights usually depend on the tokens.
        tensors = [t.view_as(t) if need else t for t, need in zip(ctx.saved_tensors, needs, strict=True)]
        output = _composed(*tensors, *ctx.options)
    wanted = [t for t, need in zip(tensors, needs, strict=True) if need]
    found = iter(torch.autograd.grad(output, wanted, grad, create_graph=torch.is_grad_enabled()))
    return *(next(found) if need else None for need in needs), *[None] * len(ctx.options)


_BLOCK = (
    "Tensor hidden_states, Tensor topk_ids, Tensor topk_weights, Tensor w13, Tensor w2, Tensor? w13_bias, "
    "Tensor? w2_bias, str activation, bool interleaved, bool gated, float alpha, float? limit"
)
_grouped = define(
    "grouped_mm(Tensor input, Tensor weight, Tensor offs, Tensor? bias=None) -> Tensor",
    _grouped_cpu,
    _grouped_fake,
    save=_grouped_save,
    backward=_grouped_gradients,
)
_grouped_backward = define(
    "grouped_mm_backward_weight(Tensor input, Tensor out_grad, Tensor offs) -> (Tensor, Tensor)",
    _grouped_backward_cpu,
    _grouped_backward_fake,
    save=_grouped_backward_save,
    backward=_grouped_backward_gradients,
)
_experts = define(
    f"moe_experts({_BLOCK}) -> Tensor",
    _experts_cpu,
    _experts_fake,
    save=_experts_save,
    backward=_experts_gradients,
)


def _without_values(tensor):
    if tensor is None:
        return None
    dtype = torch.float32 if tensor.dtype == torch.float64 else tensor.dtype
    return torch.empty_like(tensor, dtype=dtype, device="meta", requires_grad=False)


@own_messages()
def grouped_mm(
    input: torch.Tensor, weight: torch.Tensor, *, offs: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """:func:`turnout.grouped_mm` with gradients for ``input``, ``weight`` and ``bias``.

    Example:
        >>> rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        >>> weight = torch.tensor([[[1.0], [1.0]], [[10.0], [0.0]]], requires_grad=True)
        >>> out = turnout.torch.grouped_mm(rows, weight, offs=torch.tensor([2, 3]))
        >>> out.sum().backward()
        >>> out.flatten().tolist(), weight.grad.flatten().tolist()
        ([3.0, 7.0, 50.0], [4.0, 6.0, 5.0, 6.0])
    """
    return _grouped(input, weight, offs, bias)


@own_messages()
def moe_experts(
    hidden_states: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    *,
    w13_bias: torch.Tensor | None = None,
    w2_bias: torch.Tensor | None = None,
    activation: ExpertActivation = "silu",
    interleaved: bool = False,
    transposed: bool = False,
    alpha: float = 1.702,
    limit: float | None = None,
    gated: bool = True,
) -> torch.Tensor:
    """:func:`turnout.moe_experts` with gradients for the tokens, ``topk_weights``, weights and biases.

    The backward pass computes the values between again, so that only the arguments are kept. Its products
    have the dtype of the weights. With float64 everything is float64, for ``torch.autograd.gradcheck``.

    Example:
        >>> tokens = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        >>> ids, weights = torch.tensor([[0, 1], [1, 2]]), torch.full((2, 2), 0.5)
        >>> first = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])  # expert 0 takes the first column
        >>> second = torch.tensor([[[2.0], [0.0]], [[0.0], [2.0]]])
        >>> y = turnout.torch.moe_experts(
        ...     tokens, ids, weights, first, second, activation="relu", gated=False
        ... )
        >>> y.sum().backward()
        >>> y.tolist(), tokens.grad.tolist()
        ([[1.0, 2.0], [0.0, 4.0]], [[1.0, 1.0], [0.0, 1.0]])
    """
    if transposed:
        w13, w2 = w13.mT, w2.mT
    tensors = hidden_states, topk_ids, topk_weights, w13, w2, w13_bias, w2_bias
    options = activation, interleaved, gated, alpha, limit
    if hidden_states.dtype != torch.float64:
        return _experts(*tensors, *options)
    _experts(*(_without_values(t) for t in tensors), *options)  # checks shapes and options
    return _composed(*tensors, *options)


def moe_experts_pack(weight: torch.Tensor) -> torch.Tensor:
    """The weights of ``moe_experts(..., transposed=True)`` in the order of memory that it reads in place.

    The result has the same shape and values: ``[experts, depth, rows]``, with ``depth`` contiguous. It is a
    copy. Without it, every call packs the blocks of such weights that it needs.

    Example:
        >>> weight = torch.arange(6.0).view(1, 3, 2)
        >>> packed = turnout.torch.moe_experts_pack(weight)
        >>> torch.equal(packed, weight), packed.stride()
        (True, (6, 1, 3))
    """
    if weight.dim() != 3:
        raise ValueError(
            f"moe_experts_pack: weight has {weight.dim()} dimensions, expected 3: [experts, depth, rows]"
        )
    return weight.mT.contiguous().mT


@own_messages()
def grouped_experts(
    rows: torch.Tensor, counts: torch.Tensor, *, w13: torch.Tensor, w2: torch.Tensor, **options: Any
) -> torch.Tensor:
    """:func:`moe_experts` of rows sorted by expert: the first ``counts[0]`` are those of expert 0, and so on.

    That is what :func:`expert_parallel` calls its experts with. ``options`` are the keywords of
    :func:`moe_experts`.

    Example:
        >>> import functools
        >>> w13, w2 = torch.tensor([[[10.0]], [[100.0]]]), torch.ones(2, 1, 1)
        >>> experts = functools.partial(
        ...     turnout.torch.grouped_experts, w13=w13, w2=w2, activation="relu", gated=False
        ... )
        >>> tokens, chosen = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1, 0, 1])
        >>> turnout.torch.expert_parallel(tokens, chosen, None, experts, num_experts=2).tolist()
        [[100.0], [20.0], [300.0]]
    """
    if counts.dim() != 1 or len(counts) != len(w13):
        raise ValueError(
            f"grouped_experts: counts has the shape {list(counts.shape)}, expected [{len(w13)}], experts"
        )
    if int(counts.sum()) != len(rows):
        raise ValueError(f"grouped_experts: counts add up to {int(counts.sum())}, expected {len(rows)}, rows")
    ids = torch.arange(len(counts)).repeat_interleave(counts, output_size=len(rows)).unsqueeze(1)
    return moe_experts(rows, ids, rows.new_ones(len(rows), 1), w13, w2, **options)
