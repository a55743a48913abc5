"""Draws the figures for the first document of docs/conformance.md: tools/conformance_figures.py.

Each figure has its own light background, so that it is readable on light and on dark pages.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"

BLUE, GREEN, ORANGE, GREY = "#cfe2f3", "#d9ead3", "#fce5cd", "#e8e8e8"


class Figure:
    """A drawing of boxes, texts and arrows."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{escape(title)}" font-family="sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#444"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="8" fill="#fbfbf8"/>',
        ]

    def text(self, x: float, y: float, text: str, anchor: str = "middle", size: int = 13) -> None:
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="#222">'
            f"{escape(text)}</text>"
        )

    def box(self, x: float, y: float, width: float, height: float, text: str, fill: str) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="#555"/>'
        )
        if text:
            self.text(x + width / 2, y + height / 2 + 4.5, text)

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#444" marker-end="url(#head)"/>'
        )

    def svg(self) -> str:
        return "\n".join([*self.parts, "</svg>"]) + "\n"


# Five tokens for two experts with three slots each. Token 3 has a slot beyond the capacity and is dropped.
INDICES, LOCATIONS, CAPACITY, EXPERTS = (0, 1, 0, 1, 1), (0, 0, 2, 3, 1), 3, 2


def row_of(token: int) -> int | None:
    expert, slot = INDICES[token], LOCATIONS[token]
    return expert * CAPACITY + slot if 0 <= expert < EXPERTS and 0 <= slot < CAPACITY else None


def dispatch() -> Figure:
    """1.2: what the operator does."""
    figure = Figure(665, 290, "Tokens move to the slots of their experts")
    figure.text(150, 26, "input [samples, hidden]")
    figure.text(500, 26, "dispatch [experts * capacity, hidden]")
    for i in range(len(INDICES)):
        y = 48 + 44 * i
        figure.box(70, y, 160, 30, f"token {i}", BLUE if INDICES[i] == 0 else GREEN)
        figure.text(60, y + 20, f"gate {i}", "end")
        row = row_of(i)
        if row is None:
            figure.text(238, y + 20, "dropped: no slot 3", "start", 12)
        else:
            figure.arrow(232, y + 15, 416, 48 + 38 * row + 13)
    tokens = {row_of(i): i for i in range(len(INDICES))}
    for row in range(EXPERTS * CAPACITY):
        y, token = 48 + 38 * row, tokens.get(row)
        fill = GREY if token is None else BLUE if row < CAPACITY else GREEN
        text = "not written" if token is None else f"gate {token} x token {token}"
        figure.box(420, y, 160, 26, text, fill)
    figure.text(592, 48 + 38 + 17, "expert 0", "start", 12)
    figure.text(592, 48 + 38 * 4 + 17, "expert 1", "start", 12)
    return figure


def workflow() -> Figure:
    """3.1.1: how the row of one token is found and computed."""
    figure = Figure(720, 250, "The row of token i, and what is written to it")
    for y, name, value in ((40, "indices[i]", "expert"), (92, "locations[i]", "slot")):
        figure.box(20, y, 130, 32, name, ORANGE)
        figure.arrow(152, y + 16, 228, 82)
        figure.text(190, y - 6, value, size=12)
    figure.box(230, 60, 220, 44, "row = expert * capacity + slot", GREY)
    figure.text(340, 124, "only if 0 <= expert < experts and 0 <= slot < capacity", size=12)
    figure.box(20, 160, 130, 32, "gates[i]", ORANGE)
    figure.box(20, 204, 130, 32, "input[i, :]", BLUE)
    figure.arrow(152, 176, 288, 196)
    figure.arrow(152, 220, 288, 202)
    figure.box(290, 182, 120, 34, "gate x token", GREY)
    figure.box(530, 128, 170, 40, "dispatch[row, :]", GREEN)
    figure.arrow(452, 82, 560, 126)
    figure.arrow(412, 199, 560, 170)
    return figure


def memory() -> Figure:
    """3.1.2: the partition of the device's on-chip memory, and what replaces it on a CPU."""
    figure = Figure(760, 190, "Division of the on-chip memory")
    figure.text(20, 26, "device: on-chip memory of one core", "start")
    parts = [
        ("input", 190, BLUE),
        ("gates", 100, ORANGE),
        ("indices", 100, ORANGE),
        ("locations", 100, ORANGE),
    ]
    parts += [("idx", 100, GREY), ("mask", 100, GREY)]
    x = 20
    for name, width, fill in parts:
        figure.box(x, 40, width, 34, name, fill)
        figure.text(x + width / 2, 92, "deal_h" if name == "input" else "deal_s", size=12)
        x += width
    figure.text(20, 126, "Turnout: scratch memory, then rows straight from input to dispatch", "start")
    figure.box(20, 138, 290, 34, "last token of each row (4 bytes a row)", GREY)
    figure.box(330, 138, 190, 34, "input, read once", BLUE)
    figure.arrow(522, 155, 548, 155)
    figure.box(550, 138, 190, 34, "dispatch, streamed", GREEN)
    return figure


def pipeline() -> Figure:
    """3.4: the three stages of the device, and what overlaps on a CPU."""
    figure = Figure(700, 250, "Load, compute and store overlap")
    figure.text(20, 26, "device: three stages, two halves of the memory in turns", "start")
    stages = (("load", BLUE), ("compute", ORANGE), ("store", GREEN))
    for step in range(3):
        for stage, (name, fill) in enumerate(stages):
            figure.box(20 + 100 * (step + stage), 40 + 36 * step, 96, 28, f"{name} {step}", fill)
    figure.arrow(20, 156, 520, 156)
    figure.text(526, 160, "time", "start", 12)
    text = "Turnout: reads, products and streamed stores of different rows overlap in the core"
    figure.text(20, 192, text, "start")
    for i, (name, fill) in enumerate(
        (("read row i + 1", BLUE), ("gate x row i", ORANGE), ("stream row i - 1", GREEN))
    ):
        figure.box(20 + 216 * i, 204, 208, 28, name, fill)
    return figure


FIGURES = {
    "moe_dispatch_forward.svg": dispatch,
    "moe_dispatch_forward_workflow.svg": workflow,
    "nram_space.svg": memory,
    "pingpong.svg": pipeline,
}


def main() -> None:
    for name, draw in FIGURES.items():
        (IMAGES / name).write_text(draw().svg())


if __name__ == "__main__":
    main()
