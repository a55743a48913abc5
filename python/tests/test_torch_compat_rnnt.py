"""turnout.compat.k2, fast_rnnt and torchaudio: argument order, defaults, and their differences."""

import inspect

import pytest
import torch
from transducers import TYPES, batch, sums

from turnout import torch as own
from turnout.compat import fast_rnnt, k2, torchaudio

pytestmark = pytest.mark.torch

END = "boundary=None, rnnt_type='regular', delay_penalty=0.0, reduction='mean'"
SIMPLE = f"lm, am, symbols, termination_symbol, {END}, return_grad=False"
SMOOTHED = (
    f"lm, am, symbols, termination_symbol, lm_only_scale=0.1, am_only_scale=0.1, {END}, return_grad=False"
)
K2 = {
    "rnnt_loss": f"logits, symbols, termination_symbol, {END}",
    "rnnt_loss_simple": SIMPLE,
    "rnnt_loss_smoothed": SMOOTHED,
    "rnnt_loss_pruned": f"logits, symbols, ranges, termination_symbol, {END}, use_hat_loss=False",
    "get_rnnt_prune_ranges": "px_grad, py_grad, boundary, s_range",
    "get_rnnt_prune_ranges_deprecated": "px_grad, py_grad, boundary, s_range",
    "do_rnnt_pruning": "am, lm, ranges",
    "get_rnnt_logprobs": "lm, am, symbols, termination_symbol, rnnt_type='regular', boundary=None",
    "get_rnnt_logprobs_joint": "logits, symbols, termination_symbol, rnnt_type='regular', boundary=None",
    "get_rnnt_logprobs_smoothed": (
        "lm, am, symbols, termination_symbol, lm_only_scale=0.1, am_only_scale=0.1, boundary=None, "
        "rnnt_type='regular'"
    ),
    "get_rnnt_logprobs_pruned": "logits, symbols, ranges, termination_symbol, boundary, rnnt_type='regular'",
    "get_hat_logprobs_pruned": "logits, symbols, ranges, termination_symbol, boundary, rnnt_type='regular'",
}
FAST_RNNT = {
    **{name: text for name, text in K2.items() if "hat" not in name and "deprecated" not in name},
    "rnnt_loss": f"logits, symbols, termination_symbol, {END}, return_grad=False",
    "rnnt_loss_pruned": f"logits, symbols, ranges, termination_symbol, {END}, return_grad=False",
    "get_rnnt_logprobs_joint": "logits, symbols, termination_symbol, boundary=None, rnnt_type='regular'",
}
TORCHAUDIO = {
    "rnnt_loss": (
        "logits, targets, logit_lengths, target_lengths, blank=-1, clamp=-1, reduction='mean', "
        "fused_log_softmax=True"
    ),
    "RNNTLoss": "blank=-1, clamp=-1.0, reduction='mean', fused_log_softmax=True",
}


@pytest.mark.parametrize(
    ("module", "functions"), [(k2, K2), (fast_rnnt, FAST_RNNT), (torchaudio, TORCHAUDIO)]
)
def test_signatures(module, functions):
    """Positional arguments are exactly theirs; ours adds keywords."""
    for name, text in functions.items():
        parameters = inspect.signature(getattr(module, name)).parameters.values()
        positional = [p.replace(annotation=p.empty) for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]
        assert ", ".join(str(p).replace(" = ", "=") for p in positional) == text, name
    assert set(functions) <= set(module.__all__)


@pytest.mark.parametrize("module", [k2, fast_rnnt])
def test_a_constrained_lattice_of_one_position_per_frame_has_no_path(module):
    lm, am, text, boundary = batch(1)
    logits = sums(lm, am)[:, :, :1].clone().requires_grad_()
    ranges = torch.arange(5).clamp(max=3).repeat(2, 1)[..., None]
    arguments = logits, text, ranges, 0, boundary, "constrained"
    loss, grads = module.rnnt_loss_pruned(*arguments, reduction="none", return_grad=True)
    assert loss.isposinf().all() and not any(grad.isnan().any() for grad in grads)
    loss.sum().backward()
    assert not logits.grad.any()
    with pytest.raises(ValueError, match=r"rnnt_loss_pruned: ranges.shape\[2\] is 1, expected 2 or more"):
        own.rnnt_loss_pruned(*arguments)
    with pytest.raises(ValueError, match="rnnt_loss_pruned: rnnt_type is 'other'"):
        module.rnnt_loss_pruned(*arguments[:-1], "other")


@pytest.mark.parametrize("rnnt_type", TYPES)
def test_fast_rnnt(rnnt_type):
    lm, am, text, boundary = batch(1)
    logits = sums(lm, am).requires_grad_()
    full = torch.arange(4).repeat(2, 5, 1)
    arguments = 0, boundary, rnnt_type, 0.1, "sum"
    for theirs, ours in (
        (fast_rnnt.rnnt_loss(logits, text, *arguments, True), own.rnnt_loss(logits, text, *arguments)),
        (
            fast_rnnt.rnnt_loss_pruned(logits, text, full, *arguments, True),
            own.rnnt_loss_pruned(logits, text, full, *arguments),
        ),
    ):
        loss, grads = theirs
        assert torch.equal(loss, ours)
        before = [grad.clone() for grad in grads]
        (loss * 5).backward()
        assert all(map(torch.equal, grads, before))
    steps = fast_rnnt.get_rnnt_logprobs_joint(logits, text, 0, boundary, rnnt_type)
    assert all(map(torch.equal, steps, own.get_rnnt_logprobs_joint(logits, text, 0, rnnt_type, boundary)))
    with pytest.raises(ValueError, match=r"do_rnnt_pruning: am.shape\[2\] is 5, expected 6 as lm.shape\[2\]"):
        fast_rnnt.do_rnnt_pruning(am[..., :5], lm, full)


