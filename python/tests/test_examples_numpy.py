"""Runs the programs in examples/numpy, one for each family; each checks its result and shows its output."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "examples" / "numpy").glob("*.py"))


def test_every_family_has_a_program():
    families = {path.parent.name for path in (ROOT / "src").glob("*/operators.cc")}
    assert {path.stem for path in PROGRAMS} == families


def split_numbers(text):
    number = re.compile(r"-?\d+(?:\.\d+)?(?:e-\d+)?")
    return number.split(text), [float(found) for found in number.findall(text)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program(program):
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    shown = re.sub("^#   ", "", program.read_text().partition("# Output:\n")[2], flags=re.MULTILINE)
    # Rounding differs between CPUs, so compare the text exactly and numbers with a tolerance.
    texts, numbers = zip(*(split_numbers(output) for output in (done.stdout, shown)), strict=True)
    assert texts[0] == texts[1]
    np.testing.assert_allclose(*numbers, rtol=1e-3, atol=1e-5)
