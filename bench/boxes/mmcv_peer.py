"""The operators of mmcv for the CPU, compiled from its source distribution.

`python bench/boxes/mmcv_peer.py` compiles them into .venv/peers/mmcv_boxes, which takes some minutes. The
benchmarks leave them out if that has not been done.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

VERSION = "2.1.0"
FOLDER = Path(sys.prefix) / "peers/mmcv_boxes"
SOURCES = ["box_iou_rotated", "nms_rotated", "nms", "points_in_boxes"]


def load(verbose: bool = False) -> ModuleType:
    from torch.utils import cpp_extension

    csrc = FOLDER / f"mmcv-{VERSION}/mmcv/ops/csrc"
    if not csrc.exists():
        _unpack()
    return cpp_extension.load(
        "mmcv_boxes",
        [str(Path(__file__).parent / "mmcv_binding.cc"), *_sources(csrc / "pytorch")],
        extra_include_paths=[str(csrc), str(csrc / "common"), str(csrc / "pytorch")],
        extra_cflags=["-O3", "-w"],
        build_directory=str(FOLDER),
        verbose=verbose,
    )


def _sources(folder: Path) -> list[str]:
    """The files to compile. Two files of mmcv may have one name, so each is included by one with its own."""
    made = []
    for name in SOURCES:
        for prefix in ("", "cpu/"):
            file = FOLDER / f"{prefix.strip('/')}_{name}.cc"
            text = f'#include "{folder}/{prefix}{name}.cpp"\n'
            if not file.exists() or file.read_text() != text:
                file.write_text(text)
            made.append(str(file))
    return made


def find() -> ModuleType | None:
    """The module, if it was compiled."""
    return load() if (FOLDER / "mmcv_boxes.so").exists() else None


def _unpack() -> None:
    """Downloads the source distribution with pip."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    options = ["--quiet", "--no-deps", "--no-binary=:all:", "--no-build-isolation", "--dest", str(FOLDER)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, f"mmcv=={VERSION}"], check=True)
    with tarfile.open(FOLDER / f"mmcv-{VERSION}.tar.gz") as archive:
        archive.extractall(FOLDER, filter="data")


if __name__ == "__main__":
    load(verbose=True)
