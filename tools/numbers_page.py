"""Writes the tables of docs/numbers.md from benchmarks: python tools/numbers_page.py [results.json ...].

Files that are given, of bench/results, are copied to docs/numbers/ first. --check only compares.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/numbers.md"
RECORDED = ROOT / "docs/numbers"
BEGIN, END = "<!-- recorded numbers -->\n", "<!-- end -->"


def time_of(microseconds: float) -> str:
    for unit, scale in (("s", 1e6), ("ms", 1e3), ("us", 1.0)):
        if microseconds >= scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds * 1e3:.3g} ns"


def table(comparison: dict) -> str:
    floor = comparison["rows"][0]["name"]
    lines = [
        f"**{comparison['title']}**, {comparison['threads']} threads",
        "",
        f"| program | median | quartiles | GB/s | time / {floor} |",
        "|---|---|---|---|---|",
    ]
    for row in comparison["rows"]:
        speed = f"{row['gb_per_s']:.1f}" if row.get("gb_per_s") else ""
        quartiles = f"{time_of(row['low_us'])} .. {time_of(row['high_us'])}"
        lines.append(
            f"| {row['name']} | {time_of(row['median_us'])} | {quartiles} | {speed} | {row['ratio']:.2f} |"
        )
    return "\n".join(lines)


def section(path: Path) -> str:
    data = json.loads(path.read_text())
    machine = data["machine"]
    lines = [
        f"## {path.stem}",
        "",
        f"{machine['cpu']}, {machine['cpus']} CPUs, instruction set {machine['isa']}, {data['date']}. "
        f"Command: `{data['command']}`.",
    ]
    for name in (f"{path.stem}.svg", f"{path.stem}_growth.svg"):
        if (RECORDED / name).exists():
            lines += ["", f"![Times of {path.stem}](numbers/{name})"]
    return "\n\n".join(["\n".join(lines), *(table(comparison) for comparison in data["comparisons"])])


def main(arguments: list[str]) -> None:
    check = "--check" in arguments
    for given in (Path(name) for name in arguments if not name.startswith("--")):
        RECORDED.mkdir(exist_ok=True)
        for path in (given, *given.parent.glob(f"{given.stem}*.svg")):
            shutil.copyfile(path, RECORDED / path.name)
    recorded = sorted(RECORDED.glob("*.json"))
    tables = "\n\n".join(section(path) for path in recorded) or "Nothing is recorded yet."
    text = PAGE.read_text()
    fresh = f"{text[: text.index(BEGIN) + len(BEGIN)]}\n{tables}\n\n{text[text.index(END) :]}"
    if check and fresh != text:
        raise SystemExit("docs/numbers.md differs from docs/numbers/*.json: run tools/numbers_page.py")
    PAGE.write_text(fresh)
    print(f"docs/numbers.md: {len(recorded)} recorded benchmarks")


if __name__ == "__main__":
    main(sys.argv[1:])
