"""Checks the links within the built pages: each leads to an existing file and, if it names one, element."""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for key, value in attributes:
            if value and key in ("href", "src"):
                self.targets.append(value)
            elif value and key == "id":
                self.names.add(value)


@cache
def _page(path: Path) -> _Page:
    return _Page(path)


def check(folder: Path) -> int:
    """Returns the number of links; raises SystemExit with those that are broken."""
    count, broken = 0, []
    for path in sorted(folder.rglob("*.html")):
        for target in _page(path).targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            goal = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            names = _page(goal).names if goal.suffix == ".html" and goal.exists() else set()
            if not goal.exists() or (
                goal.suffix == ".html" and parts.fragment and unquote(parts.fragment) not in names
            ):
                broken.append(f"{path.relative_to(folder)}: {target}")
    if broken or not count:
        raise SystemExit("broken links:\n" + "\n".join(broken))
    return count


if __name__ == "__main__":
    print(f"{check(Path(sys.argv[1]))} links")
