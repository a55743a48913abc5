"""``import turnout`` needs NumPy alone, is quiet, and loads neither torch nor NumPy by itself."""

import subprocess
import sys
import textwrap


def run(program):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120
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


def test_version_and_names():
    import turnout

    assert turnout.__version__.count(".") == 2
    assert all(hasattr(turnout, name) for name in turnout.__all__)
