"""Pruning, alignment and emission delay of RNN-T lattices, and a whole step of a recipe."""

import warnings

import numpy as np
import pytest
import torch
from transducers import TYPES, batch, sums

from turnout import check
from turnout.torch import (
    do_rnnt_pruning,
    get_rnnt_logprobs_joint,
    get_rnnt_prune_ranges,
    get_rnnt_prune_ranges_deprecated,
    rnnt_align,
    rnnt_emission_delay,
    rnnt_loss,
    rnnt_loss_pruned,
    rnnt_loss_simple,
    rnnt_loss_smoothed,
)

pytestmark = pytest.mark.torch


def occupations(seed, shape, rnnt_type, dtype=torch.float32):
    lm, am, text, _ = batch(seed, shape, dtype)
    size, frames, symbols, _ = shape
    ends = torch.stack(
        [torch.randint(0, symbols + 1, (size,)), torch.randint(max(symbols, 1), frames + 1, (size,))], 1
    )
    boundary = torch.cat([torch.zeros_like(ends), ends], 1)
    loss, grads = rnnt_loss_simple(lm, am, text, 0, boundary, rnnt_type, return_grad=True)
    assert loss.isfinite()
    return lm, am, text, boundary, grads


@pytest.mark.parametrize("rnnt_type", TYPES)
@pytest.mark.filterwarnings("ignore:get_rnnt_prune_ranges")
def test_ranges(rnnt_type):
    """Ranges equal their definition, start at 0, never decrease, and always leave a path."""
    torch.manual_seed(1)
    for seed in range(30):
        shape = 3, 5 + seed % 9, seed % 6, 7
        lm, am, text, boundary, grads = occupations(seed, shape, rnnt_type)
        for s_range in (2, 3, 5):
            ranges = get_rnnt_prune_ranges(*grads, boundary, s_range)
            expected = check.rnnt_prune_ranges(*(x.numpy() for x in grads), boundary.numpy(), s_range)
            np.testing.assert_array_equal(ranges, expected)
            assert ranges.dtype == torch.int64
            assert ranges.is_contiguous()
            starts = ranges[..., 0]
            most = ranges.shape[2] - 1 if rnnt_type == "regular" else 1
            assert (starts[:, 0] == 0).all()
            assert ((starts.diff() >= 0) & (starts.diff() <= most)).all()
            am_rows, lm_rows = do_rnnt_pruning(am, lm, ranges)
            loss = rnnt_loss_pruned(am_rows + lm_rows, text, ranges, 0, boundary, rnnt_type, reduction="none")
            assert loss.isfinite().all()
            whole = rnnt_loss(sums(lm, am), text, 0, boundary, rnnt_type, reduction="none")
            assert (loss >= whole - 1e-4).all()


def test_deprecated_ranges():
    torch.manual_seed(2)
    for seed, rnnt_type in enumerate(("regular", "modified")):
        *_, boundary, grads = occupations(seed, (3, 9, 5, 7), rnnt_type)
        ranges = get_rnnt_prune_ranges_deprecated(*grads, boundary, 3)
        arrays = (x.numpy() for x in grads)
        np.testing.assert_array_equal(
            ranges, check.rnnt_prune_ranges(*arrays, boundary.numpy(), 3, score="steps")
        )


