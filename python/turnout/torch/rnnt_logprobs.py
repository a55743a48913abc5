"""From logits to the steps of the RNN-T lattice: operators with gradients, and the functions that k2 has."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from turnout import _core
from turnout.torch.messages import own_messages
from turnout.torch.registration import define

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
    """The steps of the lattices of a batch, and which of them have logits whose sum is not finite."""

    px: torch.Tensor
    py: torch.Tensor
    is_bad: torch.Tensor  # [batch]


def lane_dtype(x: torch.Tensor) -> torch.dtype:
    """What the steps are computed in."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def is_modified(op: str, rnnt_type: str) -> bool:
    if rnnt_type not in RNNT_TYPES:
        expected = ", ".join(f"'{name}'" for name in RNNT_TYPES)
        raise ValueError(f"{op}: rnnt_type is {rnnt_type!r}, expected one of {expected}")
    return rnnt_type != "regular"


def _contiguous(x):
    return None if x is None else x.contiguous()


# -- shapes ------------------------------------------------------------------------------------------------


def _steps_fake(logits, symbols, frames, modified, normalizer):
    (batch, count), dtype = symbols.shape, lane_dtype(logits)
    return (
        logits.new_empty((batch, count, frames + (not modified)), dtype=dtype),
        logits.new_empty((batch, count + 1, frames), dtype=dtype),
        logits.new_empty(normalizer, dtype=dtype),
        logits.new_empty((batch,), dtype=torch.int64),
    )


def _save_steps(ctx, arguments, output, saved):
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(*saved, output[2], output[0], output[1])
    ctx.arguments = arguments


def _step_grads(grad_px, grad_py, px, py):
    """Both gradients, for a step that has one; None: none has."""
    if grad_px is None and grad_py is None:
        return None
    return (
        torch.zeros_like(px) if grad_px is None else grad_px,
        torch.zeros_like(py) if grad_py is None else grad_py,
    )


def _refusal(op):
    def refuse_second_derivative(*_):
        raise NotImplementedError(
            f"{op}: a derivative of the gradients was asked for, but there is none: this operator can be "
            "differentiated once"
        )

    return refuse_second_derivative


def _overwritten(op, backward, logits, *arguments):
    """The gradient in the memory of the logits, which autograd then knows to have changed."""
    if torch.is_grad_enabled():
        _refusal(op)()
    grad = logits.detach()
    backward(grad, *arguments, grad, True)
    torch.autograd.graph.increment_version(logits)
    return grad


# -- given logits ------------------------------------------------------------------------------------------


def _joint_forward_cpu(
    logits, symbols, termination_symbol, boundary=None, modified=False, overwrite_logits=False
):
    del overwrite_logits
    return _core.rnnt_logprobs_joint_forward(
        *(logits.contiguous(), symbols.contiguous(), termination_symbol, _contiguous(boundary), modified),
        *(None, True),
    )


def _joint_forward_fake(logits, symbols, termination_symbol, boundary, modified, overwrite_logits):
    return _steps_fake(logits, symbols, logits.shape[1], modified, logits.shape[:3])


def _joint_save(ctx, inputs, output):
    logits, symbols, termination_symbol, boundary, _, overwrite = inputs
    _save_steps(ctx, (termination_symbol, overwrite), output, (logits, symbols, boundary))


def _joint_grad(ctx, grad_px, grad_py, *_):
    logits, symbols, boundary, normalizer, px, py = ctx.saved_tensors
    grads = _step_grads(grad_px, grad_py, px, py)
    if grads is None:
        return (None,) * 6
    blank, overwrite = ctx.arguments
    if overwrite:
        grads = (grad.contiguous() for grad in grads)
        logits_grad = _overwritten(
            *("rnnt_logprobs_joint_backward", _core.rnnt_logprobs_joint_backward, logits),
            *(symbols.contiguous(), normalizer, *grads, blank, _contiguous(boundary)),
        )
    else:
        logits_grad = _joint_backward(logits, symbols, normalizer, *grads, blank, boundary)
    return logits_grad, None, None, None, None, None


def _joint_backward_cpu(logits, symbols, normalizer, px_grad, py_grad, termination_symbol, boundary=None):
    tensors = (x.contiguous() for x in (logits, symbols, normalizer, px_grad, py_grad))
    return _core.rnnt_logprobs_joint_backward(*tensors, termination_symbol, _contiguous(boundary), None, True)


