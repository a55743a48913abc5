"""Builds the documentation: python tools/docs/build.py. Warnings are errors; nothing is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import links
from stage import ROOT, Stage

OUTPUT = ROOT / "build/docs"


def main() -> None:
    stage = Stage(OUTPUT / "source")
    stage.run()
    arguments = ["-b", "html", "-W", "--keep-going", "-q", "-d", str(OUTPUT / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *arguments, str(OUTPUT / "source"), str(OUTPUT / "html")]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "tools")})
    if done.returncode:
        shutil.rmtree(OUTPUT / "doctrees", ignore_errors=True)  # so that the next run repeats the warnings
        raise SystemExit(done.returncode)
    count = links.check(OUTPUT / "html")
    print(f"documentation: {OUTPUT / 'html' / 'index.html'} ({count} links checked)")
    if stage.shortened:
        names = ", ".join(sorted(path.as_posix() for path in stage.shortened))
        print(f"PyTorch is not installed: {len(stage.shortened)} pages without PyTorch parts ({names})")


if __name__ == "__main__":
    main()
