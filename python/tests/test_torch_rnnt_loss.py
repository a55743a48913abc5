"""The RNN-T losses: worked values, enumeration, comparisons, gradients, and values that are not finite."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transducers import TYPES, batch, enumerated_loss, plain_loss, sums

from turnout.torch import (
    do_rnnt_pruning,
    get_rnnt_logprobs,
    get_rnnt_logprobs_joint,
    get_rnnt_logprobs_pruned,
    get_rnnt_logprobs_smoothed,
    get_rnnt_prune_ranges,
    mutual_information_recursion,
    rnnt_loss,
    rnnt_loss_pruned,
    rnnt_loss_simple,
    rnnt_loss_smoothed,
)

pytestmark = pytest.mark.torch

LM = torch.tensor([[[0, 0, 1], [0, 1, 1], [1, 0, 1], [2, 2, 0]]], dtype=torch.float64)
AM = torch.tensor([[[0, 1, 2], [0, 0, 0], [0, 2, 4], [0, 3, 3]]], dtype=torch.float64)
TEXT = torch.tensor([[0, 1, 0]])
SHORT, WHOLE = torch.tensor([[0, 0, 2, 3]]), torch.tensor([[0, 0, 3, 4]])
FULL = torch.arange(4).repeat(1, 4, 1)


def near(loss, expected):
    atol = 6e-7 if loss.dtype == torch.float64 else 4e-6  # rounding of the expected digits; error of float32
    torch.testing.assert_close(loss.double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=atol)


# -- worked values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("rnnt_type", "values"),
    [
        ("regular", (7.504013, 3.030034, 7.531423, 3.021548, 7.297697, 6.838260)),
        ("modified", (6.545785, 3.221261, 6.597026, 3.228044, 6.219608, 6.616610)),
        ("constrained", (9.658769, 4.218838, 9.709360, 4.237839, 9.323354, 9.262657)),
    ],
)
def test_worked_values(dtype, rnnt_type, values):
    lm, am = LM.to(dtype), AM.to(dtype)
    for i, (boundary, penalty) in enumerate(((None, 0.0), (SHORT, 0.0), (None, 0.1), (SHORT, 0.1))):
        near(rnnt_loss(sums(lm, am), TEXT, 2, boundary, rnnt_type, penalty), values[i])
        near(rnnt_loss_simple(lm, am, TEXT, 2, boundary, rnnt_type, penalty), values[i])
    near(rnnt_loss_smoothed(lm, am, TEXT, 2, rnnt_type=rnnt_type), values[4])
    near(rnnt_loss_smoothed(lm, am, TEXT, 2, 0, 0.333, None, rnnt_type), values[5])


@pytest.mark.parametrize(
    ("rnnt_type", "s_range", "starts", "value"),
    [
        ("regular", 2, [0, 0, 1, 2], 10.147550),
        ("regular", 3, [0, 0, 1, 1], 7.842867),
        ("modified", 1, [0, 1, 2, 3], 10.267571),
        ("modified", 2, [0, 0, 1, 2], 6.545785),
        ("modified", 3, [0, 0, 0, 1], 6.545785),
        ("constrained", 2, [0, 0, 1, 2], 10.147550),
        ("constrained", 3, [0, 0, 0, 1], 9.737697),
    ],
)
def test_worked_values_pruned(rnnt_type, s_range, starts, value):
    _, grads = rnnt_loss_simple(LM, AM, TEXT, 2, WHOLE, rnnt_type, return_grad=True)
    ranges = get_rnnt_prune_ranges(*grads, WHOLE, s_range)
    assert ranges[0, :, 0].tolist() == starts
    assert ranges.shape == (1, 4, s_range)
    am, lm = do_rnnt_pruning(AM, LM, ranges)
    near(rnnt_loss_pruned(am + lm, TEXT, ranges, 2, WHOLE, rnnt_type), value)


@pytest.mark.parametrize(("rnnt_type", "value"), [*zip(TYPES, (5.096059, 5.509964, 6.643301), strict=True)])
def test_worked_values_hat(rnnt_type, value):
    text = torch.tensor([[1, 2, 1]])
    near(rnnt_loss_pruned(sums(LM, AM), text, FULL, 0, None, rnnt_type, use_hat_loss=True), value)


def test_worked_steps():
    px, py = get_rnnt_logprobs(LM, AM, TEXT, 2)
    near(px[0, 0, :4], (-3.169846, -1.551445, -5.054985, -4.326563))
    assert px[0, 0, 4] == -torch.inf
    near(py[0, 3], (-1.551445, -2.758624, -0.758624, -2.169846))
    for other in (
        get_rnnt_logprobs_joint(sums(LM, AM), TEXT, 2),
        get_rnnt_logprobs_pruned(sums(LM, AM), TEXT, FULL, 2, None),
    ):
        torch.testing.assert_close(other, (px, py))


# -- all alignments, one by one ----------------------------------------------------------------------------


@pytest.mark.parametrize("rnnt_type", TYPES)
def test_enumeration(rnnt_type):
    for frames in range(5):
        for symbols in range(5):
            if rnnt_type != "regular" and frames < symbols:
                continue
            lm, am, text, boundary = batch(10 * frames + symbols, (3, frames, symbols, 4))
            logits = sums(lm, am)
            whole = torch.tensor([0, 0, symbols, frames]).repeat(3, 1)
            for boxes in (whole, boundary):
                expected = torch.stack(
                    [enumerated_loss(logits[b], text[b], 0, boxes[b].tolist(), rnnt_type) for b in range(3)]
                )
                given = None if boxes is whole else boxes
                options = {"boundary": given, "rnnt_type": rnnt_type, "reduction": "none"}
                torch.testing.assert_close(rnnt_loss(logits, text, 0, **options), expected)
                torch.testing.assert_close(rnnt_loss_simple(lm, am, text, 0, **options), expected)
                full = torch.arange(symbols + 1).repeat(3, frames, 1)
                torch.testing.assert_close(rnnt_loss_pruned(logits, text, full, 0, **options), expected)


@pytest.mark.parametrize("rnnt_type", TYPES)
def test_hat_by_probabilities(rnnt_type):
    """Logits that encode the HAT probabilities give the same loss without HAT."""
    lm, am, text, boundary = batch(3)
    logits = sums(lm, am)
    z = logits[..., :1]
    others = logits[..., 1:].log_softmax(3) + torch.nn.functional.logsigmoid(-z)
    probabilities = torch.cat([torch.nn.functional.logsigmoid(z), others], 3)
    torch.testing.assert_close(probabilities.exp().sum(3), torch.ones(2, 5, 4, dtype=torch.float64))
    full = torch.arange(4).repeat(2, 5, 1)
    for boxes in (None, boundary):
        hat = rnnt_loss_pruned(logits, text, full, 0, boxes, rnnt_type, use_hat_loss=True)
        torch.testing.assert_close(hat, rnnt_loss(probabilities, text, 0, boxes, rnnt_type))


# -- against plain formulas --------------------------------------------------------------------------------


@st.composite
def batches(draw):
    size, frames, symbols = (draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(0, 5)))
    rnnt_type = draw(st.sampled_from(TYPES))
    rows = []
    for _ in range(size):
        t_begin = draw(st.integers(0, frames))
        t_end = draw(st.integers(t_begin, frames))
        s_begin = draw(st.integers(0, symbols))
        most = symbols if rnnt_type == "regular" else min(symbols, s_begin + t_end - t_begin)
        rows.append((s_begin, t_begin, draw(st.integers(s_begin, most)), t_end))
    width = draw(st.integers(1, symbols + 1))
    starts = draw(st.lists(st.integers(0, symbols + 1 - width), min_size=frames, max_size=frames))
    if rnnt_type == "constrained" and width == 1:
        rnnt_type = "regular"
    return (
        rnnt_type,
        torch.tensor(rows),
        torch.tensor(starts).sort().values[:, None] + torch.arange(width),
        size,
    )


@settings(max_examples=60, deadline=None)
@given(batches(), st.integers(0, 1000))
def test_boundaries_and_ranges(drawn, seed):
    """Equals the loss of logits cut to the box, and of logits of -inf outside the band."""
    rnnt_type, boundary, ranges, size = drawn
    frames, symbols = ranges.shape[0], int(boundary[:, 2].max()) if len(boundary) else 0
    symbols = max(symbols, int(ranges.max()))
    lm, am, text, _ = batch(seed, (size, frames, symbols, 4))
    logits = sums(lm, am)
    loss = rnnt_loss(logits, text, 0, boundary, rnnt_type, 0.05, "none")
    for b, (s_begin, t_begin, s_end, t_end) in enumerate(boundary.tolist()):
        part = logits[b : b + 1, t_begin:t_end, s_begin : s_end + 1]
        alone = rnnt_loss(part, text[b : b + 1, s_begin:s_end], 0, None, rnnt_type, 0.0, "none")
        without = rnnt_loss(
            logits[b : b + 1], text[b : b + 1], 0, boundary[b : b + 1], rnnt_type, 0.0, "none"
        )
        torch.testing.assert_close(without, alone)
        if s_begin == t_begin == 0:
            alone = rnnt_loss(part, text[b : b + 1, :s_end], 0, None, rnnt_type, 0.05, "none")
            torch.testing.assert_close(loss[b : b + 1], alone)
    kept = ranges.expand(size, -1, -1).contiguous()
    rows = logits.gather(2, kept[..., None].expand(-1, -1, -1, 4)).requires_grad_()
    pruned = rnnt_loss_pruned(rows, text, kept, 0, boundary, rnnt_type, 0.0, "none")
    px, py = get_rnnt_logprobs_joint(
        logits, text, 0, "regular" if rnnt_type == "regular" else "modified", boundary
    )
    outside = torch.ones(size, symbols + 1, frames, dtype=torch.bool).scatter(1, kept.transpose(1, 2), False)
    py = py.masked_fill(outside, -torch.inf)
    px = px.masked_fill(torch.nn.functional.pad(outside, (0, px.shape[2] - frames))[:, :-1], -torch.inf)
    if rnnt_type == "constrained":
        px = px + py[:, 1:]
    torch.testing.assert_close(pruned, -mutual_information_recursion(px, py, boundary))
    finite = pruned[pruned.isfinite()]
    if len(finite):
        (grad,) = torch.autograd.grad(finite.sum(), rows)
        assert grad.isfinite().all()


@pytest.mark.parametrize("rnnt_type", TYPES)
@pytest.mark.parametrize("delay_penalty", [0.0, 0.2, -1.0])
def test_plain_formulas(rnnt_type, delay_penalty):
    lm, am, text, _ = batch(1, (3, 6, 4, 9))
    boundary = torch.tensor([[0, 0, 4, 6], [0, 0, 2, 5], [0, 0, 0, 3]])
    logits = sums(lm, am).requires_grad_()
    for boxes in (None, boundary):
        expected = plain_loss(logits, text, 0, boxes, rnnt_type, delay_penalty)
        loss = rnnt_loss(logits, text, 0, boxes, rnnt_type, delay_penalty, "none")
        torch.testing.assert_close(loss, expected)
        weight = torch.tensor([1.0, -0.5, 2.0]).double()
        grads = [torch.autograd.grad((x * weight).sum(), logits)[0] for x in (loss, expected)]
        torch.testing.assert_close(*grads)
        for reduction, reduced in (("mean", expected.mean()), ("sum", expected.sum())):
            torch.testing.assert_close(
                rnnt_loss(logits, text, 0, boxes, rnnt_type, delay_penalty, reduction), reduced
            )


def test_smoothed_by_its_definition():
    lm, am, text, _ = batch(2)
    boundary = torch.tensor([[0, 0, 3, 5], [0, 0, 2, 4]])
    mean = lm.softmax(2).mean((0, 1)) + torch.finfo(lm.dtype).tiny
    lm_log, am_log = lm.log_softmax(2), (am + mean.log()).log_softmax(2)
    for a, b in ((0.1, 0.1), (0.3, 0.0), (0.5, 0.5), (0.7, 0.6)):
        px, py = get_rnnt_logprobs_smoothed(lm, am, text, 0, a, b, boundary)
        simple_px, simple_py = get_rnnt_logprobs(lm, am, text, 0, "regular", boundary)
        for row, (_, _, s_end, t_end) in enumerate(boundary.tolist()):
            for s in range(s_end + 1):
                for t in range(t_end):
                    wanted = (
                        (1 - a - b) * simple_py[row, s, t] + a * lm_log[row, s, 0] + b * am_log[row, t, 0]
                    )
                    torch.testing.assert_close(py[row, s, t], wanted)
                    if s == s_end:
                        continue
                    c = text[row, s]
                    wanted = (
                        (1 - a - b) * simple_px[row, s, t] + a * lm_log[row, s, c] + b * am_log[row, t, c]
                    )
                    torch.testing.assert_close(px[row, s, t], wanted)
            assert px[row, :, t_end:].isneginf().all()
        # With scales that sum to one or more, the loss stays finite, even without a boundary.
        for boxes in (None, boundary):
            assert rnnt_loss_smoothed(lm, am, text, 0, a, b, boxes).isfinite()


# -- gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rnnt_type", TYPES)
def test_gradcheck(rnnt_type):
    lm, am, text, boundary = batch(4, (2, 3, 2, 4))
    full = torch.arange(3).repeat(2, 3, 1)
    options = {"boundary": boundary, "rnnt_type": rnnt_type, "delay_penalty": 0.1, "reduction": "none"}
    for function, inputs in (
        (lambda x: rnnt_loss(x, text, 0, **options), (sums(lm, am),)),
        (lambda x: rnnt_loss_pruned(x, text, full, 0, **options), (sums(lm, am),)),
        (lambda x: rnnt_loss_pruned(x, text, full, 0, **options, use_hat_loss=True), (sums(lm, am),)),
        (lambda x, y: rnnt_loss_simple(x, y, text, 0, **options), (lm, am)),
        (lambda x, y: rnnt_loss_smoothed(x, y, text, 0, **options), (lm, am)),
    ):
        assert torch.autograd.gradcheck(function, [x.clone().requires_grad_() for x in inputs])


@pytest.mark.parametrize("rnnt_type", TYPES)
def test_return_grad(rnnt_type):
    """Returns gradients of the sum of scores for any reduction; backward() does not change them."""
    lm, am, text, _ = batch(5)
    boundary = torch.tensor([[0, 0, 3, 5], [0, 0, 2, 4]])
    logits = sums(lm, am)
    full = torch.arange(4).repeat(2, 5, 1)
    lm, am, logits = (x.requires_grad_() for x in (lm, am, logits.detach()))
    for call in (
        lambda **o: rnnt_loss(logits, text, 0, boundary, rnnt_type, **o),
        lambda **o: rnnt_loss_simple(lm, am, text, 0, boundary, rnnt_type, **o),
        lambda **o: rnnt_loss_smoothed(lm, am, text, 0, 0.1, 0.1, boundary, rnnt_type, **o),
        lambda **o: rnnt_loss_pruned(logits, text, full, 0, boundary, rnnt_type, **o),
    ):
        for reduction in ("none", "mean", "sum"):
            loss, (px_grad, py_grad) = call(reduction=reduction, return_grad=True)
            torch.testing.assert_close(loss, call(reduction=reduction))
            torch.testing.assert_close(px_grad.sum((1, 2)), torch.tensor([3.0, 2.0]).double())
            blanks = [5.0, 4.0] if rnnt_type == "regular" else [2.0, 2.0]
            torch.testing.assert_close(py_grad.sum((1, 2)), torch.tensor(blanks).double())
            if rnnt_type == "regular":
                assert not px_grad[1, :, 4].any()
            before = px_grad.clone(), py_grad.clone()
            (loss.sum() * -3).backward()
            assert torch.equal(px_grad, before[0])
            assert torch.equal(py_grad, before[1])
            assert not px_grad.requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats(dtype):
    lm, am, text, boundary = batch(6, (3, 8, 4, 30), dtype)
    logits = sums(lm, am)
    ranges = torch.arange(3).repeat(3, 8, 1) + torch.arange(8).reshape(1, 8, 1) // 3
    am_rows, lm_rows = do_rnnt_pruning(am, lm, ranges)
    for function, inputs in (
        (lambda *x, **o: rnnt_loss(*x, text, 0, boundary, **o), (logits,)),
        (lambda *x, **o: rnnt_loss_simple(*x, text, 0, boundary, **o), (lm, am)),
        (lambda *x, **o: rnnt_loss_smoothed(*x, text, 0, 0.1, 0.1, boundary, **o), (lm, am)),
        (lambda *x, **o: rnnt_loss_pruned(*x, text, ranges, 0, boundary, **o), (am_rows + lm_rows,)),
    ):
        short = [x.detach().clone().requires_grad_() for x in inputs]
        wide = [x.detach().float().requires_grad_() for x in inputs]
        loss, grads = function(*short, reduction="none", return_grad=True)
        assert loss.dtype == grads[0].dtype == torch.float32
        expected = function(*wide, reduction="none")
        torch.testing.assert_close(loss, expected)
        for x, grad, wanted in zip(
            short,
            torch.autograd.grad((loss * 100).nan_to_num(0, 0, 0).sum(), short),
            torch.autograd.grad((expected * 100).nan_to_num(0, 0, 0).sum(), wide),
            strict=True,
        ):
            assert grad.dtype == x.dtype == dtype
            eps = torch.finfo(dtype).eps
            torch.testing.assert_close(grad.float(), wanted, rtol=eps, atol=1e-3 * eps)


def test_autocast_changes_nothing():
    lm, am, text, boundary = batch(7, dtype=torch.float32)
    calls = (
        lambda: rnnt_loss(sums(lm, am), text, 0, boundary),
        lambda: rnnt_loss_simple(lm, am, text, 0, boundary),
        lambda: rnnt_loss_smoothed(lm, am, text, 0, boundary=boundary),
    )
    expected = [call() for call in calls]
    with torch.autocast("cpu", torch.bfloat16):
        for call, wanted in zip(calls, expected, strict=True):
            assert torch.equal(call(), wanted)


def test_gradient_of_a_sure_step_in_half():
    """65536, GradScaler's initial scale, times an occupation of one exceeds f16 only by rounding."""
    logits = torch.zeros(1, 1, 1, 2, dtype=torch.float16)
    logits[..., 1] = 20.0
    logits.requires_grad_()
    (rnnt_loss(logits, torch.zeros(1, 0).long(), 1) * 65536).backward()
    assert logits.grad.isfinite().all()


