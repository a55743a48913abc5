"""Line coverage of the C++ tests per folder of src/, from the programs and profiles of the preset `coverage`.

    ./dev coverage             builds, runs the tests, prints the table, fails if a folder is below 95 %
    ./dev coverage --record    also writes docs/coverage.md
    ./dev coverage --missing   also lists the lines that no test runs

Tests, definitions, bindings (NOT_COUNTED) and consteval functions do not count.
"""

import argparse
import datetime
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/coverage"
PAGE = ROOT / "docs/coverage.md"
LEAST = 95.0
NOT_COUNTED = re.compile(
    r"test\.cc$|/fuzz\.cc$|_cases?\.h$|/reference\.h$|/example\.h$|/c_operators\.cc$|/core/draft\.h$|python"
)


def tool(name: str) -> str:
    """The LLVM program of the same version as clang: other versions cannot read the profiles."""
    answer = subprocess.run(["clang", f"-print-prog-name={name}"], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def programs() -> list[Path]:
    tests = BUILD / "tests"
    found = [path for path in sorted(tests.iterdir()) if path.name.endswith(("_test", "_fuzz_once"))]
    if not found:
        sys.exit(f"{tests} has no test programs; run ./dev coverage")
    return found


def cover(command: str, profile: Path, *options: str) -> str:
    objects = programs()
    line = [tool("llvm-cov"), command, f"-instr-profile={profile}", *options, str(objects[0])]
    line += [f"-object={path}" for path in objects[1:]]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def folder_of(name: str) -> str | None:
    """The table row of a file; None if the file does not count."""
    path = Path(os.path.normpath(name))  # with ccache the compiler sees build/coverage/../../src
    if not path.is_relative_to(ROOT) or NOT_COUNTED.search(name):
        return None
    parts = path.relative_to(ROOT).parts
    if parts[0] != "src" or len(parts) < 3:
        return None
    return "/".join(parts[1:3]) if parts[1] == "bindings" and len(parts) == 4 else parts[1]


def compiled(path: Path) -> set[int]:
    """The lines of a file's consteval functions, which only the compiler runs."""
    text = path.read_text()
    lines: set[int] = set()
    for match in re.finditer(r"\bconsteval\b[^;{]*(?=\{)", text):
        end, depth = match.end(), 0
        while True:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                break
            end += 1
        lines.update(range(text.count("\n", 0, match.start()) + 1, text.count("\n", 0, end) + 2))
    return lines


def lines_of(profile: Path) -> dict[str, dict[int, tuple[bool, str]]]:
    """By file, each line that counts: whether a test ran it, and its text."""
    files: dict[str, dict[int, tuple[bool, str]]] = {}
    # The output has lines "   12|      0|code". A line of a template ran if one instantiation did.
    for line in cover("show", profile, "-show-instantiations=false").splitlines():
        if line.startswith("/"):
            name = os.path.normpath(line.rstrip(":"))
            left_out = compiled(Path(name)) if folder_of(name) is not None else set()
            lines = files.setdefault(name, {})
        elif match := re.match(r" *(\d+)\| *([\d.]+[kMGTPEZY]?)\|(.*)", line):
            number = int(match[1])
            ran = match[2] != "0" or lines.get(number, (False,))[0]
            if number not in left_out:
                lines[number] = (ran, match[3])
    return {name: lines for name, lines in files.items() if folder_of(name) is not None}


def measure(files: dict[str, dict[int, tuple[bool, str]]]) -> dict[str, list[int]]:
    """Per folder, the number of lines and the number of lines that ran."""
    rows: dict[str, list[int]] = {}
    for name, lines in files.items():
        row = rows.setdefault(folder_of(name), [0, 0])
        row[0] += len(lines)
        row[1] += sum(ran for ran, _ in lines.values())
    return rows


def percent(row: list[int]) -> float:
    return 100.0 * row[1] / max(row[0], 1)


def table(rows: dict[str, list[int]]) -> str:
    lines = ["| folder | lines | run by a test | percent |", "|---|---|---|---|"]
    lines += [
        f"| `src/{name}/` | {row[0]} | {row[1]} | {percent(row):.1f} |" for name, row in sorted(rows.items())
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="line coverage per folder of src/")
    parser.add_argument("--record", action="store_true", help="write docs/coverage.md")
    parser.add_argument("--missing", action="store_true", help="list the lines that no test runs")
    options = parser.parse_args()
    profiles = sorted((BUILD / "profiles").glob("*.profraw"))
    merged = BUILD / "tests.profdata"
    listed = BUILD / "profiles.txt"
    listed.write_text("\n".join(map(str, profiles)))
    merge = [tool("llvm-profdata"), "merge", "-sparse", f"-input-files={listed}", f"-output={merged}"]
    subprocess.run(merge, check=True)
    files = lines_of(merged)
    rows = measure(files)
    print(table(rows))
    if options.missing:
        for name, lines in files.items():
            for number, (ran, text) in sorted(lines.items()):
                if not ran:
                    print(f"{Path(name).relative_to(ROOT)}:{number}: {text}")
    if options.record:
        head = PAGE.read_text().split("<!-- measured -->")[0]
        today = datetime.datetime.now(datetime.timezone.utc).date()
        PAGE.write_text(f"{head}<!-- measured -->\nMeasured on {today}:\n\n{table(rows)}\n")
    low = [f"src/{name}/ has {percent(row):.1f} %" for name, row in rows.items() if percent(row) < LEAST]
    if low:
        print(f"{', '.join(low)} of its lines covered, expected {LEAST:g} % or more")
    return bool(low)


if __name__ == "__main__":
    sys.exit(main())
