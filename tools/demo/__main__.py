"""Runs operators at realistic sizes, checks and times them; then a trained detector, with pictures.

python tools/demo; ./dev demo installs and builds first. It needs NumPy and rich, and matplotlib for pictures,
but no PyTorch. `python tools/demo --pictures docs/images` only draws the pictures of the README.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.progress import track
from rich.table import Table

import turnout
from demo import detector, lattice, moe, pictures, points
from demo.job import Job, measure

console = Console(width=116, highlight=False)

GROUPS: dict[str, list[Callable[[], Job]]] = {
    "Mixture of experts": [
        lambda: moe.moe_dispatch("float32", False),
        lambda: moe.moe_dispatch("float32", True),
        lambda: moe.moe_dispatch("float16", False),
        moe.moe_dispatch_backward,
        moe.moe_locations,
        moe.moe_combine,
        lambda: moe.moe_token_permute(back=False),
        lambda: moe.moe_token_permute(back=True),
        moe.moe_re_routing,
    ],
    "LiDAR scans": [
        points.voxelize,
        lambda: points.dynamic_scatter(backward=False),
        lambda: points.dynamic_scatter(backward=True),
        lambda: points.indice_pairs(subm=True),
        lambda: points.indice_pairs(subm=False),
        lambda: points.convolution(16),
        lambda: points.convolution(64),
        points.scatter_sum,
    ],
    "Speech": [
        lambda: lattice.mutual_information(with_gradients=False),
        lambda: lattice.mutual_information(with_gradients=True),
        lattice.rnnt_logprobs,
    ],
}


def run() -> int:
    """Prints the table; returns how many results are wrong."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    left = "operator", "size", "result"
    for column in (*left, "ms", "of copy", "vs. NumPy"):
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    wrong = 0
    jobs = [(group, make) for group, makes in GROUPS.items() for make in makes]
    shown = ""
    for group, make in track(jobs, description="Running", console=console, transient=True):
        job = make()
        measured = measure(job)
        wrong += not measured.is_right
        if group != shown:
            table.add_row(f"[bold]{group}[/bold]")
            shown = group
        agreement = "same bits" if job.tolerance is None else f"to {job.tolerance:.0e}"
        table.add_row(
            f"  {job.name}",
            job.scale,
            agreement if measured.is_right else "[red]wrong[/red]",
            f"{measured.seconds * 1e3:.2f}",
            f"{measured.copy_seconds / measured.seconds:.0%}",
            f"{measured.plain_seconds / measured.seconds:,.0f} x",
        )
    console.print(table)
    if wrong:
        console.print(f"\n[red]{wrong} of {len(jobs)} results differ from their definitions.[/red]")
    else:
        console.print(f"\nAll {len(jobs)} results agree with their definitions, to the error shown.")
    console.print(
        "of copy: the speed relative to a copy of as many bytes at full memory bandwidth, timed in turns.\n"
        "vs. NumPy: how many times faster than straightforward Python code that uses NumPy."
    )
    return wrong


def draw(folder: Path) -> None:
    """Draws the pictures, or says what is missing."""
    try:
        paths = pictures.draw(folder)
    except ModuleNotFoundError as error:
        console.print(f"The pictures were not drawn, because {error.name} is not installed.")
        return
    names = f"{', '.join(map(str, paths[:-1]))} and {paths[-1]}"
    console.print(f"Pictures of detected boxes, of a simulated scan and of its voxels: {names}.")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--pictures", type=Path, metavar="FOLDER", help="only draw the pictures, into this folder"
    )
    arguments = parser.parse_args()
    if arguments.pictures:
        draw(arguments.pictures)
        return
    info = turnout._core.info()
    threads = f"{info['threads']} thread{'s' if info['threads'] > 1 else ''}"
    console.print(f"Turnout {info['version']} with {threads} and {info['isa']} instructions.")
    wrong = run()
    console.print(f"\n{detector.summary()}")
    draw(Path("build/demo"))
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
