"""Converts logits to the steps of the RNN-T lattice: operators with gradients, and k2's functions."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from turnout import _core
from turnout.torch.messages import own_messages
from turnout.torch.registration import gradient
from turnout.torch.tracing import computed_size

__all__ = [
    "get_rnnt_logprobs",
    "get_rnnt_logprobs_joint",
    "get_rnnt_logprobs_pruned",
    "get_rnnt_logprobs_smoothed",
]

RnntType = Literal["regular", "modified", "constrained"]
RNNT_TYPES = ("regular", "modified", "constrained")
_is_in_torch_func = torch._C._are_functorch_transforms_active


class Steps(NamedTuple):
    """The steps of the lattices of a batch, and whether a lattice has logits whose sum is not finite."""

    px: torch.Tensor
    py: torch.Tensor
    is_bad: torch.Tensor  # [batch]


def is_modified(op: str, rnnt_type: str) -> bool:
    if rnnt_type not in RNNT_TYPES:
        expected = ", ".join(f"'{name}'" for name in RNNT_TYPES)
        raise ValueError(f"{op}: rnnt_type is {rnnt_type!r}, expected one of {expected}")
    return rnnt_type != "regular"


# -- operators and their gradients -------------------------------------------------------------------------

_joint_forward = torch.ops.turnout.rnnt_logprobs_joint_forward.default
_joint_backward = torch.ops.turnout.rnnt_logprobs_joint_backward.default
_pruned_forward = torch.ops.turnout.rnnt_logprobs_pruned_forward.default
_pruned_backward = torch.ops.turnout.rnnt_logprobs_pruned_backward.default
_fused_forward = torch.ops.turnout.rnnt_logprobs_fused_forward.default
_fused_backward = torch.ops.turnout.rnnt_logprobs_fused_backward.default
_simple_forward = torch.ops.turnout.rnnt_logprobs_simple_forward.default
_simple_backward = torch.ops.turnout.rnnt_logprobs_simple_backward.default


@computed_size("rnnt_logprobs_joint_forward")
@computed_size("rnnt_logprobs_pruned_forward")
@computed_size("rnnt_logprobs_fused_forward")
@computed_size("rnnt_logprobs_simple_forward")
def _(arguments):
    """The columns of px."""
    frames = (arguments["logits"] if "logits" in arguments else arguments["am"]).shape[1]
    return frames if arguments["modified"] else frames + 1


def _refuse_second_derivatives(op):
    def refuse(*_):
        raise NotImplementedError(
            f"{op}: a second derivative was requested, but this operator can be differentiated only once"
        )

    return gradient(op, of="")(refuse)


_refuse_joint = _refuse_second_derivatives("rnnt_logprobs_joint_backward")
_refuse_pruned = _refuse_second_derivatives("rnnt_logprobs_pruned_backward")
_refuse_second_derivatives("rnnt_logprobs_fused_backward")
_refuse_second_derivatives("rnnt_logprobs_simple_backward")


def _step_grads(saved, px_grad, py_grad):
    """Both gradients; that of an unused step is zeros."""
    return (
        torch.zeros_like(saved.px) if px_grad is None else px_grad,
        torch.zeros_like(saved.py) if py_grad is None else py_grad,
    )


def _overwritten(refuse, backward, logits, *arguments):
    """Writes the gradient over the logits, and tells autograd that they have changed."""
    if torch.is_grad_enabled():
        refuse()
    grad = logits.detach()
    backward(grad, *arguments, grad)
    torch.autograd.graph.increment_version(logits)
    return grad


@gradient(
    "rnnt_logprobs_joint_forward",
    of="logits",
    saves="logits symbols boundary normalizer px py",
    constant="normalizer nan_at",
    materialize=False,
)
def _(saved, px_grad, py_grad, *_):
    if px_grad is None and py_grad is None:
        return {}
    grads = _step_grads(saved, px_grad, py_grad)
    arguments = (
        *(saved.logits, saved.symbols, saved.normalizer, *grads),
        *(saved.termination_symbol, saved.boundary),
    )
    if saved.overwrite_logits:
        return {"logits": _overwritten(_refuse_joint, _core.torch.rnnt_logprobs_joint_backward, *arguments)}
    return {"logits": _joint_backward(*arguments)}


@gradient(
    "rnnt_logprobs_pruned_forward",
    of="logits",
    saves="logits symbols ranges boundary normalizer px py",
    constant="normalizer nan_at",
    materialize=False,
)
def _(saved, px_grad, py_grad, *_):
    if px_grad is None and py_grad is None:
        return {}
    grads = _step_grads(saved, px_grad, py_grad)
    arguments = (
        *(saved.logits, saved.symbols, saved.ranges, saved.normalizer, *grads),
        *(saved.termination_symbol, saved.boundary, saved.use_hat_loss),
    )
    if saved.overwrite_logits:
        return {"logits": _overwritten(_refuse_pruned, _core.torch.rnnt_logprobs_pruned_backward, *arguments)}
    return {"logits": _pruned_backward(*arguments)}


@gradient(
    "rnnt_logprobs_fused_forward",
    of="am lm weight bias",
    saves="am lm weight symbols ranges bias boundary normalizer px py",
    constant="normalizer nan_at",
    materialize=False,
)
def _(saved, px_grad, py_grad, *_):
    if px_grad is None and py_grad is None:
        return {}
    grads = _step_grads(saved, px_grad, py_grad)
    am_grad, lm_grad, weight_grad, bias_grad = _fused_backward(
        *(saved.am, saved.lm, saved.weight, saved.symbols, saved.ranges, saved.normalizer, *grads),
        *(saved.activation, saved.termination_symbol, saved.bias, saved.boundary, saved.use_hat_loss),
    )
    found = {"am": am_grad, "lm": lm_grad, "weight": weight_grad}
    return found if saved.bias is None else {**found, "bias": bias_grad}


@gradient(
    "rnnt_logprobs_simple_forward",
    of="lm am",
    saves="lm am symbols boundary normalizer px py",
    constant="normalizer nan_at",
    materialize=False,
)
def _(saved, px_grad, py_grad, *_):
    if px_grad is None and py_grad is None:
        return {}
    grads = _step_grads(saved, px_grad, py_grad)
    lm_grad, am_grad = _simple_backward(
        *(saved.lm, saved.am, saved.symbols, saved.normalizer, *grads),
        *(saved.termination_symbol, saved.boundary),
    )
    return {"lm": lm_grad, "am": am_grad}


# -- the steps of each loss --------------------------------------------------------------------------------


def _constrained(px, py, rnnt_type):
    """A symbol of the constrained type includes the blank after it."""
    return px + py[:, 1:] if rnnt_type == "constrained" else px


def _refuse_overwriting(op, logits):
    if torch.compiler.is_compiling() or _is_in_torch_func():
        raise NotImplementedError(f"{op}: overwrite_logits is True, expected False inside a torch transform")
    if not logits.is_contiguous():
        raise ValueError(f"{op}: logits is strided, expected contiguous memory with overwrite_logits")


def joint_steps(op, logits, symbols, termination_symbol, boundary, rnnt_type, overwrite_logits=False):
    modified = is_modified(op, rnnt_type)
    if overwrite_logits:
        _refuse_overwriting(op, logits)
    px, py, _, nan_at = _joint_forward(
        logits, symbols, termination_symbol, boundary, modified, overwrite_logits
    )
    return Steps(_constrained(px, py, rnnt_type), py, nan_at >= 0)


def pruned_steps(
    op,
    logits,
    symbols,
    ranges,
    termination_symbol,
    boundary,
    rnnt_type,
    use_hat_loss=False,
    overwrite_logits=False,
):
    modified = is_modified(op, rnnt_type)
    if overwrite_logits:
        _refuse_overwriting(op, logits)
    px, py, _, nan_at = _pruned_forward(
        *(logits, symbols, ranges, termination_symbol, boundary, use_hat_loss, modified, overwrite_logits)
    )
    return Steps(_constrained(px, py, rnnt_type), py, nan_at >= 0)


def fused_steps(
    op,
    am,
    lm,
    weight,
    symbols,
    ranges,
    activation,
    termination_symbol,
    bias,
    boundary,
    rnnt_type,
    use_hat_loss,
):
    modified = is_modified(op, rnnt_type)
    if activation not in ("tanh", "relu", None):
        raise ValueError(f"{op}: activation is {activation!r}, expected one of 'tanh', 'relu', None")
    px, py, _, nan_at = _fused_forward(
        *(am, lm, weight, symbols, ranges, activation or "none", termination_symbol, bias, boundary),
        *(use_hat_loss, modified),
    )
    return Steps(_constrained(px, py, rnnt_type), py, nan_at >= 0)


def simple_steps(op, lm, am, symbols, termination_symbol, boundary, rnnt_type):
    modified = is_modified(op, rnnt_type)
    px, py, _, nan_at = _simple_forward(lm, am, symbols, termination_symbol, boundary, modified)
    return Steps(_constrained(px, py, rnnt_type), py, nan_at >= 0)


def smoothed_steps(
    op, lm, am, symbols, termination_symbol, lm_only_scale, am_only_scale, boundary, rnnt_type
):
    """The simple steps, interpolated with those of ``lm`` alone and ``am`` alone.

    The steps of ``am`` alone are weighted by the mean of the softmax of ``lm`` over the batch, including its
    padding. So the rows of a batch depend on each other.
    """
    modified = is_modified(op, rnnt_type)
    px, py, _, nan_at = _simple_forward(lm, am, symbols, termination_symbol, boundary, modified)
    lm, am = lm.to(px.dtype), am.to(px.dtype)
    frames = am.shape[1]
    if boundary is not None:
        s, t = (torch.arange(n, device=px.device) for n in (symbols.shape[1], frames))
        s_begin, t_begin, s_end, t_end = boundary.unsqueeze(2).unbind(1)
        symbols = torch.where((s >= s_begin) & (s < s_end), symbols, 0)
        am = torch.where(((t >= t_begin) & (t < t_end)).unsqueeze(2), am, 0)
    symbols = symbols.long()
    lm_log = lm.log_softmax(2)
    log_mean = (lm_log.exp().mean((0, 1)) + torch.finfo(px.dtype).tiny).log()
    am = am + log_mean
    am_sum = am.logsumexp(2)
    lm_px = lm_log[:, :-1].gather(2, symbols.unsqueeze(2))
    am_px = am.gather(2, symbols.unsqueeze(1).expand(-1, frames, -1)).transpose(1, 2) - am_sum.unsqueeze(1)
    lm_py = lm_log[:, :, termination_symbol].unsqueeze(2)
    am_py = (am[:, :, termination_symbol] - am_sum).unsqueeze(1)
    scales = 1 - lm_only_scale - am_only_scale, lm_only_scale or 1e-20, am_only_scale or 1e-20

    def interpolated(simple, *parts):
        terms = (scale * part for scale, part in zip(scales, (simple, *parts), strict=True) if scale != 0)
        # Keep -inf for steps that cannot be taken: 0 times -inf, and a negative scale, would change it.
        return torch.where(simple.isneginf(), -torch.inf, sum(terms))

    inner = interpolated(px[:, :, :frames], lm_px, am_px)
    py = interpolated(py, lm_py, am_py)
    px = inner if modified else torch.nn.functional.pad(inner, (0, 1), value=-torch.inf)
    return Steps(_constrained(px, py, rnnt_type), py, (nan_at >= 0) | log_mean.isnan().any())


# -- k2's functions ----------------------------------------------------------------------------------------


@own_messages()
def get_rnnt_logprobs(
    lm: torch.Tensor,
    am: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    rnnt_type: RnntType = "regular",
    boundary: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The steps ``(px, py)`` of :func:`rnnt_loss_simple`.

    Example:
        >>> lm, am = torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)  # one symbol, two frames, four classes
        >>> symbols = torch.tensor([[3]])
        >>> px, py = turnout.torch.get_rnnt_logprobs(lm, am, symbols, termination_symbol=0)
        >>> px.exp().tolist(), py.exp().tolist()
        ([[[0.25, 0.25, 0.0]]], [[[0.25, 0.25], [0.25, 0.25]]])
    """
    steps = simple_steps("get_rnnt_logprobs", lm, am, symbols, termination_symbol, boundary, rnnt_type)
    return steps.px, steps.py


