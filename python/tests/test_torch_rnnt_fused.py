"""The fused joiner and pruned loss equal the two steps in value and gradients, for every option."""

import pytest
import torch
from transducers import TYPES, batch

from turnout.torch import do_rnnt_pruning, rnnt_loss_pruned, rnnt_loss_pruned_fused

pytestmark = pytest.mark.torch

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, None: lambda x: x}


def joiner(seed, shape=(3, 7, 4, 9), classes=11, dtype=torch.float64):
    lm, am, _, boundary = batch(seed, shape, dtype)
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, shape[3], generator=generator, dtype=torch.float64).to(dtype)
    bias = torch.randn(classes, generator=generator, dtype=torch.float64).to(dtype)
    text = torch.randint(1, classes, (shape[0], shape[2]), generator=generator)
    starts = torch.arange(shape[1]) * (shape[2] - 1) // (shape[1] - 1)
    ranges = starts[:, None].repeat(shape[0], 1, 1) + torch.arange(2)
    return [x.requires_grad_() for x in (am, lm, weight, bias)], text, ranges, boundary


def in_one_step(am, lm, weight, bias, activation, text, ranges, blank, *arguments, **options):
    return rnnt_loss_pruned_fused(
        am, lm, weight, text, ranges, activation, blank, bias, *arguments, **options
    )


def in_two_steps(am, lm, weight, bias, activation, text, ranges, *arguments, **options):
    am, lm = do_rnnt_pruning(am, lm, ranges)
    logits = torch.nn.functional.linear(ACTIVATIONS[activation](am + lm), weight, bias)
    return rnnt_loss_pruned(logits, text, ranges, *arguments, **options)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("rnnt_type", TYPES)
@pytest.mark.parametrize("use_hat_loss", [False, True])
def test_like_two_steps(activation, rnnt_type, use_hat_loss):
    inputs, text, ranges, boundary = joiner(1)
    boundary = boundary.clone()
    boundary[0] = torch.tensor([0, 0, 4, 7])
    for boxes in (None, boundary):
        for used in (inputs, [*inputs[:3], None]):
            losses = [
                f(*used, activation, text, ranges, 0, boxes, rnnt_type, 0.1, "none", use_hat_loss)
                for f in (in_one_step, in_two_steps)
            ]
            torch.testing.assert_close(*losses)
            weight = torch.tensor([1.0, -2.0, 0.5]).double()
            grads = [
                torch.autograd.grad(
                    torch.where(loss.isfinite(), loss * weight, 0).sum(), [x for x in used if x is not None]
                )
                for loss in losses
            ]
            for x, y in zip(*grads, strict=True):
                torch.testing.assert_close(x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_short_floats(dtype):
    inputs, text, ranges, boundary = joiner(2, dtype=dtype)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    loss = in_one_step(*inputs, "tanh", text, ranges, 0, reduction="sum")
    expected = in_two_steps(*wide, "tanh", text, ranges, 0, reduction="sum")
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-4)
    eps = torch.finfo(dtype).eps
    for x, y in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, wide), strict=True):
        assert x.dtype == dtype
        torch.testing.assert_close(x.double(), y, rtol=2 * eps, atol=max(1e-5, eps))
    del boundary


def test_gradcheck_and_return_grad():
    inputs, text, ranges, _ = joiner(3, (2, 3, 2, 4), 5)
    torch.autograd.gradcheck(lambda *x: in_one_step(*x, "tanh", text, ranges, 0, reduction="none"), inputs)
    results = [f(*inputs, "tanh", text, ranges, 0, return_grad=True) for f in (in_one_step, in_two_steps)]
    for x, y in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(x, y)


def test_nan_and_refusals():
    inputs, text, ranges, _ = joiner(4)
    am, *others = (x.detach() for x in inputs)
    bad = am.clone()
    bad[1, 3, 0] = torch.nan
    loss = in_one_step(bad, *others, "tanh", text, ranges, 0, reduction="none")
    assert loss.isnan().tolist() == [False, True, False]
    with pytest.raises(
        ValueError, match="rnnt_loss_pruned_fused: activation is 'gelu', expected one of 'tanh', 'relu', None"
    ):
        in_one_step(am, *others, "gelu", text, ranges, 0)
    with pytest.raises(
        ValueError, match=r"rnnt_loss_pruned_fused: weight.shape\[1\] is 8, expected 9 = am.shape"
    ):
        in_one_step(am, others[0], others[1][:, :8], others[2], None, text, ranges, 0)
    with pytest.raises(ValueError, match=r"rnnt_loss_pruned_fused: symbols\[0, 0\] is 99, expected 0 .. 10"):
        in_one_step(am, *others, None, text * 0 + 99, ranges, 0)
    with pytest.raises(ValueError, match="rnnt_loss_pruned_fused: reduction is 'all'"):
        in_one_step(am, *others, None, text, ranges, 0, reduction="all")
