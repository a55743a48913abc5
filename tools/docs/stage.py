"""Collects the sources of the documentation in one folder, where Sphinx reads them.

Pages are from docs/, the families' READMEs and the other READMEs. Links between them lead to their pages, and
links to other files of the repository to copies of these. Comments in a page request generated parts:

<!-- python reference of turnout: turnout.scatter ... -->   the docstrings of what these modules export
<!-- cpp reference of include/turnout/tensor.h ... -->      comments and declarations of headers; also c
<!-- torch operators -->                                    the schemas of docs/schemas.txt

Without PyTorch, the parts that describe turnout.torch and turnout.compat are left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import headers
import tables
from figures import DRAWING, ROOT

from turnout import _core

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s:#]+)(#[^()\s]*)?\)")
_WITHOUT_TORCH = "*This part describes functions that need PyTorch, and was built without it.*"
_OTHERS = {
    "README.md": "index.md",  # which replaces it
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/README.md": "examples.md",
}


def page_of(path: Path) -> Path | None:
    """The page of a file of the repository: docs/numbers.md is numbers.md."""
    name = path.as_posix()
    if name in _OTHERS:
        return Path(_OTHERS[name])
    if path.suffix == ".md" and path.parts[0] == "docs":
        return path.relative_to("docs")
    if path.name == "README.md" and path.parts[0] == "src":
        return Path("families", f"{path.parts[1]}.md")
    return None


def sources() -> list[Path]:
    patterns = ["docs/**/*.md", "src/*/README.md", *_OTHERS]
    found = {path.relative_to(ROOT) for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(found - {Path("README.md")})


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: set[Path] = set()
        self.errors: list[str] = []
        self.has_torch = importlib.util.find_spec("torch") is not None
        self.shortened: set[Path] = set()  # pages that lack their PyTorch parts

    def run(self) -> None:
        for path in sources():
            self.write(page_of(path), self.page(path))
        for path in (ROOT / "docs").glob("*.py"):
            self.write(Path(path.name), path.read_text())
        for path in (ROOT / "docs/static").iterdir():
            self.write(Path("static", path.name), path.read_text())
        if self.errors:
            raise SystemExit("\n".join(self.errors))
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self.written:
                path.unlink()

    def write(self, name: Path, text: str) -> None:
        """Writes only if the text differs, so that Sphinx only reads what has changed."""
        target = self.folder / name
        self.written.add(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_text() != text:
            target.write_text(text)

    def copy(self, path: Path, name: Path) -> None:
        target = self.folder / name
        self.written.add(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)

    def page(self, path: Path) -> str:
        text = (ROOT / path).read_text()
        if path.name == "index.md":
            text = _with_other_pages(text)
        if path.parts[0] == "src":
            text = text.replace("\n", f"\n\n{_languages(path.parts[1])}\n", 1)
        parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
        return "".join(part if part.startswith("```") else self.text(path, part) for part in parts)

    def text(self, path: Path, text: str) -> str:
        text = _LINK.sub(lambda match: self.link(path, match), text)
        text = re.sub(r"<!-- (cpp|c) reference of (.*?) -->", _header_reference, text, flags=re.DOTALL)
        made = partial(self.python_part, path)
        text = re.sub(r"<!-- python reference of (\S+): (.*?) -->", made, text, flags=re.DOTALL)
        return text.replace("<!-- torch operators -->", _torch_operators())

    def python_part(self, path: Path, match: re.Match) -> str:
        """The reference of Python modules."""
        module, sources = match.groups()
        if not self.has_torch and module.startswith(("turnout.torch", "turnout.compat")):
            self.shortened.add(path)
            return _WITHOUT_TORCH
        return _python_reference(module, sources.split())

    def link(self, path: Path, match: re.Match) -> str:
        image, label, target, anchor = match.groups("")
        goal = Path(os.path.normpath(path.parent / target))
        if not (ROOT / goal).exists():
            self.errors.append(f"{path}: the link to {target} is broken")
            return match[0]
        if image and goal.suffix == ".svg" and DRAWING in (svg := (ROOT / goal).read_text()):
            return _picture(label, svg)
        page = page_of(goal)
        if (ROOT / goal).is_dir():
            return label  # folders have no page
        if page is None:
            page = goal.relative_to("docs") if goal.parts[0] == "docs" else Path("files") / goal
            self.copy(goal, page)
            anchor = ""  # a line of a source file
        elif page.name == "index.md":
            anchor = ""
        relative = os.path.relpath(page, page_of(path).parent)
        return f"{image}[{label}]({relative}{anchor})"


def _languages(family: str) -> str:
    """Where the functions of a family are described in each language; "" for a part without functions."""
    if not (ROOT / f"include/turnout/{family}.h").exists():
        return ""
    places = {"Python": f"python.md#{family}", "PyTorch": f"torch.md#{family}", "C++": f"cpp.md#{family}h"}
    if (ROOT / f"include/turnout/mluop/{family}.h").exists():
        places["C"] = f"c.md#{family}h"
    links = (f"[{name}](../../docs/reference/{place})" for name, place in places.items())
    return f"Functions in {', '.join(links)}."


def _with_other_pages(text: str) -> str:
    """Replaces the line * of a table of contents by the pages that no other line of the text names."""
    named = set(re.findall(r"^(?:.*<)?([\w/]+)>?$", text, flags=re.MULTILINE)) | {"index"}
    pages = (page_of(path).with_suffix("").as_posix() for path in sources())
    return re.sub(r"^\*$", "\n".join(page for page in pages if page not in named), text, flags=re.MULTILINE)


def _picture(label: str, svg: str) -> str:
    """Makes a drawing part of its page, so that it has the colours of the page's theme."""
    svg = re.sub(r"\n\s*\n", "\n", svg[svg.index("<svg") :]).strip()
    return f'<figure class="drawing" role="img" aria-label="{label}">\n{svg}\n</figure>'


def _python_reference(module: str, sources: list[str]) -> str:
    lines = ["````{eval-rst}", f".. py:currentmodule:: {module}", ""]
    exported = [name for source in sources for name in importlib.import_module(source).__all__]
    for name in sorted(exported, key=partial(_rank, sources[0].rpartition(".")[2])):
        thing = getattr(importlib.import_module(module), name)
        if isinstance(thing, type):
            lines += [f".. autoclass:: {name}", "   :members:", ""]
        elif callable(thing):
            lines += [f".. autofunction:: {name}", ""]
    return "\n".join([*lines, "````"])


def _rank(family: str, name: str) -> int:
    """The order within a family: its main function, others, forward operators, gradients."""
    if name == family:
        return 0
    if name.endswith(("_forward", "_forward_backward")):
        return 2
    return 3 if re.search(r"_backward(_|$)|_grad$", name) else 1


def _header_reference(match: re.Match) -> str:
    domain = match[1]
    signatures = {signature["op"]: signature for signature in _core.signatures()}

    def table(name: str) -> str | None:
        return tables.table(signatures[name]) if domain == "cpp" and name in signatures else None

    parts = []
    for name in match[2].split():
        header = ROOT / name
        parts.append(f"## {header.name}\n\n{headers.title(header)}\n\n{headers.page(header, domain, table)}")
    scope = "```{cpp:namespace} turnout\n```\n\n" if domain == "cpp" else ""
    return scope + "\n\n".join(parts)


def _torch_operators() -> str:
    return f"```text\n{(ROOT / 'docs/schemas.txt').read_text()}```"


if __name__ == "__main__":
    Stage(Path(sys.argv[1])).run()
