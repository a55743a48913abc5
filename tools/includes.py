"""Checks the #include lines of src/: the order of the layers, and which files may include which library.

    core <- simd <- runtime <- indices <- rows, matrix <- a family <- its c_*.cc, aclnn.cc, *python.cc

A layer may include itself and the layers before it; rows and matrix do not include each other. A family may
not include another family.
"""

import re
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"

BELOW_FAMILIES = ["core", "simd", "runtime", "indices", "rows", "matrix"]
MAY_INCLUDE = {
    "core": {"core"},
    "simd": {"core", "simd"},
    "runtime": {"core", "simd", "runtime"},
    "indices": {"core", "simd", "runtime", "indices"},
    "rows": {"core", "simd", "runtime", "indices", "rows"},
    "matrix": {"core", "simd", "runtime", "indices", "matrix"},
    "registry": {"core", "registry"},
    "bindings": {"core", "simd", "runtime", "bindings", "registry"},  # shared by all bindings
    "bindings/mluop": {"core", "simd", "runtime", "bindings", "bindings/mluop"},
    "bindings/aclnn": {"core", "simd", "runtime", "bindings", "bindings/aclnn"},
    "bindings/python": {"core", "simd", "runtime", "bindings", "bindings/python", "registry"},
}
FAMILIES = {path.parent.name for path in SRC.glob("*/operators.cc")}
assert FAMILIES, "no src/*/operators.cc was found"

# Headers, by pattern, that only the given files may include.
LIBRARIES = {
    r"<hwy/": ("Highway", r"simd/"),
    r"<nanobind/|<Python\.h>": ("nanobind and Python", r"bindings/python/|\w+/(\w+_)?python\.cc$"),
    r"<(thread|condition_variable|pthread\.h)>": ("a thread library", r"runtime/"),
    r'"turnout/mluop/': ("the C interface of MLU-OPS", r"bindings/mluop/|\w+/c_\w+\.(cc|h)$"),
    r'"turnout/aclnn/': ("the C interface of CANN", r"bindings/aclnn/|\w+/aclnn\.cc$"),
}
TEST = re.compile(r"test\.cc$|/fuzz\.cc$|_cases?\.h$|/reference\.h$")


def layer_of(name: str) -> str:
    parts = name.split("/")
    if parts[0] == "bindings":
        return "/".join(parts[:-1])
    return parts[0].removesuffix(".h").removesuffix(".cc")


def allowed(name: str) -> set[str]:
    layer = layer_of(name)
    if layer not in FAMILIES:
        return MAY_INCLUDE.get(layer, set())
    own = {*BELOW_FAMILIES, layer}
    file = name.split("/")[-1]
    if file.endswith("python.cc"):
        return own | {"bindings/python"}
    if file == "aclnn.cc":
        return own | {"bindings/aclnn"}
    if file.startswith("c_"):
        return own | {"bindings/mluop", "c_registry"}
    return own | {"registry"} if file == "operators.cc" else own


def faults(path: Path) -> list[str]:
    name = path.relative_to(SRC).as_posix()
    if TEST.search("/" + name):
        return []
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#include ([<"].*)', line)
        if not match:
            continue
        what = match[1]
        for pattern, (library, where) in LIBRARIES.items():
            if re.match(pattern, what) and not re.match(where, name):
                found.append(f"src/{name}:{number}: {what}: only {where} may include {library}")
        if what.startswith('"') and not what.startswith('"turnout/') and not what.endswith('.inc"'):
            layer = layer_of(what.strip('"'))
            if layer not in allowed(name):
                found.append(f"src/{name}:{number}: {what}: {layer_of(name)} may not include {layer}")
    return found


def main() -> int:
    files = sorted([*SRC.rglob("*.h"), *SRC.rglob("*.cc")])
    found = [fault for path in files for fault in faults(path)]
    print("\n".join(found) or f"{len(files)} files follow the include rules")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
