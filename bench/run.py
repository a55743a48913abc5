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
# Parts of a family that can be run alone: modules beside its scenes.py, which has the rest.
PARTS = ["moe_dispatch.movements", "sparse_conv.convolutions", "sparse_conv.encoders", "sparse_conv.workers"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    known = FAMILIES + PARTS
    parser.add_argument("names", nargs="*", default=known, help=f"some of {', '.join(known)}")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each comparison")
    parser.add_argument("--results", type=Path, default=Path("bench/results"), help="where JSON and plots go")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in known:
            parser.error(f"there is no {name!r}; there is {', '.join(known)}")
        module = importlib.import_module(name if name in PARTS else f"{name}.scenes")
        comparisons = module.run(arguments.seconds)
        path = arguments.results / f"{name}.json"
        harness.record(comparisons, path)
        plot.plot(path)


if __name__ == "__main__":
    main()
