"""Definitions of the operators in plain, slow, readable NumPy, and checks of the operators against them."""

# ruff: noqa: F403 (each module lists its exports in __all__)

from collections.abc import Callable

import numpy as np

from turnout import _core
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

_MODULES = (
    _dynamic_scatter,
    _global_pool,
    _indice_convolution,
    _moe_dispatch,
    _moe_experts,
    _moe_permute,
    _moe_re_routing,
    _moe_routing,
    _mutual_information,
    _rnnt_loss,
    _scatter,
    _sparse_conv,
)


def _check_of(op: str) -> Callable[[np.random.Generator], None]:
    """Returns a check that compares an operator with its definition in the C++ library."""

    def check(rng: np.random.Generator) -> None:
        _core.check_definition(op, 100, int(rng.integers(2**32)))

    return check


CHECKS = {
    **{op: _check_of(op) for op in _core.defined_operators()},
    **{op: check for module in _MODULES for op, check in module.CHECKS.items()},
}
__all__ = ["CHECKS", *(name for module in _MODULES for name in module.__all__)]
