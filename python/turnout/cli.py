"""The shell command ``turnout``: what runs here, which operators there are, whether they are right."""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path

import turnout
from turnout import _core
from turnout.library import __version__, show_config

_LARGEST = 2**63 - 1
_FLAG = "no yes"
# An operator: its name, how it is called, and the rows of its arguments.
Listed = tuple[str, str, Sequence[tuple[str, ...]]]


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


def _call_of(name: str, function: Callable[..., object]) -> str:
    """How the function is called: "voxelize(points, ..., *, max_points=-1, ...)"."""
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    return name + str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def _python() -> Iterator[Listed]:
    for signature in _core.functions():
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
        name = signature["op"]
        yield name, _call_of(name, attrgetter(name)(turnout)), rows


def _torch() -> Iterator[Listed]:
    try:
        import turnout.torch as functions
    except ImportError as error:
        raise ValueError(f"ops: turnout.torch cannot be imported: {error}") from None
    for name in functions.__all__:
        function = getattr(functions, name)
        if not callable(function):
            continue
        parameters = inspect.signature(function).parameters.values()
        yield name, _call_of(name, function), [(p.name, str(p.annotation)) for p in parameters]


def _prototypes(folders: Sequence[str]) -> Iterator[Listed]:
    """Those of the headers, which the package has for this."""
    for path in sorted(path for folder in folders for path in (_HEADERS / folder).glob("*.h")):
        for found in _PROTOTYPE.findall(path.read_text()):
            text = " ".join(found.replace("MLUOP_WIN_API", "").split())
            before, _, arguments = text.partition("(")
            name = before.split()[-1]
            yield name, before + "(", [(line,) for line in re.split(r"(?<=,) ", arguments.strip())]


_HEADERS = Path(__file__).parent / "include" / "turnout"
# From the macro that exports a function to the end of its declaration.
_PROTOTYPE = re.compile(r"^TURNOUT_(?:MLUOP_|ACLNN_)?API ([^;]*?\));", re.MULTILINE)
_LANGUAGES: dict[str, Callable[[], Iterator[Listed]]] = {
    "python": _python,
    "torch": _torch,
    "cpp": lambda: _prototypes(["."]),
    "c": lambda: _prototypes(["mluop", "aclnn"]),
}


def _ops(language: str, name: str | None) -> int:
    listed = [one for one in _LANGUAGES[language]() if name in (None, one[0])]
    if not listed:
        raise ValueError(f"ops: there is no operator {name} for {language}; `turnout ops` lists them")
    for _, call, rows in listed:
        print(call)
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


_COMMANDS: dict[str, tuple[Callable[..., int], str]] = {
    "info": (_info, "version, instruction sets, threads, output cache"),
    "ops": (_ops, "the operators and their arguments"),
    "check": (_check, "run each operator and compare it with its definition in NumPy"),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="turnout", description="Index-driven operators on the CPU.")
    parser.add_argument("--version", action="version", version=f"turnout {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    parsers = {
        name: commands.add_parser(name, help=text, description=text) for name, (_, text) in _COMMANDS.items()
    }
    parsers["ops"].add_argument("name", nargs="?", help="one operator; all of them if there is no name")
    parsers["ops"].add_argument(
        "--language", choices=[*_LANGUAGES], default="python", help="whose names and arguments are shown"
    )
    options = vars(parser.parse_args(arguments))
    command = _COMMANDS[options.pop("command")][0]
    try:
        status = command(**options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
        return 0
    except ValueError as error:  # a variable of the environment, or a name, that cannot be understood
        print(f"turnout: {error}", file=sys.stderr)
        return 2
    return status
