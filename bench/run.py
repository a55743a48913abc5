"""Runs the benchmarks of the families and of their peers.

Every program is verified first, then all of a comparison take turns in bursts of about 20 ms. Tables are
printed; numbers and plots go to bench/results as JSON and SVG. --record measures the fixed selection of
comparisons that the documentation publishes (bench/*/recorded.py) and updates the pages.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

FAMILIES = [
    *(
        "moe_dispatch",
        "moe_re_routing",
        "moe_experts",
        "sparse_conv",
        "mutual_information",
        "dynamic_scatter",
        "rnnt_loss",
        "boxes",
    )
]
# Parts of a family that can be run alone: modules beside its scenes.py, which has the rest.
PARTS = ["moe_dispatch.movements", "sparse_conv.convolutions", "sparse_conv.encoders", "sparse_conv.workers"]
# Time over size and threads, of all families.
SCALING = "scaling"
# Beside processes that keep all cores busy.
BUSY = "busy"
EXAMPLES = """examples:
  ./dev bench                                 everything; takes about half an hour
  ./dev bench moe_dispatch --seconds 0.5      one family, quickly
  ./dev bench --record                        what the documentation publishes: docs/speed.json and the pages
  ./dev bench --pick moe_experts-bf16-512     one of these comparisons, without recording it
  ./dev bench --against HEAD~5                this build and that revision; fails above 5 %
  ./dev bench --against HEAD~5 sparse_conv    the same for one family
  ./dev bench --wheel build/wheels/FILE.whl   a wheel, which another compiler has made, beside this build
"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [*FAMILIES, *PARTS, SCALING, BUSY]
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(known)}; default: all")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each comparison")
    parser.add_argument("--results", type=Path, default=Path("bench/results"), help="where JSON and plots go")
    parser.add_argument(
        "--against",
        metavar="REV",
        help="a git revision; compares its build with this one, in turns, and fails if a call is slower by "
        "more than 5 %% or runs in one of the builds only",
    )
    parser.add_argument(
        "--wheel",
        metavar="FILE",
        help="a wheel for this Python; compares it with this build, in turns, and fails if a call of it is "
        "slower by more than 5 %% or runs in one of the builds only",
    )
    parser.add_argument(
        "--record", action="store_true", help="measure what the documentation publishes and update it"
    )
    parser.add_argument("--pick", metavar="ID", help="measure one published comparison, or those of a family")
    # ./dev says where it has built REV or unpacked the wheel.
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if (arguments.names and (arguments.record or arguments.pick)) or (arguments.record and arguments.pick):
        parser.error("give either names, or --record, which measures all published comparisons, or --pick")
    allowed = FAMILIES if arguments.build else known
    for name in arguments.names:
        if name not in allowed:
            parser.error(f"there is no {name!r}; there is {', '.join(allowed)}")
    arguments.names = arguments.names or allowed
    return arguments


def main() -> None:
    arguments = parse()  # before the imports, so that --help needs nothing installed
    if arguments.build:
        import against

        before, after = (None, arguments.build) if arguments.wheel else (arguments.build, None)
        raise SystemExit(against.compare(before, after, arguments.names, arguments.seconds) > 0)
    sys.path.append(str(Path(sys.prefix) / "peers"))  # last, so that .venv's own packages take precedence
    if arguments.record or arguments.pick:
        import recorded

        if arguments.record:
            sys.path.append("tools")
            import speed

            recorded.record(
                FAMILIES, arguments.seconds, f"./dev bench --record --seconds {arguments.seconds:g}"
            )
            speed.main([])
        elif not recorded.run(FAMILIES, arguments.pick, arguments.seconds):
            raise SystemExit(f"no published comparison has the id {arguments.pick!r}")
        return
    import harness
    import plot

    for name in arguments.names:
        module = importlib.import_module(f"{name}.scenes" if name in FAMILIES else name)
        comparisons = module.run(arguments.seconds)
        path = arguments.results / f"{name}.json"
        harness.record(comparisons, path, f"./dev bench {name} --seconds {arguments.seconds:g}")
        plot.plot(path)


if __name__ == "__main__":
    main()
