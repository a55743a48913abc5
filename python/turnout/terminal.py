"""Prints tables and progress bars: with rich on a terminal, otherwise as plain text."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO, TypeVar

T = TypeVar("T")


def _rich(stream: TextIO) -> bool:
    """Whether rich is installed and the stream is a terminal."""
    if not stream.isatty():
        return False
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


def track(items: Sequence[T], doing: str) -> Iterator[T]:
    """Yields the items and shows a progress bar on stderr."""
    if not _rich(sys.stderr):
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as rich_track

    yield from rich_track(items, description=doing, console=Console(stderr=True), transient=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, bad: str = "") -> None:
    """Prints a table. Cells equal to `bad` are red on a terminal; columns of numbers are right-aligned."""
    rows = [tuple(row) for row in rows]
    on_right = [_is_numeric([row[i] for row in rows]) for i in range(len(columns))]
    if _rich(sys.stdout):
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table()
        for name, right in zip(columns, on_right, strict=True):
            table.add_column(Text(name), justify="right" if right else "left")
        for row in rows:
            table.add_row(*(Text(cell, style="red" if bad and cell == bad else "") for cell in row))
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in [tuple(columns), *rows]:
        cells = zip(row, widths, on_right, strict=True)
        print("  ".join(c.rjust(width) if right else c.ljust(width) for c, width, right in cells).rstrip())


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rows = [tuple(row) for row in rows]
    ruler = ["---:" if _is_numeric([row[i] for row in rows]) else "---" for i in range(len(columns))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (columns, ruler, *rows)) + "\n"


def _is_numeric(cells: list[str]) -> bool:
    return all(cell == "" or cell[0].isdigit() for cell in cells) and any(cells)
