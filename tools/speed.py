"""Writes the speed tables of the pages and the chart from docs/speed.json: python tools/speed.py.

`./dev bench --record` measures, writes docs/speed.json and calls this. A page requests a table with
`<!-- speed: words -->` ... `<!-- end -->`; a word is a family, an id or the beginning of an id:
moe_experts-bf16 selects moe_experts-bf16-1, moe_experts-bf16-16 and so on. --check only compares.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "docs"))
from figures import Drawing

ROOT = Path(__file__).resolve().parents[1]
RECORDED = "docs/speed.json"
CHART = "docs/images/speed.svg"
PAGES = ["README.md", "docs/**/*.md", "src/*/README.md"]
MARKER = re.compile(r"(<!-- speed: ([^\n]*?) -->\n).*?(<!-- end -->)", re.DOTALL)
IDLE = 0.1  # the share of the CPUs that other programs may use
# Shown in the chart in addition to every call for which the other program is faster.
CHARTED = [
    *("moe_dispatch-512", "moe_token_permute", "moe_combine-f32", "moe_re_routing-i8"),
    *("moe_experts-f32-16", "moe_experts-bf16-16", "get_indice_pairs-submanifold", "convolution-64-forward"),
    *("encoder-forward", "mutual_information-forward-500", "rnnt_loss-forward", "rnnt_loss-both"),
    *(
        "dynamic_scatter-max-200000",
        "dynamic_scatter-both",
        "scatter_sum-64",
        "scatter_max-forward",
        "voxelize",
    ),
    *("nms3d", "points_in_boxes", "furthest_point_sample", "ball_query", "group_points", "roiaware_pool3d"),
]


def ratio(row: dict) -> float:
    """The other program's time divided by Turnout's: below 1, the other program is faster."""
    return row["peer_us"][1] / row["turnout_us"][1]


def ratio_text(value: float) -> str:
    return f"{value:.{2 if value < 1 else 1 if value < 10 else 0}f}"


def time_text(microseconds: float) -> str:
    for unit, scale in (("s", 1e6), ("ms", 1e3), ("us", 1.0)):
        if microseconds >= scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds * 1e3:.3g} ns"


def times_text(quartiles: list[float]) -> str:
    low, median, high = (time_text(value) for value in quartiles)
    return f"{median} ({low} to {high})"


def machine_text(data: dict) -> str:
    busy = ", preliminary: other programs used the CPUs" if data["busy"] > IDLE else ""
    return f"{data['cpus']} CPUs ({data['cpu']}, {data['instruction_set']}), {data['date']}{busy}"


def rows_of(data: dict, words: str) -> list[dict]:
    found = []
    for row in data["comparisons"]:
        if any(f"{row[key]}-".startswith(f"{word}-") for word in words.split() for key in ("family", "id")):
            found.append(row)
    if not found:
        raise SystemExit(f"{RECORDED} has no comparison for {words!r}")
    return found


def introduction(data: dict) -> str:
    return (
        f"Measured on {machine_text(data)}, with PyTorch {data['torch']}: medians and quartiles. A ratio is "
        "the other program's time divided by Turnout's; below 1, the other program is faster. "
        "`./dev bench --pick ID` measures a row."
    )


def table(data: dict, words: str) -> str:
    lines = [
        "| call | other program | ratio | Turnout | other program | threads, outputs | ID |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows_of(data, words):
        value, threads = ratio_text(ratio(row)), " and ".join(map(str, dict.fromkeys(row["threads"])))
        call = re.sub(r"^[a-z]+_[a-z_]+$", r"`\g<0>`", row["call"])
        call = re.sub(r"torch\.ops\.turnout\.(\w+)", r"`\1` of `torch.ops`", call)
        cells = [
            f"{call}, {row['dtype']}, {row['size']}",
            row["peer"],
            f"**{value}**" if ratio(row) < 1 else value,
            times_text(row["turnout_us"]),
            times_text(row["peer_us"]),
            f"{threads}; {row['outputs']}",
            f"`{row['id']}`",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def chart(data: dict) -> str:
    """Bars from 1 on a logarithmic axis, with a background, so that the chart is readable on any page."""
    rows = [row for row in data["comparisons"] if row["id"] in CHARTED or ratio(row) < 1]
    rows.sort(key=ratio, reverse=True)
    ratios = [ratio(row) for row in rows]
    low, high = math.log(min(*ratios, 0.5)), math.log(max(*ratios, 10))
    left, width, step = 330, 260, 22
    top, bottom = 64, 64 + step * len(rows)

    def place(value: float) -> float:
        return left + width * (math.log(value) - low) / (high - low)

    d = Drawing(860, bottom + 44)
    d.parts += [
        "<style>.turnout-drawing .paper{fill:var(--color-background-primary,#fff)}"
        "@media (prefers-color-scheme:dark)"
        "{.turnout-drawing .paper{fill:var(--color-background-primary,#0d1117)}}</style>",
        f'<rect width="860" height="{bottom + 44}" rx="6" class="paper"/>',
    ]
    d.text(16, 24, "How many times as fast as the other program, logarithmic", "head")
    d.text(16, 44, f"Measured on {machine_text(data)}", "small")
    d.text(left - 12, bottom + 18, "orange: the other program is faster", "small", end=True)
    digits = (1, 2, 5) if high - low < math.log(1000) else (1,)
    for tick in (digit * 10**power for power in range(-2, 5) for digit in digits):
        if low <= math.log(tick) <= high:
            x = round(place(tick), 1)
            kind = "line" if tick == 1 else "cell"
            d.parts.append(
                f'<path d="M{x} {top - 8} V{bottom}" class="{kind}" opacity="{1 if tick == 1 else 0.25}"/>'
            )
            d.text(x, bottom + 18, f"{tick:g}", "head" if tick == 1 else "small", middle=True)
    for number, (row, value) in enumerate(zip(rows, ratios, strict=True)):
        y, begin, end = top + step * number, *sorted((place(1), place(value)))
        call, size = row["call"].removeprefix("torch.ops.turnout."), row["size"].split(",")[0]
        name = f"{call}, {size}" if row["dtype"] == "f32" else f"{call}, {row['dtype']}, {size}"
        d.text(left - 12, y + 12, _short(name, 46), "small", end=True)
        d.parts.append(
            f'<rect x="{begin:.1f}" y="{y}" width="{max(end - begin, 2):.1f}" height="15" rx="2" '
            f'class="{"b" if value < 1 else "a"}"/>'
        )
        peer = _short(row["peer"].replace("`", ""), 36)
        d.text(round(max(end, place(1)) + 7, 1), y + 12, f"{ratio_text(value)}x {peer}", "small")
    return d.svg()


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip(' ,')}…"


def filled(data: dict, text: str) -> str:
    """A page with its tables, the first one after an introduction."""
    before = [f"{introduction(data)}\n\n"]

    def part(match: re.Match) -> str:
        return f"{match[1]}\n{before.pop() if before else ''}{table(data, match[2])}\n\n{match[3]}"

    return MARKER.sub(part, text)


def main(arguments: list[str], root: Path = ROOT) -> None:
    data = json.loads((root / RECORDED).read_text())
    fresh = {root / CHART: chart(data)}
    for page in sorted(path for pattern in PAGES for path in root.glob(pattern)):
        fresh[page] = filled(data, page.read_text())
    stale = [path for path, text in fresh.items() if not path.exists() or path.read_text() != text]
    names = ", ".join(str(path.relative_to(root)) for path in stale)
    if stale and "--check" in arguments:
        raise SystemExit(f"{names}: the speeds differ from {RECORDED}; run tools/speed.py")
    for path in stale:
        path.write_text(fresh[path])
    print(
        f"{RECORDED}: {len(data['comparisons'])} comparisons; "
        + (f"wrote {names}" if stale else "pages are current")
    )


if __name__ == "__main__":
    main(sys.argv[1:])