def test_width():
    """Raised for long texts and lowered for short ones, each with a warning, otherwise unchanged."""
    text_is_long = torch.tensor([[0, 0, 9, 3]])
    px, py = torch.zeros(1, 9, 5), torch.zeros(1, 10, 4)
    with pytest.warns(UserWarning, match="s_range is 2, but 4 is used: with fewer, no path leads through"):
        assert get_rnnt_prune_ranges(px, py, text_is_long, 2).shape == (1, 4, 4)
    with pytest.warns(UserWarning, match="s_range is 99, but 10 is used: each frame has no more positions"):
        assert get_rnnt_prune_ranges(px, py, text_is_long, 99).shape == (1, 4, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert get_rnnt_prune_ranges(px, py, text_is_long, 10).shape == (1, 4, 10)
        assert get_rnnt_prune_ranges(px[:, :, :4], py, text_is_long, 2).shape == (1, 4, 2)
        assert get_rnnt_prune_ranges_deprecated(px, py, text_is_long, 2).shape == (1, 4, 2)
        assert get_rnnt_prune_ranges_deprecated(px, py, text_is_long, 99).shape == (1, 4, 10)
    # A row without frames is ignored; an empty text has one position.
    with pytest.warns(UserWarning, match="but 2 is used"):
        get_rnnt_prune_ranges(px, py, torch.tensor([[0, 0, 9, 0]]), 1)
    with pytest.warns(UserWarning, match="but 1 is used"):
        ranges = get_rnnt_prune_ranges(px[:, :0], py[:, :1], torch.tensor([[0, 0, 0, 4]]), 5)
    assert torch.equal(ranges, torch.zeros(1, 4, 1).long())


def test_do_rnnt_pruning():
    lm, am, _, _ = batch(3, (2, 6, 4, 5))
    lm = torch.cat([lm, lm], 2).requires_grad_()  # a different width from am
    am.requires_grad_()
    ranges = torch.tensor([0, 0, 1, 1, 2, 2])[:, None].repeat(2, 1, 1) + torch.arange(3)
    am_rows, lm_rows = do_rnnt_pruning(am, lm, ranges)
    assert am_rows.stride(2) == 0
    assert am_rows.shape == (2, 6, 3, 5)
    expected = lm.gather(1, ranges.reshape(2, -1, 1).expand(-1, -1, 10)).reshape(2, 6, 3, 10)
    assert torch.equal(lm_rows, expected)
    weight = torch.randn(2, 6, 3, 10).double()
    for x, y in ((lm_rows, expected), (am_rows, am.unsqueeze(2).expand(-1, -1, 3, -1))):
        grads = [
            torch.autograd.grad((z * weight[..., : z.shape[3]]).sum(), (lm, am), allow_unused=True)
            for z in (x, y)
        ]
        for a, b in zip(*grads, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b)
    torch.autograd.gradcheck(lambda x: do_rnnt_pruning(am.detach(), x, ranges)[1], lm)


@pytest.mark.parametrize("rnnt_type", TYPES)
def test_pruned_like_whole(rnnt_type):
    """With all positions, the pruned loss and its gradients equal the full ones."""
    lm, am, text, boundary = batch(4, (3, 7, 4, 9), torch.float32)
    full = torch.arange(5).repeat(3, 7, 1)
    grads = []
    for loss_of in (
        lambda x: rnnt_loss(x, text, 0, boundary, rnnt_type, 0.1, "sum"),
        lambda x: rnnt_loss_pruned(x, text, full, 0, boundary, rnnt_type, 0.1, "sum"),
    ):
        logits = sums(lm, am).requires_grad_()
        loss = loss_of(logits)
        grads.append((loss, *torch.autograd.grad(loss, logits)))
    assert all(torch.equal(x, y) for x, y in zip(*grads, strict=True))


@pytest.mark.filterwarnings("ignore:get_rnnt_prune_ranges")
def test_step_of_a_recipe():
    """Smoothed loss, ranges, pruning, joiner, pruned loss, backward."""
    torch.manual_seed(5)
    encoder, decoder = torch.nn.Linear(8, 12), torch.nn.Linear(8, 12)
    joiner = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(12, 12))
    lm, am, text, _ = batch(5, (2, 9, 4, 8), torch.float32)
    boundary = torch.tensor([[0, 0, 4, 9], [0, 0, 3, 7]])
    simple, grads = rnnt_loss_smoothed(decoder(lm), encoder(am), text, 0, boundary=boundary, return_grad=True)
    ranges = get_rnnt_prune_ranges(*grads, boundary, 3)
    am_rows, lm_rows = do_rnnt_pruning(encoder(am), decoder(lm), ranges)
    pruned = rnnt_loss_pruned(joiner(am_rows + lm_rows), text, ranges, 0, boundary, overwrite_logits=True)
    (0.5 * simple + pruned).backward()
    for module in (encoder, decoder, joiner):
        assert all(p.grad.isfinite().all() and p.grad.any() for p in module.parameters())


# -- alignment ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rnnt_type", TYPES)
def test_align(rnnt_type):
    lm, am, text, boundary = batch(6, (3, 6, 3, 5))
    px, py = get_rnnt_logprobs_joint(sums(lm, am).requires_grad_(), text, 0, rnnt_type, boundary)
    best = rnnt_align(px, py, boundary)
    frames, score = check.rnnt_align(px.detach().numpy(), py.detach().numpy(), boundary=boundary.numpy())
    np.testing.assert_array_equal(best.frames, frames)
    np.testing.assert_allclose(best.score, score)
    assert not best.confidence.requires_grad
    _, (px_grad, _) = rnnt_loss(sums(lm, am), text, 0, boundary, rnnt_type, return_grad=True)
    for b in range(3):
        for s in range(3):
            wanted = px_grad[b, s, frames[b, s]] if frames[b, s] >= 0 else torch.zeros(())
            torch.testing.assert_close(best.confidence[b, s], wanted.double())


def test_align_a_single_path():
    """Logits that leave a single path, which has all the probability."""
    logits = torch.full((1, 5, 3, 4), -50.0)
    text, at = torch.tensor([[2, 3]]), [1, 3]
    for t in range(5):
        for s in range(3):
            emits = s < 2 and at[s] == t
            logits[0, t, s, text[0, s] if emits else 0] = 0
    px, py = get_rnnt_logprobs_joint(logits, text, 0)
    best = rnnt_align(px, py)
    assert best.frames.tolist() == [at]
    torch.testing.assert_close(best.confidence, torch.ones(1, 2))
    torch.testing.assert_close(best.score, torch.zeros(1), rtol=0, atol=1e-5)
    _, (px_grad, _) = rnnt_loss(logits, text, 0, return_grad=True)
    delay = rnnt_emission_delay(px_grad, torch.tensor([[0, -1]]))
    torch.testing.assert_close(delay[0, 0], torch.tensor(1.0))
    assert delay[0, 1].isnan()


def test_penalties_lower_the_delay():
    lm, am, text, _ = batch(7, (2, 12, 3, 6))
    reference = torch.zeros(2, 3).long()
    delays = []
    for penalty in (0.0, 0.5):
        _, (px_grad, _) = rnnt_loss_simple(lm, am, text, 0, delay_penalty=penalty, return_grad=True)
        delays.append(rnnt_emission_delay(px_grad, reference).mean())
    assert delays[1] < delays[0]