def _joint_backward_fake(logits, symbols, normalizer, px_grad, py_grad, termination_symbol, boundary):
    return logits.new_empty(logits.shape)


_joint_backward = define(
    "rnnt_logprobs_joint_backward(Tensor logits, Tensor symbols, Tensor normalizer, Tensor px_grad, "
    "Tensor py_grad, int termination_symbol, Tensor? boundary=None) -> Tensor",
    _joint_backward_cpu,
    _joint_backward_fake,
    save=lambda ctx, inputs, output: None,
    backward=_refusal("rnnt_logprobs_joint_backward"),
)
_joint_forward = define(
    "rnnt_logprobs_joint_forward(Tensor logits, Tensor symbols, int termination_symbol, "
    "Tensor? boundary=None, bool modified=False, bool overwrite_logits=False) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _joint_forward_cpu,
    _joint_forward_fake,
    save=_joint_save,
    backward=_joint_grad,
)


def _pruned_forward_cpu(
    logits,
    symbols,
    ranges,
    termination_symbol,
    boundary=None,
    modified=False,
    use_hat_loss=False,
    overwrite_logits=False,
):
    del overwrite_logits
    return _core.rnnt_logprobs_pruned_forward(
        *(logits.contiguous(), symbols.contiguous(), ranges.contiguous(), termination_symbol),
        *(_contiguous(boundary), modified, use_hat_loss, None, True),
    )


def _pruned_forward_fake(
    logits, symbols, ranges, termination_symbol, boundary, modified, use_hat_loss, overwrite_logits
):
    return _steps_fake(logits, symbols, logits.shape[1], modified, logits.shape[:3])


def _pruned_save(ctx, inputs, output):
    logits, symbols, ranges, termination_symbol, boundary, _, hat, overwrite = inputs
    saved = logits, symbols, ranges, boundary
    _save_steps(ctx, (termination_symbol, hat, overwrite), output, saved)


def _pruned_grad(ctx, grad_px, grad_py, *_):
    logits, symbols, ranges, boundary, normalizer, px, py = ctx.saved_tensors
    grads = _step_grads(grad_px, grad_py, px, py)
    if grads is None:
        return (None,) * 8
    blank, hat, overwrite = ctx.arguments
    if overwrite:
        grads = (grad.contiguous() for grad in grads)
        logits_grad = _overwritten(
            *("rnnt_logprobs_pruned_backward", _core.rnnt_logprobs_pruned_backward, logits),
            *(symbols.contiguous(), ranges.contiguous(), normalizer, *grads),
            *(blank, _contiguous(boundary), hat),
        )
    else:
        logits_grad = _pruned_backward(logits, symbols, ranges, normalizer, *grads, blank, boundary, hat)
    return logits_grad, *(None,) * 7


def _pruned_backward_cpu(
    logits,
    symbols,
    ranges,
    normalizer,
    px_grad,
    py_grad,
    termination_symbol,
    boundary=None,
    use_hat_loss=False,
):
    tensors = (x.contiguous() for x in (logits, symbols, ranges, normalizer, px_grad, py_grad))
    return _core.rnnt_logprobs_pruned_backward(
        *tensors, termination_symbol, _contiguous(boundary), use_hat_loss, None, True
    )


def _pruned_backward_fake(logits, *_):
    return logits.new_empty(logits.shape)


_pruned_backward = define(
    "rnnt_logprobs_pruned_backward(Tensor logits, Tensor symbols, Tensor ranges, Tensor normalizer, "
    "Tensor px_grad, Tensor py_grad, int termination_symbol, Tensor? boundary=None, "
    "bool use_hat_loss=False) -> Tensor",
    _pruned_backward_cpu,
    _pruned_backward_fake,
    save=lambda ctx, inputs, output: None,
    backward=_refusal("rnnt_logprobs_pruned_backward"),
)
_pruned_forward = define(
    "rnnt_logprobs_pruned_forward(Tensor logits, Tensor symbols, Tensor ranges, int termination_symbol, "
    "Tensor? boundary=None, bool modified=False, bool use_hat_loss=False, bool overwrite_logits=False) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _pruned_forward_cpu,
    _pruned_forward_fake,
    save=_pruned_save,
    backward=_pruned_grad,
)


# -- given a joiner ----------------------------------------------------------------------------------------


