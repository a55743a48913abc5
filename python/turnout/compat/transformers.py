"""An experts implementation for Hugging Face transformers: :func:`turnout.torch.moe_experts` on a CPU.

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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from transformers import activations
from transformers.integrations import moe

from turnout.quantization import check_shape
from turnout.torch import moe_experts, moe_experts_pack, moe_experts_quantized, quantize_experts

__all__ = ["install", "pack", "quantize", "uninstall"]

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
    """What a block computes, as arguments of :func:`turnout.torch.moe_experts`."""

    activation: str
    interleaved: bool = False
    gated: bool = True
    alpha: float = 1.702
    limit: float | None = None


def _form_of(experts: torch.nn.Module) -> _Form | str:
    """Returns the form of a block, or the reason why it cannot be fused."""
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


def _first_weight(form: _Form) -> str:
    return "gate_up_proj" if form.gated else "up_proj"


def _obstacle(x: torch.Tensor, w13: torch.Tensor, w2: torch.Tensor) -> str:
    """Returns why the fused block does not support these tensors, or an empty string."""
    if x.device.type != "cpu" or w13.device.type != "cpu":
        return f"its tensors are on the device {w13.device if x.device.type == 'cpu' else x.device}"
    if w13.dtype not in _DTYPES or w2.dtype != w13.dtype:
        return f"its weights are {w13.dtype} and {w2.dtype}"
    if x.dtype != w13.dtype and (x.dtype != torch.float32 or w13.dtype == torch.float64):
        return f"its tokens are {x.dtype} and its weights {w13.dtype}"
    return ""


_told: set[tuple[str, str]] = set()


def _not_fused(experts: torch.nn.Module, reason: str, *arguments: torch.Tensor) -> torch.Tensor:
    """Runs transformers' implementation. Logs the reason once per class, except while a compiler traces."""
    said = type(experts).__name__, reason
    if not torch.compiler.is_compiling() and said not in _told:
        _told.add(said)
        _log.info("moe_experts: %s is not fused, because %s; it uses grouped_mm of transformers", *said)
    return moe.grouped_mm_experts_forward(experts, *arguments)


