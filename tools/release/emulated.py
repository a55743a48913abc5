"""A Python for another machine, run by qemu: Debian's packages, unpacked into build/, and NumPy's wheel."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path

from pythons import ROOT, run

DEBIAN = {"aarch64": "arm64", "x86_64": "amd64"}
# The Debian release whose Python runs a wheel, by the wheel's tag. No release has Python 3.10.
SUITES = {"cp311": ("bookworm", "3.11"), "cp312": ("trixie", "3.13")}
# What that Python and NumPy's wheel need; the wheel contains its own OpenBLAS.
PACKAGES = [
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "zlib1g",
    "libexpat1",
    "libffi8",
    "libbz2-1.0",
    "liblzma5",
    "libuuid1",
    "libcrypt1",
]
PYTHON_PACKAGES = ["libpython{}-minimal", "libpython{}-stdlib", "python{}-minimal"]
SSL = {"bookworm": "libssl3", "trixie": "libssl3t64"}


def command_with(wheel: Path, machine: str, log: Path) -> list[str] | None:
    """The command of a Python that has this wheel and NumPy; None if there is no Python for the wheel."""
    tag = wheel.name.split("-")[2]
    if tag not in SUITES:
        return None
    suite, version = SUITES[tag]
    work = ROOT / "build" / "emulated" / f"{machine}-{suite}"
    if not (work / "complete").exists():
        shutil.rmtree(work, ignore_errors=True)
        unpack_debian(work, suite, version, machine, log)
        run(
            "NumPy",
            log,
            *(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", work / "packages"),
            *("--platform", f"manylinux_2_28_{machine}", "--platform", f"manylinux_2_27_{machine}"),
            *("--python-version", version, "--only-binary=:all:", "numpy"),
        )
        (work / "complete").touch()
    unpacked = work / "turnout"
    shutil.rmtree(unpacked, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    python = f"{work}/root/usr/bin/python{version}"
    path = f"PYTHONPATH={unpacked}:{work}/packages"
    return [f"qemu-{machine}-static", "-L", f"{work}/root", "-E", path, python]


def unpack_debian(work: Path, suite: str, version: str, machine: str, log: Path) -> None:
    """Unpacks the packages into work/root, with a separate apt that does not affect the system's."""
    root, apt = work / "root", work / "apt"
    for folder in (root, apt / "lists" / "partial", apt / "cache" / "archives" / "partial"):
        folder.mkdir(parents=True)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    # The mirror that apt uses here.
    uris = run("apt", log, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
    mirror = next(uri for uri in uris.split() if "-security" not in uri)
    (apt / "sources.list").write_text(f"deb [signed-by={keyring}] {mirror} {suite} main\n")
    (apt / "status").write_text("")
    options = {
        "APT::Architecture": DEBIAN[machine],
        "APT::Architectures": DEBIAN[machine],
        "Dir::Etc::SourceList": apt / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": apt,
        "Dir::State::Lists": apt / "lists",
        "Dir::State::Status": apt / "status",
        "Dir::Cache": apt / "cache",
    }
    if os.getuid() == 0:
        options["APT::Sandbox::User"] = "root"
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    names = [*PACKAGES, SSL[suite], *(name.format(version) for name in PYTHON_PACKAGES)]
    run("apt", log, "apt-get", *words, "-qq", "update")
    run("apt", log, "apt-get", *words, "-qq", "download", *names, cwd=apt)
    for package in apt.glob("*.deb"):
        run("unpack", log, "dpkg-deb", "-x", package, root)
    if not (root / "lib").exists():  # a link that is in another package in Debian 13
        (root / "lib").symlink_to("usr/lib")
