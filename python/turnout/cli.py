"""The shell command ``turnout``: shows the configuration, lists, checks, times and replays operators.

It also runs programs with stand-ins for packages that are not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path

import turnout
from turnout import _core
from turnout.settings import __version__, show_config

_FLAG = "no yes"
# An operator: its name, its call, and one row per argument.
Listed = tuple[str, str, Sequence[tuple[str, ...]]]


def _info() -> int:
    show_config()
    return 0


def _range_of(scalar: _core.ScalarRow) -> str:
    if scalar["values"] == _FLAG:
        return "True or False"
    if scalar["values"]:
        return scalar["values"].replace(" ", " or ")
    return scalar["range"]


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _call_of(name: str, function: Callable[..., object]) -> str:
    """Formats the function's signature: "voxelize(points, ..., *, max_points=-1, ...)"."""
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
    """Yields the functions declared in the headers that the package ships."""
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
        raise ValueError(f"ops: name is {name}, expected an operator of {language}; `turnout ops` lists them")
    for _, call, rows in listed:
        print(call)
        _print_table(rows)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    import numpy as np

    from turnout import terminal
    from turnout.check import CHECKS, report
    from turnout.check.scales import SCALES

    operators = [signature["op"] for signature in _core.signatures()]
    chosen = set(arguments.operators or operators)
    if unknown := sorted(chosen - set(operators)):
        raise ValueError(f"check: operator is {unknown[0]!r}, expected one of {', '.join(operators)}")
    failed = set()
    for op in operators:
        if op not in chosen:
            continue
        try:
            CHECKS[op](np.random.default_rng(0))
            print(f"{op}: ok")
        except Exception as error:
            failed.add(op)
            print(f"{op}: {error}")
    if arguments.quick:
        return _conclude(chosen, failed)
    cases = [case for case in SCALES if case.op in chosen]
    rows = [row for case in terminal.track(cases, "checking") for row in report.check_case(case)]
    print()
    terminal.print_table(report.COLUMNS, [row.cells() for row in rows], bad=report.FAILED)
    if arguments.report is not None:
        path = Path(arguments.report)
        path.write_text(report.markdown(rows, path))
        print(f"wrote {path}")
    return _conclude(chosen, failed | {row.case.op for row in rows if not row.passed})


def _conclude(checked: set[str], failed: set[str]) -> int:
    """Prints the result of a check last, because its output is longer than a screen."""
    said = f"{len(failed)} failed: {', '.join(sorted(failed))}" if failed else "all passed"
    print(f"operators checked: {len(checked)}; {said}")
    return 1 if failed else 0


def _bench(arguments: argparse.Namespace) -> int:
    from turnout import bench

    if arguments.peers and importlib.util.find_spec("torch") is None:
        raise ValueError("--peers needs torch, which is not installed")
    results = bench.run(arguments.family, peers=arguments.peers)
    if arguments.json:
        bench.print_json(results)
    else:
        bench.print_table(results, peers=arguments.peers)
    if arguments.plot is not None:
        bench.plot(results, Path(arguments.plot))
        print(f"wrote {arguments.plot}", file=sys.stderr)
    return 0


def _run(arguments: argparse.Namespace) -> int | Callable[[], int]:
    if not arguments.program:
        raise ValueError("run: program is missing, expected `turnout run SCRIPT` or `turnout run -m MODULE`")
    name, *rest = arguments.program
    from turnout import launch

    run = launch.program(name, rest, is_module=arguments.module)
    launch.install(_names(arguments.packages), _names(arguments.stub) or ())
    return run


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _call(arguments: argparse.Namespace) -> int:
    from turnout import cases

    for line in cases.run(arguments.op, arguments.source, arguments.target):
        print(line)
    return 0


def _replay(arguments: argparse.Namespace) -> int:
    from turnout import cases

    failed = 0
    for path in arguments.cases:
        done = cases.replay(path)
        print(done.call.describe())
        here = _core.info()
        for what in ("version", "isa"):
            recorded = getattr(done.call, what)
            if recorded not in ("", "best", here[what]):
                print(f"  note: recorded with {what} {recorded}, this is {here[what]}")
        for line in done.lines:
            print(f"  {line}")
        if done.same is not None:
            print(f"  {'as recorded' if done.same else 'NOT as recorded'}, {done.seconds * 1e3:.3f} ms")
            failed |= not done.same
    return int(failed)