def _experts_forward(
    self: torch.nn.Module, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    form = _form_of(self)
    if isinstance(form, str):
        return _not_fused(self, form, hidden_states, top_k_index, top_k_weights)
    first = _first_weight(form)
    w13, w2 = getattr(self, first), self.down_proj
    biases = {}
    if self.has_bias:
        biases = {"w13_bias": getattr(self, f"{first}_bias"), "w2_bias": self.down_proj_bias}
    if top_k_weights.dtype not in (hidden_states.dtype, torch.float32):
        top_k_weights = top_k_weights.to(hidden_states.dtype)
    tokens = hidden_states, top_k_index, top_k_weights
    if not w13.dtype.is_floating_point:
        scales = getattr(self, f"{first}_scale"), self.down_proj_scale
        return moe_experts_quantized(*tokens, w13, scales[0], w2, scales[1], **biases, **asdict(form))
    if reason := _obstacle(hidden_states, w13, w2):
        return _not_fused(self, reason, *tokens)
    return moe_experts(*tokens, w13, w2, transposed=self.is_transposed, **biases, **asdict(form))


def install(name: str = "turnout") -> None:
    """Registers Turnout's experts as ``name``.

    Afterwards, ``model.set_experts_implementation("turnout")`` switches a model, and
    ``from_pretrained(..., experts_implementation="turnout")`` loads one with it. A block of another form uses
    transformers' ``grouped_mm``, and the logger ``turnout`` says which and why at level INFO.
    """
    moe.ALL_EXPERTS_FUNCTIONS.register(name, _experts_forward)


def uninstall(name: str = "turnout") -> None:
    """Unregisters ``name``. Models that use it must be switched first."""
    moe.ALL_EXPERTS_FUNCTIONS._global_mapping.pop(name, None)


def _fused_blocks(model: torch.nn.Module, asker: str) -> Iterator[tuple[Any, _Form]]:
    for module in model.modules():
        if not hasattr(module, "has_post_expert_norm"):  # not a block of experts
            continue
        form = _form_of(module)
        if isinstance(form, str):
            _log.info("%s: %s is not changed, because %s", asker, type(module).__name__, form)
        else:
            yield module, form


@torch.no_grad()
def pack(model: torch.nn.Module) -> int:
    """Lays out transposed expert weights, as GPT-OSS has, the way the fused block reads them, in place.

    Shapes and values stay the same; weights are copied one at a time. See
    :func:`turnout.torch.moe_experts_pack`.

    Returns:
        The number of blocks with such weights.

    Example:
        >>> from transformers import AutoModelForCausalLM, Qwen3MoeConfig
        >>> config = Qwen3MoeConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=8)
        >>> turnout.compat.transformers.pack(AutoModelForCausalLM.from_config(config))  # none is transposed
        0
    """
    count = 0
    for module, form in _fused_blocks(model, "pack"):
        if module.is_transposed:
            for weight in (_first_weight(form), "down_proj"):
                getattr(module, weight).data = moe_experts_pack(getattr(module, weight).data)
            count += 1
    return count


def quantize(model: torch.nn.Module, *, bits: Literal[8, 4] = 8, name: str = "turnout") -> int:
    """Rounds the weights of a model's experts to 8 or 4 bits, in place, and switches it to ``name``.

    The experts take a half or a quarter of the memory of 16-bit weights, and decoding reads that much less;
    see :func:`turnout.torch.quantize_experts`. Other weights, and blocks that cannot be fused, are not
    changed; the log names those blocks. The model can be used and saved with
    ``torch.save(model.state_dict())``, but the rounded weights cannot be trained. ``save_pretrained()``
    raises an error, because ``from_pretrained()`` cannot read quantized experts. If the model is already
    rounded, or a size cannot be, an error is raised and the model is not changed.

    Returns:
        The number of blocks that were rounded.

    Example:
        >>> from transformers import AutoModelForCausalLM, Qwen3MoeConfig
        >>> config = Qwen3MoeConfig(
        ...     **{"hidden_size": 32, "moe_intermediate_size": 32, "num_experts": 4, "vocab_size": 8},
        ...     **{"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1},
        ...     num_experts_per_tok=2,
        ... )
        >>> model = AutoModelForCausalLM.from_config(config)
        >>> turnout.compat.transformers.quantize(model, bits=4)
        2
        >>> model(torch.tensor([[1, 2, 3]])).logits.shape
        torch.Size([1, 3, 8])
    """
    if not hasattr(model, "set_experts_implementation"):
        raise TypeError(
            f"quantize: model is of type {type(model).__name__}, expected a model of transformers"
        )
    blocks = list(_fused_blocks(model, "quantize"))
    weights = [(module, weight) for module, form in blocks for weight in (_first_weight(form), "down_proj")]
    for module, weight in weights:  # check all before replacing any
        _check_weight(module, weight, bits)
    for module, weight in weights:
        values, scale = quantize_experts(_rows_by_depth(module, weight), bits=bits)
        delattr(module, weight)
        module.register_buffer(weight, values)
        module.register_buffer(f"{weight}_scale", scale)
    if blocks:
        part: Any
        for part in model.modules():
            if hasattr(part, "save_pretrained"):
                part.save_pretrained = _refuse_to_save
    install(name)
    model.set_experts_implementation(name)
    return len(blocks)


def _refuse_to_save(*arguments: Any, **options: Any) -> None:
    """Replaces ``save_pretrained()``: its checkpoint would load without an error and without the scales."""
    raise NotImplementedError(
        "save_pretrained: the experts of this model are quantized by turnout.compat.transformers.quantize, "
        "which from_pretrained cannot read; use torch.save(model.state_dict(), path)"
    )


def _rows_by_depth(module: Any, weight: str) -> torch.Tensor:
    given = getattr(module, weight)
    return given.mT if module.is_transposed else given


def _check_weight(module: Any, weight: str, bits: int) -> None:
    given = _rows_by_depth(module, weight)
    what = f"quantize: {weight} of {type(module).__name__}"
    if not given.dtype.is_floating_point:
        raise ValueError(f"{what} has dtype {given.dtype}, expected a float dtype: it is already rounded")
    for expert, values in enumerate(given):
        if not values.isfinite().all():
            raise ValueError(f"{what} has a value in expert {expert} that is not finite")
    try:
        check_shape(tuple(given.shape), bits)
    except ValueError as error:
        message = str(error).replace("quantize_experts: weight", what)
        raise ValueError(message.replace("quantize_experts:", "quantize:")) from None
