"""Changes each check and each comparison of the index arithmetic in turn, and lists changes no test notices.

    ./dev mutate [folder...]      a family, core, indices, rows, matrix, bindings/mluop, ...; default: all
      --most N                    run at most N mutants per folder, spread evenly
      --again                     run only the mutants that no earlier run in this clone has killed

A copy of the sources in build/mutants has all the changes, each behind a number (tools/mutant.h). It is built
twice, only for the first instruction set: without sanitizers, and with those of the preset asan. Each test
reports which numbers it evaluates. A mutant runs with the tests that reach it, the shortest first, until one
fails. Mutants that survive without sanitizers, where tests are faster, run again with them.
"""

import argparse
import concurrent.futures
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from mutation_sites import Mutant, folders, rewrite, sources

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/mutants"
TREE = BUILD / "tree"
# Compiles in a third of the time of the preset's own settings.
SETTINGS = ["-DTURNOUT_MOST_ISA=sse4", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1"]
BUILDS = {"plain": ["-DTURNOUT_SANITIZE="], "asan": []}
JOBS = os.cpu_count() or 1
LONGEST_TEST = 6.0  # seconds; longer tests do not run
SECONDS_OF_TESTS = 20.0  # per mutant and build
SECONDS_AT_ONCE = (
    4.0  # per process; less for the first ones, so that the short tests of all programs come first
)
MOST_MEMORY = 12 << 30  # bytes of address space, without sanitizers
# In addition to those of the family. For other folders, all programs run except the LEFT_OUT ones.
PROGRAMS_OF_EACH_FAMILY = ["aclnn_test", "c_api_test", "c_order_test", "negative_test"]
LEFT_OUT = {"allocation_test", "big_test", "half_test", "parallel_test"}
# Adds the listener to the programs with GTest.
LISTENER = """
get_property(programs DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
foreach(program ${programs})
  if(program MATCHES "_test$")
    target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tools/mutant_listener.cc)
  endif()
endforeach()
"""


@dataclass
class Test:
    program: Path
    name: str  # of GTest; "" for a fuzzer, which runs as a whole
    seconds: float
    reached: dict[int, int]  # the numbers of mutants, with their kinds as in mutant.h


def write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_tree(chosen: list[str]) -> list[Mutant]:
    """Copies the sources, with all mutants of the chosen folders."""
    changed, mutants = {}, []
    for path in sources(ROOT):
        text, found = rewrite(path, ROOT, 1 + len(mutants))
        if found and found[0].family in chosen:
            changed[path] = f'#include "{TREE}/tools/mutant.h"\n{text}'
            mutants += found
    changed[ROOT / "tests/CMakeLists.txt"] = (ROOT / "tests/CMakeLists.txt").read_text() + LISTENER
    listed = ["git", "ls-files", "CMake*", "cmake", "include", "src", "tests", "tools/mutant*"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in files:
        path = ROOT / name
        write_if_changed(TREE / name, changed.get(path) or path.read_text())
    for path in [*(TREE / "src").rglob("*.*"), *(TREE / "tests").rglob("*.*")]:
        if path.is_file() and path.relative_to(TREE).as_posix() not in files:
            path.unlink()
    return mutants


def programs_of(chosen: list[str]) -> list[str]:
    """The programs that test these folders; an empty list means all."""
    families = {path.parent.name for path in ROOT.glob("src/*/operators.cc")}
    if not families.issuperset(chosen):
        return []
    return PROGRAMS_OF_EACH_FAMILY + [f"{name}_{kind}" for name in chosen for kind in ("test", "fuzz_once")]


def build(programs: list[str]) -> None:
    settings = os.environ | {"CCACHE_BASEDIR": str(TREE), "CCACHE_NOHASHDIR": "1"}
    targets = programs or ["test_programs"]
    for name, own in BUILDS.items():
        configure = ["cmake", "--preset", "asan", "-B", f"build/{name}", *SETTINGS, *own]
        compile_tests = ["cmake", "--build", f"build/{name}", "--target", *targets, "--", f"-j{JOBS}"]
        for line in (configure, compile_tests):
            done = subprocess.run(line, cwd=TREE, env=settings, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(done.stdout + done.stderr)


def run(program: Path, names: list[str], environment: dict[str, str], seconds: float) -> tuple[bool, float]:
    """Whether tests of a program pass within `seconds` of CPU time, and their CPU time."""

    def limit() -> None:
        os.nice(10)
        whole = int(seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if program.parent.parent.name == "plain":
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))

    line = [str(program)]
    if program.name.endswith("_test"):
        line += ["--gtest_filter=" + ":".join(names), "--gtest_fail_fast", "--gtest_brief=1"]
    settings = os.environ | {"ASAN_OPTIONS": "detect_leaks=0:symbolize=0"} | environment
    before = time.monotonic()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen(line, env=settings, cwd=folder, preexec_fn=limit, **quiet)
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid != 0:
                child.returncode = os.waitstatus_to_exitcode(status)
                return child.returncode == 0, usage.ru_utime + usage.ru_stime
            if time.monotonic() - before > 120 + 20 * seconds:  # a deadlock uses no CPU time
                child.kill()
            time.sleep(0.005)


def try_out(program: Path) -> list[Test]:
    """Runs the tests of a program without a mutant, and records their times and what they reach."""
    with tempfile.TemporaryDirectory() as folder:
        tests, bytes_of = Path(folder) / "tests", Path(folder) / "bytes"
        bytes_of.mkdir()
        variables = {"TURNOUT_REACHED_TESTS": str(tests), "TURNOUT_REACHED": str(bytes_of)}
        passed, seconds = run(program, ["*"], variables, 3600)
        if not passed:
            sys.exit(f"{program.name} fails without a mutant")
        if not tests.exists():  # a fuzzer
            last = max(bytes_of.iterdir(), key=lambda path: path.stat().st_mtime).read_bytes()
            return [Test(program, "", seconds, {i: kind for i, kind in enumerate(last) if kind})]
        found = []
        for line in tests.read_text().splitlines():
            name, cpu, *reached = line.split()
            numbers = dict(map(int, pair.split(":")) for pair in reached)
            found.append(Test(program, name, float(cpu), numbers))
        return found


def try_tests(programs: list[str], build: str) -> list[Test]:
    built = sorted((TREE / f"build/{build}/tests").iterdir())
    names = programs or [path.name for path in built if path.name.endswith(("_test", "_fuzz_once"))]
    chosen = [path for path in built if path.name in names and path.name not in LEFT_OUT]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        tests = [test for some in pool.map(try_out, chosen) for test in some]
    long = [f"{test.program.name} {test.name}" for test in tests if test.seconds > LONGEST_TEST]
    left_out = ", ".join(long) or "none"
    print(f"{build}: {len(tests)} tests; skipped because they take over {LONGEST_TEST:g} s: {left_out}")
    return sorted((test for test in tests if test.seconds <= LONGEST_TEST), key=lambda test: test.seconds)


def killer(mutant: Mutant, tests: list[Test]) -> str:
    """The program that fails with the mutant; "" if the mutant survives these tests."""
    reaching = [test for test in tests if mutant.number in test.reached]
    spent = 0.0
    while reaching and spent < SECONDS_OF_TESTS:
        program, together, seconds = reaching[0].program, [], 0.0
        at_once = min(SECONDS_AT_ONCE, 0.2 + spent / 4)
        for test in reaching:
            if test.program == program and (not together or seconds + test.seconds < at_once):
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


def main() -> None:
    parser = argparse.ArgumentParser(description="mutants of the index arithmetic")
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    every = folders(ROOT)
    if unknown := set(options.folders) - set(every):
        sys.exit(f"{', '.join(unknown)}: expected some of {', '.join(every)}")
    mutants = make_tree(options.folders or every)
    print(f"{len(mutants)} mutants; building the copy", flush=True)
    programs = programs_of(options.folders or every)
    build(programs)
    plain, sanitized = (try_tests(programs, name) for name in BUILDS)
    for folder in options.folders or every:
        run_folder(folder, mutants, plain, sanitized, options.most, options.again)


def run_folder(
    folder: str, mutants: list[Mutant], plain: list[Test], sanitized: list[Test], most: int, again: bool
) -> None:
    """Runs the mutants of a folder and lists the survivors; with `again`, skips those killed earlier."""
    own = [mutant for mutant in mutants if mutant.family == folder]
    kinds = {m.number: {test.reached.get(m.number, 0) for test in plain + sanitized} for m in own}
    own = [m for m in own if 2 not in kinds[m.number]]  # floats or objects: not index arithmetic
    chosen = sample(own, most)
    results = BUILD / f"{folder.replace('/', '_')}.json"
    killers = json.loads(results.read_text()) if again and results.exists() else {}
    lock = threading.Lock()

    def try_mutant(mutant: Mutant) -> None:
        if killers.get(mutant.key):
            return
        name = killer(mutant, plain) or killer(mutant, sanitized)
        with lock:
            killers[mutant.key] = name
            results.write_text(json.dumps(killers, indent=1))
        if not name:
            why = "" if 1 in kinds[mutant.number] else " (no test reaches it)"
            print(f"  survived: {mutant}{why}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(try_mutant, chosen))
    survivors = sum(not killers[mutant.key] for mutant in chosen)
    print(f"{folder}: ran {len(chosen)} of {len(own)} mutants; {survivors} survived", flush=True)


if __name__ == "__main__":
    main()