def _fused_forward_cpu(
    am,
    lm,
    weight,
    bias,
    activation,
    symbols,
    ranges,
    termination_symbol,
    boundary=None,
    modified=False,
    use_hat_loss=False,
):
    return _core.rnnt_logprobs_fused_forward(
        *(am.contiguous(), lm.contiguous(), weight.contiguous(), _contiguous(bias), activation),
        *(symbols.contiguous(), ranges.contiguous(), termination_symbol, _contiguous(boundary)),
        *(modified, use_hat_loss, None, True),
    )


def _fused_forward_fake(
    am, lm, weight, bias, activation, symbols, ranges, termination_symbol, boundary, modified, use_hat_loss
):
    return _steps_fake(am, symbols, am.shape[1], modified, ranges.shape)


def _fused_save(ctx, inputs, output):
    am, lm, weight, bias, activation, symbols, ranges, termination_symbol, boundary, _, hat = inputs
    saved = am, lm, weight, bias, symbols, ranges, boundary
    _save_steps(ctx, (activation, termination_symbol, hat), output, saved)


def _fused_grad(ctx, grad_px, grad_py, *_):
    am, lm, weight, bias, symbols, ranges, boundary, normalizer, px, py = ctx.saved_tensors
    grads = _step_grads(grad_px, grad_py, px, py)
    if grads is None:
        return (None,) * 11
    activation, blank, hat = ctx.arguments
    am_grad, lm_grad, weight_grad, bias_grad = _fused_backward(
        *(am, lm, weight, bias, activation, symbols, ranges, normalizer, *grads, blank, boundary, hat)
    )
    return am_grad, lm_grad, weight_grad, None if bias is None else bias_grad, *(None,) * 7


def _fused_backward_cpu(
    am,
    lm,
    weight,
    bias,
    activation,
    symbols,
    ranges,
    normalizer,
    px_grad,
    py_grad,
    termination_symbol,
    boundary=None,
    use_hat_loss=False,
):
    am_grad, lm_grad, weight_grad, bias_grad = _core.rnnt_logprobs_fused_backward(
        *(am.contiguous(), lm.contiguous(), weight.contiguous(), _contiguous(bias), activation),
        *(symbols.contiguous(), ranges.contiguous(), normalizer.contiguous()),
        *(px_grad.contiguous(), py_grad.contiguous(), termination_symbol, _contiguous(boundary)),
        *(use_hat_loss, None, True),
    )
    return am_grad, lm_grad, weight_grad, weight.new_empty(0) if bias is None else bias_grad


def _fused_backward_fake(am, lm, weight, bias, *_):
    return tuple(
        x.new_empty(x.shape) for x in (am, lm, weight, weight.new_empty(0) if bias is None else bias)
    )


_fused_backward = define(
    "rnnt_logprobs_fused_backward(Tensor am, Tensor lm, Tensor weight, Tensor? bias, str activation, "
    "Tensor symbols, Tensor ranges, Tensor normalizer, Tensor px_grad, Tensor py_grad, "
    "int termination_symbol, Tensor? boundary=None, bool use_hat_loss=False) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _fused_backward_cpu,
    _fused_backward_fake,
    save=lambda ctx, inputs, output: None,
    backward=_refusal("rnnt_logprobs_fused_backward"),
)
_fused_forward = define(
    "rnnt_logprobs_fused_forward(Tensor am, Tensor lm, Tensor weight, Tensor? bias, str activation, "
    "Tensor symbols, Tensor ranges, int termination_symbol, Tensor? boundary=None, bool modified=False, "
    "bool use_hat_loss=False) -> (Tensor, Tensor, Tensor, Tensor)",
    _fused_forward_cpu,
    _fused_forward_fake,
    save=_fused_save,
    backward=_fused_grad,
)


# -- given sums of two parts -------------------------------------------------------------------------------


def _simple_forward_cpu(lm, am, symbols, termination_symbol, boundary=None, modified=False):
    tensors = (x.contiguous() for x in (lm, am, symbols))
    return _core.rnnt_logprobs_simple_forward(
        *tensors, termination_symbol, _contiguous(boundary), modified, None, True
    )


def _simple_forward_fake(lm, am, symbols, termination_symbol, boundary, modified):
    return _steps_fake(lm, symbols, am.shape[1], modified, (*lm.shape[:2], am.shape[1]))


def _simple_save(ctx, inputs, output):
    lm, am, symbols, termination_symbol, boundary, _ = inputs
    _save_steps(ctx, termination_symbol, output, (lm, am, symbols, boundary))


