"""The comparisons of the RNN-T losses: from logits, a training step of a recipe, and with a joiner."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import torch
from harness import SETTLE, Comparison, Summary, compare, console
from rnnt_loss import torch_peer, torchaudio_peer, turnout_entries
from rnnt_loss.shapes import JOINT, RECIPE, Utterances

import turnout

TOLERANCE = 1e-3


def run(seconds: float) -> list[Comparison]:
    torch.set_num_threads(turnout.get_num_threads())
    summary = Summary()
    done = [joint(seconds, summary), recipe(seconds, summary), joiner(seconds, summary)]
    summary.show()
    return done


def expected_of(entry) -> tuple:
    entry.run()
    return entry.result()


def joint(seconds: float, summary: Summary) -> Comparison:
    u = Utterances(JOINT)
    entries = [turnout_entries.joint(u), torch_peer.joint(u)]
    if torchaudio_peer.is_loaded():
        entries.append(torchaudio_peer.joint(u))
    comparison = compare(
        f"rnnt_loss and its gradient, f32 {u.scale.name}",
        entries,
        expected=expected_of(entries[1]),
        tolerance=TOLERANCE,
        seconds=2 * seconds,
        settle=SETTLE,
    )
    for row in comparison.rows[1:]:
        summary.add(f"rnnt_loss {u.scale.name}", f"{row.name} / turnout", row.ratio)
    return comparison


def recipe(seconds: float, summary: Summary) -> Comparison:
    u = Utterances(RECIPE)
    entries = [turnout_entries.recipe(u), torch_peer.recipe(u)]
    comparison = compare(
        f"simple loss, ranges, pruning, pruned loss and gradients, f32 {u.scale.name}, {u.scale.rows} rows",
        entries,
        expected=expected_of(entries[1]),
        tolerance=TOLERANCE,
        seconds=3 * seconds,
        settle=SETTLE,
    )
    summary.add(f"recipe {u.scale.name}", "plain torch / turnout", comparison.rows[1].ratio)
    return comparison


def joiner(seconds: float, summary: Summary) -> Comparison:
    u = Utterances(RECIPE)
    names = ("fused", "in_two_steps")
    entries = [getattr(turnout_entries, name)(u) for name in names] + [torch_peer.in_two_steps(u)]
    comparison = compare(
        f"joiner of width {u.scale.width}, pruned loss and gradients, f32 {u.scale.name}",
        entries,
        expected=expected_of(entries[2]),
        tolerance=TOLERANCE,
        seconds=3 * seconds,
        settle=SETTLE,
    )
    where = f"joiner {u.scale.name}"
    for row in comparison.rows[1:]:
        summary.add(where, f"{row.name} / fused", row.ratio)
    peaks = {name: peak_of(name) for name in ("fused", "two_steps", "plain")}
    console.print(f"peak memory beyond the inputs, MB: {peaks}")
    for name in ("two_steps", "plain"):
        summary.add(where, f"peak memory, fused / {name}", peaks["fused"] / peaks[name])
    return comparison


def peak_of(name: str) -> float:
    """Measures how many MB one call needs beyond its inputs, in a separate process."""
    program = (
        f"import sys; sys.path.insert(0, 'bench'); from rnnt_loss import scenes; scenes.call_once({name!r})"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def call_once(name: str) -> None:
    u = Utterances(RECIPE)
    entry = {
        "fused": turnout_entries.fused,
        "two_steps": turnout_entries.in_two_steps,
        "plain": torch_peer.in_two_steps,
    }[name](u)
    before = peak_kilobytes()
    entry.run()
    print(json.dumps((peak_kilobytes() - before) / 1024))


def peak_kilobytes() -> int:
    """Returns this program's peak memory. getrusage() would include the process that started it."""
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1])
