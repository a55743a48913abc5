"""Products of groups of rows, and the expert block of a mixture, as torch operators with gradients."""

from __future__ import annotations

import torch

from turnout import _core
from turnout.torch.library import define
from turnout.torch.sentences import own_sentences

__all__ = ["grouped_mm", "moe_experts"]


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
    if needs_weight or needs_bias:
        grad_weight, grad_bias = _grouped_backward(input, grad, offs)
    return grad_input, grad_weight, None, grad_bias if needs_bias else None


def _grouped_backward_cpu(input, out_grad, offs):
    return _core.grouped_mm_backward_weight(
        input.contiguous(), out_grad.contiguous(), offs.contiguous(), True, None, True
    )


def _grouped_backward_fake(input, out_grad, offs):
    groups, depth, columns = offs.shape[0], input.shape[1], out_grad.shape[1]
    return input.new_empty((groups, depth, columns)), input.new_empty((groups, columns))


# -- the expert block --------------------------------------------------------------------------------------


class _Block:
    """The expert block step by step, as its gradients need it: rows sorted by expert."""

    def __init__(
        self, x, ids, weights, w13, w2, w13_bias, w2_bias, activation, interleaved, gated, alpha, limit
    ):
        self.activation, self.interleaved, self.gated = activation, interleaved, gated
        self.alpha, self.limit = alpha, limit
        self.dtype = torch.promote_types(x.dtype, w13.dtype)
        x, w13, w2 = (t.to(self.dtype) for t in (x, w13, w2))
        experts = w13.shape[0]
        keys = torch.where((ids >= 0) & (ids < experts), ids, experts).contiguous()
        counts = torch.bincount(keys.flatten(), minlength=experts + 1)[:experts]
        self.offs = counts.cumsum(0)
        self.rows = int(counts.sum())
        self.expert_of = torch.repeat_interleave(torch.arange(experts), counts)
        x = x.contiguous()
        permuted, self.places = _core.moe_token_permute(x, keys, None, None, True)
        self.x = permuted[: self.rows]
        self.w13, self.w2 = w13, w2
        self.places = torch.where(self.places < self.rows, self.places, -1).view(keys.shape)
        self.weights = weights.to(self.dtype).contiguous()
        self.a = self.multiply(self.x, w13.mT, w13_bias)
        self.h = self.activated()
        self.y = self.multiply(self.h, w2.mT, w2_bias)

    def multiply(self, rows, weight, bias=None):
        bias = None if bias is None else bias.to(self.dtype).contiguous()
        return _core.grouped_mm(rows.contiguous(), weight, self.offs, bias, None, True)

    def halves(self):
        """Gate and up columns; the up columns of a block without a gate are None."""
        if not self.gated:
            return self.a, None
        if self.interleaved:
            return self.a[:, ::2], self.a[:, 1::2]
        inner = self.a.shape[1] // 2
        return self.a[:, :inner], self.a[:, inner:]

    def act(self, gate):
        match self.activation:
            case "silu":
                return torch.nn.functional.silu(gate)
            case "gelu":
                return torch.nn.functional.gelu(gate)
            case "gelu_tanh":
                return torch.nn.functional.gelu(gate, approximate="tanh")
            case "relu":
                return torch.relu(gate)
            case _:
                return gate * torch.sigmoid(self.alpha * gate)

    def slope(self, gate):
        """The derivative of act."""
        one = torch.ones_like(gate)
        match self.activation:
            case "silu":
                return torch.ops.aten.silu_backward(one, gate)
            case "gelu":
                return torch.ops.aten.gelu_backward(one, gate)
            case "gelu_tanh":
                return torch.ops.aten.gelu_backward(one, gate, approximate="tanh")
            case "relu":
                return (gate > 0).to(gate.dtype)
            case _:
                s = torch.sigmoid(self.alpha * gate)
                return s * (1 + self.alpha * gate * (1 - s))

    def clamped(self):
        gate, up = self.halves()
        if self.activation == "swigluoai":
            if self.limit is not None:
                gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
            up = up + 1
        return gate, up

    def activated(self):
        gate, up = self.clamped()
        h = self.act(gate)
        return h if up is None else h * up

    def result(self):
        return _core.moe_token_unpermute(self.y, self.places, self.weights, None, True)

    def gradients(self, grad):
        """Of the tokens, the weights of the sum, w13, w2 and the biases."""
        grad = grad.to(self.dtype).contiguous()
        y_grad, weights_grad = _core.moe_combine_backward(
            grad, self.y, self.places, None, 1, self.weights, None, True
        )
        y_grad = y_grad.view(self.y.shape)
        h_grad = self.multiply(y_grad, self.w2)
        w2_grad = self.outer(y_grad, self.h)
        gate, up = self.clamped()
        slope = self.slope(gate)
        if up is None:
            a_grad = h_grad * slope
        else:
            gate_grad, up_grad = h_grad * up * slope, h_grad * self.act(gate)
            if self.activation == "swigluoai" and self.limit is not None:
                raw_gate, raw_up = self.halves()
                gate_grad = gate_grad * (raw_gate <= self.limit)
                up_grad = up_grad * (raw_up.abs() <= self.limit)
            if self.interleaved:
                a_grad = torch.stack((gate_grad, up_grad), 2).flatten(1)
            else:
                a_grad = torch.cat((gate_grad, up_grad), 1)
        w13_grad = self.outer(a_grad, self.x)
        x_grad = self.multiply(a_grad, self.w13)
        x_grad = _core.moe_token_unpermute(x_grad, self.places, None, None, True)
        return x_grad, weights_grad, w13_grad, w2_grad, self.sums(a_grad), self.sums(y_grad)

    def outer(self, rows, with_rows):
        return _core.grouped_mm_backward_weight(
            rows.contiguous(), with_rows.contiguous(), self.offs, False, None, True
        )[0]

    def sums(self, rows):
        """The sum of each expert's rows."""
        return rows.new_zeros((len(self.offs), rows.shape[1])).index_add_(0, self.expert_of, rows)


