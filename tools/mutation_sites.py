"""Finds the places of src/ that tools/mutate.py changes, and writes the changed text.

clang-format guarantees that a comparison has blanks around its operator and a template's bracket has none.
It skips parts that only the compiler evaluates (static_assert, if constexpr, consteval functions, constexpr
variables, template arguments), and the sizes from which a second thread or a streamed store pays: both ways
give the same bits.
"""

import re
from dataclasses import dataclass
from pathlib import Path

FLIPPED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
BOUND = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}

# Index arithmetic and checks: not the threads, the caches and the vector math.
FOLDERS = ["core", "indices", "rows", "matrix", "bindings/mluop", "bindings/aclnn"]
# draft.h builds the signatures at compile time. The others are tests, definitions and bindings.
LEFT_OUT = re.compile(
    r"test\.cc$|/fuzz\.cc$|_cases?\.h$|/reference\.h$|/example\.h$|operators\.cc$|python|core/draft\.h$"
)

COMPARISON = re.compile(r"(?<=\s)(<=|>=|==|!=|<|>)(?=\s)(?!\s+nullptr)")
PAYS = re.compile(r"\s(std::max\()?k((Parallel|Stream)(Bytes|Products|Cells)|PointGrain)\b")
CHECK = re.compile(r"\bif \(")
REFUSES = re.compile(r"\s*(\{\s*)?(return\s+)?(throw\b|(?!log_)[\w.]*(fail|refuse)\w*\()")
COMPILED_AWAY = re.compile(
    r"\bstatic_assert\(|\bif constexpr \(|\brequires\b|\bstd::conditional_t<|\bconsteval [^;{]*\{"
    r"|^[ \t]*(static |inline )*constexpr [^;({]*=|^[ \t]*using \w+ =|^[ \t]*template <",
    re.M,
)


@dataclass
class Mutant:
    number: int
    file: str  # relative to the root
    line: int
    code: str  # the line, without indentation
    change: str  # "< to >=", "check removed"; with " #2" for the second one in equal lines of a file

    @property
    def family(self) -> str:
        parts = self.file.split("/")
        return "/".join(parts[1:3]) if parts[1] == "bindings" else parts[1]

    @property
    def key(self) -> str:
        return f"{self.file} :: {self.code} :: {self.change}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.code} [{self.change}]"


def folders(root: Path) -> list[str]:
    families = sorted(path.parent.name for path in (root / "src").glob("*/operators.cc"))
    assert families, "no src/*/operators.cc was found"
    return FOLDERS + families


def sources(root: Path) -> list[Path]:
    files = [path for folder in folders(root) for path in sorted((root / "src" / folder).glob("*.*"))]
    return [path for path in files if path.suffix in (".h", ".cc") and not LEFT_OUT.search(str(path))]


def masked(text: str) -> str:
    """The text with comments, strings, character constants and preprocessor lines blanked out."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:\\\n|[^\n])*', re.S | re.M
    )
    return token.sub(lambda m: re.sub(r"[^\n]", "~", m[0]), text)


def closing(text: str, start: int) -> int:
    """The position after the bracket that closes the one at `start`."""
    pairs = {"(": ")", "[": "]", "{": "}"}
    open_brackets = []
    for i in range(start, len(text)):
        if text[i] in pairs:
            open_brackets.append(pairs[text[i]])
        elif open_brackets and text[i] == open_brackets[-1]:
            open_brackets.pop()
            if not open_brackets:
                return i + 1
    raise ValueError(f"no bracket closes the one at {start}")


def end_of_variable(code: str, start: int) -> int:
    """The end of what the compiler evaluates of a constexpr variable and of a function it calls."""
    first = code.index(";", start)
    if (bracket := code.find("{", start, first)) >= 0:
        body = closing(code, bracket)
        if code.startswith("()", body):
            return body
    return first


def left_out_ranges(code: str) -> list[tuple[int, int]]:
    """The parts that only the compiler evaluates."""
    ranges = []
    for match in COMPILED_AWAY.finditer(code):
        end = match.end()
        if code[end - 1] in "({":
            end = closing(code, end - 1)
        elif match[0].lstrip().startswith(("template", "requires", "std::")):
            end = code.index("\n", end)
        else:
            end = end_of_variable(code, end)
        ranges.append((match.start(), end))
    return ranges


def rewrite(path: Path, root: Path, first: int) -> tuple[str, list[Mutant]]:
    """The text of a file with all its mutants, numbered from `first`."""
    text = path.read_text()
    code = masked(text)
    away = left_out_ranges(code)
    lines = text.splitlines()
    mutants: list[Mutant] = []
    inserts: list[tuple[int, str]] = []  # position, text
    name = path.relative_to(root).as_posix()

    def add(position: int, change: str) -> int:
        number = first + len(mutants)
        line = code.count("\n", 0, position) + 1
        text_of_line = lines[line - 1].strip()
        same = sum(m.code == text_of_line and m.change.split(" #")[0] == change for m in mutants)
        mutants.append(Mutant(number, name, line, text_of_line, f"{change} #{same + 1}" if same else change))
        return number

    def is_away(position: int) -> bool:
        return any(a <= position < b for a, b in away)

    for match in COMPARISON.finditer(code):
        if is_away(match.start()) or PAYS.match(code, match.end()):
            continue
        op = match[1]
        number = add(match.start(), f"{op} to {FLIPPED[op]}")
        if op in BOUND:
            add(match.start(), f"{op} to {BOUND[op]}")
        inserts.append((match.end(), f" turnout_mutants::at({number}) {op}"))
    for match in CHECK.finditer(code):
        end = closing(code, match.end() - 1)
        condition = code[match.end() : end - 1]
        # A condition that declares a variable stays, because the body needs it.
        if is_away(match.start()) or not REFUSES.match(code, end) or re.search(r";|[^=!<>]=[^=]", condition):
            continue
        number = add(match.start(), "check removed")
        inserts.append((match.end(), f"turnout_mutants::kept({number}) && ("))
        inserts.append((end - 1, ")"))
    for position, what in sorted(inserts, reverse=True):
        text = text[:position] + what + text[position:]
    return text, mutants
