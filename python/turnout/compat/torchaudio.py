"""torchaudio's RNN-T loss: ``turnout.compat.torchaudio``.

Example:
    >>> from turnout.compat import torchaudio
    >>> logits, targets = torch.zeros(1, 2, 2, 4), torch.tensor([[3]])  # two frames, one symbol, four classes
    >>> loss = torchaudio.rnnt_loss(logits, targets, torch.tensor([2]), torch.tensor([1]), blank=0)
    >>> round(loss.neg().exp().item(), 5)  # two paths of three steps: 2 / 4**3
    0.03125
"""

from __future__ import annotations

import torch

from turnout import torch as own
from turnout.compat._install import Installation, missing
from turnout.torch.messages import own_messages

__all__ = ["RNNTLoss", "install", "rnnt_loss", "uninstall"]

_REDUCTIONS = ("none", "mean", "sum")


class ClampedLoss(torch.autograd.Function):
    """A loss per row whose gradients are clamped before they are multiplied by the upstream gradient."""

    @staticmethod
    def forward(ctx, logits, loss_of, clamp):
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            losses = loss_of(leaf)
            (grad,) = torch.autograd.grad(losses.sum(), leaf)
        ctx.save_for_backward(grad.clamp_(-clamp, clamp))
        return losses.detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, weight):
        (grad,) = ctx.saved_tensors
        return (grad * weight.reshape(-1, 1, 1, 1)).to(grad.dtype), None, None


def _boundary(logits, targets, logit_lengths, target_lengths):
    """Converts lengths to a boundary."""
    ends = (
        ("target_lengths", target_lengths, targets.shape[-1]),
        ("logit_lengths", logit_lengths, logits.shape[1]),
    )
    for name, lengths, most in ends:
        if lengths.shape != logits.shape[:1] or lengths.dtype not in (torch.int32, torch.int64):
            raise ValueError(
                f"rnnt_loss: {name} has shape {list(lengths.shape)} and dtype {lengths.dtype}, expected "
                f"{list(logits.shape[:1])} and torch.int32 or torch.int64"
            )
        if torch.compiler.is_compiling():
            continue  # the call checks the values
        for b, length in enumerate(lengths.tolist()):
            if not 0 <= length <= most:
                raise ValueError(f"rnnt_loss: {name}[{b}] is {length}, expected 0 .. {most}")
    zeros = torch.zeros_like(logit_lengths)
    return torch.stack([zeros, zeros, target_lengths, logit_lengths], 1).long()


def _losses(logits, targets, boundary, blank):
    return own.rnnt_loss(logits, targets, blank, boundary, reduction="none")


def _losses_of_probabilities(logits, targets, boundary, blank):
    """The losses of logits that are log-probabilities already."""
    _losses(logits.detach(), targets, boundary, blank)  # for its checks of shapes, lengths and targets
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    frames = logits.shape[1]
    inside = torch.arange(targets.shape[1], device=targets.device) < boundary[:, 2:3]
    index = torch.where(inside, targets, 0).long()[:, None, :, None].expand(-1, frames, -1, -1)
    px = logits[:, :, :-1].gather(3, index).squeeze(3).transpose(1, 2).to(dtype)
    py = logits[..., blank].transpose(1, 2).to(dtype)
    is_end = torch.arange(frames + 1, device=px.device) == boundary[:, 3].reshape(-1, 1, 1)
    px = torch.nn.functional.pad(px, (0, 1)).masked_fill(is_end, -torch.inf)
    return -own.mutual_information_recursion(px, py, boundary)


@own_messages(symbols="targets", termination_symbol="blank")
def rnnt_loss(
    logits: torch.Tensor,
    targets: torch.Tensor,
    logit_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int = -1,
    clamp: float = -1,
    reduction: str = "mean",
    fused_log_softmax: bool = True,
) -> torch.Tensor:
    """:func:`turnout.torch.rnnt_loss` with torchaudio's arguments.

    Args:
        logits: ``[batch, frames, symbols + 1, classes]``, any dtype of :func:`turnout.torch.rnnt_loss`.
        targets: ``[batch, symbols]``, int32 or int64; each must be a class.
        logit_lengths, target_lengths: ``[batch]``, int32 or int64; the longest need not fill the tensors.
        blank: the class of the blank; a negative value counts from the end.
        clamp: if above 0, gradients are clamped to ``-clamp .. clamp``.
        reduction: 'none', 'mean' or 'sum'.
        fused_log_softmax: if False, ``logits`` are log-probabilities already.

    Returns:
        The loss; for float16 logits in float16.
    """
    if reduction not in _REDUCTIONS:
        expected = ", ".join(f"'{name}'" for name in _REDUCTIONS)
        raise ValueError(f"rnnt_loss: reduction is {reduction!r}, expected one of {expected}")
    classes = logits.shape[-1]
    if not -classes <= blank < classes:
        raise ValueError(f"rnnt_loss: blank is {blank}, expected {-classes} .. {classes - 1}")
    boundary, blank = _boundary(logits, targets, logit_lengths, target_lengths), blank % classes
    function = _losses if fused_log_softmax else _losses_of_probabilities

    def loss_of(x):
        return function(x, targets, boundary, blank)

    losses = ClampedLoss.apply(logits, loss_of, clamp) if clamp > 0 else loss_of(logits)
    loss = losses.mean() if reduction == "mean" else losses.sum() if reduction == "sum" else losses
    return loss.half() if logits.dtype == torch.float16 else loss


class RNNTLoss(torch.nn.Module):
    """:func:`rnnt_loss` as a module."""

    def __init__(
        self, blank: int = -1, clamp: float = -1.0, reduction: str = "mean", fused_log_softmax: bool = True
    ) -> None:
        super().__init__()
        self.blank = blank
        self.clamp = clamp
        self.reduction = reduction
        self.fused_log_softmax = fused_log_softmax

    def forward(
        self,
        logits: torch.Tensor,
        targets: torch.Tensor,
        logit_lengths: torch.Tensor,
        target_lengths: torch.Tensor,
    ) -> torch.Tensor:
        """Returns the loss of these logits."""
        return rnnt_loss(
            *(logits, targets, logit_lengths, target_lengths),
            *(self.blank, self.clamp, self.reduction, self.fused_log_softmax),
        )


_OTHERS = frozenset(
    {
        *("compliance", "datasets", "info", "io", "list_audio_backends", "load", "models"),
        *("pipelines", "save", "sox_effects", "MFCC", "MelSpectrogram", "Resample", "Spectrogram"),
        *("forced_align", "resample"),
    }
)
__getattr__ = missing("torchaudio", _OTHERS, "its RNN-T loss")

install, uninstall = Installation(
    "torchaudio",
    {
        "torchaudio": {},
        "torchaudio.functional": {"rnnt_loss": rnnt_loss},
        "torchaudio.transforms": {"RNNTLoss": RNNTLoss},
    },
    getattr=__getattr__,
).functions(
    "from torchaudio.functional import rnnt_loss",
    "If the real torchaudio can be imported, import it first and use ``force``. Otherwise, its other modules "
    "cannot be imported until :func:`uninstall`.",
)
