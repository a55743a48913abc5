"""turnout run: programs with stand-ins for packages that are absent."""

import subprocess
import sys

import pytest

from turnout import cli, launch

pytestmark = pytest.mark.torch

PROGRAM = """
import json, sys
import __main__
print(json.dumps([sys.argv, sys.path[0], __name__, __file__, __main__.__file__, __spec__ is None,
                  globals() is vars(__main__)]))
"""


def run(*arguments, cwd=None):
    command = [sys.executable, "-m", "turnout", "run", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)


@pytest.fixture
def script(tmp_path):
    def write(text, name="program.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("arguments", [[], ["a", "--in", "b", "-m", "--", "--packages", "x"]])
def test_a_script_is_run_as_python_runs_it(script, arguments):
    path = script(PROGRAM)
    command = [sys.executable, str(path), *arguments]
    expected = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    done = run("--packages", "torch_scatter", path, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected
    # By a relative name, from another folder
    done = run("--packages", "", path.name, *arguments, cwd=path.parent)
    command[1] = path.name
    expected = subprocess.run(command, capture_output=True, text=True, cwd=path.parent, check=True).stdout
    assert done.stdout == expected


def test_a_module_is_run_as_python_runs_it(script):
    path = script("import sys; print(sys.argv, sys.path[0], __name__, __spec__.name)", "part/inner.py")
    script("", "part/__init__.py")
    arguments = ["part.inner", "a", "--in", "b"]
    command = [sys.executable, "-m", *arguments]
    folder = path.parent.parent
    expected = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True).stdout
    done = run("--packages", "", "-m", *arguments, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("raise SystemExit", 0),
        ("import sys; sys.exit('bad')", 1),
        ("raise ValueError('of the program')", 1),
        ("open('/nowhere/at/all')", 1),
        ("def broken(:", 1),
    ],
)
def test_exit_codes_and_tracebacks_are_those_of_python(script, text, code):
    path = script(text)
    expected = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=60)
    done = run("--packages", "", path)
    assert done.returncode == expected.returncode == code
    assert done.stderr == expected.stderr


def test_absent_packages_have_stand_ins(script):
    path = script("""
import spconv.pytorch as spconv
import torch_scatter
from turnout.compat import spconv as ours
assert spconv.SubMConv3d is ours.SubMConv3d
import torch
assert torch.ones(2).cuda().tolist() == [1, 1]
from pcdet.ops.iou3d_nms import iou3d_nms_cuda
""")
    found = [name for name in ("spconv", "torch_scatter", "pcdet") if not launch._is_absent(name)]
    if found:
        pytest.skip(f"{found[0]} is installed")
    done = run(path)
    assert done.returncode == 1 and "No module named 'pcdet'" in done.stderr.splitlines()[-1]
    script("", "pcdet/__init__.py"), script("", "pcdet/ops/__init__.py")
    script("", "pcdet/ops/iou3d_nms/__init__.py")
    assert (run(path).returncode, run(path).stderr) == (0, "")
    assert "No module named 'spconv'" in run("--packages", "torch_scatter", path).stderr


def test_packages_that_are_there_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mmcv/__init__.py", "mmcv/_ext.py", "pcdet/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise AssertionError('imported')")
    assert not launch._is_absent("mmcv._ext")
    assert not launch._is_absent("turnout") and not launch._is_absent("turnout.compat.spconv")
    assert launch._is_absent("pcdet.ops.iou3d_nms.iou3d_nms_cuda")
    assert launch._is_absent("nobody_has_this.module")


def test_stubs(script):
    path = script("import SharedArray_; from av2_.geometry import se3; print(se3); SharedArray_.attach()")
    done = run("--packages", "", "--stub", "SharedArray_, av2_", path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "NotImplementedError: attach: SharedArray_, av2_ can be imported, but not used: see "
        "turnout run --stub"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "run: program is missing, expected `turnout run SCRIPT` or `turnout run -m MODULE`"),
        (["nowhere.py"], "[Errno 2] No such file or directory"),
        (
            ["--packages", "spcnv", __file__],
            "run: package is 'spcnv', expected one of spconv, torch_scatter,",
        ),
    ],
)
def test_wrong_command_lines(capsys, arguments, message):
    assert cli.main(["run", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"turnout: {message}")
