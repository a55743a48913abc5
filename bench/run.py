"""Runs the benchmarks of the families and of their peers: python bench/run.py [family ...] [--seconds S]."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import harness
import plot

FAMILIES = [
    *("moe_dispatch", "moe_re_routing", "sparse_conv", "mutual_information", "dynamic_scatter", "rnnt_loss")
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=FAMILIES, help=f"some of {', '.join(FAMILIES)}")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each comparison")
    parser.add_argument("--results", type=Path, default=Path("bench/results"), help="where JSON and plots go")
    arguments = parser.parse_args()
    for family in arguments.families:
        if family not in FAMILIES:
            parser.error(f"no family {family!r}; there is {', '.join(FAMILIES)}")
        scenes = importlib.import_module(f"{family}.scenes")
        comparisons = scenes.run(arguments.seconds)
        path = arguments.results / f"{family}.json"
        harness.record(comparisons, path)
        plot.plot(path)


if __name__ == "__main__":
    main()
