"""Shared by the tests of the RNN-T losses: batches, plain formulas, and losses by enumeration."""

import itertools

import torch

from turnout.torch import mutual_information_recursion

TYPES = ("regular", "modified", "constrained")


def batch(seed, shape=(2, 5, 3, 6), dtype=torch.float64):
    """Draws lm, am, symbols and a boundary of (batch, frames, symbols, classes), valid for every type."""
    generator = torch.Generator().manual_seed(seed)
    size, frames, symbols, classes = shape
    lm = torch.randn(size, symbols + 1, classes, generator=generator, dtype=torch.float64)
    am = torch.randn(size, frames, classes, generator=generator, dtype=torch.float64)
    text = torch.randint(1, classes, (size, symbols), generator=generator)
    rows = []
    for _ in range(size):
        t = torch.randint(0, frames + 1, (2,), generator=generator).sort().values.tolist()
        s = torch.randint(0, symbols + 1, (1,), generator=generator).item()
        rows.append((s, t[0], min(symbols, s + t[1] - t[0]), t[1]))
    return lm.to(dtype), am.to(dtype), text, torch.tensor(rows).reshape(size, 4)


def sums(lm, am):
    return am.unsqueeze(2) + lm.unsqueeze(1)


def steps(logits, symbols, blank, boundary, rnnt_type, delay_penalty=0.0):
    """Computes px and py of logits with torch's operators; boxes must start at 0."""
    size, frames, _, _ = logits.shape
    logs = logits.log_softmax(3).transpose(1, 2)  # [batch, symbols + 1, frames, classes]
    py = logs[..., blank]
    index = symbols[:, :, None, None].expand(-1, -1, frames, -1)
    px = logs[:, :-1].gather(3, index)[..., 0]
    if rnnt_type == "regular":
        px = torch.cat([px, px.new_full((size, px.shape[1], 1), -torch.inf)], 2)
        if boundary is not None:
            at = boundary[:, 3].reshape(-1, 1, 1).expand(-1, px.shape[1], 1)
            px = px.scatter(2, at, -torch.inf)
    elif rnnt_type == "constrained":
        px = px + py[:, 1:]
    if delay_penalty > 0:
        ends = logits.new_full((size,), frames) if boundary is None else boundary[:, 3]
        t = torch.arange(px.shape[2], dtype=px.dtype)
        px = px + delay_penalty * ((ends.to(px.dtype).reshape(-1, 1, 1) - 1) / 2 - t)
    return px, py


def plain_loss(logits, symbols, blank, boundary=None, rnnt_type="regular", delay_penalty=0.0):
    """Computes the loss of each row with plain formulas and the recursion."""
    return -mutual_information_recursion(
        *steps(logits, symbols, blank, boundary, rnnt_type, delay_penalty), boundary
    )


def enumerated_loss(logits, symbols, blank, box, rnnt_type):
    """Computes the loss of one row [frames, symbols + 1, classes] by enumerating all alignments."""
    s_begin, t_begin, s_end, t_end = box
    logs = logits.log_softmax(2)
    ways = []
    if rnnt_type == "regular":  # each symbol has a frame; frames never decrease
        for at in itertools.combinations_with_replacement(range(t_begin, t_end), s_end - s_begin):
            way = logits.new_zeros(())
            s = s_begin
            for t in range(t_begin, t_end):
                while s < s_end and at[s - s_begin] == t:
                    way = way + logs[t, s, symbols[s]]
                    s += 1
                way = way + logs[t, s, blank]
            ways.append(way)
        if t_begin == t_end and s_begin == s_end:
            ways = [logits.new_zeros(())]
    else:  # each frame has a symbol or a blank
        for at in itertools.combinations(range(t_begin, t_end), s_end - s_begin):
            way = logits.new_zeros(())
            s = s_begin
            for t in range(t_begin, t_end):
                if t in at:
                    way = way + logs[t, s, symbols[s]]
                    s += 1
                    if rnnt_type == "constrained":
                        way = way + logs[t, s, blank]
                else:
                    way = way + logs[t, s, blank]
            ways.append(way)
    return -torch.stack(ways).logsumexp(0) if ways else logits.new_tensor(torch.inf)
