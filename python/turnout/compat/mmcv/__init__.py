"""mmcv's names, those of ``mmcv.ops``: ``turnout.compat.mmcv``.

Example:
    >>> from turnout.compat.mmcv import DynamicScatter
    >>> points = torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 3.0], [1.0, 0.0, 0.0, 5.0]])
    >>> coors = torch.tensor([[0, 0, 0], [0, 0, 0], [0, 0, 1]], dtype=torch.int32)
    >>> scatter = DynamicScatter([1, 1, 1], [0, 0, 0, 2, 1, 1], average_points=True)
    >>> voxels, voxel_coors = scatter(points, coors)
    >>> voxels[:, 3].tolist(), voxel_coors.tolist()
    ([2.0, 5.0], [[0, 0, 0], [0, 0, 1]])
"""

# ruff: noqa: F403 (what a module exports is in its __all__)

from __future__ import annotations

import sys

from turnout.compat._install import Installation, Undo, names_of
from turnout.compat.mmcv import (
    ext,
    sparse_conv,
    sparse_functional,
    sparse_modules,
    sparse_ops,
    sparse_pool,
    sparse_structure,
)
from turnout.compat.mmcv.mmdet3d import enter_mmdet3d
from turnout.compat.mmcv.sparse_conv import *
from turnout.compat.mmcv.sparse_modules import SparseModule, SparseSequential, is_spconv_module
from turnout.compat.mmcv.sparse_ops import get_indice_pairs
from turnout.compat.mmcv.sparse_pool import *
from turnout.compat.mmcv.sparse_structure import SparseConvTensor, scatter_nd
from turnout.compat.mmcv.voxels import DynamicScatter, Voxelization, voxelization
from turnout.compat.mmcv.wrappers import replace_wrappers
from turnout.torch import dynamic_scatter

__all__ = [
    "DynamicScatter",
    "SparseConvTensor",
    "SparseModule",
    "SparseSequential",
    "Voxelization",
    "dynamic_scatter",
    "get_indice_pairs",
    "install",
    "is_spconv_module",
    "scatter_nd",
    "uninstall",
    "voxelization",
]
__all__ += sparse_conv.__all__
__all__ += sparse_pool.__all__

_voxelize = {"Voxelization": Voxelization, "voxelization": voxelization}
_scatter_points = {"DynamicScatter": DynamicScatter, "dynamic_scatter": dynamic_scatter}

_structure, _modules, _convolutions, _pools = (
    names_of(module) for module in (sparse_structure, sparse_modules, sparse_conv, sparse_pool)
)


def _register() -> Undo | None:
    """Adds the convolutions to mmengine's registry, from which models are built by name."""
    try:
        from mmengine.registry import MODELS
    except ImportError:
        return None
    known = MODELS.module_dict
    before = {name: known.get(name) for name in sparse_conv.__all__}
    for name in sparse_conv.__all__:
        MODELS._register_module(getattr(sparse_conv, name), name, force=True)

    def undo() -> None:
        for name, module in before.items():
            if module is None:
                known.pop(name, None)
            else:
                MODELS._register_module(module, name, force=True)

    return undo


def _forget_ops() -> Undo | None:
    """Without its compiled module, mmcv.ops cannot be imported: what was imported of it has to go."""
    if sys.modules["mmcv._ext"].__spec__.loader is not None:
        return None

    def undo() -> None:
        for name in [name for name in sys.modules if name == "mmcv.ops" or name.startswith("mmcv.ops.")]:
            del sys.modules[name]
        vars(sys.modules["mmcv"]).pop("ops", None)
        if "mmengine.registry" in sys.modules:
            known = sys.modules["mmengine.registry"].MODELS.module_dict
            for name, module in [*known.items()]:
                if getattr(module, "__module__", "").startswith("mmcv.ops."):
                    del known[name]

    return undo


install, uninstall = Installation(
    "mmcv",
    {
        "mmcv": {},
        "mmcv._ext": ext.contents_of,
        "mmcv.ops": {**_voxelize, **_scatter_points, **_structure, **_modules, **_convolutions, **_pools},
        "mmcv.ops.scatter_points": _scatter_points,
        "mmcv.ops.sparse_conv": _convolutions,
        "mmcv.ops.sparse_modules": _modules,
        "mmcv.ops.sparse_functional": names_of(sparse_functional),
        "mmcv.ops.sparse_ops": names_of(sparse_ops),
        "mmcv.ops.sparse_pool": _pools,
        "mmcv.ops.sparse_structure": _structure,
        "mmcv.ops.voxelize": _voxelize,
    },
    keeps_package=True,
    registries=(_forget_ops, _register, replace_wrappers, enter_mmdet3d),
).functions(
    "from mmcv.ops import SparseConv3d",
    "If mmcv or mmcv-lite is installed, it is imported and these names are replaced or added. If its "
    "compiled module ``mmcv._ext`` is missing, a stand-in replaces it and ``import mmdet3d.models`` works; "
    "functions that Turnout lacks raise NotImplementedError. If mmengine is installed, the convolutions are "
    "added to its model registry.",
)
