"""README.md: its Python code runs, each block in a process of its own, and its links lead to files."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


# As in conftest.py: torch may be missing only in a run that says so.
WITHOUT_TORCH = os.environ.get("TURNOUT_TEST_CORE") == "1" and importlib.util.find_spec("torch") is None
TORCH = [pytest.mark.torch, pytest.mark.skipif(WITHOUT_TORCH, reason="torch is not installed")]


def python_blocks():
    blocks = []
    for match in re.finditer(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE):
        line = README.count("\n", 0, match.start()) + 1
        needs_torch = re.search(r"\btorch\b", match[1]) is not None
        blocks.append(pytest.param(match[1], id=f"line{line}", marks=TORCH if needs_torch else []))
    return blocks


def test_readme_has_python_with_and_without_torch():
    marks = [bool(block.marks) for block in python_blocks()]
    assert True in marks
    assert False in marks


@pytest.mark.parametrize("code", python_blocks())
def test_readme_python_runs(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_readme_links_lead_to_files():
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert "docs/images/demo.png" in targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