@own_messages()
def get_rnnt_logprobs_joint(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    rnnt_type: RnntType = "regular",
    boundary: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The steps ``(px, py)`` of :func:`rnnt_loss`.

    Example:
        >>> logits = torch.zeros(1, 2, 2, 4)  # two frames, one symbol, four equally likely classes
        >>> symbols = torch.tensor([[3]])
        >>> px, py = turnout.torch.get_rnnt_logprobs_joint(logits, symbols, termination_symbol=0)
        >>> px.exp().tolist(), py.exp().tolist()
        ([[[0.25, 0.25, 0.0]]], [[[0.25, 0.25], [0.25, 0.25]]])
    """
    steps = joint_steps("get_rnnt_logprobs_joint", logits, symbols, termination_symbol, boundary, rnnt_type)
    return steps.px, steps.py


@own_messages()
def get_rnnt_logprobs_smoothed(
    lm: torch.Tensor,
    am: torch.Tensor,
    symbols: torch.Tensor,
    termination_symbol: int,
    lm_only_scale: float = 0.1,
    am_only_scale: float = 0.1,
    boundary: torch.Tensor | None = None,
    rnnt_type: RnntType = "regular",
) -> tuple[torch.Tensor, torch.Tensor]:
    """The steps ``(px, py)`` of :func:`rnnt_loss_smoothed`.

    Example:
        >>> lm, am = torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)  # one symbol, two frames, four classes
        >>> symbols = torch.tensor([[3]])
        >>> px, py = turnout.torch.get_rnnt_logprobs_smoothed(lm, am, symbols, 0, lm_only_scale=0.25)
        >>> [round(x, 4) for x in px.exp().flatten().tolist()]  # all parts have equally likely classes
        [0.25, 0.25, 0.0]
    """
    steps = smoothed_steps(
        *("get_rnnt_logprobs_smoothed", lm, am, symbols, termination_symbol),
        *(lm_only_scale, am_only_scale, boundary, rnnt_type),
    )
    return steps.px, steps.py


@own_messages()
def get_rnnt_logprobs_pruned(
    logits: torch.Tensor,
    symbols: torch.Tensor,
    ranges: torch.Tensor,
    termination_symbol: int,
    boundary: torch.Tensor | None,
    rnnt_type: RnntType = "regular",
) -> tuple[torch.Tensor, torch.Tensor]:
    """The steps ``(px, py)`` of :func:`rnnt_loss_pruned`.

    Example:
        >>> logits = torch.zeros(1, 2, 2, 4)  # two frames that keep two positions, four classes
        >>> symbols, ranges = torch.tensor([[3]]), torch.tensor([[[0, 1], [0, 1]]])
        >>> px, py = turnout.torch.get_rnnt_logprobs_pruned(logits, symbols, ranges, 0, None)
        >>> px.exp().tolist()
        [[[0.25, 0.25, 0.0]]]
    """
    steps = pruned_steps(
        *("get_rnnt_logprobs_pruned", logits, symbols, ranges, termination_symbol, boundary, rnnt_type)
    )
    return steps.px, steps.py