_EXAMPLES = """examples:
  turnout info                                      show version, instruction sets and threads
  turnout ops | less                                list the operators and their arguments
  turnout check --report report.md                  print the test report and write it as Markdown
  turnout check --quick get_indice_pairs            check one operator, on small arrays only
  turnout bench moe_dispatch --peers                time one family, and torch for comparison
  turnout run tools/train.py --cfg_file a.yaml      run a program whose CUDA packages are not installed
  turnout run --packages spconv,mmcv -m my.program  run a module, with these stand-ins only
  turnout call moe_re_routing --in a.npz --out b.npz
                                                    call an operator with the arrays of a file
  TURNOUT_RECORD=calls python train.py              record every call
  TURNOUT_RECORD=on_error:calls python train.py     record the calls that fail
  turnout replay calls/*                            run recorded calls again and compare the results

exit codes: 0 success; 1 a check failed, or a replayed call differs from its recording; 2 invalid command
line, environment or file, or a rejected call; `turnout run` exits with the code of the program
"""


def _add_ops(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="one operator (default: all)")
    parser.add_argument(
        "--language", choices=[*_LANGUAGES], default="python", help="the interface to list (default: python)"
    )


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("operators", nargs="*", metavar="operator", help="operators to check (default: all)")
    parser.add_argument("--quick", action="store_true", help="check small arrays only, not the named scales")
    parser.add_argument(
        "--report",
        nargs="?",
        const="turnout-report.md",
        metavar="FILE",
        help="write the test report as Markdown (default: turnout-report.md)",
    )


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("family", nargs="?", help="one family, such as moe_dispatch (default: all)")
    parser.add_argument("--peers", action="store_true", help="also time torch")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--plot", nargs="?", const="turnout-bench.svg", metavar="FILE", help="write a plot as SVG"
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    from turnout.launch import NAMED_ONLY, PACKAGES

    parser.usage = "turnout run [--packages NAMES] [--stub NAMES] (SCRIPT | -m MODULE) [ARGUMENT ...]"
    parser.add_argument(
        "--packages",
        metavar="NAMES",
        help="install the stand-ins of these packages, separated by commas (default: of those that are "
        f"absent of {', '.join(PACKAGES)}); also {', '.join(NAMED_ONLY)}",
    )
    parser.add_argument(
        "--stub",
        metavar="NAMES",
        help="packages that are absent, that the program imports and does not use, such as SharedArray,av2",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m does")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="a script or a module, and its arguments")


def _add_call(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", help="a function that `turnout ops` lists")
    parser.add_argument(
        "--in", dest="source", required=True, metavar="FILE", help=".npz with arrays and scalars, by name"
    )
    parser.add_argument("--out", dest="target", required=True, metavar="FILE", help=".npz for the results")


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cases", nargs="+", metavar="case", help="a folder that TURNOUT_RECORD wrote")


# Maps a name to its function, a one-line description, and a function that adds its arguments. A command
# returns its exit code, or a function that runs a program and returns the program's.
_Command = Callable[[argparse.Namespace], int | Callable[[], int]]
_COMMANDS: dict[str, tuple[_Command, str, Callable[[argparse.ArgumentParser], None] | None]] = {
    "info": (lambda _: _info(), "show version, instruction sets, threads and output cache", None),
    "ops": (lambda chosen: _ops(chosen.language, chosen.name), "list operators and arguments", _add_ops),
    "check": (_check, "compare each operator with its definition in NumPy, and time it", _add_check),
    "bench": (_bench, "time the operators and compare them with this machine's limits", _add_bench),
    "run": (_run, "run a program with stand-ins for packages that are not installed", _add_run),
    "call": (_call, "call an operator with the arrays of a file", _add_call),
    "replay": (_replay, "run recorded calls again and compare the results", _add_replay),
}


def main(arguments: list[str] | None = None) -> int:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="turnout",
        description="Index-driven operators on the CPU.",
        epilog=_EXAMPLES,
        formatter_class=layout,
    )
    parser.add_argument("--version", action="version", version=f"turnout {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, (_, text, add_arguments) in _COMMANDS.items():
        one = commands.add_parser(
            name, help=text, description=text, epilog=_examples_of(name), formatter_class=layout
        )
        if add_arguments is not None:
            add_arguments(one)
    chosen = parser.parse_args(arguments)
    try:
        status = _COMMANDS[chosen.command][0](chosen)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the exit flushes stdout once more
        return 0
    except (ValueError, NotImplementedError, OSError) as error:  # environment, file or argument
        print(f"turnout: {error}", file=sys.stderr)
        return 2
    return status if isinstance(status, int) else status()


def _examples_of(command: str) -> str:
    lines = [line for line in _EXAMPLES.splitlines() if f"turnout {command}" in line]
    return "\n".join(["examples:", *lines])
