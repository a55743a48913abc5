"""Error messages of the RNN-T functions name the function, the argument and the position."""

import pytest
import torch

from turnout.torch import (
    do_rnnt_pruning,
    get_rnnt_logprobs,
    get_rnnt_logprobs_joint,
    get_rnnt_logprobs_pruned,
    get_rnnt_logprobs_smoothed,
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

LM, AM, LOGITS = torch.zeros(2, 4, 6), torch.zeros(2, 5, 6), torch.zeros(2, 5, 4, 6)
TEXT, KEPT = torch.ones(2, 3).long(), torch.arange(2).repeat(2, 5, 1)
BOX = torch.tensor([[0, 0, 3, 5], [1, 1, 3, 4]])
PX, PY = torch.zeros(2, 3, 6), torch.zeros(2, 4, 5)


def changed(tensor, at, value):
    tensor = tensor.clone()
    tensor[at] = value
    return tensor


LOSSES = {
    rnnt_loss: (LOGITS, TEXT),
    rnnt_loss_simple: (LM, AM, TEXT),
    rnnt_loss_smoothed: (LM, AM, TEXT),
    rnnt_loss_pruned: (LOGITS[:, :, :2], TEXT, KEPT),
    get_rnnt_logprobs: (LM, AM, TEXT),
    get_rnnt_logprobs_joint: (LOGITS, TEXT),
    get_rnnt_logprobs_smoothed: (LM, AM, TEXT),
    get_rnnt_logprobs_pruned: (LOGITS[:, :, :2], TEXT, KEPT),
}
TEXT_PLACE = {f: next(i for i, x in enumerate(a) if x is TEXT) for f, a in LOSSES.items()}


def message_of(function, *arguments, **options):
    with pytest.raises((ValueError, TypeError)) as caught:
        function(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_text(function, text):
    arguments = list(LOSSES[function])
    arguments[TEXT_PLACE[function]] = text
    return arguments


@pytest.mark.parametrize("function", LOSSES)
def test_common_errors(function):
    name = function.__name__
    arguments = LOSSES[function]
    function(*arguments, 0, boundary=BOX)

    def message(blank=0, text=TEXT, **options):
        options = {"boundary": BOX, **options}
        return message_of(function, *with_text(function, text), blank, **options)

    assert message(text=changed(TEXT, (0, 2), 6)) == f"{name}: symbols[0, 2] is 6, expected 0 .. 5"
    assert message(text=changed(TEXT, (1, 1), -1)) == f"{name}: symbols[1, 1] is -1, expected 0 .. 5"
    assert message(blank=-1) == f"{name}: termination_symbol is -1, expected 0 or more"
    assert message(blank=6).startswith(f"{name}: termination_symbol")
    assert message(boundary=BOX.int()) == f"{name}: boundary has dtype int32, expected int64"
    assert message(boundary=changed(BOX, (1, 3), 6)) == (
        f"{name}: boundary[1, 3] is 6, expected 0 .. 5 frames"
    )
    assert message(boundary=changed(BOX, (0, 2), -1)) == (
        f"{name}: boundary[0, 2] is -1, expected 0 .. 3 symbols"
    )
    assert message(boundary=changed(BOX, (1, 1), 5)) == (
        f"{name}: boundary[1, 1] is 5, expected at most boundary[1, 3] = 4"
    )
    assert message(rnnt_type="other") == (
        f"{name}: rnnt_type is 'other', expected one of 'regular', 'modified', 'constrained'"
    )
    assert message(boundary=changed(BOX, (1, 3), 2), rnnt_type="modified") == (
        f"{name}: row 1 of the batch has 1 frames for 2 symbols, expected at least 2, "
        "as a symbol takes a frame"
    )
    assert message(text=TEXT.float()).startswith(f"{name}: symbols has dtype float32, expected int32, int64")
    assert message(text=TEXT[:, :2]).startswith(f"{name}: ")


@pytest.mark.parametrize("function", [rnnt_loss, rnnt_loss_simple, rnnt_loss_smoothed, rnnt_loss_pruned])
@pytest.mark.parametrize("reduction", [None, "average"])
def test_reduction_is_checked_first(function, reduction):
    bad = with_text(function, changed(TEXT, (0, 0), 99))
    assert message_of(function, *bad, 0, reduction=reduction, rnnt_type="other") == (
        f"{function.__name__}: reduction is {reduction!r}, expected one of 'none', 'mean', 'sum'"
    )


def test_frames_without_a_boundary():
    assert message_of(rnnt_loss, LOGITS[:, :2], TEXT, 0, None, "constrained") == (
        "rnnt_loss: row 0 of the batch has 2 frames for 3 symbols, expected at least 3, as a symbol takes "
        "a frame"
    )
    assert rnnt_loss(LOGITS[:, :2], TEXT, 0).isfinite()  # several symbols in a frame


def test_ranges():
    rows = LOGITS[:, :, :2]

    def message(ranges, boundary=None, rnnt_type="regular", logits=rows):
        return message_of(rnnt_loss_pruned, logits, TEXT, ranges, 0, boundary, rnnt_type)

    name = "rnnt_loss_pruned"
    assert message(changed(KEPT, (1, 3, 0), -1)) == f"{name}: ranges[1, 3, 0] is -1, expected 0 .. 2"
    assert message(KEPT + 3) == f"{name}: ranges[0, 0, 0] is 3, expected 0 .. 2"
    assert message(changed(KEPT, (0, 4, 1), 3)) == (
        f"{name}: ranges[0, 4, 1] is 3, expected 1, one more than the position before it"
    )
    assert message(KEPT.int()) == f"{name}: ranges has dtype int32, expected int64"
    assert message(KEPT[:, :3]).startswith(f"{name}: ranges.shape[1] is 3, expected 5 = logits.shape[1]")
    assert message(KEPT[..., :1], None, "constrained", rows[:, :, :1]).startswith(
        f"{name}: ranges.shape[2] is 1, expected 2 or more with rnnt_type 'constrained'"
    )
    padding = changed(KEPT, (1, 0), 77)
    assert rnnt_loss_pruned(rows, TEXT, padding, 0, BOX, reduction="none").shape == (2,)


def test_hat():
    name, rows = "rnnt_loss_pruned", LOGITS[:, :, :2]
    hat = {"use_hat_loss": True}
    assert message_of(rnnt_loss_pruned, rows, TEXT, KEPT, 1, **hat) == (
        f"{name}: termination_symbol is 1, expected 0 with use_hat_loss"
    )
    assert message_of(rnnt_loss_pruned, rows, changed(TEXT, (1, 2), 0), KEPT, 0, **hat) == (
        f"{name}: symbols[1, 2] is 0, expected 1 .. 5"
    )
    assert message_of(rnnt_loss_pruned, rows[..., :1], TEXT, KEPT, 0, **hat) == (
        f"{name}: logits.shape[3] is 1, expected 2 or more classes with use_hat_loss"
    )
    # Frames are counted inside the boundary: a batch whose padded text is longer than its frames is legal.
    text = torch.ones(1, 9).long()
    kept = torch.arange(3).repeat(1, 5, 1)
    boundary = torch.tensor([[0, 0, 2, 5]])
    loss = rnnt_loss_pruned(torch.zeros(1, 5, 3, 6), text, kept, 0, boundary, "modified", **hat)
    assert loss.isfinite()


def test_pruning():
    assert message_of(get_rnnt_prune_ranges, PX, PY, BOX.int(), 2) == (
        "get_rnnt_prune_ranges: boundary has dtype int32, expected int64"
    )
    assert message_of(get_rnnt_prune_ranges, PX, PY, None, 2) == (
        "get_rnnt_prune_ranges: boundary is of type NoneType, expected a torch.Tensor"
    )
    assert message_of(get_rnnt_prune_ranges, PX[:, :, :5], PY, BOX, 0) == (
        "get_rnnt_prune_ranges: s_range is 0, expected 1 or more"
    )
    assert message_of(get_rnnt_prune_ranges_deprecated, PX, PY, BOX, 1) == (
        "get_rnnt_prune_ranges_deprecated: s_range is 1, expected 2 or more"
    )
    assert message_of(get_rnnt_prune_ranges, PX, PY, changed(BOX, (1, 2), 4), 2) == (
        "get_rnnt_prune_ranges: boundary[1, 2] is 4, expected 0 .. 3 symbols"
    )
    assert message_of(do_rnnt_pruning, AM, LM, changed(KEPT, (1, 2, 1), 0)) == (
        "do_rnnt_pruning: ranges[1, 2, 1] is 0, expected 1 .. 3"
    )
    assert message_of(do_rnnt_pruning, AM[:, :4], LM, KEPT) == (
        "do_rnnt_pruning: am has shape [2, 4, 6], expected [2, 5, width] as ranges"
    )


def test_alignment():
    assert message_of(rnnt_align, PX, PY[:1]) == "rnnt_align: py.shape[0] is 1, expected 2 = px.shape[0]"
    assert message_of(rnnt_align, PX, PY, changed(BOX, (0, 3), 9)) == (
        "rnnt_align: boundary[0, 3] is 9, expected 0 .. 5 frames"
    )
    assert message_of(rnnt_emission_delay, PX, TEXT[:, :1]).startswith(
        "rnnt_emission_delay: frames has shape [2, 1], expected [2, 3]"
    )
