"""spconv's names, those of ``spconv.pytorch``: ``import turnout.compat.spconv as spconv``.

Example:
    >>> import turnout.compat.spconv as spconv
    >>> sites = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 5, 5]], dtype=torch.int32)  # batch element, y, x
    >>> x = spconv.SparseConvTensor(torch.ones(3, 4), sites, [6, 6], batch_size=1)
    >>> spconv.SubMConv2d(4, 16, 3)(x).features.shape
    torch.Size([3, 16])
"""

# ruff: noqa: F403 (what a module exports is in its __all__)

from __future__ import annotations

from turnout.compat._install import Installation, missing, names_of
from turnout.compat.spconv import (
    constants,
    conv,
    core,
    functional,
    modules,
    ops,
    pool,
    spatial,
    tables,
    utils,
)
from turnout.compat.spconv.conv import *
from turnout.compat.spconv.core import AlgoHint, ConvAlgo, SparseConvTensor
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
from turnout.compat.spconv.pool import *
from turnout.compat.spconv.tables import AddTable, ConcatTable, JoinTable

# The release of spconv that these names follow. Programs compute float(__version__[2:]), so the version must
# end with digits.
__version__ = "2.3.8"

__all__ = [
    "AddTable",
    "AlgoHint",
    "ConcatTable",
    "ConvAlgo",
    "Identity",
    "JoinTable",
    "RemoveGrid",
    "SparseBatchNorm",
    "SparseConvTensor",
    "SparseIdentity",
    "SparseModule",
    "SparseReLU",
    "SparseSequential",
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
    "spatial",
    "tables",
    "uninstall",
    "utils",
]
__all__ += conv.__all__
__all__ += pool.__all__

# Other names that programs import from spconv.
_OTHERS = frozenset(
    {
        *("CUDAKernelTimer", "HashTable", "ImplicitGemmIndiceData", "PrintCurrentTime", "PrintTensorMeta"),
        *("SparseAvgPoolImplicitGemmFunction", "SparseConvFunction", "SparseImplicitGemmFunction"),
        *("SparseInverseConvFunction", "SparseMaxPoolFunction", "SparseMaxPoolImplicitGemmFunction"),
        *("SubMConvFunction", "ThrustSortAllocator", "core_cc", "cppcore", "global_pool_rearrange"),
        *(f"Point2Voxel{device}{dims}d" for device in ("CPU", "GPU") for dims in (1, 2, 3, 4)),
        *("fused_indice_conv", "get_indice_pairs", "get_indice_pairs_implicit_gemm", "hash"),
        *("implicit_gemm", "implicit_gemm_backward", "indice_avgpool_implicit_gemm", "indice_conv"),
        *("indice_conv_backward", "indice_inverse_conv", "indice_maxpool", "indice_maxpool_backward"),
        *("indice_maxpool_implicit_gemm", "indice_subm_conv", "maximum_value_int_"),
        *("non_max_suppression_cpu", "quantization", "rbbox_intersection", "rbbox_iou", "rbbox_iou_loss"),
        *("rotate_non_max_suppression_cpu",),
    }
)
_WHAT = "its modules, tensors and voxel generators"
__getattr__ = missing("spconv", _OTHERS, _WHAT)

_parts = (core, conv, modules, pool, tables)
for _part in (*_parts, functional, ops, spatial, utils):
    _part.__getattr__ = __getattr__


install, uninstall = Installation(
    "spconv",
    {
        "spconv": {
            "AlgoHint": AlgoHint,
            "ConvAlgo": ConvAlgo,
            "SPCONV_VERSION_NUMBERS": [int(number) for number in __version__.split(".")],
            "__version__": __version__,
        },
        "spconv.constants": {name: value for name, value in vars(constants).items() if name.isupper()},
        "spconv.core": {"AlgoHint": AlgoHint, "ConvAlgo": ConvAlgo},
        "spconv.utils": {**names_of(utils), "nullcontext": utils.nullcontext},
        "spconv.pytorch": {name: value for part in _parts for name, value in names_of(part).items()},
        "spconv.pytorch.conv": names_of(conv),
        "spconv.pytorch.core": names_of(core),
        "spconv.pytorch.functional": names_of(functional),
        "spconv.pytorch.identity": {"Identity": Identity},
        "spconv.pytorch.modules": names_of(modules),
        "spconv.pytorch.ops": names_of(ops),
        "spconv.pytorch.pool": names_of(pool),
        "spconv.pytorch.spatial": names_of(spatial),
        "spconv.pytorch.tables": names_of(tables),
        "spconv.pytorch.utils": names_of(utils),
    },
    getattr=__getattr__,
    absent=(
        *("spconv.core_cc", "spconv.tools", "spconv.pytorch.cppcore", "spconv.pytorch.hash"),
        "spconv.pytorch.quantization",
    ),
    absent_getattr=missing("spconv", None, _WHAT),
).functions("import spconv.pytorch as spconv")
