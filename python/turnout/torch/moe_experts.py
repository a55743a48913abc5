"""Grouped matrix products and the expert block of a mixture, as torch operators with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from turnout.torch.messages import own_messages
from turnout.torch.moe_permute import _permute
from turnout.torch.moe_routing import _combine
from turnout.torch.registration import gradient

if TYPE_CHECKING:
    from turnout.typing import ExpertActivation, ExpertPrecision

__all__ = [
    "grouped_experts",
    "grouped_mm",
    "moe_experts",
    "moe_experts_pack",
]


_grouped = torch.ops.turnout.grouped_mm.default
_grouped_backward = torch.ops.turnout.grouped_mm_backward_weight.default
_experts = torch.ops.turnout.moe_experts.default
_forward = torch.ops.turnout.moe_experts_forward.default
_activation_backward = torch.ops.turnout.expert_activation_backward.default


@gradient("grouped_mm", of="input weight bias", saves="input weight offs")
def _(saved, grad):
    input, weight, offs, needs = saved.input, saved.weight, saved.offs, saved.needs
    grad = grad.contiguous()
    grads = {}
    if needs.input:
        grads["input"] = _grouped(grad, weight.mT, offs)
    if needs.weight and not needs.bias and weight.stride(1) == 1:  # gradients are laid out like the weights
        grads["weight"] = _grouped_backward(grad, input, offs)[0].mT
    elif needs.weight or needs.bias:
        grads["weight"], bias = _grouped_backward(input, grad, offs, needs.bias)
        if needs.bias:
            grads["bias"] = bias
    return grads


@gradient("grouped_mm_backward_weight", of="input out_grad", saves="input out_grad offs")
def _(saved, grad_weight, grad_bias):
    grads = {}
    if saved.needs.input:
        grads["input"] = _grouped(saved.out_grad, grad_weight.mT, saved.offs)
    if saved.needs.out_grad:
        bias = grad_bias if saved.with_bias else None
        grads["out_grad"] = _grouped(saved.input, grad_weight, saved.offs, bias)
    return grads


# -- the expert block --------------------------------------------------------------------------------------


def _gate_and_up(a, gated, interleaved):
    if not gated:
        return a, None
    return (a[:, ::2], a[:, 1::2]) if interleaved else a.chunk(2, dim=1)


def _activated(a, activation, gated, interleaved, alpha, limit):
    gate, up = _gate_and_up(a, gated, interleaved)
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


def _sorted_by_expert(topk_ids, experts):
    """The ids with ``experts`` for choices without an expert, whether a choice has one, and the groups' ends.

    The rows of choices without an expert follow those of all groups.
    """
    is_valid = (topk_ids >= 0) & (topk_ids < experts)
    keys = torch.where(is_valid, topk_ids, experts)
    every = torch.arange(experts, dtype=keys.dtype, device=keys.device)
    return keys, is_valid, torch.searchsorted(keys.flatten().sort().values, every, right=True)


def _composed(hidden_states, topk_ids, topk_weights, w13, w2, w13_bias, w2_bias, *options):
    """The block composed of differentiable operators, with values in the dtype of the weights."""
    dtype = torch.promote_types(hidden_states.dtype, w13.dtype)
    keys, is_valid, offs = _sorted_by_expert(topk_ids, w13.shape[0])
    rows, places = _permute(hidden_states.to(dtype), keys)
    places = torch.where(is_valid, places.view(keys.shape), -1)

    def multiply(rows, weight, bias):
        return _grouped(rows, weight.to(dtype).mT, offs, None if bias is None else bias.to(dtype))

    h = _activated(multiply(rows, w13, w13_bias), *options)
    y = multiply(h, w2, w2_bias)
    gates = topk_weights.to(torch.promote_types(topk_weights.dtype, dtype))
    return _combine(y, places, None, 1, gates).to(hidden_states.dtype)


def _options_of(saved):
    return saved.activation, saved.gated, saved.interleaved, saved.alpha, saved.limit


def _gradients(block, tensors, needs, grad):
    """The gradients of ``block(*tensors.values())`` for the tensors that need one.

    Recomputes intermediate values, so that a forward pass keeps only its arguments.
    """
    wanted = [name for name in tensors if getattr(needs, name)]
    with torch.enable_grad():
        # Stop the gradients at views, because topk_weights usually depend on the tokens.
        tensors = {name: t.view_as(t) if name in wanted else t for name, t in tensors.items()}
        output = block(*tensors.values())
    inputs = [tensors[name] for name in wanted]
    found = torch.autograd.grad(output, inputs, grad, create_graph=torch.is_grad_enabled())
    return dict(zip(wanted, found, strict=True))


_TENSORS = "hidden_states topk_ids topk_weights w13 w2 w13_bias w2_bias"
_OF = "hidden_states topk_weights w13 w2 w13_bias w2_bias"


def _differentiable_gradients(saved, grad):
    tensors = {name: getattr(saved, name) for name in _TENSORS.split()}
    return _gradients(lambda *block: _composed(*block, *_options_of(saved)), tensors, saved.needs, grad)


@gradient("moe_experts", of=_OF, saves=_TENSORS)
def _(saved, grad):
    if torch.is_grad_enabled():
        return _differentiable_gradients(saved, grad)
    keys, _, offs = _sorted_by_expert(saved.topk_ids, len(saved.w13))
    dtype, bias = saved.hidden_states.dtype, saved.w13_bias
    rows = _permute(saved.hidden_states, keys)[0]
    products = _grouped(rows, saved.w13.to(dtype).mT, offs, None if bias is None else bias.to(dtype))
    return _block_gradients(saved, products, grad)


@gradient("moe_experts_forward", of=_OF, saves=f"{_TENSORS} products", constant="products")
def _(saved, grad, _):
    if torch.is_grad_enabled():
        return _differentiable_gradients(saved, grad)
    return _block_gradients(saved, saved.products, grad)


def _block_gradients(saved, products, grad):
    """The gradients of the block, given the products with ``w13`` in the order of experts."""
    needs, ids, w13, w2 = saved.needs, saved.topk_ids, saved.w13, saved.w2
    dtype = saved.hidden_states.dtype
    keys, is_valid, offs = _sorted_by_expert(ids, len(w13))
    grad_rows, places = _permute(grad.contiguous(), keys)
    gates = _permute(saved.topk_weights.reshape(-1, 1), keys.reshape(-1, 1))[0].flatten()
    inner_grad = _grouped(grad_rows, w2.to(dtype), offs)
    products_grad, weighted, gates_grad = _activation_backward(
        products, inner_grad, gates, *_options_of(saved)
    )
    grads = {}
    if needs.topk_weights:
        if saved.w2_bias is not None:
            bias = saved.w2_bias.float()[keys.flatten().sort().values.clamp(max=len(w2) - 1)]
            gates_grad = gates_grad + (grad_rows * bias).sum(1)
        of_choices = torch.where(is_valid, gates_grad[places.view(ids.shape).long()], 0)
        grads["topk_weights"] = of_choices.to(saved.topk_weights.dtype)
    if needs.w2:
        grads["w2"] = _weight_gradient(w2, grad_rows, weighted, offs)
    if needs.w2_bias:
        weighted_grads = grad_rows * gates[:, None].to(dtype)
        grads["w2_bias"] = _sums(weighted_grads, offs).to(saved.w2_bias.dtype)
    if needs.w13:
        rows = _permute(saved.hidden_states, keys)[0]
        grads["w13"] = _weight_gradient(w13, products_grad, rows, offs)
    if needs.w13_bias:
        grads["w13_bias"] = _sums(products_grad, offs).to(saved.w13_bias.dtype)
    if needs.hidden_states:
        rows_grad = _grouped(products_grad, w13.to(dtype), offs)
        places = torch.where(is_valid, places.view(ids.shape), -1)
        grads["hidden_states"] = _combine(rows_grad, places, None, 1)
    return grads


def _weight_gradient(weight, out_grad, input, offs):
    """The gradient of ``weight [groups, columns of out_grad, columns of input]``, laid out like it."""
    if weight.stride(1) == 1 and weight.stride(2) != 1:
        return _grouped_backward(input, out_grad, offs)[0].mT.to(weight.dtype)
    return _grouped_backward(out_grad, input, offs)[0].to(weight.dtype)


def _sums(rows, offs):
    return _grouped_backward(rows.new_ones(len(rows), 1), rows, offs)[0].squeeze(1)


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
    gated: bool = True,
    interleaved: bool = False,
    alpha: float = 1.702,
    limit: float | None = None,
    precision: ExpertPrecision = "float32",
    transposed: bool = False,
) -> torch.Tensor:
    """:func:`turnout.moe_experts` with gradients for the tokens, ``topk_weights``, weights and biases.

    If a gradient is recorded, the products with ``w13`` are kept for the backward pass, as torch's own
    operators would keep them; wrap the call in ``torch.utils.checkpoint`` to recompute them instead. The
    products of the backward pass have the dtype of the tokens. With float64 everything is float64, for
    ``torch.autograd.gradcheck``.

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
    options = activation, gated, interleaved, alpha, limit
    if hidden_states.dtype != torch.float64:
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
            return _forward(*tensors, *options, precision)[0]
        return _experts(*tensors, *options, precision)
    _experts(*(_without_values(t) for t in tensors), *options, precision)  # checks shapes and options
    return _composed(*tensors, *options)


def moe_experts_pack(weight: torch.Tensor) -> torch.Tensor:
    """Copies weights for ``moe_experts(..., transposed=True)`` into the layout that it reads in place.

    The result has the same shape ``[experts, depth, rows]`` and values, but ``depth`` is contiguous. Without
    it, every call packs the blocks of such weights that it needs.

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
    """:func:`moe_experts` for rows sorted by expert: the first ``counts[0]`` belong to expert 0, and so on.

    :func:`expert_parallel` calls its experts with these arguments. ``options`` are the keyword arguments of
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
            f"grouped_experts: counts has shape {list(counts.shape)}, expected [{len(w13)}] = [experts]"
        )
    if int(counts.sum()) != len(rows):
        raise ValueError(
            f"grouped_experts: counts sum to {int(counts.sum())}, expected {len(rows)}, the number of rows"
        )
    ids = torch.arange(len(counts)).repeat_interleave(counts, output_size=len(rows)).unsqueeze(1)
    return moe_experts(rows, ids, rows.new_ones(len(rows), 1), w13, w2, **options)