# -- values that are not finite, and empty input -----------------------------------------------------------


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_in_one_row(bad):
    """Only that row has a loss and gradients of NaN, for a NaN inside its box but not outside."""
    lm, am, text, _ = batch(8, (2, 4, 2, 5), torch.float32)
    boundary = torch.tensor([[0, 0, 2, 4], [0, 0, 1, 3]])
    full = torch.arange(3).repeat(2, 4, 1)
    clean = rnnt_loss(sums(lm, am), text, 0, boundary, reduction="none")
    for t in range(4):
        for s in range(3):
            logits = sums(lm, am)
            logits[1, t, s, 3] = bad
            logits.requires_grad_()
            for loss in (
                rnnt_loss(logits, text, 0, boundary, reduction="none"),
                rnnt_loss_pruned(logits, text, full, 0, boundary, reduction="none"),
            ):
                inside = t < 3 and s < 2
                (grad,) = torch.autograd.grad(loss.sum(), logits)
                assert loss.isnan().tolist() == [False, inside]
                torch.testing.assert_close(loss[0], clean[0])
                assert grad[0].isfinite().all()
                assert grad[1, :3, :2].isnan().all() == inside
                assert not grad[1, 3].any()
                assert not grad[1, :, 2].any()


def test_nan_in_sums():
    lm, am, text, _ = batch(8, (2, 4, 2, 5), torch.float32)
    boundary = torch.tensor([[0, 0, 2, 4], [0, 0, 1, 3]])
    am[1, 3, 2] = torch.nan  # padding
    lm.requires_grad_(), am.requires_grad_()
    for loss in (
        rnnt_loss_simple(lm, am, text, 0, boundary),
        rnnt_loss_smoothed(lm, am, text, 0, boundary=boundary),
    ):
        assert all(grad.isfinite().all() for grad in torch.autograd.grad(loss, (lm, am)))
    bad = am.detach().clone()
    bad[1, 2, 2] = torch.nan
    loss = rnnt_loss_simple(lm, bad.requires_grad_(), text, 0, boundary, reduction="none")
    assert loss.isnan().tolist() == [False, True]
    lm_grad, am_grad = torch.autograd.grad(loss.sum(), (lm, bad))
    assert am_grad[1, :3].isnan().all()
    assert lm_grad[0].isfinite().all()
    assert am_grad[0].isfinite().all()
    loss = rnnt_loss_smoothed(lm.detach().index_fill(1, torch.tensor(1), torch.nan), am, text, 0)
    assert loss.isnan()


