"""``turnout run``: stand-ins for packages that are absent, then a program that imports those packages."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import io
import os
import runpy
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import ModuleType, TracebackType

# Package -> the module without which it does not work.
PACKAGES = {
    "spconv": "spconv",
    "torch_scatter": "torch_scatter",
    "torch_cluster": "torch_cluster",
    "mmcv": "mmcv._ext",
    "pcdet": "pcdet.ops.iou3d_nms.iou3d_nms_cuda",
    "pointops": "pointops._C",
    "k2": "k2",
    "fast_rnnt": "fast_rnnt",
    "tutel": "tutel",
}
# Libraries look for these to find out what hardware there is, so they are installed only if they are named.
NAMED_ONLY = ("torch_npu", "torchaudio", "transformer_engine")


def install(packages: Sequence[str] | None, stub: Collection[str]) -> None:
    """Installs the stand-ins of these packages, or of every one in ``PACKAGES`` that is absent.

    Args:
        packages: their names; None: those that are absent.
        stub: packages that become importable and cannot be used.
    """
    known = [*PACKAGES, *NAMED_ONLY]
    for name in packages or ():
        if name not in known:
            raise ValueError(f"run: package is {name!r}, expected one of {', '.join(known)}")
    if importlib.util.find_spec("torch") is None:
        raise ValueError("run: the stand-ins need torch, which is not installed")
    chosen = [name for name in PACKAGES if _is_absent(PACKAGES[name])] if packages is None else packages
    for name in chosen:
        compat = importlib.import_module(f"turnout.compat.{name}")
        compat.install()
    if stub:
        from turnout.compat._install import enter_stubs

        enter_stubs(stub, "turnout run --stub")


def _is_absent(module: str) -> bool:
    """Whether a module cannot be found; parents are not imported."""
    path: list[str] | None = None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        if name in sys.modules:
            spec = sys.modules[name].__spec__
        else:
            spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None:
            return True
        path = spec.submodule_search_locations
    return False


def program(name: str, arguments: Sequence[str], *, is_module: bool) -> Callable[[], int]:
    """Prepares to run a program as ``python`` does; the result runs it and returns its exit code.

    Args:
        name: a file, a folder with ``__main__.py``, or a module.
        arguments: what the program finds in ``sys.argv`` after its name.
        is_module: as ``python -m``.
    """
    start: Callable[[], object]
    if is_module:
        folder, start = os.getcwd(), lambda: runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif Path(name).is_dir():
        folder, start = name, lambda: runpy.run_path(name, run_name="__main__")
    else:
        path = os.path.abspath(name)
        with io.open_code(path) as file:
            source = file.read()
        folder, start = os.path.dirname(os.path.realpath(path)), lambda: _run_script(path, source)

    def run() -> int:
        sys.argv = [name, *arguments]
        if not sys.flags.safe_path:
            sys.path[0] = folder  # in place of the folder of this command
        try:
            start()
        except Exception as error:
            # What python prints: the frames of the program, without those that have started it.
            frames = error.__traceback__ = _frames_of_program(error.__traceback__)
            sys.excepthook(type(error), error, frames)
            return 1
        return 0

    return run


def _run_script(path: str, source: bytes) -> None:
    main = ModuleType("__main__")
    main.__file__, main.__spec__ = path, None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    vars(main).update(__builtins__=sys.modules["builtins"], __cached__=None)
    sys.modules["__main__"] = main
    exec(compile(source, path, "exec"), vars(main))


def _frames_of_program(traceback: TracebackType | None) -> TracebackType | None:
    own = (__file__, runpy.__file__, "<frozen runpy>")
    while traceback is not None and traceback.tb_frame.f_code.co_filename in own:
        traceback = traceback.tb_next
    return traceback
