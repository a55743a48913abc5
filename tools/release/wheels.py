"""Builds wheels that run on any Linux with glibc 2.17 or newer, checks them and tries them out.

    python tools/release/wheels.py [--machine x86_64|aarch64] [--quick] [interpreter ...]

One wheel each for Python 3.10 and 3.11, and one for 3.12 and later (abi3). Each is checked by auditwheel and
abi3audit, installed with NumPy into a new environment, and runs `turnout check` there; a wheel for this
machine also runs the tests without PyTorch. The last one is built a second time, from the source distribution
and in another folder, and must have the same bytes. --quick omits that and the code for AVX-512. All files
are in build/wheels. This needs the packages of requirements/wheel.txt.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from emulated import command_with
from pythons import ROOT, StepError, cpu_minutes, interpreters, run
from zig import GLIBC, write_compilers

VERSIONS = ["3.10", "3.11", "3.12"]
EPOCH = "1577836800"  # 2020-01-01: the time of all files in a wheel
LARGEST = 10 * 2**20
LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1"}


def tag(machine: str) -> str:
    return f"manylinux_{GLIBC.replace('.', '_')}_{machine}"


@dataclass(frozen=True)
class Target:
    """The Python, machine and instruction sets of a wheel, and the log file of the commands."""

    python: Path
    machine: str
    isa: str
    log: Path


def build(target: Target, source: Path, build_dir: Path, into: Path, **environment: str) -> Path:
    """Builds a wheel of that source tree. With ccache, code that does not use Python is compiled once."""
    compilers = build_dir / "zig"
    write_compilers(compilers, target.machine)
    (build_dir / "CMakeCache.txt").unlink(missing_ok=True)  # it has the Python of the previous version
    into.mkdir(parents=True, exist_ok=True)
    question = "import sys; print('%d%d' % sys.version_info[:2], end='')"
    version = subprocess.check_output([target.python, "-c", question], text=True)
    machine = target.machine
    environment |= {
        "SOURCE_DATE_EPOCH": EPOCH,
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version}-{machine}-linux-gnu.so",
    }
    if shutil.which("ccache"):
        # The compilers are small programs that were just written. Paths stay unchanged, for equal bytes.
        environment |= {"CCACHE_COMPILERCHECK": "content", "CCACHE_BASEDIR": ""}
        environment |= {f"CMAKE_{language}_COMPILER_LAUNCHER": "ccache" for language in ("C", "CXX")}
    defines = {
        "CMAKE_TOOLCHAIN_FILE": source / "cmake" / "zig.cmake",
        "TURNOUT_ZIG": compilers,
        "TURNOUT_ZIG_MACHINE": machine,
        "TURNOUT_MOST_ISA": target.isa,
    }
    settings = [f"cmake.define.{name}={value}" for name, value in defines.items()]
    settings += [f"build-dir={build_dir}", "install.strip=false"]
    # The wheel's platform. As an environment variable it would also change the name of the ABI.
    settings.append(f"env._PYTHON_HOST_PLATFORM={tag(machine)}")
    run(
        "build",
        target.log,
        *(target.python, "-m", "pip", "wheel", "--no-deps", "-w", into, source),
        *(f"--config-settings={setting}" for setting in settings),
        env=environment,
    )
    abi = "abi3" if f"3.{version[1:]}" == VERSIONS[-1] else f"cp{version}"
    wheels = [path.name for path in into.glob(f"turnout-*-cp{version}-*_{machine}.whl")]
    if len(wheels) != 1 or not wheels[0].endswith(f"-cp{version}-{abi}-{tag(machine)}.whl"):
        raise StepError(f"built {wheels}, expected a wheel cp{version}-{abi}-{tag(machine)}")
    return into / wheels[0]


def inspect(wheel: Path, machine: str, log: Path) -> None:
    """Checks that do not run the wheel."""
    size = wheel.stat().st_size
    if size > LARGEST:
        raise StepError(f"{wheel.name} has {size} bytes, expected at most {LARGEST}")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        (library,) = Path(folder).glob("turnout/_core*.so")
        dynamic = subprocess.check_output(["readelf", "-dW", library], text=True)
        needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
        needed = {name for name in needed if not name.startswith("ld-linux")}
        if needed - LIBRARIES:
            raise StepError(
                f"{wheel.name} needs {sorted(needed - LIBRARIES)}, expected only libraries of glibc"
            )
        defined = subprocess.check_output(["nm", "-D", "--defined-only", library], text=True).split()[2::3]
        if defined != ["PyInit__core"]:
            raise StepError(f"{wheel.name} exports {defined}, expected only PyInit__core")
        undefined = subprocess.check_output(["nm", "-D", "--undefined-only", library], text=True)
        if "_Unwind_SetIP@GCC_3.0" not in undefined:
            raise StepError(f"{wheel.name} contains an unwinder, expected to use that of libgcc_s.so.1")
        (sbom,) = Path(folder).glob("turnout-*.dist-info/sboms/turnout.cdx.json")
        names = [component["name"] for component in json.loads(sbom.read_text())["components"]]
        if not {"highway", "nanobind", "libc++"} <= set(names):
            raise StepError(f"the list of components of {wheel.name} has only {names}")
    shown = run("auditwheel", log, sys.executable, "-m", "auditwheel", "show", wheel)
    if f'"{tag(machine)}"' not in shown.replace("\n", " "):
        raise StepError(f"auditwheel: {shown}")
    if "abi3" in wheel.name:
        run("abi3audit", log, sys.executable, "-m", "abi3audit", "--strict", wheel)


def environment(python: Path, wheel: Path, extra: str, log: Path) -> Path:
    """A new environment that has only the wheel and what it needs."""
    folder = ROOT / "build" / "wheels" / "environments" / f"{wheel.name}{extra}"
    shutil.rmtree(folder, ignore_errors=True)
    run("venv", log, python, "-m", "venv", folder)
    run("install", log, folder / "bin" / "python", "-m", "pip", "install", "-q", f"{wheel}{extra}")
    return folder / "bin"


def try_here(python: Path, wheel: Path, log: Path) -> str:
    """Runs the wheel's checks and tests on this machine."""
    bin_ = environment(python, wheel, "", log)
    checked = run("check", log, bin_ / "turnout", "check", cwd=bin_)
    bin_ = environment(python, wheel, "[core]", log)
    tests = run(
        "tests",
        log,
        *(bin_ / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        env={"TURNOUT_TEST_CORE": "1"},
        cwd=ROOT / "python" / "tests",
    )
    return f"{checked.count(': ok')} checks, " + re.search(r"\d+ passed.*?(?= in )", tests)[0]


def try_emulated(wheel: Path, machine: str, log: Path) -> str:
    """Runs `turnout check` under qemu; only on small arrays, because the others take hours."""
    command = command_with(wheel, machine, log)
    if command is None:
        return "not run: there is no Python for it to emulate"
    checked = run("check", log, *command, "-m", "turnout", "check", "--quick", cwd=wheel.parent)
    return f"{checked.count(': ok')} checks under qemu"


def build_sdist(into: Path, folder: Path, log: Path) -> Path:
    """Writes the source distribution, unpacks it into the folder, and checks the links of its README."""
    for old in into.glob("turnout-*.tar.gz"):
        old.unlink()
    program = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    run("sdist", log, sys.executable, "-c", program, into, env={"SOURCE_DATE_EPOCH": EPOCH})
    (archive,) = into.glob("turnout-*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder)
    (source,) = folder.iterdir()
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (source / "README.md").read_text())
    if missing := [link for link in links if not (source / link).exists()]:
        raise StepError(f"the README of {archive.name} links to {missing}, which it does not have")
    return source


def build_again(target: Target, wheel: Path) -> None:
    """Builds the wheel again, from the source distribution, in another folder, without caches."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = build_sdist(wheel.parent, folder / "source", target.log)
        caches = {f"ZIG_{which}_CACHE_DIR": f"{folder}/cache" for which in ("GLOBAL", "LOCAL")}
        caches["CCACHE_DISABLE"] = "1"
        again = build(target, source, folder / "build", folder / "wheels", **caches)
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, again)]
        if digests[0] != digests[1]:
            shutil.copy(again, wheel.parent / (again.name + ".again"))
            raise StepError(f"two builds of {wheel.name} differ: {digests[0]} and {digests[1]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", choices=["x86_64", "aarch64"], default=platform.machine())
    parser.add_argument("--quick", action="store_true", help="no AVX-512, and nothing is built twice")
    parser.add_argument("interpreters", nargs="*")
    options = parser.parse_args()
    machine, here = options.machine, options.machine == platform.machine()
    found = interpreters(options.interpreters)
    isa = "avx2" if options.quick else "avx512_bf16"
    build_dir = ROOT / "build" / f"zig-{machine}"
    into = ROOT / "build" / "wheels"
    into.mkdir(parents=True, exist_ok=True)
    log = into / f"log-{machine}"
    log.write_text("")
    rows, failed = [], [f"Python {version} was not found" for version in VERSIONS if version not in found]
    wheel = target = None
    for version in VERSIONS:
        if version not in found:
            continue
        target = Target(found[version], machine, isa, log)
        try:
            for old in into.glob(f"turnout-*-cp{version.replace('.', '')}-*_{machine}.whl"):
                old.unlink()
            wheel = build(target, ROOT, build_dir, into)
            inspect(wheel, machine, log)
            ran = try_here(target.python, wheel, log) if here else try_emulated(wheel, machine, log)
            rows.append(f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MB, {ran}")
        except StepError as step:
            failed.append(f"{version}: {step}: see {log.relative_to(ROOT)}")
    if wheel is not None and not failed and not options.quick:
        try:
            build_again(target, wheel)
            rows.append(f"{wheel.name}: the source distribution gives the same bytes")
        except StepError as step:
            failed.append(str(step))
    print("\n".join(["", *rows, *failed, f"{cpu_minutes():.0f} CPU minutes"]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
