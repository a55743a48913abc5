"""The demo's lines about speech: the lattice of the RNN-T loss, and its steps from logits."""

from __future__ import annotations

import numpy as np

import turnout
from demo.job import Job


def utterances() -> tuple[np.ndarray, np.ndarray]:
    """px and py of 32 utterances of 50 symbols in 500 frames. Each symbol is likely near its own frame."""
    batch, symbols, frames = 32, 50, 500
    random = np.random.default_rng(2)
    centre = np.sort(random.uniform(0, frames, (batch, symbols, 1)), axis=1)
    width = random.uniform(3, 40, centre.shape)
    emit = 0.002 + 0.5 * np.exp(-(((np.arange(frames) - centre) / width) ** 2))
    px = np.full((batch, symbols, frames + 1), -np.inf, dtype=np.float32)  # no symbol after the last frame
    px[:, :, :-1] = np.log(emit)
    py = np.zeros((batch, symbols + 1, frames), dtype=np.float32)
    py[:, :-1] = np.log1p(-emit)
    return px, py


def lattice(px: np.ndarray, py: np.ndarray) -> np.ndarray:
    """The definition of p in float64: one cell at a time, for all utterances at once."""
    p = np.full((px.shape[1] + 1, py.shape[2] + 1, len(px)), -np.inf)
    x, y = (a.astype(np.float64).transpose(1, 2, 0) for a in (px, py))
    p[0, 0] = 0
    for s, t in list(np.ndindex(p.shape[:2]))[1:]:
        up = p[s - 1, t] + x[s - 1, t] if s > 0 else -np.inf
        left = p[s, t - 1] + y[s, t - 1] if t > 0 else -np.inf
        p[s, t] = np.logaddexp(up, left)
    return p.transpose(2, 0, 1)


def mutual_information(with_gradients: bool) -> Job:
    px, py = utterances()
    batch, symbols, _ = px.shape
    frames = py.shape[2]
    shape = (batch, symbols + 1, frames + 1)
    ans = np.empty(batch, dtype=np.float32)

    def gradients() -> tuple[np.ndarray, ...]:
        p = lattice(px, py)
        px_grad = np.exp(p[:, :-1] - p[:, 1:] + px)
        py_grad = np.exp(p[:, :, :-1] - p[:, :, 1:] + py)
        g = np.zeros(shape)
        g[:, -1, -1] = 1
        for s, t in list(np.ndindex(shape[1:]))[-2::-1]:
            if s < symbols:
                px_grad[:, s, t] *= g[:, s + 1, t]
                g[:, s, t] += px_grad[:, s, t]
            if t < frames:
                py_grad[:, s, t] *= g[:, s, t + 1]
                g[:, s, t] += py_grad[:, s, t]
        return p[:, -1, -1], px_grad, py_grad

    scale = f"{batch} utterances, {symbols} symbols, {frames} frames"
    if with_gradients:
        out = ans, np.empty_like(px), np.empty_like(py)
        return Job(
            "mutual_information, both ways",
            scale,
            lambda: turnout.mutual_information_forward_backward(px, py, out=out),
            gradients,
            2 * (px.nbytes + py.nbytes),
            tolerance=1e-4,
        )
    p = np.empty(shape, dtype=np.float32)
    return Job(
        "mutual_information_forward",
        scale,
        lambda: turnout.mutual_information_forward(px, py, out=(p, ans))[0],
        lambda: lattice(px, py),
        px.nbytes + py.nbytes + p.nbytes,
        tolerance=1e-5,
    )


def rnnt_logprobs() -> Job:
    """The steps of the lattice from logits of 8 utterances: one log-softmax for each cell."""
    batch, frames, symbols, classes = 8, 200, 40, 500
    random = np.random.default_rng(0)
    logits = random.standard_normal((batch, frames, symbols + 1, classes), dtype=np.float32)
    text = random.integers(1, classes, (batch, symbols))
    out = turnout.rnnt_logprobs_joint_forward(logits, text, 0)

    def plain() -> tuple[np.ndarray, ...]:
        shifted = logits - logits.max(axis=3, keepdims=True)
        steps = shifted - np.log(np.exp(shifted).sum(axis=3, keepdims=True))
        px = np.full((batch, symbols, frames + 1), -np.inf, dtype=np.float32)
        px[:, :, :-1] = np.take_along_axis(steps[:, :, :-1], text[:, None, :, None], axis=3)[..., 0].swapaxes(
            1, 2
        )
        return px[:, :, :-1], steps[..., 0].swapaxes(1, 2)

    return Job(
        "rnnt_logprobs_joint_forward",
        f"{batch} utterances, {frames} frames, {classes} classes",
        lambda: (lambda px, py, *_: (px[:, :, :-1], py))(
            *turnout.rnnt_logprobs_joint_forward(logits, text, 0, out=out)
        ),
        plain,
        logits.nbytes + 2 * batch * frames * (symbols + 1) * 4,
        tolerance=1e-5,
    )
