"""The compiler of the wheels: clang, libc++ and the symbols of an old glibc, by PyPI's ziglang."""

from __future__ import annotations

import importlib.util
from pathlib import Path

GLIBC = "2.17"  # the oldest that zig has for aarch64 too; manylinux_2_17 is also called manylinux2014


def write_compilers(folder: Path, machine: str) -> None:
    """Writes the programs cc, c++ and ar for that machine, which cmake/zig.cmake uses."""
    zig = Path(importlib.util.find_spec("ziglang").origin).with_name("zig")
    folder.mkdir(parents=True, exist_ok=True)
    target = f"-target {machine}-linux-gnu.{GLIBC}"
    for name, words in {"cc": f"cc {target}", "c++": f"c++ {target}", "ar": "ar"}.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{zig}" {words} "$@"\n')
        program.chmod(0o755)