def _simple_grad(ctx, grad_px, grad_py, *_):
    lm, am, symbols, boundary, normalizer, px, py = ctx.saved_tensors
    grads = _step_grads(grad_px, grad_py, px, py)
    if grads is None:
        return (None,) * 6
    lm_grad, am_grad = _simple_backward(lm, am, symbols, normalizer, *grads, ctx.arguments, boundary)
    return lm_grad, am_grad, None, None, None, None


def _simple_backward_cpu(lm, am, symbols, normalizer, px_grad, py_grad, termination_symbol, boundary=None):
    tensors = (x.contiguous() for x in (lm, am, symbols, normalizer, px_grad, py_grad))
    return _core.rnnt_logprobs_simple_backward(
        *tensors, termination_symbol, _contiguous(boundary), None, True
    )


def _simple_backward_fake(lm, am, *_):
    return lm.new_empty(lm.shape), am.new_empty(am.shape)


_simple_backward = define(
    "rnnt_logprobs_simple_backward(Tensor lm, Tensor am, Tensor symbols, Tensor normalizer, Tensor px_grad, "
    "Tensor py_grad, int termination_symbol, Tensor? boundary=None) -> (Tensor, Tensor)",
    _simple_backward_cpu,
    _simple_backward_fake,
    save=lambda ctx, inputs, output: None,
    backward=_refusal("rnnt_logprobs_simple_backward"),
)
_simple_forward = define(
    "rnnt_logprobs_simple_forward(Tensor lm, Tensor am, Tensor symbols, int termination_symbol, "
    "Tensor? boundary=None, bool modified=False) -> (Tensor, Tensor, Tensor, Tensor)",
    _simple_forward_cpu,
    _simple_forward_fake,
    save=_simple_save,
    backward=_simple_grad,
)


# -- the steps of each loss --------------------------------------------------------------------------------


def _constrained(px, py, rnnt_type):
    """A symbol of the constrained type takes the blank behind it along."""
    return px + py[:, 1:] if rnnt_type == "constrained" else px


def _refuse_overwriting(op, logits):
    if torch.compiler.is_compiling() or _is_in_torch_func():
        raise NotImplementedError(
            f"{op}: overwrite_logits is True inside of a transform of torch, expected False"
        )
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
        *(logits, symbols, ranges, termination_symbol, boundary, modified, use_hat_loss, overwrite_logits)
    )
    return Steps(_constrained(px, py, rnnt_type), py, nan_at >= 0)


def fused_steps(
    op,
    am,
    lm,
    weight,
    bias,
    activation,
    symbols,
    ranges,
    termination_symbol,
    boundary,
    rnnt_type,
    use_hat_loss,
):
    modified = is_modified(op, rnnt_type)
    if activation not in ("tanh", "relu", None):
        raise ValueError(f"{op}: activation is {activation!r}, expected one of 'tanh', 'relu', None")
    px, py, _, nan_at = _fused_forward(
        *(am, lm, weight, bias, activation or "none", symbols, ranges, termination_symbol, boundary),
        *(modified, use_hat_loss),
    )
    return Steps(_constrained(px, py, rnnt_type), py, nan_at >= 0)


def simple_steps(op, lm, am, symbols, termination_symbol, boundary, rnnt_type):
    modified = is_modified(op, rnnt_type)
    px, py, _, nan_at = _simple_forward(lm, am, symbols, termination_symbol, boundary, modified)
    return Steps(_constrained(px, py, rnnt_type), py, nan_at >= 0)


def smoothed_steps(
    op, lm, am, symbols, termination_symbol, lm_only_scale, am_only_scale, boundary, rnnt_type
):
    """The simple steps, interpolated with those of each part alone.

    The part of ``am`` alone is weighted by the mean of the softmax of ``lm`` over the batch, its padding
    included; so rows of a batch depend on each other.
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
        # A step that cannot be taken stays so: 0 times -inf, and a negative scale, would change it.
        return torch.where(simple.isneginf(), -torch.inf, sum(terms))

    inner = interpolated(px[:, :, :frames], lm_px, am_px)
    py = interpolated(py, lm_py, am_py)
    px = inner if modified else torch.nn.functional.pad(inner, (0, 1), value=-torch.inf)
    return Steps(_constrained(px, py, rnnt_type), py, (nan_at >= 0) | log_mean.isnan().any())


# -- the signatures that users of k2 know ------------------------------------------------------------------


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
