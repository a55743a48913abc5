"""``import turnout`` needs only NumPy, prints nothing, and imports neither torch nor NumPy itself."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap

import pytest


def run(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_without_torch():
    done = run(
        """
        import sys
        sys.modules["torch"] = None  # importing it now fails
        import numpy as np
        import turnout
        ones = np.ones(3, np.float32)
        slots = np.arange(3)
        result = turnout.moe_dispatch_forward(ones, slots * 0, slots, np.eye(3, dtype=np.float32), 3, 1)
        assert (result == np.eye(3)).all()
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_import_is_light():
    done = run(
        """
        import sys
        import turnout
        assert not {"torch", "numpy"} & set(sys.modules)
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_symbols_are_private(tmp_path):
    """A libturnout of another version that is loaded first does not interfere."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    other = tmp_path / "other.so"
    mangled = [
        "_ZN7turnout15default_contextEv",
        "_ZN7turnout7ContextC1ERKNS_7OptionsE",
        "_ZNK7turnout7Context3isaEv",
        "_ZNK7turnout7Context7threadsEv",
    ]
    source = "".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name in mangled)
    compiler = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(other)]
    subprocess.run(compiler, input=source, text=True, check=True)
    program = """
        import ctypes, os
        ctypes.CDLL(os.environ["OTHER"], ctypes.RTLD_GLOBAL)
        import numpy as np
        import turnout
        ones = np.ones(3, np.float32)
        slots = np.arange(3)
        turnout.moe_dispatch_forward(ones, slots * 0, slots, np.eye(3, dtype=np.float32), 3, 1)
        """
    for preload in ("", str(other)):
        done = run(program, OTHER=str(other), LD_PRELOAD=preload)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_version_and_names():
    import turnout

    assert turnout.__version__.count(".") == 2
    assert all(hasattr(turnout, name) for name in turnout.__all__)


def test_stubs_are_complete():
    """_core.pyi has the hand-written functions; the others are in the registry."""
    import turnout
    from turnout import _core

    stubs = ast.parse((pathlib.Path(turnout.__file__).parent / "_core.pyi").read_text()).body
    functions = {stub.name: stub.args for stub in stubs if isinstance(stub, ast.FunctionDef)}
    assert functions.pop("__getattr__")
    defined = {name: value for name, value in vars(_core).items() if not name.startswith("_")}
    by_hand = {name for name, value in defined.items() if hasattr(value, "__nb_signature__")}
    assert set(functions) == by_hand
    for name, arguments in functions.items():
        bound = re.findall(r"\barg\d*: ", getattr(_core, name).__nb_signature__[0][0])
        assert len(arguments.posonlyargs) == len(bound), name
    derived = {name for name, value in defined.items() if callable(value) and not isinstance(value, type)}
    assert derived - by_hand == {row["op"] for row in _core.schemas()}


def test_files_that_import_torch_are_named_for_it():
    """The run without torch skips files by that name."""
    for path in pathlib.Path(__file__).parent.glob("*.py"):
        if path.name.startswith(("test_torch", "test_examples")) or not path.name.startswith("test_"):
            continue
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [n for n in names if n.startswith(("torch", "turnout.torch", "test_torch"))], path.name


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python cannot be without the GIL"
)
def test_import_fails_without_the_gil():
    done = run("import turnout", PYTHON_GIL="0")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: turnout: the GIL is off (PYTHON_GIL=0 or -X gil=0), expected PYTHON_GIL=1 or neither"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON_GIL"}
    program = "import sys, turnout; print(sys._is_gil_enabled())"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "RuntimeWarning" in done.stderr  # Python warns that it has turned the GIL on
