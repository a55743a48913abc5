"""The instruction sets that have code, and the last test run of each, in docs/instruction_sets.md.

    instruction_sets.py --ran PROGRAM                      print which sets the tests ran here, and which not
    instruction_sets.py --has PROGRAM SET                  succeed if the tests of that build run the set here
    instruction_sets.py --record PROGRAM COMMAND COMMIT    write today's run of COMMAND into the table
    instruction_sets.py --check                            fail if a set has no run, or its commit is unknown

PROGRAM is the command that runs tests/instruction_sets of a build, including an emulator if needed.
"""

import datetime
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/instruction_sets.md"
MARKER = "<!-- runs -->\n"
HEAD = ["| set | date | commit | command | CPU |", "|---|---|---|---|---|"]
COMMANDS = {"neon": "./dev arm"}  # the others: ./dev avx512


def compiled() -> list[str]:
    """The sets that some build has code for, from the C++ list of their names."""
    names = re.search(r"kNames\[[^{]*\{([^}]*)\}", (ROOT / "src/simd/isa.cc").read_text())
    if names is None:
        sys.exit("src/simd/isa.cc has no kNames, the names of the instruction sets")
    return re.findall(r'"(\w+)"', names[1])


def sets_of(program: str) -> tuple[list[str], list[str]]:
    """The sets that a build's tests run here, and those that they do not."""
    text = subprocess.run(shlex.split(program), capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in text.splitlines()]
    return lines[0][1:], lines[1][1:]


def message(ran: list[str], not_run: list[str]) -> str:
    others = [name for name in compiled() if name not in ran]
    text = f"instruction sets: the tests ran {', '.join(ran)}"
    if others:
        ways = sorted({COMMANDS.get(name, "./dev avx512") for name in others})
        why = " (this CPU lacks them)" if not_run else ""
        text += f"; they did not run {', '.join(others)}{why}; run {' and '.join(ways)}"
    return text


def rows() -> dict[str, list[str]]:
    """The cells of the table, by set."""
    body = PAGE.read_text().partition(MARKER)[2].splitlines()[len(HEAD) :]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in body if line]
    return {row[0]: row for row in cells}


def git(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)


def cpu_of(program: str) -> str:
    words = shlex.split(program)
    if "-cpu" in words:
        return f"{Path(words[0]).name} -cpu {words[words.index('-cpu') + 1]}"
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def record(program: str, command: str, commit: str) -> None:
    table = rows()
    today = str(datetime.datetime.now(datetime.timezone.utc).date())
    for name in sets_of(program)[0]:
        table[name] = [name, today, commit, command, cpu_of(program)]
    lines = [f"| {' | '.join(table[name])} |" for name in compiled() if name in table]
    PAGE.write_text("".join(PAGE.read_text().partition(MARKER)[:2]) + "\n".join([*HEAD, *lines]) + "\n")


def faults() -> list[str]:
    table = rows()
    found = [f"{name}: no run is recorded" for name in compiled() if name not in table]
    found += [f"{name}: not an instruction set" for name in table if name not in compiled()]
    complete = git("rev-parse", "--is-shallow-repository").stdout.strip() == "false"
    for name, row in table.items():
        if len(row) != 5 or not re.fullmatch(r"\d{4}-\d\d-\d\d", row[1]) or not row[3]:
            found.append(f"{name}: the row is {row}, expected a set, a date, a commit, a command and a CPU")
        elif complete and git("merge-base", "--is-ancestor", row[2], "HEAD").returncode != 0:
            found.append(f"{name}: its commit {row[2]} is not in the history of HEAD")
    return found


def main() -> int:
    match sys.argv[1:]:
        case ["--ran", program]:
            print(message(*sets_of(program)))
        case ["--has", program, name]:
            return name not in sets_of(program)[0]
        case ["--record", program, command, commit]:
            record(program, command, commit)
        case ["--check"]:
            found = faults()
            print("\n".join(found) or f"{len(compiled())} instruction sets, each with a recorded run")
            return bool(found)
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
