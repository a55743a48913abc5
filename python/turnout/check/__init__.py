"""The operators in plain NumPy, slow and readable, and a check of the installed ones against them."""

# ruff: noqa: F403 (what a module exports is in its __all__)

from turnout.check import dynamic_scatter as _dynamic_scatter
from turnout.check import global_pool as _global_pool
from turnout.check import indice_convolution as _indice_convolution
from turnout.check import moe_dispatch as _moe_dispatch
from turnout.check import moe_experts as _moe_experts
from turnout.check import moe_permute as _moe_permute
from turnout.check import moe_re_routing as _moe_re_routing
from turnout.check import moe_routing as _moe_routing
from turnout.check import mutual_information as _mutual_information
from turnout.check import rnnt_loss as _rnnt_loss
from turnout.check import scatter as _scatter
from turnout.check import sparse_conv as _sparse_conv
from turnout.check.dynamic_scatter import *
from turnout.check.global_pool import *
from turnout.check.indice_convolution import *
from turnout.check.moe_dispatch import *
from turnout.check.moe_experts import *
from turnout.check.moe_permute import *
from turnout.check.moe_re_routing import *
from turnout.check.moe_routing import *
from turnout.check.mutual_information import *
from turnout.check.rnnt_loss import *
from turnout.check.scatter import *
from turnout.check.sparse_conv import *

CHECKS = {
    **_dynamic_scatter.CHECKS,
    **_global_pool.CHECKS,
    **_indice_convolution.CHECKS,
    **_moe_dispatch.CHECKS,
    **_moe_experts.CHECKS,
    **_moe_permute.CHECKS,
    **_moe_re_routing.CHECKS,
    **_moe_routing.CHECKS,
    **_mutual_information.CHECKS,
    **_rnnt_loss.CHECKS,
    **_scatter.CHECKS,
    **_sparse_conv.CHECKS,
}

__all__ = ["CHECKS"]
__all__ += _dynamic_scatter.__all__
__all__ += _global_pool.__all__
__all__ += _indice_convolution.__all__
__all__ += _moe_dispatch.__all__
__all__ += _moe_experts.__all__
__all__ += _moe_permute.__all__
__all__ += _moe_re_routing.__all__
__all__ += _moe_routing.__all__
__all__ += _mutual_information.__all__
__all__ += _rnnt_loss.__all__
__all__ += _scatter.__all__
__all__ += _sparse_conv.__all__
