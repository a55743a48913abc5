"""The operators for PyTorch: ``torch.ops.turnout.*``, ready for ``torch.compile``, on torch's threads."""

# ruff: noqa: F403 (what a module exports is in its __all__)

from turnout.torch import boxes as _boxes
from turnout.torch import dynamic_scatter as _dynamic_scatter
from turnout.torch import expert_parallel as _expert_parallel
from turnout.torch import global_pool as _global_pool
from turnout.torch import grouping as _grouping
from turnout.torch import indice_convolution as _indice_convolution
from turnout.torch import indice_pairs as _indice_pairs
from turnout.torch import moe_dispatch as _moe_dispatch
from turnout.torch import moe_experts as _moe_experts
from turnout.torch import moe_experts_quantized as _moe_experts_quantized
from turnout.torch import moe_permute as _moe_permute
from turnout.torch import moe_re_routing as _moe_re_routing
from turnout.torch import moe_routing as _moe_routing
from turnout.torch import mutual_information as _mutual_information
from turnout.torch import nn
from turnout.torch import points as _points
from turnout.torch import rnnt_logprobs as _rnnt_logprobs
from turnout.torch import rnnt_loss as _rnnt_loss
from turnout.torch import rnnt_loss_pruned as _rnnt_loss_pruned
from turnout.torch import rnnt_pruning as _rnnt_pruning
from turnout.torch import roi_pooling as _roi_pooling
from turnout.torch import scatter as _scatter
from turnout.torch import segments as _segments
from turnout.torch import vector_pooling as _vector_pooling
from turnout.torch import voxel_index as _voxel_index
from turnout.torch.boxes import *
from turnout.torch.dynamic_scatter import *
from turnout.torch.expert_parallel import *
from turnout.torch.global_pool import *
from turnout.torch.grouping import *
from turnout.torch.indice_convolution import *
from turnout.torch.indice_pairs import *
from turnout.torch.moe_dispatch import *
from turnout.torch.moe_experts import *
from turnout.torch.moe_experts_quantized import *
from turnout.torch.moe_permute import *
from turnout.torch.moe_re_routing import *
from turnout.torch.moe_routing import *
from turnout.torch.mutual_information import *
from turnout.torch.points import *
from turnout.torch.registration import refuse_missing_gradients
from turnout.torch.rnnt_logprobs import *
from turnout.torch.rnnt_loss import *
from turnout.torch.rnnt_loss_pruned import *
from turnout.torch.rnnt_pruning import *
from turnout.torch.roi_pooling import *
from turnout.torch.scatter import *
from turnout.torch.segments import *
from turnout.torch.vector_pooling import *
from turnout.torch.voxel_index import *

__all__ = ["nn"]
__all__ += _boxes.__all__
__all__ += _dynamic_scatter.__all__
__all__ += _expert_parallel.__all__
__all__ += _global_pool.__all__
__all__ += _grouping.__all__
__all__ += _indice_convolution.__all__
__all__ += _indice_pairs.__all__
__all__ += _moe_dispatch.__all__
__all__ += _moe_experts.__all__
__all__ += _moe_experts_quantized.__all__
__all__ += _moe_permute.__all__
__all__ += _moe_re_routing.__all__
__all__ += _moe_routing.__all__
__all__ += _mutual_information.__all__
__all__ += _points.__all__
__all__ += _vector_pooling.__all__
__all__ += _rnnt_logprobs.__all__
__all__ += _rnnt_loss.__all__
__all__ += _rnnt_loss_pruned.__all__
__all__ += _rnnt_pruning.__all__
__all__ += _roi_pooling.__all__
__all__ += _scatter.__all__
__all__ += _segments.__all__
__all__ += _voxel_index.__all__

refuse_missing_gradients()
