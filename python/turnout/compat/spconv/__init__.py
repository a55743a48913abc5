"""The names of spconv, those of ``spconv.pytorch``: ``import turnout.compat.spconv as spconv``.

Example:
    >>> import turnout.compat.spconv as spconv
    >>> sites = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 5, 5]], dtype=torch.int32)  # batch number, y, x
    >>> x = spconv.SparseConvTensor(torch.ones(3, 4), sites, [6, 6], batch_size=1)
    >>> spconv.SubMConv2d(4, 16, 3)(x).features.shape
    torch.Size([3, 16])
"""

from __future__ import annotations

from turnout.compat._install import Installation, defined_in, missing
from turnout.compat.spconv import constants, conv, core, functional, modules, ops, pool, tables, utils
from turnout.compat.spconv.conv import (
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
from turnout.compat.spconv.core import ConvAlgo, SparseConvTensor
from turnout.compat.spconv.modules import (
    Identity,
    RemoveGrid,
    SparseBatchNorm,
    SparseIdentity,
    SparseModule,
    SparseReLU,
    SparseSequential,
    ToDense,
    assign_name_for_sparse_modules,
)
from turnout.compat.spconv.pool import (
    SparseAvgPool1d,
    SparseAvgPool2d,
    SparseAvgPool3d,
    SparseGlobalAvgPool,
    SparseGlobalMaxPool,
    SparseMaxPool1d,
    SparseMaxPool2d,
    SparseMaxPool3d,
    SparseMaxPool4d,
)
from turnout.compat.spconv.tables import AddTable, ConcatTable, JoinTable

# The release of spconv whose names these are. Programs compute with it: float(__version__[2:]), without more
# behind the digits.
__version__ = "2.3.8"

__all__ = [
    "AddTable",
    "ConcatTable",
    "ConvAlgo",
    "Identity",
    "JoinTable",
    "RemoveGrid",
    "SparseAvgPool1d",
    "SparseAvgPool2d",
    "SparseAvgPool3d",
    "SparseBatchNorm",
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
    "SparseGlobalAvgPool",
    "SparseGlobalMaxPool",
    "SparseIdentity",
    "SparseInverseConv1d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SparseInverseConv4d",
    "SparseMaxPool1d",
    "SparseMaxPool2d",
    "SparseMaxPool3d",
    "SparseMaxPool4d",
    "SparseModule",
    "SparseReLU",
    "SparseSequential",
    "SubMConv1d",
    "SubMConv2d",
    "SubMConv3d",
    "SubMConv4d",
    "ToDense",
    "assign_name_for_sparse_modules",
    "constants",
    "conv",
    "core",
    "functional",
    "install",
    "modules",
    "ops",
    "pool",
    "tables",
    "uninstall",
    "utils",
]

# What programs import of spconv besides.
_OTHERS = frozenset(
    {
        *("AlgoHint", "CUDAKernelTimer", "HashTable", "ImplicitGemmIndiceData", "ThrustSortAllocator"),
        *("Point2VoxelCPU1d", "Point2VoxelCPU2d", "Point2VoxelCPU3d", "Point2VoxelCPU4d", "Point2VoxelGPU3d"),
        *("get_indice_pairs", "get_indice_pairs_implicit_gemm", "hash", "implicit_gemm", "indice_conv"),
        *("indice_conv_backward", "indice_inverse_conv", "indice_maxpool", "indice_subm_conv"),
        *("non_max_suppression_cpu", "quantization", "rbbox_intersection", "rbbox_iou", "rbbox_iou_loss"),
        *("rotate_non_max_suppression_cpu", "scatter_nd"),
    }
)
__getattr__ = missing("spconv", _OTHERS, "its modules, tensors and voxel generators")

_parts = (core, conv, modules, pool, tables)
_installation = Installation(
    "spconv",
    {
        "spconv": {
            "ConvAlgo": ConvAlgo,
            "SPCONV_VERSION_NUMBERS": [int(number) for number in __version__.split(".")],
            "__version__": __version__,
        },
        "spconv.constants": {name: value for name, value in vars(constants).items() if name.isupper()},
        "spconv.core": {"ConvAlgo": ConvAlgo},
        "spconv.utils": defined_in(utils),
        "spconv.pytorch": {name: value for part in _parts for name, value in defined_in(part).items()},
        "spconv.pytorch.conv": defined_in(conv),
        "spconv.pytorch.core": defined_in(core),
        "spconv.pytorch.functional": defined_in(functional),
        "spconv.pytorch.identity": {"Identity": Identity},
        "spconv.pytorch.modules": defined_in(modules),
        "spconv.pytorch.ops": {name: getattr(ops, name) for name in ops.__all__},
        "spconv.pytorch.pool": defined_in(pool),
        "spconv.pytorch.tables": defined_in(tables),
        "spconv.pytorch.utils": defined_in(utils),
    },
    getattr=__getattr__,
)


def install(force: bool = False) -> None:
    """After this, ``import spconv.pytorch as spconv`` finds these names, also where there is no spconv.

    A second call does nothing. Refused when spconv is imported already, as models may have its names, unless
    ``force`` says that they are to be replaced; its other names stay.
    """
    _installation.install(force)


def uninstall() -> None:
    """Undoes :func:`install`; without it, does nothing."""
    _installation.uninstall()
