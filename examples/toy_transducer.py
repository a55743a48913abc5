"""A toy transducer learns to transcribe synthetic speech, in which each letter is a burst at its own pitch.

Follows the recipe of pruned RNN-T training: a simple loss finds which positions each frame needs, and the
loss of the joiner considers only those. The first half of the steps uses a torch joiner and rnnt_loss_pruned,
the second half rnnt_loss_pruned_fused on the same weights. Prints the losses, transcripts of new utterances
and words with times, and draws the loss and an alignment in build/toy_transducer.png.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import nn

from turnout.torch import (
    do_rnnt_pruning,
    get_rnnt_logprobs_joint,
    get_rnnt_prune_ranges,
    rnnt_align,
    rnnt_loss,
    rnnt_loss_pruned,
    rnnt_loss_pruned_fused,
    rnnt_loss_simple,
)

WORDS = (
    *("a", "cab", "bad", "bead", "cafe", "dab", "deaf", "face", "fade", "bag"),
    *("beg", "cage", "age", "edge", "feed", "head", "heed", "fig", "big"),
)
LETTERS = " " + "".join(sorted(set("".join(WORDS))))  # class 0 is the blank; letter i is class i + 1
BANDS = 24
SECONDS_PER_FRAME = 0.04
ROWS = 4  # positions kept per frame


# -- speech ------------------------------------------------------------------------------------------------


def speak(text: str, generator: torch.Generator) -> torch.Tensor:
    """Returns [frames, bands]: a burst of two to four frames per letter, at its band, pauses, and noise."""

    def between(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    frames = [torch.zeros(between(1, 3), BANDS)]
    for letter in text:
        burst = torch.zeros(between(2, 4), BANDS)
        if letter != " ":
            band = 2 * LETTERS.index(letter)
            burst[:, band] = 1.0
            burst[:, band - 1] = 0.5  # tones leak into the band below
        frames += [burst, torch.zeros(between(1, 2) + 2 * (letter == " "), BANDS)]
    speech = torch.cat(frames)
    return speech + 0.15 * torch.randn(speech.shape, generator=generator)


def utterance(generator: torch.Generator) -> str:
    count = int(torch.randint(1, 4, (), generator=generator))
    return " ".join(WORDS[int(i)] for i in torch.randint(len(WORDS), (count,), generator=generator))


class Batch:
    """Padded utterances of any length, and the boundary that marks the end of each."""

    def __init__(self, texts: list[str], generator: torch.Generator) -> None:
        self.texts = texts
        speech = [speak(text, generator) for text in texts]
        symbols = [torch.tensor([1 + LETTERS.index(letter) for letter in text]) for text in texts]
        self.speech = nn.utils.rnn.pad_sequence(speech, batch_first=True)
        self.symbols = nn.utils.rnn.pad_sequence(symbols, batch_first=True)
        ends = torch.tensor([[len(s), len(x)] for s, x in zip(symbols, speech, strict=True)])
        self.boundary = torch.cat([torch.zeros_like(ends), ends], 1)


# -- the model ---------------------------------------------------------------------------------------------


class Transducer(nn.Module):
    """A convolutional encoder, a decoder that sees one symbol, and a joiner."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        classes = len(LETTERS) + 1
        self.encoder = nn.Sequential(
            nn.Conv1d(BANDS, width, 3, padding=1), nn.ReLU(), nn.Conv1d(width, width, 5, padding=2), nn.ReLU()
        )
        self.decoder = nn.Embedding(classes, width)
        self.am_projection = nn.Linear(width, width)
        self.lm_projection = nn.Linear(width, width)
        self.simple_am = nn.Linear(width, classes)
        self.simple_lm = nn.Linear(width, classes)
        self.output = nn.Linear(width, classes)

    def encode(self, speech: torch.Tensor) -> torch.Tensor:
        return self.encoder(speech.transpose(1, 2)).transpose(1, 2)

    def decode(self, symbols: torch.Tensor) -> torch.Tensor:
        """Returns [batch, symbols + 1, width]: the state at the start and after each symbol."""
        return self.decoder(nn.functional.pad(symbols, (1, 0)))

    def loss(self, batch: Batch, fused: bool) -> torch.Tensor:
        am, lm = self.encode(batch.speech), self.decode(batch.symbols)
        simple, grads = rnnt_loss_simple(
            self.simple_lm(lm), self.simple_am(am), batch.symbols, 0, batch.boundary, return_grad=True
        )
        ranges = get_rnnt_prune_ranges(*grads, batch.boundary, ROWS)
        am, lm = self.am_projection(am), self.lm_projection(lm)
        if fused:
            pruned = rnnt_loss_pruned_fused(
                *(am, lm, self.output.weight, batch.symbols, ranges, "tanh", 0),
                *(self.output.bias, batch.boundary),
            )
        else:
            am, lm = do_rnnt_pruning(am, lm, ranges)
            logits = self.output(torch.tanh(am + lm))
            pruned = rnnt_loss_pruned(logits, batch.symbols, ranges, 0, batch.boundary, overwrite_logits=True)
        return 0.5 * simple + pruned

    @torch.no_grad()
    def transcribe(self, speech: torch.Tensor) -> str:
        """Decodes greedily: emits the most likely class of each frame until it is the blank."""
        am = self.am_projection(self.encode(speech.unsqueeze(0)))[0]
        last, said = 0, ""
        for frame in am:
            for _ in range(3):
                lm = self.lm_projection(self.decoder(torch.tensor(last)))
                best = int(self.output(torch.tanh(frame + lm)).argmax())
                if best == 0:
                    break
                last = best
                said += LETTERS[best - 1]
        return said

    @torch.no_grad()
    def steps(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the logits of the whole lattice, and its steps."""
        am, lm = self.am_projection(self.encode(batch.speech)), self.lm_projection(self.decode(batch.symbols))
        logits = self.output(torch.tanh(am.unsqueeze(2) + lm.unsqueeze(1)))
        return logits, get_rnnt_logprobs_joint(logits, batch.symbols, 0, boundary=batch.boundary)


# -- output ------------------------------------------------------------------------------------------------


def words_with_times(text: str, frames: list[int], confidence: list[float]) -> list[str]:
    """Formats each word with the times of its first and last letter and its lowest confidence."""
    lines, begin = [], 0
    for end in [*(i for i, letter in enumerate(text) if letter == " "), len(text)]:
        if end > begin:
            first, last = (SECONDS_PER_FRAME * frames[i] for i in (begin, end - 1))
            sure = min(confidence[begin:end])
            lines.append(f"{first:5.2f} .. {last:5.2f} s  {text[begin:end]:6s} {sure:.2f}")
        begin = end + 1
    return lines


def draw(path: Path, losses: list[float], occupation: torch.Tensor, frames: list[int], text: str) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (curve, lattice) = pyplot.subplots(1, 2, figsize=(13, 5), width_ratios=(1, 2))
    curve.semilogy(losses)
    curve.axvline(len(losses) // 2, color="gray", linestyle=":")
    curve.set(title="loss; fused after the dotted line", xlabel="step")
    lattice.imshow(occupation.numpy(), aspect="auto", origin="lower", cmap="magma")
    lattice.plot(frames, range(len(frames)), color="cyan", marker=".", linewidth=0.8)
    lattice.set(title="probability of each cell, and the best path", xlabel="frame")
    lattice.set_yticks(range(len(text)), list(text))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> tuple[list[float], float]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch", type=int, default=16, help="utterances per step")
    parser.add_argument("--out", type=Path, default=Path("build/toy_transducer.png"))
    parser.add_argument("--small", action="store_true", help="a quick trial: 24 steps of 6 utterances")
    options = parser.parse_args(arguments)
    if options.small:
        options.steps, options.batch = 24, 6

    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    model = Transducer()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    losses = []
    start = time.perf_counter()
    for step in range(options.steps):
        batch = Batch([utterance(generator) for _ in range(options.batch)], generator)
        loss = model.loss(batch, fused=step >= options.steps // 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % max(1, options.steps // 8) == 0 or step == options.steps - 1:
            print(f"step {step:4d}  loss {losses[-1]:8.3f}  {time.perf_counter() - start:5.1f} s")

    tested = Batch([utterance(generator) for _ in range(20)], generator)
    right = 0
    for i, text in enumerate(tested.texts):
        said = model.transcribe(tested.speech[i, : tested.boundary[i, 3]])
        right += said == text
        if i < 4:
            print(f"spoken {text!r}, transcribed {said!r}")
    print(f"{right} of {len(tested.texts)} new utterances are transcribed without errors")

    one = Batch(["bad cage feed"], generator)
    logits, steps = model.steps(one)
    best = rnnt_align(*steps, one.boundary)
    _, (px_grad, py_grad) = rnnt_loss(logits, one.symbols, 0, one.boundary, return_grad=True)
    occupation = nn.functional.pad(px_grad, (0, 0, 0, 1))[0, :, :-1] + py_grad[0]
    frames = best.frames[0].tolist()
    print(f"alignment of {one.texts[0]!r}, as words with times:")
    print("\n".join(words_with_times(one.texts[0], frames, best.confidence[0].tolist())))
    draw(options.out, losses, occupation, frames, one.texts[0])
    print(f"wrote {options.out}")
    return losses, right / len(tested.texts)


if __name__ == "__main__":
    main()
