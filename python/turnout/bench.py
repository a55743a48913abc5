"""Implements ``turnout bench``: times the operators at the scales of ``turnout check``.

The benchmarks in the source tree, bench/, compare with other libraries in more detail.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

import numpy as np

from turnout import _core, terminal
from turnout.check.scales import SCALES, Case, Data, arrays_of
from turnout.floors import Speed, medians, one_thread, speed

FAMILIES = {
    **{"moe_dispatch": "000", "sparse_conv": "001", "moe_re_routing": "002"},
    **{"dynamic_scatter": "003", "mutual_information": "004"},
}
COLUMNS = ("operator", "scale", "CPU ms", "speed", "efficiency", "torch / turnout")


@dataclass(frozen=True)
class Result:
    op: str
    scale: str
    sizes: str
    speed: Speed
    torch_seconds: float | None = None  # CPU time of the same work in torch, if requested

    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.torch_seconds is None else f"{self.torch_seconds / self.speed.seconds:.1f}"
        return (
            *(self.op, self.scale, f"{self.speed.seconds * 1e3:.3f}"),
            f"{self.speed.rate / 1e9:.1f} {self.speed.unit}",
            f"{self.speed.efficiency:.0%} of {self.speed.floor}",
            ratio,
        )


def _cases(family: str | None) -> list[Case]:
    if family is not None and family not in FAMILIES:
        raise ValueError(f"bench: family is {family!r}, expected one of {', '.join(FAMILIES)}")
    return [case for case in SCALES if family is None or case.document == FAMILIES[family]]


def run(family: str | None, *, peers: bool) -> list[Result]:
    """Times every case that has work to do. Times a peer only if its result matches the definition."""
    results = []
    for case in terminal.track(_cases(family), "timing"):
        data = case.make()
        work = speed(
            data.run,
            bytes_moved=data.bytes_moved,
            bytes_copied=data.bytes_copied,
            operations=data.operations,
        )
        if work is None:
            continue
        results.append(Result(case.op, case.name, data.sizes, work, _torch_seconds(data) if peers else None))
    return results


def _torch_seconds(data: Data) -> float | None:
    if data.torch is None:
        return None
    import torch

    program: Callable[[], object] = data.torch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        (result,), wanted = arrays_of(program()), arrays_of(data.definition())[0]
        if not np.allclose(np.asarray(result), wanted, rtol=1e-4, atol=1e-4):
            raise RuntimeError("torch's result differs from the definition, so it is not timed")
        with one_thread():
            return medians(program)[0]
    finally:
        torch.set_num_threads(before)


def print_json(results: list[Result]) -> None:
    document = {
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {key: str(value) for key, value in _core.info().items()},
        "results": [asdict(result) for result in results],
    }
    print(json.dumps(document, indent=1))


def print_table(results: list[Result], *, peers: bool) -> None:
    last = len(COLUMNS) if peers else -1
    terminal.print_table(COLUMNS[:last], [result.cells()[:last] for result in results])


def plot(results: list[Result], path: Path) -> None:
    """Writes an SVG with one bar per result, its efficiency. The colours suit light and dark pages."""
    line, left, width = 26, 430, 380
    height = line * len(results) + 50
    most = max([1.0, *(result.speed.efficiency for result in results)])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 90} {height}"',
        ' font-family="sans-serif" font-size="13">',
        "<style>text { fill: #444 } .axis { stroke: #888 } .bar { fill: #3b82c4 }",
        "@media (prefers-color-scheme: dark) { text { fill: #ccc } }</style>",
        '<text x="0" y="16">efficiency: time of the floor / time of the operator, CPU time, one thread',
        "</text>",
    ]
    for i, result in enumerate(results):
        y, length = 30 + line * i, width * result.speed.efficiency / most
        name = escape(f"{result.op}, {result.scale}")
        parts.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{name}</text>')
        parts.append(f'<rect class="bar" x="{left}" y="{y}" width="{length:.1f}" height="{line - 6}"/>')
        parts.append(f'<text x="{left + length + 6:.1f}" y="{y + 15}">{result.speed.efficiency:.0%}</text>')
    x = left + width / most
    parts.append(
        f'<line class="axis" x1="{x:.1f}" y1="24" x2="{x:.1f}" y2="{height - 18}" stroke-dasharray="4 3"/>'
    )
    parts.append(f'<text x="{x:.1f}" y="{height - 4}" text-anchor="middle">the floor</text></svg>')
    path.write_text("\n".join(parts) + "\n")
