"""The Python packages of a group of pyproject.toml, and the files requirements/<group>.txt that pin them.

requirements.py <group>           prints the requirements of a group, which ./dev installs
requirements.py <group> <file>    fails if the file does not pin all of them
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import tomllib

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def requirements(group: str) -> list[str]:
    """Includes those of the build and of the package; expands groups such as "turnout[core,torch]"."""
    project = tomllib.loads(PROJECT.read_text())
    extras = project["project"]["optional-dependencies"]

    def expanded(names: list[str]) -> list[str]:
        found = []
        for name in names:
            nested = re.fullmatch(r"turnout\[(.*)\]", name)
            found += (
                [x for inner in nested[1].split(",") for x in expanded(extras[inner])] if nested else [name]
            )
        return found

    return project["build-system"]["requires"] + project["project"]["dependencies"] + expanded(extras[group])


def unpinned(group: str, file: Path) -> list[str]:
    """Requirements of the group that the file does not pin, or pins to an earlier version."""

    def canonical(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    def numbers(version: str) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", version)]

    pins = re.findall(r"^([A-Za-z0-9_.-]+)==([^ \\]+)", file.read_text(), re.MULTILINE)
    versions = {canonical(name): numbers(version) for name, version in pins}
    missing = []
    for requirement in requirements(group):
        name, _, least = requirement.partition(">=")
        version = versions.get(canonical(name))
        if version is None or numbers(least) > version:
            missing.append(requirement)
    return missing


def main() -> int:
    group, *file = sys.argv[1:]
    if not file:
        print("\n".join(requirements(group)))
        return 0
    if missing := unpinned(group, Path(file[0])):
        print(f"{file[0]} does not pin {', '.join(missing)}: run ./dev lock")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
