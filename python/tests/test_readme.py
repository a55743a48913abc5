"""README.md and docs/: Python code runs, each block in a process of its own, and links lead to files."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": (ROOT / "README.md").read_text()}
PAGES |= {f"docs/{page.name}": page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))}


# As in conftest.py: torch may be missing only in a run that says so.
WITHOUT_TORCH = os.environ.get("TURNOUT_TEST_CORE") == "1" and importlib.util.find_spec("torch") is None
TORCH = [pytest.mark.torch, pytest.mark.skipif(WITHOUT_TORCH, reason="torch is not installed")]


def python_blocks():
    blocks = []
    for page, text in PAGES.items():
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, match.start()) + 1
            needs_torch = re.search(r"\btorch\b", match[1]) is not None
            blocks.append(pytest.param(match[1], id=f"{page}:{line}", marks=TORCH if needs_torch else []))
    return blocks


def test_there_is_python_with_and_without_torch():
    marks = [bool(block.marks) for block in python_blocks()]
    assert True in marks
    assert False in marks


@pytest.mark.parametrize("code", python_blocks())
def test_python_runs(code, tmp_path):
    """As a program; one that begins with a torchrun command, in the processes that this starts."""
    (tmp_path / "program.py").write_text(code)
    command = ["program.py"]
    if torchrun := re.match(r"# torchrun (--nproc_per_node=\d+) ", code):
        command = ["-m", "torch.distributed.run", "--standalone", torchrun[1], "program.py"]
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    targets = re.findall(r"\]\(([^)#:]+)\)", PAGES[page])
    assert targets
    assert [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()] == []
