"""Changes each check and each comparison of the index arithmetic in turn, and shows that a test fails.

    ./dev mutate [folder...]      a family, or core, indices, rows, matrix, doors/c, doors/aclnn; default: all
      --most N                    at most N mutants per folder, spread evenly
      --record                    write the results into docs/mutants.md

A copy of the sources in build/mutants has all the changes, each behind a number (tools/mutant.h), and is
built once, with the address sanitizer. Each test says which numbers it evaluates; a mutant then runs with the
tests that reach it, the shortest first, until one fails. A mutant that survives must be in tools/mutants.txt
with a reason, and at least 90 % of the mutants of each folder must be killed.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mutation_sites import Mutant, rewrite, sources

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/mutants"
TREE = BUILD / "tree"
REASONS = ROOT / "tools/mutants.txt"
PAGE = ROOT / "docs/mutants.md"
LEAST = 90.0
JOBS = 2
LONGEST_TEST = 6.0  # seconds; longer tests do not run
SECONDS_OF_TESTS = 40.0  # per mutant
SECONDS_AT_ONCE = 4.0  # per process
# These programs test threads and conversions, which have no mutants.
LEFT_OUT = {"half_test", "parallel_test"}


@dataclass
class Test:
    program: Path
    name: str  # of GTest; "" runs the whole program, a fuzzer
    seconds: float = 0.0
    reached: bytes = b""


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_tree() -> list[Mutant]:
    """Copies the sources, with all mutants in them."""
    changed, mutants = {}, []
    for path in sources(ROOT):
        changed[path], found = rewrite(path, ROOT, 1 + len(mutants))
        mutants += found
    listed = ["git", "ls-files", "CMakeLists.txt", "cmake", "include", "src", "tests", "tools/mutant.h"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in files:
        path = ROOT / name
        write_if_changed(TREE / name, changed.get(path) or path.read_text())
    for path in [*TREE.rglob("*.h"), *TREE.rglob("*.cc")]:
        if path.relative_to(TREE).as_posix() not in files:
            path.unlink()
    return mutants


def build(count: int) -> None:
    room = (count // 1024 + 1) * 1024  # rounded, so that a new mutant does not recompile every file
    mutant = f"-DTURNOUT_MUTANT_COUNT={room} -include {TREE}/tools/mutant.h"
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    options = {
        "CMAKE_BUILD_TYPE": "None",
        "CMAKE_C_COMPILER": "clang",
        "CMAKE_CXX_COMPILER": "clang++",
        "CMAKE_CXX_FLAGS": f"-std=c++20 -O1 -w {mutant}",
        "TURNOUT_SANITIZE": "address",
        "TURNOUT_MOST_ISA": "sse4",
        "TURNOUT_BUILD_BENCH": "OFF",
        "TURNOUT_WERROR": "OFF",
    }
    configure = ["cmake", "-G", "Ninja", "-S", TREE, "-B", BUILD / "build", *launcher]
    configure += [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD / "build", "--", f"-j{JOBS}", "--quiet"], check=True)


def run(program: Path, names: list[str], environment: dict[str, str], seconds: float) -> tuple[bool, float]:
    """Whether tests of a program pass within so much CPU time; and the CPU time they took."""

    def limit() -> None:
        os.nice(10)
        whole = int(seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    line = [str(program)]
    if names != [""]:
        line += ["--gtest_filter=" + ":".join(names), "--gtest_fail_fast", "--gtest_brief=1"]
    sanitizer = "detect_leaks=0:allocator_may_return_null=1:symbolize=0"
    settings = os.environ | {"ASAN_OPTIONS": sanitizer} | environment
    before = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen(
            line,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=settings,
            cwd=folder,
            preexec_fn=limit,
        )
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid != 0:
                child.returncode = os.waitstatus_to_exitcode(status)
                return child.returncode == 0, usage.ru_utime + usage.ru_stime
            # A deadlock uses no CPU time.
            if time.monotonic() - before > 60 + 20 * seconds:
                child.kill()
            time.sleep(0.005)


def tests_of(program: Path) -> list[Test]:
    if program.name.endswith("_fuzz_once"):
        return [Test(program, "")]
    listing = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, check=True)
    tests, suite = [], ""
    for line in listing.stdout.splitlines():
        if line.startswith("  "):
            tests.append(Test(program, suite + line.split()[0]))
        elif line.split("#")[0].strip().endswith("."):
            suite = line.split()[0]
    return tests


def try_out(test: Test, count: int) -> str:
    """Runs a test without a mutant, and notes its time and what it reaches. Returns a complaint, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        passed, test.seconds = run(test.program, [test.name], {"TURNOUT_REACHED": folder}, 30)
        reached = bytearray(count + 1)
        for path in Path(folder).iterdir():
            for i, kind in enumerate(path.read_bytes()[: count + 1]):
                reached[i] = reached[i] or kind
        test.reached = bytes(reached)
    if test.seconds > LONGEST_TEST:
        test.reached = b""
        return ""
    return "" if passed else f"{test.program.name} {test.name} fails without a mutant"


