"""Index-driven operators for machine learning on the CPU: operators that decide which row goes where.

Functions take NumPy arrays and the arrays of any library that supports DLPack. Only NumPy is required.
With PyTorch installed, ``import turnout.torch`` provides the same operators as torch operators.
"""

# ruff: noqa: F403 (each module lists its exports in __all__)

import sys as _sys

from turnout import _core as _core

# The GIL guards the extension's tables and caches. A free-threaded Python enables the GIL when it imports
# such an extension, unless it was told not to.
if hasattr(_sys, "_is_gil_enabled") and not _sys._is_gil_enabled():
    raise ImportError("turnout: the GIL is off (PYTHON_GIL=0 or -X gil=0), expected PYTHON_GIL=1 or neither")

from turnout import boxes as _boxes
from turnout import dynamic_scatter as _dynamic_scatter
from turnout import global_pool as _global_pool
from turnout import grouping as _grouping
from turnout import indice_convolution as _indice_convolution
from turnout import indice_pairs as _indice_pairs
from turnout import moe_dispatch as _moe_dispatch
from turnout import moe_experts as _moe_experts
from turnout import moe_permute as _moe_permute
from turnout import moe_re_routing as _moe_re_routing
from turnout import moe_routing as _moe_routing
from turnout import mutual_information as _mutual_information
from turnout import points as _points
from turnout import rnnt_loss as _rnnt_loss
from turnout import rnnt_pruning as _rnnt_pruning
from turnout import roi_pooling as _roi_pooling
from turnout import scatter as _scatter
from turnout import segments as _segments
from turnout import vector_pooling as _vector_pooling
from turnout.boxes import *
from turnout.dynamic_scatter import *
from turnout.global_pool import *
from turnout.grouping import *
from turnout.indice_convolution import *
from turnout.indice_pairs import *
from turnout.moe_dispatch import *
from turnout.moe_experts import *
from turnout.moe_permute import *
from turnout.moe_re_routing import *
from turnout.moe_routing import *
from turnout.mutual_information import *
from turnout.points import *
from turnout.rnnt_loss import *
from turnout.rnnt_pruning import *
from turnout.roi_pooling import *
from turnout.scatter import *
from turnout.segments import *
from turnout.settings import (
    OutputCache,
    __version__,
    get_num_threads,
    output_cache,
    set_log,
    set_num_threads,
    show_config,
    trim,
)
from turnout.vector_pooling import *

__all__ = [
    "OutputCache",
    "__version__",
    "get_num_threads",
    "output_cache",
    "set_log",
    "set_num_threads",
    "show_config",
    "trim",
]
__all__ += _boxes.__all__
__all__ += _dynamic_scatter.__all__
__all__ += _global_pool.__all__
__all__ += _grouping.__all__
__all__ += _indice_convolution.__all__
__all__ += _indice_pairs.__all__
__all__ += _moe_dispatch.__all__
__all__ += _moe_experts.__all__
__all__ += _moe_permute.__all__
__all__ += _moe_re_routing.__all__
__all__ += _moe_routing.__all__
__all__ += _mutual_information.__all__
__all__ += _points.__all__
__all__ += _vector_pooling.__all__
__all__ += _rnnt_loss.__all__
__all__ += _rnnt_pruning.__all__
__all__ += _roi_pooling.__all__
__all__ += _scatter.__all__
__all__ += _segments.__all__
