"""Turns the README into the package's description, for scikit-build-core.

A package index has no files to link to, so pictures are removed and links to files become plain text.
"""

from __future__ import annotations

import re
from pathlib import Path


def description(readme: str) -> str:
    without_pictures = re.sub(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n?", "", readme, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", without_pictures)


def dynamic_metadata(field: str, settings: dict[str, str]) -> dict[str, str]:
    """Called when a wheel or source distribution is built, in the root of the repository."""
    if field != "readme" or settings:
        raise ValueError(f"field is {field} with settings {settings}, expected readme without settings")
    text = description(Path("README.md").read_text(encoding="utf-8"))
    return {"content-type": "text/markdown", "text": text}