def test_no_path():
    """The loss is infinite, or 0 with zero_infinity; gradients are 0 and do not double from cell to cell."""
    lm, am, text, _ = batch(9, (2, 5, 3, 6))
    boundary = torch.tensor([[0, 0, 3, 5], [0, 0, 3, 0]])
    logits = sums(lm, am).requires_grad_()
    loss = rnnt_loss(logits, text, 0, boundary, reduction="none")
    assert loss.isposinf().tolist() == [False, True]
    (grad,) = torch.autograd.grad(loss[0], logits, retain_graph=True)
    assert torch.equal(torch.autograd.grad(loss.sum(), logits)[0], grad)
    loss = rnnt_loss(logits, text, 0, boundary, reduction="none", zero_infinity=True)
    assert loss[1] == 0
    assert torch.equal(torch.autograd.grad(loss.sum(), logits)[0], grad)
    # A band that leaves no path.
    ranges = torch.tensor([[0, 0, 0, 0, 2]])[:, :, None] + torch.arange(2)
    rows = logits[:1].detach()[:, :, :2].clone().requires_grad_()
    loss = rnnt_loss_pruned(rows, text[:1], ranges, 0)
    assert loss.isposinf()
    assert not torch.autograd.grad(loss, rows)[0].any()
    assert rnnt_loss_pruned(rows, text[:1], ranges, 0, zero_infinity=True) == 0


