"""The compiler of the wheels: clang, libc++ and the symbols of an old glibc, from PyPI's ziglang."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

GLIBC = "2.17"  # the oldest that zig also has for aarch64; manylinux_2_17 is also called manylinux2014

# The functions of libgcc_s.so.1 that throw exceptions, by symbol version.
UNWINDER = {
    "GCC_3.0": [
        *("RaiseException", "ForcedUnwind", "Resume", "DeleteException", "Find_FDE"),
        *("GetIP", "SetIP", "GetGR", "SetGR", "GetLanguageSpecificData", "GetRegionStart"),
        *("GetTextRelBase", "GetDataRelBase"),
    ],
    "GCC_3.3": ["Backtrace", "FindEnclosingFunction", "GetCFA", "Resume_or_Rethrow"],
    "GCC_4.2.0": ["GetIPInfo"],
}


def write_compilers(folder: Path, machine: str) -> None:
    """Writes the programs cc, c++ and ar for that machine, and a libgcc_s.so.1 to link with; cmake/zig.cmake
    uses them."""
    zig = Path(importlib.util.find_spec("ziglang").origin).with_name("zig")
    folder.mkdir(parents=True, exist_ok=True)
    target = f"-target {machine}-linux-gnu.{GLIBC}"
    for name, words in {"cc": f"cc {target}", "c++": f"c++ {target}", "ar": "ar"}.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{zig}" {words} "$@"\n')
        program.chmod(0o755)
    write_unwinder(folder)


def write_unwinder(folder: Path) -> None:
    """Writes a libgcc_s.so.1 that has only the names, so that a module uses the system's.

    Otherwise zig links LLVM's libunwind into the module. When the interpreter exits, glibc ends Python's
    threads with libgcc's unwinder, which passes its own data to the module's functions; libunwind cannot read
    it.
    """
    source, versions = folder / "unwinder.c", folder / "unwinder.map"
    names = [name for group in UNWINDER.values() for name in group]
    source.write_text("".join(f"void _Unwind_{name}(void) {{}}\n" for name in names))
    versions.write_text(
        "".join(
            f"{version} {{ global: {' '.join(f'_Unwind_{name};' for name in group)} }};\n"
            for version, group in UNWINDER.items()
        )
    )
    library = folder / "libgcc_s.so.1"
    options = ["-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{library.name},--version-script={versions}"]
    subprocess.check_call([folder / "cc", *options, source, "-o", library])
