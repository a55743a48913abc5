"""Draws the pictures of the documentation as SVG: python tools/docs/figures.py; --check only compares.

A drawing that is part of a page uses the colours of the page's theme; elsewhere it follows the reader's
system.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/images"
DRAWING = 'class="turnout-drawing"'
_STYLE = """
.turnout-drawing{font:14px system-ui,sans-serif}
.turnout-drawing text{fill:var(--color-foreground-primary,#1f2328)}
.turnout-drawing .small{font-size:12px;fill:var(--color-foreground-secondary,#57606a)}
.turnout-drawing .head{font-weight:600}
.turnout-drawing .line{stroke:var(--color-foreground-secondary,#57606a);fill:none;stroke-width:1.4}
.turnout-drawing .cell{stroke:var(--color-foreground-secondary,#57606a);fill:none;stroke-width:1}
.turnout-drawing .a{fill:#3b82c4;fill-opacity:.55}
.turnout-drawing .b{fill:#e08a3c;fill-opacity:.6}
.turnout-drawing .c{fill:#4fa36b;fill-opacity:.6}
.turnout-drawing .d{fill:#9b6fc3;fill-opacity:.6}
.turnout-drawing .none{fill:#888;fill-opacity:.15}
.turnout-drawing .hot{stroke:#d0452f;stroke-width:2.6;fill:none}
@media (prefers-color-scheme:dark){
.turnout-drawing text{fill:var(--color-foreground-primary,#e6edf3)}
.turnout-drawing .small{fill:var(--color-foreground-secondary,#9da7b1)}
.turnout-drawing .line,.turnout-drawing .cell{stroke:var(--color-foreground-secondary,#9da7b1)}
}
"""


class Drawing:
    def __init__(self, width: int, height: int) -> None:
        self.size = width, height
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str = "", label: str = "") -> None:
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" class="{fill or "none"}"/>'
        )
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" class="cell"/>')
        if label:
            self.text(x + width / 2, y + height / 2 + 5, label, middle=True)

    def text(
        self, x: float, y: float, label: str, kind: str = "", middle: bool = False, end: bool = False
    ) -> None:
        anchor = ' text-anchor="middle"' if middle else ' text-anchor="end"' if end else ""
        label = label.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x}" y="{y}" class="{kind}"{anchor}>{label}</text>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float, kind: str = "line") -> None:
        length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
        dx, dy = (to_x - x) / length * 7, (to_y - y) / length * 7
        left, right = (to_x - dx - dy / 2, to_y - dy + dx / 2), (to_x - dx + dy / 2, to_y - dy - dx / 2)
        self.parts.append(
            f'<path d="M{x:g} {y:g} L{to_x:g} {to_y:g} M{left[0]:.1f} {left[1]:.1f} L{to_x:g} {to_y:g} '
            f'L{right[0]:.1f} {right[1]:.1f}" class="{kind}"/>'
        )

    def line(self, *points: tuple[float, float], kind: str = "line") -> None:
        self.parts.append(f'<path d="M{" L".join(f"{x:g} {y:g}" for x, y in points)}" class="{kind}"/>')

    def svg(self) -> str:
        width, height = self.size
        box = f'viewBox="0 0 {width} {height}" width="{width}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} {DRAWING}>'
        return "\n".join([head, f"<style>{_STYLE}</style>", *self.parts, "</svg>", ""])


def call() -> Drawing:
    d = Drawing(760, 120)
    steps = [
        ("signature", "shapes, dtypes, rules"),
        ("data checks", "indices, counts"),
        ("plan", "algorithm, ranges"),
        ("scratch", "from the context"),
        ("ranges", "one writer per row"),
    ]
    for number, (name, what) in enumerate(steps):
        x = 10 + 150 * number
        d.box(x, 30, 125, 44, "c" if number == 4 else "a", name)
        d.text(x + 62, 96, what, "small", middle=True)
        if number:
            d.arrow(x - 25, 52, x - 2, 52)
    d.line((297, 22), (297, 104), kind="hot")
    d.text(150, 14, "a wrong call ends before this line", "small", middle=True)
    d.text(530, 14, "results are written by the ranges only", "small", middle=True)
    return d


def moe_dispatch() -> Drawing:
    d = Drawing(740, 290)
    d.text(70, 22, "tokens, in order", "head", middle=True)
    d.text(432, 22, "last[row]", "head", middle=True)
    d.text(570, 22, "buffers of the experts", "head", middle=True)
    kinds = "abcdab"
    rows = [4, 1, 0, 4, 2, None]  # tokens 0 and 3 share row 4: the last one wins
    for token, row in enumerate(rows):
        y = 40 + 40 * token
        winner = row is not None and row not in rows[token + 1 :]
        d.box(20, y, 100, 26, kinds[token] if winner else "none", f"token {token}")
        if winner:
            d.arrow(122, y + 13, 404, 53 + 40 * row)
        else:
            d.text(128, y + 18, "slot out of range" if row is None else "a later token has its row", "small")
    for row in range(6):
        y = 40 + 40 * row
        writers = [token for token in range(6) if rows[token] == row]
        last = writers[-1] if writers else -1
        d.box(410, y, 44, 26, "none", str(last))
        d.arrow(458, y + 13, 496, y + 13)
        d.box(500, y, 120, 26, kinds[last] if writers else "none", f"gate x token {last}" if writers else "0")
        d.text(630, y + 18, f"expert {row // 2}, slot {row % 2}", "small")
    return d


def moe_dispatch_split() -> Drawing:
    d = Drawing(720, 230)
    d.text(150, 22, "accelerator: each core takes columns", "head", middle=True)
    d.text(540, 22, "CPU: each thread takes ranges of tokens", "head", middle=True)
    for row in range(6):
        for column in range(4):
            d.box(30 + 60 * column, 40 + 24 * row, 60, 24, "abcd"[column])
        d.box(420, 40 + 24 * row, 240, 24, "ab"[row // 2 % 2])
    for column in range(4):
        d.text(60 + 60 * column, 202, f"core {column}", "small", middle=True)
    for part in range(3):
        d.text(668, 68 + 48 * part, f"range {part}", "small")
    d.text(150, 222, "every core reads the whole routing", "small", middle=True)
    d.text(540, 222, "last[row] decides which token is written", "small", middle=True)
    return d


def moe_re_routing() -> Drawing:
    d = Drawing(720, 200)
    counts = [[1, 2, 1], [2, 1, 0]]
    d.text(10, 48, "by rank", "head")
    d.text(10, 168, "by expert", "head")
    width, x, place = 76, 100, {}
    for rank, row in enumerate(counts):
        d.text(x, 22, f"from rank {rank}", "small")
        for expert, count in enumerate(row):
            for number in range(count):
                place[rank, expert, number] = x
                d.box(x, 30, width, 28, "abc"[expert], f"e{expert} r{rank}")
                x += width
        x += 20
    x = 100
    for expert in range(3):
        d.text(x, 192, f"expert {expert}", "small")
        for rank, row in enumerate(counts):
            for number in range(row[expert]):
                d.arrow(place[rank, expert, number] + width / 2, 60, x + width / 2, 146)
                d.box(x, 148, width, 28, "abc"[expert], f"e{expert} r{rank}")
                x += width
        x += 14
    return d


def sparse_conv() -> Drawing:
    d = Drawing(740, 300)
    d.text(10, 22, "sites, and a kernel of 3 x 3", "head")
    sites = {(1, 1): "0", (1, 2): "1", (2, 2): "2", (3, 3): "3", (4, 1): "4"}
    for y in range(6):
        for x in range(6):
            d.box(10 + 40 * x, 36 + 40 * y, 40, 40, "a" if (y, x) in sites else "", sites.get((y, x), ""))
    d.line((51, 77), (171, 77), (171, 197), (51, 197), (51, 77), kind="hot")
    d.text(10, 294, "the window of site 2 holds sites 0, 1, 2 and 3", "small")
    d.text(450, 22, "one word per row of the window", "head", middle=True)
    words = [("y = 1", "110", "sites 0, 1"), ("y = 2", "010", "site 2"), ("y = 3", "001", "site 3")]
    for number, (name, bits, found) in enumerate(words):
        y = 52 + 64 * number
        d.text(300, y + 19, name)
        for place in range(8):
            inside = 1 <= place <= 3
            bit = bits[place - 1] if inside else "0"
            d.box(350 + 26 * place, y, 26, 28, "b" if bit == "1" else "", bit)
        d.line((376, y - 3), (454, y - 3), (454, y + 31), (376, y + 31), (376, y - 3), kind="hot")
        d.arrow(566, y + 14, 596, y + 14)
        d.text(604, y + 19, found)
    d.text(350, 252, "the three bits are the three offsets in x; a popcount of", "small")
    d.text(350, 270, "the bits below gives the row of the output", "small")
    return d


def dynamic_scatter() -> Drawing:
    d = Drawing(740, 260)
    d.text(110, 22, "points and voxels", "head", middle=True)
    for y in range(4):
        for x in range(5):
            d.box(10 + 44 * x, 36 + 44 * y, 44, 44)
    points = [
        (30, 60, 0),
        (44, 70, 0),
        (120, 50, 1),
        (205, 120, 2),
        (190, 140, 2),
        (215, 132, 2),
        (75, 190, 3),
    ]
    cells = {0: (0, 0), 1: (0, 2), 2: (2, 4), 3: (3, 1)}
    for voxel, (y, x) in cells.items():
        d.box(10 + 44 * x, 36 + 44 * y, 44, 44, "abcd"[voxel])
    for x, y, voxel in points:
        d.parts.append(f'<circle cx="{x}" cy="{y}" r="4" class="{"abcd"[voxel]}" style="fill-opacity:1"/>')
    d.text(330, 22, "bits of the cells", "head", middle=True)
    bits = [1 if (y, x) in cells.values() else 0 for y in range(4) for x in range(5)]
    for place, bit in enumerate(bits):
        d.box(262 + 28 * (place % 5), 36 + 30 * (place // 5), 28, 30, "b" if bit else "", str(bit))
    d.text(262, 178, "rank = set bits before", "small")
    d.text(262, 196, "= number of the voxel", "small")
    d.text(500, 22, "points by voxel", "head", middle=True)
    d.text(660, 22, "rows", "head", middle=True)
    y = 36
    for voxel, count in enumerate([2, 1, 3, 1]):
        for number in range(count):
            d.box(450, y + 24 * number, 100, 22, "abcd"[voxel])
        d.arrow(554, y + 12 * count - 1, 606, y + 12 * count - 1)
        d.box(610, y + 12 * count - 12, 100, 22, "abcd"[voxel], f"voxel {voxel}")
        y += 24 * count + 14
    return d


def mutual_information() -> Drawing:
    d = Drawing(740, 300)
    d.text(160, 22, "the lattice, and one alignment", "head", middle=True)
    left, top, step = 40, 50, 40
    for s in range(5):
        for t in range(7):
            x, y = left + step * t, top + step * s
            d.parts.append(
                f'<circle cx="{x}" cy="{y}" r="4" class="{"abcd"[(s + t) % 4]}" style="fill-opacity:1"/>'
            )
    path = [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3), (2, 3), (3, 3), (3, 4), (4, 4), (4, 5), (4, 6)]
    d.line(*((left + step * t, top + step * s) for s, t in path), kind="hot")
    d.text(left, top + 5 * step, "right: blank, next frame (py)", "small")
    d.text(
        left,
        top + 5 * step + 18,
        "down: next symbol (px); equal colours do not depend on each other",
        "small",
    )
    d.text(590, 22, "a strip: one row per lane", "head", middle=True)
    for lane in range(4):
        for i in range(9):
            column = i - lane
            if 0 <= column < 6:
                d.box(460 + 28 * i, 40 + 34 * lane, 28, 34, "abcd"[i % 4] if column >= 0 else "", str(column))
        d.text(392, 62 + 34 * lane, f"lane {lane}", "small")
    d.text(460, 196, "step i: lane j is at column i - j, so the cell", "small")
    d.text(460, 214, "above is the value of lane j - 1 one step before", "small")
    return d


def rnnt_loss() -> Drawing:
    d = Drawing(740, 270)
    d.text(140, 22, "the whole lattice: frames x symbols", "head", middle=True)
    d.text(540, 22, "pruned: 3 positions of each frame", "head", middle=True)
    start = [0, 0, 0, 1, 1, 2, 3, 3, 4, 4]
    for t in range(10):
        for s in range(7):
            kept = start[t] <= s < start[t] + 3
            d.box(10 + 26 * t, 40 + 26 * s, 26, 26, "a" if kept else "")
        for r in range(3):
            d.box(410 + 26 * t, 92 + 26 * r, 26, 26, "a", str(start[t] + r))
    d.arrow(286, 131, 396, 131)
    d.text(341, 120, "ranges[t, r]", "small", middle=True)
    d.text(10, 246, "the simple loss shows which positions matter", "small")
    d.text(410, 246, "the joiner and its logits exist for these only", "small")
    return d


FIGURES = (
    call,
    moe_dispatch,
    moe_dispatch_split,
    moe_re_routing,
    sparse_conv,
    dynamic_scatter,
    mutual_information,
    rnnt_loss,
)


def main() -> None:
    stale = []
    for figure in FIGURES:
        path, svg = FOLDER / f"{figure.__name__}.svg", figure().svg()
        if not path.exists() or path.read_text() != svg:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(svg)
    if stale and "--check" in sys.argv:
        raise SystemExit(f"drawings differ from their program: {', '.join(stale)}; run tools/docs/figures.py")
    print(f"{len(FIGURES)} drawings, {len(stale)} {'stale' if '--check' in sys.argv else 'written'}")


if __name__ == "__main__":
    main()
