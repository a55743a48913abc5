"""Turns the C and C++ headers into pages of the documentation: each comment with the declaration after it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

_MACROS = re.compile(
    r"\b(TURNOUT_API|TURNOUT_MLUOP_API|TURNOUT_ACLNN_API|MLUOP_WIN_API|TURNOUT_MLUOP_INT)\b ?"
)

_WITHOUT_CONTEXT = "\n\nAlso without `context`: with `default_context()`."


class Item(NamedTuple):
    comment: list[str]
    declaration: str  # "" for a separate comment


def items(header: Path) -> Iterator[Item]:
    """The comments and declarations of a header, in order, without its preprocessor lines."""
    comment: list[str] = []
    lines = iter(_without_preprocessor(header.read_text()).split("\n"))
    opening = True
    for line in lines:
        if line.startswith("//"):
            comment.append(line[2:].removeprefix(" "))
        elif line.startswith("/*"):
            while "*/" not in line:
                comment.append(_c_text(line))
                line = next(lines)
            comment.append(_c_text(line))
        elif not line.strip():
            if comment and not opening:
                yield Item(comment, "")
            opening = opening and not comment
            comment = []
        elif line.startswith(("namespace ", "}  // namespace", 'extern "C"')) or line == "}":
            comment = []
        else:
            declaration = [line]
            while not _complete("\n".join(declaration)):
                declaration.append(next(lines))
            yield Item(comment, "\n".join(declaration))
            comment = []


def title(header: Path) -> str:
    """The first paragraph of a header's opening comment."""
    text = header.read_text()
    if text.startswith("/*"):
        text = text[2 : text.index("*/")].split("\n *\n")[0].replace("\n *", "")
    else:
        text = " ".join(line[3:] for line in text.split("\n#")[0].split("\n"))
    return " ".join(text.split())


def page(header: Path, domain: str, table: Callable[[str], str | None]) -> str:
    """Markdown of a header; `domain` is c or cpp, `table(name)` the argument table of a function, if any."""
    parts = []
    seen: set[str] = set()
    for item in items(header):
        text = _markdown(item.comment)
        declaration, behind = _split_comment(_MACROS.sub("", item.declaration))
        text = "\n\n".join(filter(None, [text, behind]))
        if declaration.startswith("inline ") and "{" in declaration:
            if "default_context()" in declaration and parts:
                parts[-1] = parts[-1].removesuffix("\n`````") + _WITHOUT_CONTEXT + "\n`````"
            continue
        function = _function(declaration)
        kind = re.match(r"(struct|class|enum class) (\w+)[^;]*\{", declaration)
        if function:
            name = re.search(r"(\w+)\(", function)[1]
            arguments = None if name in seen else table(name)
            seen.add(name)
            body = text + (f"\n\n{arguments}" if arguments else "")
            parts.append(f"`````{{{domain}:function}} {_one_line(function)}\n{body}\n`````")
        elif kind and domain == "cpp":
            directive = {"enum class": "enum-class"}.get(kind[1], kind[1])
            code = declaration.split("\n private:")[0]
            code += "\n};" if code != declaration else ""
            parts.append(f"`````{{cpp:{directive}}} {kind[2]}\n{text}\n\n```cpp\n{code}\n```\n`````")
        elif declaration:
            parts.append(f"{text}\n\n```{domain}\n{declaration}\n```")
        else:
            parts.append(text)
    return "\n\n".join(parts)


def _without_preprocessor(text: str) -> str:
    text = re.sub(
        r"^/\*[^\n]*\*/\n(?=#include)", "", text, flags=re.MULTILINE
    )  # a comment about the file after it
    text = re.sub(r"^#.*?(?<!\\)\n", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^TURNOUT_DTYPE_OF.*\n", "", text, flags=re.MULTILINE)


def _c_text(line: str) -> str:
    line = line.split("*/")[0].rstrip()
    return re.sub(r"^(/\*+|\s\*) ?", "", line).removeprefix("---- ").removesuffix(" ----")


def _complete(declaration: str) -> bool:
    code = re.sub(r"//.*|/\*.*?\*/", "", declaration).rstrip()
    if code.count("{") != code.count("}") or code.count("(") != code.count(")"):
        return False
    return code.endswith(";") or (code.endswith("}") and "(" in code)


def _split_comment(declaration: str) -> tuple[str, str]:
    """A declaration of one line, and the comment after it."""
    if "\n" in declaration or not (match := re.fullmatch(r"(.*?;) *// (\w)(.*)", declaration)):
        return declaration, ""
    return match[1], _escaped(match[2].upper() + match[3] + ".")


def _function(declaration: str) -> str | None:
    """The prototype, if the declaration is one."""
    if declaration.startswith(
        ("struct", "class", "enum", "typedef", "using", "template", "inline constexpr")
    ):
        return None
    code = declaration.removeprefix("constexpr ")
    code = code.removesuffix(";") if code.endswith(";") else code.split(") {")[0] + ")"
    return code if re.search(r"\w\(", code) else None


def _one_line(code: str) -> str:
    return " ".join(re.sub(r"//[^\n]*", "", code).split())


def _markdown(comment: list[str]) -> str:
    """Indented lines are formulas or tables and stay as they are; other lines are paragraphs."""
    out: list[str] = []
    literal = False
    for number, line in enumerate(comment):
        indented = line.startswith("  ") and not _continues_bullet(comment, number)
        if indented and not literal:
            out += ["", "```text"]
        if literal and not indented and line:
            out += ["```", ""]
            literal = False
        literal = literal or indented
        out.append(line if literal else _escaped(line))
    if literal:
        out.append("```")
    return "\n".join(out).strip()


def _continues_bullet(comment: list[str], number: int) -> bool:
    while number > 0 and comment[number].startswith("  "):
        number -= 1
    return comment[number].startswith("- ")


def _escaped(line: str) -> str:
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if part.startswith("`") else re.sub(r"([*<>|~$\\])", r"\\\1", part) for part in parts)
