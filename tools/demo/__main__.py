"""Runs each operator at a realistic size, checks its result against the definition, and times it.

python tools/demo [--pictures FOLDER]; ./dev demo installs and builds first. Needs NumPy, rich and matplotlib,
no PyTorch. With --picture FILE it only draws the picture of the README.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.progress import track
from rich.table import Table

import turnout
from demo import lattice, moe, pictures, points
from demo.job import measure

console = Console(width=126)

JOBS = [
    lambda: moe.moe_dispatch("float32", False),
    lambda: moe.moe_dispatch("float32", True),
    lambda: moe.moe_dispatch("float16", False),
    moe.moe_dispatch_backward,
    moe.moe_locations,
    moe.moe_combine,
    lambda: moe.moe_token_permute(back=False),
    lambda: moe.moe_token_permute(back=True),
    moe.moe_re_routing,
    lambda: points.indice_pairs(subm=True),
    lambda: points.indice_pairs(subm=False),
    lambda: points.convolution(16),
    lambda: points.convolution(64),
    points.voxelize,
    lambda: points.dynamic_scatter(backward=False),
    lambda: points.dynamic_scatter(backward=True),
    points.scatter_sum,
    lambda: lattice.mutual_information(with_gradients=False),
    lambda: lattice.mutual_information(with_gradients=True),
    lattice.rnnt_logprobs,
]


def run() -> int:
    """Prints the table; returns how many results were wrong."""
    table = Table(title="each result is checked against its definition", title_justify="left")
    left = "operator", "size", "checked"
    for column in (*left, "ms", "GB/s", "of a copy", "NumPy / time"):
        table.add_column(column, justify="left" if column in left else "right")
    wrong = 0
    for make in track(JOBS, description="running", console=console, transient=True):
        job = make()
        measured = measure(job)
        wrong += not measured.is_right
        how = "equal bits" if job.tolerance is None else f"to {job.tolerance:.0e}"
        table.add_row(
            job.name,
            job.scale,
            how if measured.is_right else "[red]WRONG[/red]",
            f"{measured.seconds * 1e3:.2f}",
            f"{job.bytes_moved / measured.seconds / 1e9:.1f}",
            f"{measured.copy_seconds / measured.seconds:.0%}",
            f"{measured.plain_seconds / measured.seconds:,.0f}",
        )
    console.print(table)
    console.print(
        "of a copy: the speed beside that of a streamed copy of as many bytes, measured in turn: 100 % is "
        "the bandwidth of this machine.\nNumPy / time: how many times longer the plain NumPy way takes."
    )
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__.partition("\n")[0])
    parser.add_argument("--pictures", type=Path, default=Path("build/demo"), help="folder for the pictures")
    parser.add_argument("--picture", type=Path, help="only draw the picture of the README into this file")
    arguments = parser.parse_args()
    if arguments.picture:
        pictures.draw(arguments.picture)
        return
    turnout.show_config()
    console.print()
    wrong = run()
    pictures.show_occupation(console)
    pictures.show_yard(console)
    path = arguments.pictures / "demo.png"
    pictures.draw(path)
    console.print(f"\nthe same two pictures are in {path}")
    if wrong:
        raise SystemExit(f"{wrong} results differ from their definition")


if __name__ == "__main__":
    main()
