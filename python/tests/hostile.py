"""Runs programs with objects that lie, raise or never end, each in its own process because it may crash."""

import os
import subprocess
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
START = """
import turnout
from capsules import *

INDEX = Producer(dlpack(memory([0, 1], ctypes.c_int32), [2], code=INT))
ROWS = memory([1, 2, 3, 4])

def call(tokens, index=INDEX, **options):
    return turnout.moe_re_routing_inverse(tokens, index, **options)

def refusal(kind, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        assert type(error) is kind, error
        return str(error)
    raise AssertionError("was accepted")
"""


def run(program, timeout=60):
    """Runs a program that must succeed and print nothing."""
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": HERE},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