def _experts_cpu(
    x, ids, weights, w13, w2, w13_bias, w2_bias, activation, interleaved, gated, alpha, limit
):  # fmt: skip
    if x.dtype == torch.float64:  # for gradcheck; the fused operator computes in float32
        block = _Block(
            x, ids, weights, w13, w2, w13_bias, w2_bias, activation, interleaved, gated, alpha, limit
        )
        return block.result()
    return _core.moe_experts(
        x.contiguous(), ids.contiguous(), weights.contiguous(), w13, w2, _contiguous(w13_bias),
        _contiguous(w2_bias), activation, interleaved, gated, alpha, limit, None, True,
    )  # fmt: skip


def _experts_fake(x, ids, weights, w13, w2, w13_bias, w2_bias, activation, interleaved, gated, alpha, limit):
    return x.new_empty(x.shape)


def _experts_save(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:7])
    ctx.options = inputs[7:]


def _experts_gradients(ctx, grad):
    tensors = ctx.saved_tensors
    *grads, w13_bias_grad, w2_bias_grad = _experts_backward(grad, *tensors, *ctx.options)
    x_grad, weights_grad, w13_grad, w2_grad = grads
    needs = ctx.needs_input_grad
    found = x_grad, None, weights_grad, w13_grad, w2_grad, w13_bias_grad, w2_bias_grad
    return *(g if need else None for g, need in zip(found, needs[:7], strict=True)), *[None] * 5


def _experts_backward_cpu(grad, x, ids, weights, w13, w2, w13_bias, w2_bias, *options):
    block = _Block(x, ids, weights, w13, w2, w13_bias, w2_bias, *options)
    like = x, weights, w13, w2, w13 if w13_bias is None else w13_bias, w2 if w2_bias is None else w2_bias
    return tuple(g.to(t.dtype) for g, t in zip(block.gradients(grad), like, strict=True))


def _experts_backward_fake(grad, x, ids, weights, w13, w2, w13_bias, w2_bias, *options):
    first = w13.new_empty(w13.shape[:2]) if w13_bias is None else torch.empty_like(w13_bias)
    second = w2.new_empty(w2.shape[:2]) if w2_bias is None else torch.empty_like(w2_bias)
    return (
        x.new_empty(x.shape),
        weights.new_empty(weights.shape),
        w13.new_empty(w13.shape),
        w2.new_empty(w2.shape),
        first,
        second,
    )


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
    refuse=("input", "out_grad"),
)
_experts_backward = define(
    f"moe_experts_backward(Tensor grad, {_BLOCK}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _experts_backward_cpu,
    _experts_backward_fake,
    refuse=("grad", "hidden_states", "topk_weights", "w13", "w2"),
)
_experts = define(
    f"moe_experts({_BLOCK}) -> Tensor",
    _experts_cpu,
    _experts_fake,
    save=_experts_save,
    backward=_experts_gradients,
)


@own_sentences()
def grouped_mm(
    input: torch.Tensor, weight: torch.Tensor, *, offs: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """:func:`turnout.grouped_mm` with gradients for ``input``, ``weight`` and ``bias``."""
    return _grouped(input, weight, offs, bias)


@own_sentences()
def moe_experts(
    hidden_states: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
    *,
    w13_bias: torch.Tensor | None = None,
    w2_bias: torch.Tensor | None = None,
    activation: str = "silu",
    interleaved: bool = False,
    transposed: bool = False,
    alpha: float = 1.702,
    limit: float | None = None,
    gated: bool = True,
) -> torch.Tensor:
    """:func:`turnout.moe_experts` with gradients for the tokens, ``topk_weights``, weights and biases.

    The backward pass computes the values between again, so that only the arguments are kept. Its products have the
    dtype of the weights.
    """
    if transposed:
        w13, w2 = w13.mT, w2.mT
    return _experts(
        hidden_states, topk_ids, topk_weights, w13, w2, w13_bias, w2_bias, activation, interleaved, gated,
        alpha, limit,
    )  # fmt: skip
