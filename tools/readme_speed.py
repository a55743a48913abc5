"""Writes the speed table and the plot of README.md from docs/numbers/*.json: python tools/readme_speed.py.

`./dev bench` measures, and tools/numbers_page.py records. --check only compares.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "README.md"
PLOT = ROOT / "docs/images/speed.svg"
RECORDED = ROOT / "docs/numbers"
BEGIN, END = "<!-- speed -->\n", "<!-- end -->"
INK, BAR = "#808080", "#3b82f6"


@dataclass
class Line:
    """One comparison: a recorded benchmark, and how the names of the two programs begin in it."""

    recorded: str
    title: str
    ours: str
    other: str
    operator: str
    other_program: str
    outputs: str  # of both sides: reused or new
    threads: str  # of Turnout, and of the other program


LINES = [
    Line(
        *(
            "moe_dispatch",
            "moe_dispatch_forward f32 18432x512",
            "turnout, rows kept",
            "torch, index_select(out=",
        ),
        *("`moe_dispatch_forward`, f32, 18432 tokens x 512", "PyTorch `index_select(out=)`, `mul_`"),
        *("reused", "2, 2"),
    ),
    Line(
        *("moe_re_routing", "moe_re_routing i8", "turnout, out=", "torch, index_select(out="),
        *("`moe_re_routing`, int8, 16384 tokens x 7168", "PyTorch `index_select(out=)`", "reused", "2, 2"),
    ),
    Line(
        *("moe_experts", "moe_experts f32, 16 tokens", "turnout.torch", "torch, grouped_mm"),
        *("`moe_experts`, f32, 16 tokens, 64 experts of 2048 x 768", "PyTorch `grouped_mm`", "new", "2, 2"),
    ),
    Line(
        *("sparse_conv", "get_indice_pairs submanifold", "turnout, new", "spconv, new"),
        *(
            "`get_indice_pairs`, submanifold 3x3x3, 248636 LiDAR voxels",
            "spconv 2.3.8",
            "new",
            "2, 1 (serial)",
        ),
    ),
    Line(
        *("sparse_conv.encoders", "forward", "turnout", "spconv"),
        *("CenterPoint's sparse encoder, forward", "spconv 2.3.8", "new", "1, 1"),
    ),
    Line(
        *(
            "mutual_information",
            "mutual_information_forward f32 (32, 50, 500)",
            "turnout, 1 ",
            "plain loop, serial",
        ),
        *("`mutual_information_forward`, f32, 32 x 50 x 500", "C++ loop, `g++ -O3 -march=native`", "reused"),
        "1, 1",
    ),
    Line(
        *("rnnt_loss", "rnnt_loss and its gradient", "turnout", "plain torch"),
        *(
            "`rnnt_loss` and its gradient, f32, 8 x 200 x 40 x 500",
            "PyTorch formulas over Turnout's recursion, as k2",
        ),
        *("new", "2, 2"),
    ),
    Line(
        *(
            "dynamic_scatter",
            "max and its gradient, by autograd, f32 200000",
            "turnout.torch",
            "torch, the same",
        ),
        *(
            "`dynamic_scatter`, max, with its gradient, 200000 points x 64",
            "PyTorch `unique`, `scatter_reduce`",
        ),
        *("new", "2, 2"),
    ),
]


def speedup(line: Line) -> float:
    path = RECORDED / f"{line.recorded}.json"
    comparisons = json.loads(path.read_text())["comparisons"]
    rows = next((c["rows"] for c in comparisons if c["title"].startswith(line.title)), [])
    times = [
        next((r["median_us"] for r in rows if r["name"].startswith(name)), None)
        for name in (line.ours, line.other)
    ]
    if None in times:
        raise SystemExit(f"{path.name} has no {line.title!r} with {line.ours!r} and {line.other!r}")
    return times[1] / times[0]


def text_of(ratio: float) -> str:
    return f"{ratio:.{1 if ratio < 10 else 0}f}x"


def table() -> str:
    recorded = json.loads((RECORDED / f"{LINES[0].recorded}.json").read_text())
    machine = recorded["machine"]
    lines = [
        f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['isa']}, {recorded['date']}. Speedup: the "
        "median time of the other program divided by that of Turnout, from runs in turns.",
        "",
        "| operator, size | other program | outputs of both | threads: Turnout, other | speedup | command |",
        "|---|---|---|---|---|---|",
    ]
    for line in LINES:
        cells = line.operator, line.other_program, line.outputs, line.threads, text_of(speedup(line))
        lines.append(f"| {' | '.join(cells)} | `./dev bench {line.recorded}` |")
    return "\n".join(lines)


def plot() -> str:
    """Bars on a logarithmic scale, without a background, readable on light and dark pages."""
    ratios = [speedup(line) for line in LINES]
    most, left, height = math.log(max(ratios) * 1.1), 330, 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="820" height="{height * len(LINES) + 46}" '
        f'font-family="sans-serif" font-size="13" fill="{INK}">',
        f'<text x="{left}" y="18">times as fast as the other program, logarithmic</text>',
    ]
    for i, (line, ratio) in enumerate(zip(LINES, ratios, strict=True)):
        y, width = 34 + height * i, max(4, 300 * math.log(max(ratio, 1.01)) / most)
        name, other = (text.replace("`", "").split(",")[0] for text in (line.operator, line.other_program))
        parts += [
            f'<text x="{left - 10}" y="{y + 14}" text-anchor="end">{name}</text>',
            f'<rect x="{left}" y="{y}" width="{width:.1f}" height="20" rx="2" fill="{BAR}"/>',
            f'<text x="{left + width + 8:.1f}" y="{y + 14}">{text_of(ratio)} {other}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def main(check: bool) -> None:
    text = PAGE.read_text()
    begin = text.index(BEGIN) + len(BEGIN)
    fresh = text[:begin] + table() + "\n" + text[text.index(END, begin) :]
    drawn = plot()
    if check and (fresh != text or PLOT.read_text() != drawn):
        raise SystemExit("README.md or its plot differs from docs/numbers: run tools/readme_speed.py")
    PAGE.write_text(fresh)
    PLOT.write_text(drawn)


if __name__ == "__main__":
    main("--check" in sys.argv)
