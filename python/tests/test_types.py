"""Type checkers accept correct calls, reject wrong ones, and find no errors in the package itself."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
CALLS = Path(__file__).parent / "typing"


def marked_lines():
    lines = (CALLS / "rejected.py").read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("  # error")}


def test_there_are_wrong_calls():
    assert len(marked_lines()) > 30


def errors_of_mypy():
    """Returns (file, line, message) of all errors; checks the package and the calls in one run."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", ROOT / "pyproject.toml"),
            *("--cache-dir", ROOT / "build/mypy", "--no-error-summary", "--hide-error-context"),
            *(ROOT / "python/turnout", CALLS / "accepted.py", CALLS / "rejected.py"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = re.findall(r"^(.+?):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    return [(Path(file).name, int(line), f"{file}: {text}") for file, line, text in found]


def errors_of_basedpyright():
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable),
            *("--project", ROOT / "pyproject.toml", CALLS / "accepted.py", CALLS / "rejected.py"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return [
        (Path(row["file"]).name, row["range"]["start"]["line"] + 1, f"{row['file']}: {row['message']}")
        for row in json.loads(done.stdout)["generalDiagnostics"]
        if row["severity"] == "error"
    ]


@pytest.mark.parametrize("errors_of", [errors_of_mypy, errors_of_basedpyright])
def test_wrong_calls_alone_are_errors(errors_of):
    errors = errors_of()
    assert [message for file, _, message in errors if file != "rejected.py"] == []
    assert {line for _, line, _ in errors} == marked_lines()


def test_public_functions_are_annotated():
    """mypy --strict would require it, but it is relaxed for the kernels of torch operators."""
    import turnout.torch
    import turnout.torch.nn

    bare = []
    for module in (turnout, turnout.torch, turnout.torch.nn):
        for name in module.__all__:
            value = getattr(module, name)
            function = value.__init__ if inspect.isclass(value) else value
            if not inspect.isfunction(function):
                continue
            signature = inspect.signature(function)
            annotations = [p.annotation for p in signature.parameters.values() if p.name != "self"]
            if inspect.Signature.empty in [*annotations, signature.return_annotation]:
                bare.append(f"{module.__name__}.{name}")
    assert bare == []
