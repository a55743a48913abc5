"""The names of mmcv, those of ``mmcv.ops``: ``turnout.compat.mmcv``.

Example:
    >>> from turnout.compat.mmcv import DynamicScatter
    >>> points = torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 3.0], [1.0, 0.0, 0.0, 5.0]])
    >>> coors = torch.tensor([[0, 0, 0], [0, 0, 0], [0, 0, 1]], dtype=torch.int32)
    >>> scatter = DynamicScatter([1, 1, 1], [0, 0, 0, 2, 1, 1], average_points=True)
    >>> voxels, voxel_coors = scatter(points, coors)
    >>> voxels[:, 3].tolist(), voxel_coors.tolist()
    ([2.0, 5.0], [[0, 0, 0], [0, 0, 1]])
"""

from __future__ import annotations

from turnout.compat._install import Installation, Undo, defined_in
from turnout.compat._sparse import scatter_nd
from turnout.compat.mmcv import (
    sparse_conv,
    sparse_functional,
    sparse_modules,
    sparse_ops,
    sparse_pool,
    sparse_structure,
)
from turnout.compat.mmcv.sparse_conv import (
    SparseConv1d,
    SparseConv2d,
    SparseConv3d,
    SparseConv4d,
    SparseConvolution,
    SparseConvTranspose1d,
    SparseConvTranspose2d,
    SparseConvTranspose3d,
    SparseConvTranspose4d,
    SparseInverseConv1d,
    SparseInverseConv2d,
    SparseInverseConv3d,
    SparseInverseConv4d,
    SubMConv1d,
    SubMConv2d,
    SubMConv3d,
    SubMConv4d,
)
from turnout.compat.mmcv.sparse_modules import SparseModule, SparseSequential, is_spconv_module
from turnout.compat.mmcv.sparse_ops import get_indice_pairs
from turnout.compat.mmcv.sparse_pool import (
    SparseMaxPool,
    SparseMaxPool1d,
    SparseMaxPool2d,
    SparseMaxPool3d,
    SparseMaxPool4d,
)
from turnout.compat.mmcv.sparse_structure import SparseConvTensor
from turnout.compat.mmcv.voxels import DynamicScatter, Voxelization, voxelization
from turnout.torch import dynamic_scatter

__all__ = [
    "DynamicScatter",
    "SparseConv1d",
    "SparseConv2d",
    "SparseConv3d",
    "SparseConv4d",
    "SparseConvTensor",
    "SparseConvTranspose1d",
    "SparseConvTranspose2d",
    "SparseConvTranspose3d",
    "SparseConvTranspose4d",
    "SparseConvolution",
    "SparseInverseConv1d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SparseInverseConv4d",
    "SparseMaxPool",
    "SparseMaxPool1d",
    "SparseMaxPool2d",
    "SparseMaxPool3d",
    "SparseMaxPool4d",
    "SparseModule",
    "SparseSequential",
    "SubMConv1d",
    "SubMConv2d",
    "SubMConv3d",
    "SubMConv4d",
    "Voxelization",
    "dynamic_scatter",
    "get_indice_pairs",
    "install",
    "is_spconv_module",
    "scatter_nd",
    "uninstall",
    "voxelization",
]

_voxelize = {"Voxelization": Voxelization, "voxelization": voxelization}
_scatter_points = {"DynamicScatter": DynamicScatter, "dynamic_scatter": dynamic_scatter}


_structure, _modules, _convolutions, _pools = (
    defined_in(module) for module in (sparse_structure, sparse_modules, sparse_conv, sparse_pool)
)
_structure["scatter_nd"] = scatter_nd
_functions = {
    **defined_in(sparse_functional),
    "indice_conv": sparse_functional.indice_conv,
    "indice_inverse_conv": sparse_functional.indice_inverse_conv,
    "indice_maxpool": sparse_functional.indice_maxpool,
    "indice_subm_conv": sparse_functional.indice_subm_conv,
}


def _register() -> Undo | None:
    """Enters the convolutions in mmengine's registry, from which models are built by name."""
    try:
        from mmengine.registry import MODELS
    except ImportError:
        return None
    known = MODELS.module_dict
    before = {name: known.get(name) for name in _convolutions}
    for name, module in _convolutions.items():
        MODELS._register_module(module, name, force=True)

    def undo() -> None:
        for name, module in before.items():
            if module is None:
                known.pop(name, None)
            else:
                MODELS._register_module(module, name, force=True)

    return undo


_installation = Installation(
    "mmcv",
    {
        "mmcv": {},
        "mmcv.ops": {**_voxelize, **_scatter_points, **_structure, **_modules, **_convolutions, **_pools},
        "mmcv.ops.scatter_points": _scatter_points,
        "mmcv.ops.sparse_conv": _convolutions,
        "mmcv.ops.sparse_modules": _modules,
        "mmcv.ops.sparse_functional": _functions,
        "mmcv.ops.sparse_ops": {name: getattr(sparse_ops, name) for name in sparse_ops.__all__},
        "mmcv.ops.sparse_pool": _pools,
        "mmcv.ops.sparse_structure": _structure,
        "mmcv.ops.voxelize": _voxelize,
    },
    keeps_package=True,
    registries=(_register,),
)


def install(force: bool = False) -> None:
    """After this, ``from mmcv.ops import SparseConv3d`` finds these names, also where there is no mmcv.

    With mmcv or mmcv-lite, it is imported, and these names are replaced or added; its others stay. The
    convolutions are entered in mmengine's registry, if there is one. A second call does nothing. Refused when
    mmcv is imported already, as models may have its names, unless ``force`` says otherwise.
    """
    _installation.install(force)


def uninstall() -> None:
    """Undoes :func:`install`; without it, does nothing."""
    _installation.uninstall()
