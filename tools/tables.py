"""Generates the argument tables of the families' READMEs from the signatures that check every call.

python tools/tables.py writes them between the markers of src/*/README.md; --check only compares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from turnout import _core

ROOT = Path(__file__).resolve().parent.parent
MARKER = re.compile(r"<!-- arguments of (\w+) -->.*?<!-- end -->", re.DOTALL)


# Names of the dtypes and of the values of a flag, by language.
CPP: dict[str, str] = {}
PYTHON = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8_e4m3fn": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f8_e8m0": "float8_e8m0fnu",
    **{f"{kind[0]}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}


def scalar_range(scalar: dict, words: dict[str, str]) -> str:
    if scalar["values"]:
        if words and scalar["values"] == "no yes":
            return "True or False"
        return ", ".join(f"{i} {name}" for i, name in enumerate(scalar["values"].split()))
    return scalar["range"]


def rows(signature: dict, words: dict[str, str]) -> list[tuple[str, str, str, str]]:
    """A header and a row per argument: name, role, shape, dtype or range."""
    found = [("argument", "", "shape", "dtype")]
    for argument in signature["arguments"]:
        role = argument["role"] + (", optional" if argument["optional"] else "")
        dtypes = re.sub(r"\w+", lambda word: words.get(word[0], word[0]), argument["dtypes"])
        found.append((f"`{argument['name']}`", role, argument["dims"], dtypes))
    for scalar in signature["scalars"]:
        shape = f"[{scalar['length']}]" if scalar["length"] else ""
        found.append((f"`{scalar['name']}`", "scalar", shape, scalar_range(scalar, words)))
    return found


def table(signature: dict) -> str:
    header, *body = ["| " + " | ".join(row) + " |" for row in rows(signature, CPP)]
    return "\n".join([header.replace("|  |", "| |"), "|---|---|---|---|", *body])


def main() -> None:
    signatures = {signature["op"]: signature for signature in _core.signatures()}
    shown, stale = set(), []
    for path in sorted(ROOT.glob("src/*/README.md")):
        text = path.read_text()
        shown |= set(MARKER.findall(text))
        fresh = MARKER.sub(
            lambda m: f"<!-- arguments of {m[1]} -->\n{table(signatures[m[1]])}\n<!-- end -->", text
        )
        if fresh != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv:
                path.write_text(fresh)
    missing = sorted(set(signatures) - shown)
    if missing:
        raise SystemExit(f"no README has the table of {', '.join(missing)}")
    if stale and "--check" in sys.argv:
        raise SystemExit(f"tables differ from the signatures in {', '.join(stale)}: run tools/tables.py")
    print(f"{len(shown)} tables, {len(stale)} {'stale' if '--check' in sys.argv else 'written'}")


if __name__ == "__main__":
    main()
