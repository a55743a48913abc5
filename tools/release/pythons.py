"""Builds the package for each Python version, checks it and runs the tests without PyTorch; prints a table.

    python tools/release/pythons.py [--wheel FILE] [interpreter ...]

Without interpreters: every Python from 3.10 on that is on PATH or was installed by pyenv. With a wheel, that
wheel is installed and nothing is built.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WANTED = ["3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t", "3.15"]
QUESTION = """
import json, os, platform, sys, sysconfig
include = sysconfig.get_path("include")
free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
print(json.dumps({
    "name": "%d.%d" % sys.version_info[:2] + free,
    "version": platform.python_version() + free,
    "headers": os.path.exists(os.path.join(include, "Python.h")),
}))
"""


class StepError(Exception):
    """A step that failed, with the end of its output."""


def run(what: str, log: Path, *command: object, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    words = [str(word) for word in command]
    print("+", " ".join(words), flush=True)
    done = subprocess.run(words, cwd=cwd, env=os.environ | (env or {}), text=True, capture_output=True)
    with log.open("a") as file:
        file.write(f"+ {' '.join(words)}\n{done.stdout}{done.stderr}\n")
    if done.returncode != 0:
        print(done.stdout[-3000:], done.stderr[-3000:], sep="\n")
        raise StepError(what)
    return done.stdout


def cpu_minutes() -> float:
    """The CPU time of the commands so far; unlike elapsed time, it does not depend on the load."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) / 60


def answers(interpreter: Path) -> dict | None:
    """The version of an interpreter; None if it does not run."""
    done = subprocess.run([interpreter, "-c", QUESTION], text=True, capture_output=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def interpreters(given: list[str]) -> dict[str, Path]:
    """One interpreter with headers per version."""
    paths = [Path(path).absolute() for path in given]
    if not given:
        paths = [Path(found) for name in WANTED if (found := shutil.which(f"python{name}"))]
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        paths += sorted(pyenv.glob("3.1[0-9].*/bin/python3"))
    found: dict[str, Path] = {}
    for path in paths:
        answer = answers(path)
        if answer is None or not answer["headers"]:
            print(f"{path}: {'not a working Python' if answer is None else 'has no Python.h'}")
        else:
            found.setdefault(answer["name"], path)
    return found


def build(python: Path, work: Path, log: Path) -> Path:
    """Builds with isolation, as users do. The options are those of ./dev test, for ccache."""
    options = ["--config-settings=cmake.define.TURNOUT_WERROR=ON"]
    launchers = {"CC": "cc", "CXX": "c++"}
    if shutil.which("ccache"):
        launchers |= {f"CMAKE_{language}_COMPILER_LAUNCHER": "ccache" for language in ("C", "CXX")}
    run("build", log, python, "-m", "pip", "wheel", "--no-deps", "-w", work, *options, ".", env=launchers)
    (wheel,) = work.glob("*.whl")
    return wheel


def check(name: str, interpreter: Path, wheel: Path | None) -> dict[str, str]:
    work = ROOT / "build" / "pythons" / name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    log = work / "log"
    row = {"Python": answers(interpreter)["version"]}
    start = cpu_minutes()
    try:
        run("venv", log, interpreter, "-m", "venv", work / "venv")
        python = work / "venv" / "bin" / "python"
        wheel = wheel or build(python, work, log)
        row["wheel"] = "-".join(wheel.stem.split("-")[2:4])
        run("install", log, python, "-m", "pip", "install", "-q", f"{wheel}[core]")
        checked = run("check", log, work / "venv" / "bin" / "turnout", "check", cwd=work)
        row["turnout check"] = f"{checked.count(': ok')} ok"
        tests = run(
            "tests",
            log,
            *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            # Otherwise a free-threaded Python warns at each import that it turns the GIL on.
            env={"TURNOUT_TEST_CORE": "1"} | ({"PYTHON_GIL": "1"} if name.endswith("t") else {}),
            cwd=ROOT / "python" / "tests",
        )
        row["tests"] = re.search(r"\d+ passed.*?(?= in )", tests)[0]
    except StepError as step:
        row["failed"] = f"{step}: see {log.relative_to(ROOT)}"
    row["CPU minutes"] = f"{cpu_minutes() - start:.1f}"
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=lambda path: Path(path).absolute())
    parser.add_argument("interpreters", nargs="*")
    options = parser.parse_args()
    found = interpreters(options.interpreters)
    names = sorted(found, key=WANTED.index)
    rows = [check(name, found[name], options.wheel) for name in names]
    columns = ["Python", "wheel", "turnout check", "tests", "failed", "CPU minutes"]
    print("\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(row.get(column, "") for column in columns) + " |")
    if missing := [name for name in WANTED if name not in found]:
        print("not run:", ", ".join(missing))
    return 0 if rows and not any("failed" in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