def test_masked_classes():
    lm, am, text, boundary = batch(10, dtype=torch.float32)
    lm[..., 5] = -torch.inf
    text = text.clamp(max=4)
    lm.requires_grad_(), am.requires_grad_()
    for loss in (
        rnnt_loss_simple(lm, am, text, 0, boundary),
        rnnt_loss_smoothed(lm, am, text, 0, boundary=boundary),
        rnnt_loss(sums(lm, am), text, 0, boundary),
    ):
        assert loss.isfinite()
        assert all(grad.isfinite().all() for grad in torch.autograd.grad(loss, (lm, am)))


@pytest.mark.parametrize(("gap", "value"), [(70, None), (100, 201.386), (300, 2.0794)])
def test_far_apart_peaks(gap, value):
    """Differs from k2, whose floor under the sums dominates beyond a gap of about 87. Tests both sides."""
    lm = torch.zeros(1, 2, 3)
    am = torch.zeros(1, 2, 3)
    lm[..., 0] = gap
    am[..., 1] = gap
    text = torch.tensor([[2]])
    if value == 2.0794:  # the third class is as likely as the other two
        lm[..., 2] = gap / 2
        am[..., 2] = gap / 2
    loss = rnnt_loss_simple(lm, am, text, 0)
    exact = rnnt_loss(sums(lm, am).double(), text, 0)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-4)
    tiny = torch.finfo(torch.float32).tiny
    product = (lm - gap).exp() @ (am - gap).exp().transpose(1, 2)
    n = (product + tiny).log() + 2 * gap
    assert torch.allclose(n.double(), sums(lm, am).double().logsumexp(3).transpose(1, 2), atol=1e-3) == (
        gap < 80
    )
    for x, y in zip(
        torch.autograd.grad(rnnt_loss_simple(lm.requires_grad_(), am.requires_grad_(), text, 0), (lm, am)),
        torch.autograd.grad(rnnt_loss(sums(lm, am), text, 0), (lm, am)),
        strict=True,
    ):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rnnt_type", TYPES)
