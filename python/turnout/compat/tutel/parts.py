"""The gates and experts of Tutel's layer, with its parameter names and initial values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from turnout.compat.tutel.collectives import get_world_size, zero_gather
from turnout.compat.tutel.groups import create_groups_from_world
from turnout.torch import grouped_experts

# Options of every gate; the layer reads them.
_GATE_OPTIONS = ("capacity_factor", "gate_noise")


def _refuse_options(kind: str, options: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            raise ValueError(f"moe_layer: {kind} has the key {name!r}, expected one of {', '.join(known)}")


class TopGate(torch.nn.Module):
    """A linear map from tokens to one score per expert."""

    def __init__(
        self, model_dim: int, num_global_experts: int, k: int = 1, fp32_gate: bool = False, **options: Any
    ) -> None:
        super().__init__()
        _refuse_options("gate_type", options, _GATE_OPTIONS)
        self.top_k = min(num_global_experts, int(k))
        self.fp32_gate = fp32_gate
        # Draw in float32, so that a seed gives the same values for any default dtype.
        self.wg = torch.nn.Linear(model_dim, num_global_experts, bias=False, dtype=torch.float32)
        if not fp32_gate:
            self.wg.to(torch.get_default_dtype())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fp32_gate:
            self.wg.float()
        return self.wg(x.to(self.wg.weight.dtype))


class CosineTopGate(torch.nn.Module):
    """Cosine similarities of projected tokens with one vector per expert, divided by a temperature."""

    _MOST = math.log(1.0 / 0.01)

    def __init__(
        self,
        model_dim: int,
        num_global_experts: int,
        k: int = 1,
        fp32_gate: bool = False,
        proj_dim: int = 256,
        init_t: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__()
        _refuse_options("gate_type", options, _GATE_OPTIONS)
        self.top_k = min(num_global_experts, int(k))
        self.fp32_gate = fp32_gate
        self.temperature = torch.nn.Parameter(torch.log(torch.full([1], 1.0 / init_t)), requires_grad=True)
        self.cosine_projector = torch.nn.Linear(model_dim, proj_dim)
        self.sim_matrix = torch.nn.Parameter(torch.randn(proj_dim, num_global_experts), requires_grad=True)
        torch.nn.init.normal_(self.sim_matrix, 0, 0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fp32_gate:
            self.float()
        projected = self.cosine_projector(x.to(self.sim_matrix.dtype))
        cosines = functional.normalize(projected, dim=1) @ functional.normalize(self.sim_matrix, dim=0)
        return cosines * torch.clamp(self.temperature, max=self._MOST).exp()


def _uniform(shape: tuple[int, int], fan: int) -> torch.Tensor:
    limit = 1.0 / math.sqrt(fan)
    return torch.rand(shape, dtype=torch.float32) * (2 * limit) - limit


def _neighbours(ctx: Any, count: int) -> Any:
    """Returns the group of ``count`` neighbouring processes that this process belongs to."""
    return create_groups_from_world(-count, parent_group=ctx.group).model_group


# The activations that turnout.torch.moe_experts supports.
_FUSED = {functional.relu: "relu", torch.relu: "relu", functional.silu: "silu", functional.gelu: "gelu"}


class FfnExperts(torch.nn.Module):
    """Two linear maps per expert, with an activation between them.

    If experts are sharded, each process has ``hidden_size`` of the hidden units and a part of the second
    bias.
    """

    def __init__(
        self,
        model_dim: int,
        hidden_size_per_expert: int,
        num_experts_per_device: int,
        sharded_count: int = 1,
        activation_fn: Callable | None = None,
        activation_fn_with_self: Callable | None = None,
        output_dim: int | None = None,
        has_fc1_bias: bool = True,
        has_fc2_bias: bool = True,
    ) -> None:
        super().__init__()
        if hidden_size_per_expert % sharded_count != 0:
            raise ValueError(
                f"moe_layer: hidden_size_per_expert is {hidden_size_per_expert}, expected a multiple of the "
                f"{sharded_count} processes that share an expert"
            )
        hidden = hidden_size_per_expert // sharded_count
        self.model_dim, self.hidden_size = model_dim, hidden
        self.local_experts, self.output_dim = num_experts_per_device, output_dim or model_dim
        if activation_fn_with_self is not None:
            if activation_fn is not None:
                raise ValueError(
                    "moe_layer: experts has activation_fn and activation_fn_with_self, expected one of them"
                )
            self.activation_fn = lambda x: activation_fn_with_self(x, self)
        else:
            self.activation_fn = activation_fn or functional.relu
        experts = num_experts_per_device
        self.batched_fc1_w = torch.nn.Parameter(torch.empty(experts, hidden, model_dim))
        self.batched_fc2_w = torch.nn.Parameter(torch.empty(experts, hidden, self.output_dim))
        self.register_parameter("batched_fc1_bias", None)
        self.register_parameter("batched_fc2_bias", None)
        if has_fc1_bias:
            self.batched_fc1_bias = torch.nn.Parameter(torch.zeros(experts, hidden))
        if has_fc2_bias:
            self.batched_fc2_bias = torch.nn.Parameter(
                torch.zeros(experts, math.ceil(self.output_dim / sharded_count))
            )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            for i in range(self.local_experts):
                self.batched_fc1_w[i] = _uniform((self.hidden_size, self.model_dim), self.model_dim)
                self.batched_fc2_w[i] = _uniform((self.hidden_size, self.output_dim), self.hidden_size)
            for bias in (self.batched_fc1_bias, self.batched_fc2_bias):
                if bias is not None:
                    bias.zero_()

    def extra_repr(self) -> str:
        return (
            f"model_dim={self.model_dim}, hidden_size={self.hidden_size}, output_dim={self.output_dim}, "
            f"local_experts={self.local_experts}"
        )

    def _gathered(self, ctx: Any) -> list[torch.Tensor | None]:
        """Returns the weights and biases that this process uses, those of fc1 first.

        They are gathered from the processes that share them, if any.
        """
        names = ("batched_fc1_w", "batched_fc1_bias", "batched_fc2_w", "batched_fc2_bias")
        own = [getattr(self, name) for name in names]
        if ctx.adaptive_degree == 0:
            groups, count = [ctx.group] * 4, ctx.num_global_experts
        elif ctx.sharded_count > 1:
            # Each of the adaptive_degree parts of an expert has an equal share of the hidden units.
            whole = _neighbours(ctx, ctx.sharded_count)
            part = _neighbours(ctx, ctx.sharded_count // ctx.adaptive_degree)
            groups, count = [part, part, part, whole], 1
        else:
            return own
        fc1, bias1, fc2, bias2 = (
            None if p is None else zero_gather(p, group=group).reshape(count, -1, *p.shape[2:])
            for p, group in zip(own, groups, strict=True)
        )
        if bias2 is not None:
            bias2 = bias2[:, : self.output_dim] / max(ctx.adaptive_degree, 1)  # the parts are summed
        return [fc1, bias1, fc2, bias2]

    def _fused(self, x: torch.Tensor, weights: list[torch.Tensor | None]) -> torch.Tensor | None:
        """Computes all experts in one call, which keeps intermediate values in float32.

        Returns None if it does not apply: when a gradient is recorded, because separate products save the
        intermediate values instead of computing them twice; or for another activation, width or dtype.
        """
        activation = _FUSED.get(self.activation_fn)
        if activation is None or torch.is_grad_enabled() or self.output_dim != self.model_dim:
            return None
        if x.dtype not in (torch.bfloat16, torch.float16) or x.dtype != self.batched_fc1_w.dtype:
            return None
        fc1, bias1, fc2, bias2 = weights
        return grouped_experts(
            x.flatten(0, 1),
            torch.full((x.shape[0],), x.shape[1]),
            w13=fc1,
            w2=fc2.mT,
            w13_bias=bias1,
            w2_bias=bias2,
            activation=activation,
            gated=False,
        ).view(x.shape)

    def forward(self, x: torch.Tensor, ctx: Any) -> torch.Tensor:
        shape = x.shape
        x = x.flatten(2)
        weights = fc1, bias1, fc2, bias2 = self._gathered(ctx)
        y = self._fused(x, weights)
        if y is not None:
            return y.reshape(shape)
        y = torch.matmul(x, fc1.mT)
        if bias1 is not None:
            y = y + bias1.unsqueeze(1)
        y = torch.matmul(self.activation_fn(y), fc2)
        if bias2 is not None:
            y = y + bias2.unsqueeze(1)
        return y.reshape(shape) if self.output_dim == self.model_dim else y


class LlamaFfnExperts(torch.nn.Module):
    """``W3(activation(W1 x) * W2 x)`` for each expert. The three parameters are flat.

    If experts are sharded, each process has a part of the elements of each parameter.
    """

    def __init__(
        self,
        model_dim: int,
        hidden_size_per_expert: int,
        num_experts_per_device: int,
        sharded_count: int = 1,
        activation_fn: Callable = functional.silu,
    ) -> None:
        super().__init__()
        self.model_dim, self.hidden_size = model_dim, hidden_size_per_expert
        self.local_experts, self.activation_fn = num_experts_per_device, activation_fn
        there = (num_experts_per_device, model_dim, hidden_size_per_expert)
        self.shapes = {"W_fc1": there, "W_fc2": there, "W_fc3": (there[0], there[2], there[1])}
        for name, shape in self.shapes.items():
            elements = math.ceil(math.prod(shape) / sharded_count)
            self.register_parameter(name, torch.nn.Parameter(torch.empty(elements)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            for name in self.shapes:
                getattr(self, name).normal_(0, 0.01)

    def _gathered(self, name: str, ctx: Any) -> torch.Tensor:
        """Returns a whole parameter of all experts that this process computes."""
        values, shape = getattr(self, name), self.shapes[name]
        if ctx.adaptive_degree == 0:
            values = zero_gather(values, group=ctx.group)
        elif ctx.sharded_count > 1:
            values = zero_gather(values, group=_neighbours(ctx, ctx.sharded_count))
        sets = get_world_size(ctx.group) // ctx.sharded_count if ctx.adaptive_degree == 0 else 1
        return values.view(sets, -1)[:, : math.prod(shape)].reshape(-1, *shape[1:])

    def forward(self, x: torch.Tensor, ctx: Any) -> torch.Tensor:
        shape = x.shape
        x = x.flatten(2)
        fc1, fc2, fc3 = (self._gathered(name, ctx) for name in self.shapes)
        y = torch.matmul(self.activation_fn(torch.matmul(x, fc1)) * torch.matmul(x, fc2), fc3).reshape(shape)
        # A part of a flat parameter does not give a part of the result: each process computes the whole, and
        # the adaptive_degree copies are summed.
        return y / ctx.adaptive_degree if ctx.adaptive_degree > 1 else y
