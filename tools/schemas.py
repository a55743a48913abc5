"""Writes docs/schemas.txt: the schemas of torch.ops.turnout, one per line, sorted.

Exported models depend on the schemas, so every change must show up in this file. python tools/schemas.py
writes it; --check only compares.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import turnout.torch  # noqa: F401 (defines the operators)

PATH = Path(__file__).resolve().parent.parent / "docs/schemas.txt"


def schemas() -> list[str]:
    return sorted(str(s) for s in torch._C._jit_get_all_schemas() if s.name.startswith("turnout::"))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare the file without writing it")
    check = parser.parse_args(arguments).check
    recorded = PATH.read_text().splitlines() if PATH.exists() else []
    defined = schemas()
    if not check:
        PATH.write_text("\n".join(defined) + "\n")
    for line in sorted({*recorded, *defined}):
        if (line in recorded) != (line in defined):
            print("-" if line in recorded else "+", line)
    if check and recorded != defined:
        raise SystemExit("docs/schemas.txt differs from torch.ops.turnout: run python tools/schemas.py")
    print(f"{len(defined)} schemas {'are up to date' if recorded == defined else 'written'}")


if __name__ == "__main__":
    main()