def test_empty(rnnt_type):
    for shape in ((0, 4, 2, 5), (2, 3, 0, 5), (2, 0, 0, 5)):
        lm, am, text, _ = batch(11, shape)
        losses = rnnt_loss_simple(lm, am, text, 0, None, rnnt_type, reduction="none")
        torch.testing.assert_close(losses, plain_loss(sums(lm, am), text, 0, None, rnnt_type))
        for reduction, value in (("mean", losses.mean()), ("sum", losses.sum())):
            loss = rnnt_loss(sums(lm, am), text, 0, None, rnnt_type, reduction=reduction)
            torch.testing.assert_close(loss, value, equal_nan=True)
    lm, am, text, _ = batch(11, (0, 4, 2, 5))
    assert rnnt_loss_smoothed(lm, am, text, 0, reduction="none").shape == (0,)


def test_symbols_of_32_bits_and_strides():
    lm, am, text, boundary = batch(12)
    logits = sums(lm, am)
    expected = rnnt_loss(logits, text, 0, boundary)
    assert torch.equal(rnnt_loss(logits, text.int(), 0, boundary), expected)
    strided = logits.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    boxes = boundary.T.contiguous().T
    assert torch.equal(rnnt_loss(strided, text.T.contiguous().T, 0, boxes), expected)
    text = torch.where(torch.arange(3) < boundary[:, 2:3], text, -1)  # padding of -1
    text = torch.where(torch.arange(3) < boundary[:, :1], 10**9, text)
    assert torch.equal(rnnt_loss(logits, text, 0, boundary), expected)
    assert torch.equal(
        rnnt_loss_simple(lm, am, text, 0, boundary), rnnt_loss_simple(lm, am, text.int(), 0, boundary)
    )
    assert rnnt_loss_smoothed(lm, am, text, 0, boundary=boundary).isfinite()


