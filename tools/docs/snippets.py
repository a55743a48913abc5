"""Extracts the code of the Markdown pages, for python/tests/test_readme.py and tests/installed/run.sh.

python tools/docs/snippets.py FOLDER writes the C and C++ programs of all pages there. If a page shows the
output of a program, it is written next to the program, to a file .expected.

A Python block that imports nothing continues the block before it. C and C++ blocks are complete programs. A
text block right after a program is its output. A block after <!-- not run: REASON --> is left out.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+?) -->\n+)?```(?P<language>\w+)\n(?P<code>.*?)^```$"
    r"(?:\n+```text\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)


@dataclass
class Snippet:
    page: str
    line: int
    language: str
    code: str
    output: str | None = None  # the output that the page shows

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every page that users read, as paths within the repository."""
    found = [
        ROOT / "README.md",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("src/*/README.md"),
        ROOT / "examples/README.md",
    ]
    return sorted(path.relative_to(ROOT) for path in found)


def snippets(page: Path, language: str) -> list[Snippet]:
    text = (ROOT / page).read_text()
    found: list[Snippet] = []
    for match in _FENCE.finditer(text):
        if match["language"] != language or match["reason"]:
            continue
        line = text.count("\n", 0, match.start("language")) + 1
        code = match["code"]
        if language == "python" and not re.search(r"^\s*(import|from) ", code, re.MULTILINE):
            if not found:
                raise ValueError(f"{page}:{line}: this block imports nothing and has no block before it")
            found[-1].code += "\n" + code
            if match["output"]:
                found[-1].output = (found[-1].output or "") + match["output"]
        else:
            found.append(Snippet(str(page), line, language, code, match["output"]))
    return found


def programs(language: str) -> list[Snippet]:
    return [snippet for page in pages() for snippet in snippets(page, language)]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for language, suffix in (("cpp", ".cc"), ("c", ".c")):
        found = programs(language)
        if not found:
            raise SystemExit(f"no page has a program in {language}")
        for snippet in found:
            stem = re.sub(r"\W+", "_", snippet.name)
            (folder / f"{stem}{suffix}").write_text(snippet.code)
            if snippet.output is not None:
                (folder / f"{stem}.expected").write_text(snippet.output)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