def test_hat_steps_of_k2():
    lm, am, text, boundary = batch(2)
    full = torch.arange(4).repeat(2, 5, 1)
    px, py = k2.get_hat_logprobs_pruned(sums(lm, am), text, full, 0, boundary)
    loss = own.rnnt_loss_pruned(sums(lm, am), text, full, 0, boundary, reduction="none", use_hat_loss=True)
    torch.testing.assert_close(-k2.mutual_information_recursion(px, py, boundary), loss)


# -- torchaudio --------------------------------------------------------------------------------------------

FRAMES, SYMBOLS = torch.tensor([5, 4], dtype=torch.int32), torch.tensor([3, 1], dtype=torch.int32)
BOX = torch.tensor([[0, 0, 3, 5], [0, 0, 1, 4]])


def speech(dtype=torch.float32):
    lm, am, text, _ = batch(3, dtype=dtype)
    return sums(lm, am).requires_grad_(), (text - 1).int()  # the blank is the last class


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_torchaudio_value(dtype):
    logits, text = speech(dtype)
    for reduction in ("none", "mean", "sum"):
        loss = torchaudio.rnnt_loss(logits, text, FRAMES, SYMBOLS, reduction=reduction)
        assert loss.dtype == dtype
        wanted = own.rnnt_loss(logits, text, 5, BOX, reduction=reduction)
        torch.testing.assert_close(loss, wanted.to(dtype))
        module = torchaudio.RNNTLoss(reduction=reduction)
        assert torch.equal(module(logits, text, FRAMES, SYMBOLS), loss)
        grads = [torch.autograd.grad(x.sum(), logits)[0] for x in (loss, wanted)]
        torch.testing.assert_close(*grads)
    text = text.long()
    text[1, 1:] = -1
    assert torch.equal(
        torchaudio.rnnt_loss(logits, text, FRAMES.long(), SYMBOLS.long(), 5, reduction="sum"), loss
    )


def test_torchaudio_of_probabilities():
    """Gives the same value and, through log_softmax, the same gradients."""
    logits, text = speech(torch.float64)
    logs = logits.log_softmax(3)
    loss = torchaudio.rnnt_loss(logs, text, FRAMES, SYMBOLS, fused_log_softmax=False)
    wanted = torchaudio.rnnt_loss(logits, text, FRAMES, SYMBOLS)
    torch.testing.assert_close(loss, wanted)
    grads = [torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (loss, wanted)]
    torch.testing.assert_close(*grads)
    (of_logs,) = torch.autograd.grad(loss, logs)
    assert (of_logs <= 0).all()  # without the softmax's part
    assert not of_logs[1, 4].any()
    assert not of_logs[1, :, 2:].any()


@pytest.mark.parametrize("fused", [False, True])
def test_torchaudio_clamp(fused):
    logits, text = speech(torch.float64)
    loss = torchaudio.rnnt_loss(logits, text, FRAMES, SYMBOLS, reduction="none", fused_log_softmax=fused)
    clamped = torchaudio.rnnt_loss(logits, text, FRAMES, SYMBOLS, -1, 0.05, "none", fused)
    assert torch.equal(loss, clamped)
    (grad,) = torch.autograd.grad(loss.sum(), logits)
    assert grad.abs().max() > 0.05
    weight = torch.tensor([2.0, -3.0]).double()
    (actual,) = torch.autograd.grad((clamped * weight).sum(), logits)
    torch.testing.assert_close(actual, grad.clamp(-0.05, 0.05) * weight.reshape(2, 1, 1, 1))


def test_torchaudio_refusals():
    logits, text = speech()

    def message(*arguments, **options):
        with pytest.raises(ValueError) as caught:
            torchaudio.rnnt_loss(*arguments, **options)
        return str(caught.value)

    bad = text.clone()
    bad[1, 0] = 6
    for fused in (False, True):
        assert message(logits, bad, FRAMES, SYMBOLS, fused_log_softmax=fused) == (
            "rnnt_loss: targets[1, 0] is 6, expected 0 .. 5"
        )
        assert message(logits, text, FRAMES + 1, SYMBOLS, fused_log_softmax=fused) == (
            "rnnt_loss: logit_lengths[0] is 6, expected 0 .. 5"
        )
    assert message(logits, text, FRAMES, SYMBOLS - 2) == "rnnt_loss: target_lengths[1] is -1, expected 0 .. 3"
    assert message(logits, text, FRAMES, SYMBOLS, -7) == "rnnt_loss: blank is -7, expected -6 .. 5"
    assert message(logits, text, FRAMES, SYMBOLS, reduction="all").startswith("rnnt_loss: reduction is 'all'")
    assert message(logits, text, FRAMES[:1], SYMBOLS) == (
        "rnnt_loss: logit_lengths has shape [1] and dtype torch.int32, expected [2] and torch.int32 or "
        "torch.int64"
    )
    assert message(logits, text, FRAMES.float(), SYMBOLS).startswith("rnnt_loss: logit_lengths has shape [2]")
