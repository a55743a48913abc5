"""An experts implementation for Hugging Face's transformers: :func:`turnout.torch.moe_experts` on a CPU.

Example:
    >>> import turnout.compat.transformers
    >>> from transformers import AutoModelForCausalLM, Qwen3MoeConfig
    >>> turnout.compat.transformers.install()
    >>> config = Qwen3MoeConfig(
    ...     **{"hidden_size": 16, "moe_intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 2},
    ...     **{"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 8},
    ... )
    >>> model = AutoModelForCausalLM.from_config(config)
    >>> model.set_experts_implementation("turnout")
    >>> model(torch.tensor([[1, 2, 3]])).logits.shape
    torch.Size([1, 3, 8])
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass

import torch
from transformers import activations
from transformers.integrations import moe

from turnout.torch import moe_experts

__all__ = ["install", "uninstall"]

_log = logging.getLogger("turnout")

_ACTIVATIONS = {
    activations.SiLUActivation: "silu",
    torch.nn.SiLU: "silu",
    activations.GELUActivation: "gelu",
    activations.GELUTanh: "gelu_tanh",
    activations.NewGELUActivation: "gelu_tanh",
    torch.nn.ReLU: "relu",
}
_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@dataclass(frozen=True)
class _Form:
    """What a block computes, as :func:`turnout.torch.moe_experts` says it."""

    activation: str
    interleaved: bool = False
    gated: bool = True
    alpha: float = 1.702
    limit: float | None = None


def _form_of(experts: torch.nn.Module) -> _Form | str:
    """The form of a block, or why it is not fused."""
    if experts.has_post_expert_norm:
        return "it has a norm after each expert"
    gate = type(experts)._apply_gate
    if experts.has_gate and gate.__qualname__ == "GptOssExperts._apply_gate":
        return _Form("swigluoai", interleaved=True, alpha=experts.alpha, limit=experts.limit)
    if experts.has_gate and gate is not moe._default_apply_gate:
        return f"its gate is {gate.__qualname__}"
    if not experts.has_gate and not hasattr(experts, "up_proj"):
        return "it has no up_proj"
    activation = _ACTIVATIONS.get(type(experts.act_fn))
    if activation is None:
        return f"its activation is {type(experts.act_fn).__name__}"
    return _Form(activation, gated=experts.has_gate)


def _obstacle(x: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor) -> str:
    """Why tensors like these are not for the fused block, or nothing."""
    if x.device.type != "cpu" or w13.device.type != "cpu":
        return f"its tensors are on the device {w13.device if x.device.type == 'cpu' else x.device}"
    if w13.dtype not in _DTYPES or w2.dtype != w13.dtype:
        return f"its weights are {w13.dtype} and {w2.dtype}"
    if x.dtype != w13.dtype and (x.dtype != torch.float32 or w13.dtype == torch.float64):
        return f"its tokens are {x.dtype} and its weights {w13.dtype}"
    return ""


_told: set[tuple[str, str]] = set()


def _not_fused(experts: torch.nn.Module, reason: str, *arguments: torch.Tensor) -> torch.Tensor:
    """The way of transformers. The log tells why, once for each class, but not while a compiler traces."""
    said = type(experts).__name__, reason
    if not torch.compiler.is_compiling() and said not in _told:
        _told.add(said)
        _log.info("moe_experts: %s is not fused, because %s; it runs as grouped_mm of transformers", *said)
    return moe.grouped_mm_experts_forward(experts, *arguments)


def _experts_forward(
    self: torch.nn.Module, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    form = _form_of(self)
    if isinstance(form, str):
        return _not_fused(self, form, hidden_states, top_k_index, top_k_weights)
    w13, w2 = self.gate_up_proj if form.gated else self.up_proj, self.down_proj
    if reason := _obstacle(hidden_states, w13, w2):
        return _not_fused(self, reason, hidden_states, top_k_index, top_k_weights)
    biases = {}
    if self.has_bias:
        name = "gate_up_proj_bias" if form.gated else "up_proj_bias"
        biases = {"w13_bias": getattr(self, name), "w2_bias": self.down_proj_bias}
    if top_k_weights.dtype not in (hidden_states.dtype, torch.float32):
        top_k_weights = top_k_weights.to(hidden_states.dtype)
    return moe_experts(
        hidden_states,
        top_k_index,
        top_k_weights,
        w13,
        w2,
        transposed=self.is_transposed,
        **biases,
        **asdict(form),
    )


def install(name: str = "turnout") -> None:
    """Registers Turnout's experts as ``name``.

    Then ``model.set_experts_implementation("turnout")`` switches a model, and
    ``from_pretrained(..., experts_implementation="turnout")`` loads one with it. A block of another form runs
    as the ``grouped_mm`` of transformers, and the logger ``turnout`` says which and why, at the level INFO.
    """
    moe.ALL_EXPERTS_FUNCTIONS.register(name, _experts_forward)


def uninstall(name: str = "turnout") -> None:
    """Takes ``name`` out again. Models that use it must be switched before."""
    moe.ALL_EXPERTS_FUNCTIONS._global_mapping.pop(name, None)
