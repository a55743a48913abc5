"""Runs the programs in examples/numpy, one for each family; each checks its own result."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "examples" / "numpy").glob("*.py"))


def test_every_family_has_a_program():
    families = {path.parent.name for path in (ROOT / "src").glob("*/operators.cc")}
    assert {path.stem for path in PROGRAMS} == families


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program(program):
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout
