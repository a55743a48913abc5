"""The operators of mmcv for the CPU, compiled from its source distribution.

`python bench/boxes/mmcv_peer.py` compiles them into .venv/peers/mmcv_boxes, which takes some minutes. The
benchmarks leave them out if that has not been done.
"""

from __future__ import annotations

import io
import re
import sys
import tarfile
import urllib.parse
import urllib.request
from pathlib import Path
from types import ModuleType

VERSION = "2.1.0"
INDEX = "https://pypi.org/simple/mmcv/"
FOLDER = Path(sys.prefix) / "peers/mmcv_boxes"
SOURCES = ["box_iou_rotated", "nms_rotated", "nms", "points_in_boxes"]


def load(verbose: bool = False) -> ModuleType:
    from torch.utils import cpp_extension

    csrc = FOLDER / f"mmcv-{VERSION}/mmcv/ops/csrc"
    if not csrc.exists():
        _unpack()
    FOLDER.mkdir(parents=True, exist_ok=True)
    return cpp_extension.load(
        "mmcv_boxes",
        [
            str(Path(__file__).parent / "mmcv_binding.cc"),
            *(str(csrc / f"pytorch/{folder}{name}.cpp") for name in SOURCES for folder in ("", "cpu/")),
        ],
        extra_include_paths=[str(csrc), str(csrc / "common"), str(csrc / "pytorch")],
        extra_cflags=["-O3", "-w"],
        build_directory=str(FOLDER),
        verbose=verbose,
    )


def find() -> ModuleType | None:
    """The module, if it was compiled."""
    return load() if (FOLDER / "mmcv_boxes.so").exists() else None


def _unpack() -> None:
    with urllib.request.urlopen(INDEX) as page:
        links = re.findall(r'href="([^"]+)"', page.read().decode())
    (link,) = [one for one in links if f"/mmcv-{VERSION}.tar.gz" in one]
    with urllib.request.urlopen(urllib.parse.urljoin(INDEX, link)) as file:
        content = io.BytesIO(file.read())
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=content) as archive:
        archive.extractall(FOLDER, filter="data")


if __name__ == "__main__":
    load(verbose=True)
