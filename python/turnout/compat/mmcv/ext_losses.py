"""The focal loss of ``mmcv._ext``, which SA-SSD of mmdetection3d calls itself."""

from __future__ import annotations

import torch
from torch import Tensor

from turnout.compat._extension import Checks, widened
from turnout.compat._grouping import FLOATS, INDICES


class _Logits:
    """The tensors of a call. A target is a class, or the number of classes for none."""

    def __init__(self, function: str, input: Tensor, target: Tensor, weight: Tensor) -> None:
        self.checks = Checks(function)
        logits = self.checks.tensor("input", input, "N C", *FLOATS)
        classes = self.checks.tensor("target", target, "N", *INDICES)
        self.dtype = logits.dtype
        self.p = widened(logits).sigmoid()
        smallest = torch.finfo(torch.float32).tiny
        self.log_p, self.log_q = self.p.clamp(min=smallest).log(), (1 - self.p).clamp(min=smallest).log()
        self.is_class = classes[:, None] == torch.arange(logits.shape[1])
        self.scale: Tensor | float = 1.0
        if weight.numel():
            weights = self.checks.tensor("weight", weight, "C", self.dtype)
            outside = ((classes < 0) | (classes >= len(weights))).nonzero()
            if len(outside):
                row = int(outside[0])
                raise IndexError(
                    f"{function}: target[{row}] is {int(classes[row])}, expected 0 .. {len(weights) - 1}, "
                    "because weight is not empty"
                )
            self.scale = widened(weights)[classes][:, None]

    def write(self, name: str, out: Tensor, of_class: Tensor, of_others: Tensor, alpha: float) -> None:
        values = torch.where(self.is_class, -alpha * of_class, (alpha - 1) * of_others) * self.scale
        self.checks.tensor(name, out, "N C", self.dtype).copy_(values)


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    call = _Logits("sigmoid_focal_loss_forward", input, target, weight)
    p = call.p
    call.write("output", output, (1 - p) ** gamma * call.log_p, p**gamma * call.log_q, alpha)


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    call = _Logits("sigmoid_focal_loss_backward", input, target, weight)
    p = call.p
    of_class = (1 - p) ** gamma * (1 - p - gamma * p * call.log_p)
    of_others = p**gamma * (gamma * (1 - p) * call.log_q - p)
    call.write("grad_input", grad_input, of_class, of_others, alpha)


FUNCTIONS = (sigmoid_focal_loss_backward, sigmoid_focal_loss_forward)
