"""Runs the benchmarks of all families and their peers.

Verifies every program first; then the programs of a comparison take turns in bursts of about 20 ms. Prints
tables and writes JSON and SVG to bench/results. --record measures the fixed selection of comparisons that
the documentation publishes (bench/*/recorded.py) and updates the pages.
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
        "points",
        "grouping",
        "roi_pooling",
    )
]
# Modules next to a family's scenes.py that can be run separately.
PARTS = ["moe_dispatch.movements", "sparse_conv.convolutions", "sparse_conv.encoders", "sparse_conv.workers"]
# Time against size and threads, for all families.
SCALING = "scaling"
# Matrix products of all families.
PRODUCTS = "products"
# Calls while other processes keep all cores busy.
BUSY = "busy"
# The serial share of each call, as a table; has its own output.
SERIAL = "serial"
# Many sizes of every operator; has its own arguments.
SWEEP = "sweep"
EXAMPLES = """examples:
  ./dev bench                                 run everything, in about half an hour
  ./dev bench moe_dispatch --seconds 0.5      run one family, quickly
  ./dev bench --record                        update the published numbers: docs/speed.json and the pages
  ./dev bench --pick moe_experts-bf16-512     measure one of these comparisons without recording it
  ./dev bench --against HEAD~5                compare this build with a revision; fail above 5 %
  ./dev bench --against HEAD~5 sparse_conv    the same for one family
  ./dev bench --wheel build/wheels/FILE.whl   compare a wheel, built by another compiler, with this build
  ./dev bench serial                          the serial share of each call, from its log
  ./dev bench sweep                           every operator beside its peers at many sizes; see sweep --help
"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [*FAMILIES, *PARTS, SCALING, PRODUCTS, BUSY]
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(known)} (default: all)")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds per comparison")
    parser.add_argument(
        "--results", type=Path, default=Path("bench/results"), help="folder for JSON and plots"
    )
    parser.add_argument(
        "--against",
        metavar="REV",
        help="a git revision; compares its build with this one and fails if a call is slower by more than "
        "5 %% or runs in only one of the builds",
    )
    parser.add_argument(
        "--wheel",
        metavar="FILE",
        help="a wheel for this Python; compares it with this build and fails if a call of it is "
        "slower by more than 5 %% or runs in only one of the builds",
    )
    parser.add_argument(
        "--record", action="store_true", help="measure the published comparisons and update the documentation"
    )
    parser.add_argument("--pick", metavar="ID", help="measure one published comparison, or those of a family")
    # Set by ./dev: where it has built REV or unpacked the wheel.
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if (arguments.names and (arguments.record or arguments.pick)) or (arguments.record and arguments.pick):
        parser.error("names, --record and --pick exclude each other")
    allowed = FAMILIES if arguments.build else known
    for name in arguments.names:
        if name not in allowed:
            parser.error(f"name is {name!r}, expected one of {', '.join(allowed)}")
    arguments.names = arguments.names or allowed
    return arguments


def main() -> None:
    if sys.argv[1:2] == [SWEEP]:
        import sweep.main

        sys.path.append(str(Path(sys.prefix) / "peers"))
        raise SystemExit(sweep.main.main(sys.argv[2:]) > 0)
    if sys.argv[1:] == [SERIAL]:
        import serial

        return serial.run(FAMILIES)
    arguments = parse()  # before the imports, so that --help works with nothing installed
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
            raise SystemExit(f"--pick is {arguments.pick!r}, expected a published comparison or family")
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
