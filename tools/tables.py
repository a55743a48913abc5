"""Generates the argument tables of the families' READMEs, and the list of operators, from the registry.

python tools/tables.py writes them between the markers of src/*/README.md and docs/operators.md; --check only
compares.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import turnout.torch
from turnout import _core
from turnout.torch.registration import has_gradient, is_constant

ROOT = Path(__file__).resolve().parent.parent
MARKER = re.compile(r"<!-- arguments of (\w+) -->.*?<!-- end -->", re.DOTALL)
LIST_MARKER = re.compile(r"<!-- operators -->.*?<!-- end -->", re.DOTALL)


# Names of dtypes and of the values of a flag, by language.
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


# The Signatures of an operator and of a C function that runs it, whose names differ.
RENAMES = re.compile(r"Renames \w+\(\s*k(\w+),\s*kMluOp(\w+),")


def c_functions(family: str) -> dict[str, list[str]]:
    """The C functions of a family, by the operator that they run."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src" / family).glob("c_*.cc")):
        if path.name.endswith("_test.cc"):
            continue
        text = path.read_text()
        for signature, name in RENAMES.findall(text):
            op = re.sub(r"(?<=.)(?=[A-Z])", "_", signature).lower()
            found.setdefault(op, []).append(f"mluOp{name}")
        # A function may run several operators.
        parts = re.split(r"^mluOpStatus_t (mluOp\w+)\(", text, flags=re.MULTILINE)
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            for row in _core.schemas():
                if re.search(rf"\b{row['op']}\(", body) and name not in found.get(row["op"], []):
                    found.setdefault(row["op"], []).append(name)
    return found


def summary(op: str) -> str:
    """The first line of a function's documentation; voxelize_hard has that of voxelize."""
    for name in (op, op.rpartition("_")[0]):
        for module in (turnout, turnout.torch):
            if function := getattr(module, name, None):
                line = inspect.getdoc(function).splitlines()[0]
                line = re.sub(r":func:`(?:turnout\.)?(\w+)`", r"`\1`", line).replace("``", "`")
                return line.rstrip(".")
    raise SystemExit(f"{op} has no documented function")


def operator_list() -> str:
    """A row per operator: what it does, its gradient in torch, and its C functions."""
    rows = ["| operator | what it does | gradient in torch | C |", "|---|---|---|---|"]
    listed = {row["op"]: row for row in _core.schemas()}
    families = sorted(path.parent.name for path in ROOT.glob("src/*/operators.cc"))
    if not families:
        raise SystemExit("no src/*/operators.cc was found")
    for family in families:
        text = (ROOT / "src" / family / "operators.cc").read_text()
        in_c = c_functions(family)
        for op in (op for op in listed if re.search(rf"op<&(?:\w+::)?{op}>", text)):
            is_floating = any(result["is_floating"] for result in listed[op]["results"])
            none = (
                "results are constants"
                if is_constant(op)
                else "no"
                if is_floating
                else "results are integers"
            )
            gradient = "yes" if has_gradient(op) else none
            names = ", ".join(f"`{name}`" for name in in_c.get(op, []))
            rows.append(
                f"| [`{op}`](../src/{family}/README.md) | {summary(op)} | {gradient} |"
                + (f" {names} |" if names else " |")
            )
    return "\n".join(rows)


def main() -> None:
    signatures = {signature["op"]: signature for signature in _core.signatures()}
    shown, stale = set(), []
    for path in [*sorted(ROOT.glob("src/*/README.md")), ROOT / "docs/operators.md"]:
        text = path.read_text()
        shown |= set(MARKER.findall(text))
        fresh = MARKER.sub(
            lambda m: f"<!-- arguments of {m[1]} -->\n{table(signatures[m[1]])}\n<!-- end -->", text
        )
        if LIST_MARKER.search(fresh):
            new = f"<!-- operators -->\n{operator_list()}\n<!-- end -->"
            fresh = LIST_MARKER.sub(lambda _: new, fresh)  # noqa: B023 (called at once)
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
