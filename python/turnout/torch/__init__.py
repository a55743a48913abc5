"""The operators for PyTorch: ``torch.ops.turnout.*``, ready for ``torch.compile``, on torch's threads."""

from turnout.torch import nn
from turnout.torch.convolution import (
    indice_avg_pool,
    indice_convolution,
    indice_convolution_index,
    indice_max_pool,
)
from turnout.torch.dynamic_scatter import dynamic_scatter, voxelize
from turnout.torch.expert_parallel import expert_parallel
from turnout.torch.moe_dispatch import (
    moe_dispatch_backward,
    moe_dispatch_backward_data,
    moe_dispatch_backward_gate,
    moe_dispatch_forward,
)
from turnout.torch.moe_permute import moe_token_permute, moe_token_unpermute, sort_chunks_by_idxs
from turnout.torch.moe_re_routing import moe_re_routing, moe_re_routing_inverse
from turnout.torch.moe_routing import moe_combine, moe_dispatch, moe_locations
from turnout.torch.mutual_information import (
    joint_mutual_information_recursion,
    mutual_information_recursion,
)
from turnout.torch.rnnt_logprobs import (
    get_rnnt_logprobs,
    get_rnnt_logprobs_joint,
    get_rnnt_logprobs_pruned,
    get_rnnt_logprobs_smoothed,
)
from turnout.torch.rnnt_loss import (
    rnnt_loss,
    rnnt_loss_pruned,
    rnnt_loss_pruned_fused,
    rnnt_loss_simple,
    rnnt_loss_smoothed,
)
from turnout.torch.rnnt_pruning import (
    RnntAlignment,
    do_rnnt_pruning,
    get_rnnt_prune_ranges,
    get_rnnt_prune_ranges_deprecated,
    rnnt_align,
    rnnt_emission_delay,
)
from turnout.torch.scatter import scatter_max, scatter_mean, scatter_sum
from turnout.torch.sparse_conv import get_indice_pairs
from turnout.torch.voxel_index import VoxelIndex

__all__ = [
    "RnntAlignment",
    "VoxelIndex",
    "do_rnnt_pruning",
    "dynamic_scatter",
    "expert_parallel",
    "get_indice_pairs",
    "get_rnnt_logprobs",
    "get_rnnt_logprobs_joint",
    "get_rnnt_logprobs_pruned",
    "get_rnnt_logprobs_smoothed",
    "get_rnnt_prune_ranges",
    "get_rnnt_prune_ranges_deprecated",
    "indice_avg_pool",
    "indice_convolution",
    "indice_convolution_index",
    "indice_max_pool",
    "joint_mutual_information_recursion",
    "moe_combine",
    "moe_dispatch",
    "moe_dispatch_backward",
    "moe_dispatch_backward_data",
    "moe_dispatch_backward_gate",
    "moe_dispatch_forward",
    "moe_locations",
    "moe_re_routing",
    "moe_re_routing_inverse",
    "moe_token_permute",
    "moe_token_unpermute",
    "mutual_information_recursion",
    "nn",
    "rnnt_align",
    "rnnt_emission_delay",
    "rnnt_loss",
    "rnnt_loss_pruned",
    "rnnt_loss_pruned_fused",
    "rnnt_loss_simple",
    "rnnt_loss_smoothed",
    "scatter_max",
    "scatter_mean",
    "scatter_sum",
    "sort_chunks_by_idxs",
    "voxelize",
]