def try_tests(count: int) -> list[Test]:
    folder = BUILD / "build/tests"
    programs = [path for path in folder.iterdir() if path.name.endswith(("_test", "_fuzz_once"))]
    tests = [test for path in sorted(programs) if path.name not in LEFT_OUT for test in tests_of(path)]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        complaints = [line for line in pool.map(lambda test: try_out(test, count), tests) if line]
    if complaints:
        sys.exit("\n".join(complaints))
    long = [f"{test.program.name} {test.name}" for test in tests if not test.reached]
    print(f"{len(tests)} tests; not used, as they take over {LONGEST_TEST:g} s: {', '.join(long) or 'none'}")
    return sorted((test for test in tests if test.reached), key=lambda test: test.seconds)


def killer(mutant: Mutant, tests: list[Test]) -> str:
    """The tests of which one fails with the mutant; nothing if it survives."""
    reaching = [test for test in tests if test.reached[mutant.number]]
    spent = 0.0
    while reaching and spent < SECONDS_OF_TESTS:
        program, together, seconds = reaching[0].program, [], 0.0
        for test in reaching:
            if test.program == program and (not together or seconds + test.seconds < SECONDS_AT_ONCE):
                together.append(test)
                seconds += test.seconds
        names = [test.name for test in together]
        passed, _ = run(program, names, {"TURNOUT_MUTANT": str(mutant.number)}, 5 + 5 * seconds)
        if not passed:
            return program.name
        spent += seconds
        reaching = [test for test in reaching if test not in together]
    return ""


def sample(mutants: list[Mutant], most: int) -> list[Mutant]:
    if most <= 0 or len(mutants) <= most:
        return mutants
    return [mutants[i * len(mutants) // most] for i in range(most)]


def reasons() -> dict[str, str]:
    """The survivors that are known: "file :: line :: change :: reason"; a line may occur in a file twice."""
    known = {}
    for line in REASONS.read_text().splitlines():
        if line and not line.startswith("#"):
            key, _, reason = line.rpartition(" :: ")
            known[key] = reason
    return known


def main() -> int:
    parser = argparse.ArgumentParser(description="mutants of the index arithmetic")
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    mutants = make_tree()
    folders = sorted({mutant.family for mutant in mutants})
    if unknown := set(options.folders) - set(folders):
        sys.exit(f"{', '.join(unknown)}: expected some of {', '.join(folders)}")
    print(f"{len(mutants)} mutants; building the copy", flush=True)
    build(len(mutants))
    tests = try_tests(len(mutants))
    known = reasons()
    rows, unexplained = {}, []
    for folder in options.folders or folders:
        own = [mutant for mutant in mutants if mutant.family == folder]
        kinds = {m.number: {test.reached[m.number] for test in tests} for m in own}
        own = [m for m in own if 2 not in kinds[m.number]]  # floats or objects: not index arithmetic
        chosen = sample(own, options.most)
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            by = list(pool.map(lambda mutant: killer(mutant, tests), chosen))
        survivors = [mutant for mutant, name in zip(chosen, by, strict=True) if not name]
        rows[folder] = (len(own), len(chosen), len(chosen) - len(survivors))
        unexplained += [mutant for mutant in survivors if mutant.key not in known]
        print(f"{folder}: {rows[folder][2]} of {len(chosen)} killed, of {len(own)} mutants", flush=True)
        for mutant in survivors:
            if mutant.key not in known:
                why = "" if 1 in kinds[mutant.number] else " (no test reaches it)"
                print(f"  survived without a reason: {mutant}{why}", flush=True)
        log = {m.key: name for m, name in zip(chosen, by, strict=True)}
        (BUILD / f"{folder.replace('/', '_')}.json").write_text(json.dumps(log, indent=1))
    if options.record:
        record(rows)
    low = [f"{name}: {row[2]} of {row[1]}" for name, row in rows.items() if row[2] * 100 < LEAST * row[1]]
    if low:
        print(f"fewer than {LEAST:g} % killed in {', '.join(low)}")
    if unexplained:
        print(f"{len(unexplained)} survivors are not in tools/mutants.txt, expected each with a reason")
    return bool(low or unexplained)


def record(rows: dict[str, tuple[int, int, int]]) -> None:
    """Replaces the rows of these folders in the table of docs/mutants.md."""
    head, marker, old = PAGE.read_text().partition("<!-- measured -->\n")
    kept = {line.split("`")[1]: line for line in old.splitlines() if line.startswith("| `")}
    today = datetime.datetime.now(datetime.timezone.utc).date()
    for folder, (total, run_, killed) in rows.items():
        percent = 100 * killed / max(run_, 1)
        kept[f"src/{folder}/"] = (
            f"| `src/{folder}/` | {total} | {run_} | {killed} | {percent:.1f} | {today} |"
        )
    lines = ["| folder | mutants | run | killed | percent | date |", "|---|---|---|---|---|---|"]
    PAGE.write_text(head + marker + "\n".join([*lines, *(kept[name] for name in sorted(kept))]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
