"""The shell command ``turnout``: what runs here, which operators there are, whether they are right."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections.abc import Sequence
from operator import attrgetter

import turnout
from turnout import _core
from turnout.library import __version__, show_config

_LARGEST = 2**63 - 1
_FLAG = "no yes"


def _info() -> int:
    show_config()
    return 0


def _range_of(scalar: _core.ScalarRow) -> str:
    if scalar["values"] == _FLAG:
        return "True or False"
    if scalar["values"]:
        return scalar["values"].replace(" ", " or ")
    return f"{scalar['min']} or more" if scalar["max"] == _LARGEST else f"{scalar['min']} .. {scalar['max']}"


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _call_of(name: str) -> str:
    """How the function is called: "voxelize(points, ..., *, max_points=-1, ...)"."""
    signature = inspect.signature(attrgetter(name)(turnout))
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    return name + str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def _ops() -> int:
    for signature in _core.functions():
        print(_call_of(signature["op"]))
        rows = [
            (a["name"], a["role"] + (", optional" if a["optional"] else ""), a["dims"], a["dtypes"])
            for a in signature["arguments"]
        ]
        rows += [
            (
                s["name"],
                "flag" if s["values"] == _FLAG else "choice" if s["values"] else "integer",
                f"[{s['length']}]" if s["length"] else "",
                _range_of(s),
            )
            for s in signature["scalars"]
        ]
        _print_table(rows)
    return 0


def _check() -> int:
    import numpy as np

    from turnout.check import CHECKS

    failed = 0
    for signature in _core.signatures():
        op = signature["op"]
        try:
            CHECKS[op](np.random.default_rng(0))
            print(f"{op}: ok")
        except Exception as error:
            failed = 1
            print(f"{op}: {error}")
    return failed


_COMMANDS = {
    "info": (_info, "version, instruction sets, threads, output cache"),
    "ops": (_ops, "the operators and their arguments"),
    "check": (_check, "run each operator and compare it with its definition in NumPy"),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="turnout", description="Index-driven operators on the CPU.")
    parser.add_argument("--version", action="version", version=f"turnout {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, (_, text) in _COMMANDS.items():
        commands.add_parser(name, help=text, description=text)
    command = _COMMANDS[parser.parse_args(arguments).command][0]
    try:
        status = command()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
        return 0
    except ValueError as error:  # a variable of the environment that cannot be understood
        print(f"turnout: {error}", file=sys.stderr)
        return 2
    return status
