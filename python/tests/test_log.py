"""The log: each call writes one line that can be parsed."""

import os
import subprocess
import sys

# Wraps the functions of the extension module to print what each call writes to stderr, and runs all checks.
PROGRAM = """
import os, sys
import numpy as np
from turnout import _core
from turnout.check import CHECKS

log = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.dup2(log, 2)

def watch(name, function):
    def call(*arguments):
        start = os.lseek(log, 0, os.SEEK_END)
        result = function(*arguments)
        end = os.lseek(log, 0, os.SEEK_END)
        for line in os.pread(log, end - start, start).decode().splitlines() or ["none"]:
            print(name, line, sep="|")
        print(name, "end", sep="|")
        return result
    return call

for name in dir(_core):
    function = getattr(_core, name)
    if type(function).__name__ in ("nb_func", "builtin_function_or_method"):
        setattr(_core, name, watch(name, function))
_core.set_log(1)
for check in CHECKS.values():
    check(np.random.default_rng(0))
"""
# They write nothing, or, as check_definition, make many calls of operators.
SILENT = {
    "check_definition",
    "set_log",
    "info",
    "indice_pairs_output_shape",
    "get_num_threads",
    "set_num_threads",
}


def fields(pairs: str) -> dict[str, str]:
    """Parses the pairs of a line: key=word or key="several words"."""
    found = {}
    while pairs:
        key, _, rest = pairs.partition("=")
        value, _, pairs = rest[1:].partition('"') if rest.startswith('"') else rest.partition(" ")
        found[key], pairs = value, pairs.strip()
    return found


def test_each_call_writes_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=300,
        env={key: value for key, value in os.environ.items() if not key.startswith("TURNOUT_")},
    )
    assert done.returncode == 0, done.stderr + (tmp_path / "log").read_text()
    called, lines = set(), []
    for entry in done.stdout.splitlines():
        name, line = entry.split("|", 1)
        if line != "end":
            lines.append(line)
            continue
        called.add(name)
        written, lines = lines, []
        if name in SILENT or written == ["none"]:  # "none": an empty call
            continue
        assert len(written) == 1, written
        start, pairs = written[0].rsplit("): ", 1)
        assert start.startswith("[turnout] ")
        values = fields(pairs)
        assert list(values) == ["algorithm", "isa", "threads", "scratch", "us", "serial_us"], written
        assert values["algorithm"], written
        assert int(values["threads"]) >= 1 and int(values["scratch"]) >= 0 and float(values["us"]) > 0
        assert 0 <= float(values["serial_us"]) <= float(values["us"])
    assert {"get_indice_pairs", "dynamic_scatter_forward", "rnnt_prune_ranges", "scatter_max"} <= called
