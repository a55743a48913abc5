"""OpenPCDet without its compiled modules, and without a GPU: ``turnout.compat.pcdet.install()``.

Example:
    >>> import sys, turnout.compat.pcdet
    >>> turnout.compat.pcdet.install()  # then import pcdet
    >>> compiled = sys.modules["pcdet.ops.iou3d_nms.iou3d_nms_cuda"]  # as pcdet's files find it
    >>> boxes = torch.tensor([[0, 0, 0, 4, 2, 1.5, 0.3], [0.1, 0, 0, 4, 2, 1.5, 0.3]])
    >>> keep = torch.zeros(2, dtype=torch.int64)
    >>> compiled.nms_gpu(boxes, keep, 0.5)  # the number of boxes that are kept
    1
    >>> turnout.compat.pcdet.uninstall()
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from turnout.compat import spconv, torch_scatter
from turnout.compat._attention import accept_integer_masks
from turnout.compat._checkpoints import allow_numpy_numbers
from turnout.compat._cuda import replace_cuda
from turnout.compat._extension import functions_of
from turnout.compat._install import (
    Undo,
    enter_fallback,
    enter_module,
    enter_stubs,
    find_package,
    set_attribute,
    undo_all,
)
from turnout.compat._rotate_iou import rotate_iou_gpu_eval
from turnout.compat.pcdet.ops import MODULES

__all__ = ["install", "uninstall"]

# pcdet asks whether the number of its git commit is a part of this.
_VERSION = "0.6.0+turnout"
_HINT = "the page 'Coming from OpenPCDet' of the documentation lists the models that do without it"
# They compile for CUDA when they are imported, which fails without a GPU.
_EVALUATIONS = (
    "pcdet.datasets.kitti.kitti_object_eval_python.rotate_iou",
    "pcdet.datasets.once.once_eval.iou_utils",
)
_undo: list[Undo] = []


def install(cuda_is_cpu: bool | None = None, stub: Collection[str] = (), force: bool = False) -> None:
    """After this call, ``import pcdet.models`` works without pcdet's compiled modules, and its models run.

    It enters stand-ins for the seven compiled modules, and for ``pcdet.version`` if pcdet's folder does not
    have it, in ``sys.modules``; it does not import pcdet. It also installs the stand-ins of spconv and
    torch_scatter where these packages are absent, gives NumPy its former name ``numpy.int`` back, which pcdet
    uses, and lets ``torch.load`` read the numbers of NumPy in pcdet's checkpoints.
    ``torch.nn.MultiheadAttention`` accepts an integer ``key_padding_mask`` again, which DSVT passes. A call
    with tensors on a GPU goes to the compiled module, if there is one. A second call of ``install`` does
    nothing.

    Args:
        cuda_is_cpu: pcdet's files call ``.cuda()`` and ``torch.cuda.FloatTensor``. With True, these are
            replaced **for the whole process**: ``Tensor.cuda()`` and ``Module.cuda()`` return the object
            itself, without a copy. ``torch.histc`` takes integers, as on a GPU. The functions with which
            KITTI and ONCE are evaluated, which need CUDA, are replaced, too. None means True where
            ``torch.cuda.is_available()`` is False.
        stub: packages that pcdet imports and that your model does not use, such as ``("SharedArray",
            "av2")``. Those that are not installed become importable; using one of their names raises
            NotImplementedError.
        force: if pcdet is already imported, replace the functions in its loaded modules; otherwise that
            raises RuntimeError.
    """
    if _undo:
        return
    imported = sys.modules.get("pcdet")
    if imported is not None and not force:
        where = getattr(imported, "__file__", None)
        raise RuntimeError(
            f"turnout.compat.pcdet.install: pcdet is imported already ({where}); install before it is "
            "imported, or with force=True to replace its functions"
        )
    if isinstance(stub, str):
        raise TypeError(f"turnout.compat.pcdet.install: stub is {stub!r}, expected a sequence of names")
    try:
        _install(not torch.cuda.is_available() if cuda_is_cpu is None else cuda_is_cpu, stub)
    except BaseException:
        uninstall()
        raise


def uninstall() -> None:
    """Undoes :func:`install`; does nothing if it was not called."""
    undo_all(_undo)


def _install(cuda_is_cpu: bool, stub: Collection[str]) -> None:
    for other in (spconv, torch_scatter):
        if find_package(other.__name__.rpartition(".")[2]) is None:
            other.install()
            _undo.append(other.uninstall)
    for name, table in MODULES.items():
        functions = functions_of(name, table, _original(name), _HINT)
        _undo.append(enter_module(name, "pcdet", functions))
    _undo.append(enter_fallback("pcdet.version", "pcdet", {"__version__": _VERSION}))
    if "int" not in vars(np):
        _undo.append(set_attribute(np, "int", int))
    _undo.append(accept_integer_masks())
    allowed = allow_numpy_numbers()
    if allowed is not None:
        _undo.append(allowed)
    if stub:
        _undo.append(enter_stubs(stub, "turnout.compat.pcdet.install(stub=...)"))
    if cuda_is_cpu:
        for name in _EVALUATIONS:
            _undo.append(enter_module(name, "pcdet", {"rotate_iou_gpu_eval": rotate_iou_gpu_eval}))
        _undo.append(replace_cuda())


def _folder() -> Path | None:
    """pcdet's folder, which is found without importing pcdet; None: there is none."""
    spec = find_package("pcdet")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _original(module: str) -> Callable[[str], Callable[..., Any] | None]:
    """Finds functions of a compiled module: of the loaded one, or of the file in pcdet's folder."""
    loaded = dict(vars(sys.modules[module])) if module in sys.modules else None

    @functools.cache
    def compiled() -> dict[str, Any]:
        folder = _folder()
        for suffix in importlib.machinery.EXTENSION_SUFFIXES if folder else ():
            path = folder.joinpath(*module.split(".")[1:]).with_suffix(suffix)
            if path.exists():
                spec = importlib.util.spec_from_file_location(module, path)
                found = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(found)
                return vars(found)
        return {}

    return lambda name: (compiled() if loaded is None else loaded).get(name)
