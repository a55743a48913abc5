"""Every gradient runs: backward through each operator that has a gradient, to all its arguments."""

import pytest
import torch
from registry import CALLS, ROWS, floating_arguments

from turnout.torch.registration import gradient, has_gradient

pytestmark = pytest.mark.torch

OPS = torch.ops.turnout


@pytest.mark.parametrize("op", [op for op in CALLS if has_gradient(op)])
def test_gradients_have_the_shapes_of_arguments(op):
    arguments = dict(CALLS[op])
    for name in floating_arguments(op):
        arguments[name] = arguments[name].clone().requires_grad_()
    results = getattr(OPS, op)(**arguments)
    results = [results] if isinstance(results, torch.Tensor) else results
    followed = [result for result in results if result.requires_grad]
    assert followed
    inputs = [arguments[name] for name in floating_arguments(op)]
    try:
        grads = torch.autograd.grad([x.sum() for x in followed], inputs, allow_unused=True)
    except (NotImplementedError, RuntimeError) as error:  # no gradient, or no second gradient
        assert str(error).startswith(f"{op}: ")
        return
    assert any(grad is not None for grad in grads)
    for x, grad in zip(inputs, grads, strict=True):
        assert grad is None or (grad.shape, grad.dtype) == (x.shape, x.dtype)


def test_names_are_checked():
    op = "moe_combine"
    with pytest.raises(ValueError, match=r"gradient: there is no operator moe_combin$"):
        gradient("moe_combin", of="gates")
    with pytest.raises(ValueError, match="gradient of moe_combine: of names gate, expected one of expert_"):
        gradient(op, of="gate")
    with pytest.raises(ValueError, match="gradient of moe_combine: of names capacity, expected one of"):
        gradient(op, of="capacity")
    with pytest.raises(ValueError, match="gradient of moe_combine: saves names outputs, expected one of"):
        gradient(op, of="gates", saves="outputs")
    assert ROWS[op]["results"][0]["name"] == "output"