# -- beyond k2 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pruned", [False, True])
def test_overwrite_logits(pruned):
    lm, am, text, boundary = batch(13, dtype=torch.float32)
    full = torch.arange(4).repeat(2, 5, 1)
    weight = torch.ones(6, requires_grad=True)

    def loss_of(logits, **options):
        if pruned:
            return rnnt_loss_pruned(logits, text, full, 0, boundary, **options)
        return rnnt_loss(logits, text, 0, boundary, **options)

    (expected,) = torch.autograd.grad(loss_of(sums(lm, am) * weight), weight)
    logits = sums(lm, am) * weight
    before = logits._version
    loss = loss_of(logits, overwrite_logits=True)
    (grad,) = torch.autograd.grad(loss, weight)
    torch.testing.assert_close(grad, expected)
    assert logits._version > before
    (plain,) = torch.autograd.grad(loss_of(x := sums(lm, am).requires_grad_()), x)
    assert torch.equal(logits.detach(), plain)
    # Autograd reports the change if another operation needs the logits.
    logits = sums(lm, am) * weight
    both = (logits**2).sum() + loss_of(logits, overwrite_logits=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        both.backward()
    logits = sums(lm, am).requires_grad_()
    loss = loss_of(logits, overwrite_logits=True)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with pytest.raises(
        ValueError, match="logits is strided, expected contiguous memory with overwrite_logits"
    ):
        loss_of(sums(lm, am).transpose(0, 1).contiguous().transpose(0, 1), overwrite_logits=True)
    with pytest.raises(NotImplementedError, match="overwrite_logits is True, expected False inside"):
        torch.func.grad(lambda x: loss_of(x, overwrite_logits=True))(sums(lm, am))


def test_fastemit():
    """The value stays the same; gradients of symbols grow, those of blanks do not."""
    lm, am, text, boundary = batch(14)
    logits = sums(lm, am).requires_grad_()
    plain = rnnt_loss(logits, text, 0, boundary)
    loss = rnnt_loss(logits, text, 0, boundary, fastemit_lambda=0.5)
    assert torch.equal(loss, plain)
    px, py = get_rnnt_logprobs_joint(logits, text, 0, boundary=boundary)
    _, (px_grad, py_grad) = rnnt_loss(logits, text, 0, boundary, return_grad=True)
    taken = (
        torch.where(px_grad > 0, px * px_grad, 0).sum() * 1.5
        + torch.where(py_grad > 0, py * py_grad, 0).sum()
    )
    torch.testing.assert_close(
        torch.autograd.grad(loss, logits)[0], torch.autograd.grad(-taken / 2, logits)[0]
    )


def test_second_derivative_is_refused():
    lm, am, text, _ = batch(15)
    for function, x in (
        (lambda y: rnnt_loss(y, text, 0), sums(lm, am)),
        (lambda y: rnnt_loss_simple(y, am, text, 0), lm),
    ):
        x = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(function(x), x, create_graph=True)
        with pytest.raises(NotImplementedError, match="this operator can be differentiated only once"):
            torch.autograd.grad(grad.square().sum(), x)
