"""Line coverage of the C++ tests per folder of src/, from the programs and profiles of the preset `coverage`.

    ./dev coverage             builds, runs the tests, prints the table, fails if a folder is below 95 %
    ./dev coverage --record    also writes docs/coverage.md
    ./dev coverage --missing   also lists the lines that no test runs

Files that are themselves tests, definitions or bindings do not count: see NOT_COUNTED.
"""

import argparse
import datetime
import json
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
    r"test\.cc$|/fuzz\.cc$|/bench\.cc$|_cases?\.h$|/reference\.h$|/example\.h$|/c_operators\.cc$|/core/draft\.h$|python"
)


def tool(name: str) -> str:
    """The LLVM program of clang's own version: another version cannot read the profiles."""
    answer = subprocess.run(["clang", f"-print-prog-name={name}"], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def programs() -> list[Path]:
    tests = BUILD / "tests"
    found = [path for path in sorted(tests.iterdir()) if path.name.endswith(("_test", "_fuzz_once"))]
    if not found:
        sys.exit(f"{tests} has no test programs, expected those of ./dev coverage")
    return found


def cover(command: str, profile: Path, *options: str) -> str:
    objects = programs()
    line = [tool("llvm-cov"), command, f"-instr-profile={profile}", *options, str(objects[0])]
    line += [f"-object={path}" for path in objects[1:]]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def folder_of(name: str) -> str | None:
    """The row of the table that a file belongs to; None if it does not count."""
    path = Path(os.path.normpath(name))  # with ccache the compiler sees build/coverage/../../src
    if not path.is_relative_to(ROOT) or NOT_COUNTED.search(name):
        return None
    parts = path.relative_to(ROOT).parts
    if parts[0] != "src" or len(parts) < 3:
        return None
    return "/".join(parts[1:3]) if parts[1] == "doors" and len(parts) == 4 else parts[1]


def measure(profile: Path) -> dict[str, list[int]]:
    """Per folder: the number of lines, and of lines that ran."""
    rows: dict[str, list[int]] = {}
    for file in json.loads(cover("export", profile, "-summary-only"))["data"][0]["files"]:
        folder = folder_of(file["filename"])
        if folder is not None:
            row = rows.setdefault(folder, [0, 0])
            row[0] += file["summary"]["lines"]["count"]
            row[1] += file["summary"]["lines"]["covered"]
    return rows


def percent(row: list[int]) -> float:
    return 100.0 * row[1] / max(row[0], 1)


def table(rows: dict[str, list[int]]) -> str:
    lines = ["| folder | lines | run by a test | percent |", "|---|---|---|---|"]
    lines += [
        f"| `src/{name}/` | {row[0]} | {row[1]} | {percent(row):.1f} |" for name, row in sorted(rows.items())
    ]
    return "\n".join(lines)


def missing(profile: Path) -> None:
    """Prints each line that counts and that never ran, by file."""
    file = ""
    # Per function instantiation the text has lines "   12|      0|code"; a line ran if one instantiation did.
    ran: dict[tuple[str, int], bool] = {}
    text: dict[tuple[str, int], str] = {}
    for line in cover("show", profile, "-show-instantiations=false").splitlines():
        if line.startswith("/"):
            file = line.rstrip(":")
        elif match := re.match(r" *(\d+)\| *([\d.]+[kMGTPEZY]?)\|(.*)", line):
            key = (file, int(match[1]))
            ran[key] = ran.get(key, False) or match[2] != "0"
            text[key] = match[3]
    for (name, number), did in ran.items():
        if not did and folder_of(name) is not None:
            print(f"{Path(name).relative_to(ROOT)}:{number}: {text[name, number]}")


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
    rows = measure(merged)
    print(table(rows))
    if options.missing:
        missing(merged)
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
