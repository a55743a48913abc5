"""Compares every operator with what a user would write in torch, at many sizes, on one and two threads.

Half of the sizes are from fixed lists, the others are random. Verifies every result first. Prints the share
of points at which a peer is faster and the worst points, and draws a map. Fails if a result is wrong, or if
a second thread makes a call slower.
"""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """examples:
  ./dev bench sweep                                   all calls, in at most 20 minutes
  ./dev bench sweep scatter_sum moe_combine           only these calls
  ./dev bench sweep --point moe_combine,bf16,rows=1024,columns=1024,choices=2
  ./dev bench sweep --save new.json --before old.json compare with an earlier sweep
  ./dev bench sweep --load new.json --before old.json compare two earlier sweeps
"""


def parse(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev bench sweep",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("calls", nargs="*", help="calls of the table (default: all)")
    parser.add_argument(
        "--calls", type=int, default=800, dest="count", help="sizes to draw; each gives 2 points"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random sizes")
    parser.add_argument("--minutes", type=float, default=20, help="stop after this time")
    parser.add_argument("--point", metavar="NAME", help="repeat one point, and print its times")
    parser.add_argument("--save", metavar="FILE", type=Path, default=Path("bench/results/sweep.json"))
    parser.add_argument("--load", metavar="FILE", type=Path, help="show saved results instead of measuring")
    parser.add_argument("--before", metavar="FILE", type=Path, help="saved results to compare with")
    parser.add_argument(
        "--map", metavar="FILE", type=Path, help="where to draw the map (default: beside --save)"
    )
    return parser.parse_args(given)


def main(given: list[str]) -> int:
    arguments = parse(given)  # before the imports, so that --help works with nothing installed
    import harness
    from sweep import measure, report, table
    from sweep.point import drawn, named

    if arguments.point:
        point = named(arguments.point)
        for m in measure.measure(point, 2 * measure.ROUNDS, 2 * measure.BURST):
            times = f"{m.us:.2f} us, {m.peer} {m.peer_us:.2f} us"
            print(f"{m.threads} threads: {times}: ratio {m.ratio:.2f}")
        return 0
    wrong: list[str] = []
    losses: list[str] = []
    cpu = harness.cpu_name()
    if arguments.load:
        done = report.load(arguments.load)
    else:
        unknown = [name for name in arguments.calls if name not in table.CASES]
        if unknown:
            raise SystemExit(f"call is {unknown[0]!r}, expected one of {', '.join(table.CASES)}")
        cases = [case for name, case in table.CASES.items() if not arguments.calls or name in arguments.calls]
        count = arguments.count if not arguments.calls else max(20 * len(cases), 1)
        points = drawn(count, arguments.seed, cases)
        done, wrong, losses = measure.sweep(points, 60 * arguments.minutes, lambda s: print(s, flush=True))
        report.save(arguments.save, done, {"cpu": cpu}, f"./dev bench sweep {' '.join(given)}")
        print(f"wrote {arguments.save}")
    if arguments.map or not arguments.load:
        target = arguments.map or arguments.save.with_suffix(".svg")
        report.draw(done, target, f"{cpu}, {len(done)} points")
        print(f"wrote {target}")
    print(report.by_case(done))
    print(report.worst(done))
    if arguments.before:
        print(report.compared(report.load(arguments.before), done))
    print(report.summary(done))
    if losses:
        print(f"a second thread makes {len(losses)} calls slower:\n  " + "\n  ".join(losses))
    if wrong:
        print(f"{len(wrong)} wrong results, which were not timed:\n  " + "\n  ".join(wrong))
    return len(losses) + len(wrong)
