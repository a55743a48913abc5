"""The operators in plain NumPy, slow and readable, and a check of the installed ones against them."""

from turnout.check import dynamic_scatter as _dynamic_scatter
from turnout.check import indice_convolution as _indice_convolution
from turnout.check import moe_dispatch as _moe_dispatch
from turnout.check import moe_permute as _moe_permute
from turnout.check import moe_re_routing as _moe_re_routing
from turnout.check import moe_routing as _moe_routing
from turnout.check import mutual_information as _mutual_information
from turnout.check import rnnt_loss as _rnnt_loss
from turnout.check import scatter as _scatter
from turnout.check import sparse_conv as _sparse_conv
from turnout.check.dynamic_scatter import dynamic_scatter_backward, dynamic_scatter_forward, voxelize
from turnout.check.indice_convolution import (
    indice_avg_pool_backward,
    indice_avg_pool_forward,
    indice_convolution_backward_data,
    indice_convolution_backward_filter,
    indice_convolution_forward,
    indice_max_pool_backward,
    indice_max_pool_forward,
)
from turnout.check.moe_dispatch import (
    moe_dispatch_backward,
    moe_dispatch_backward_data,
    moe_dispatch_backward_gate,
    moe_dispatch_forward,
)
from turnout.check.moe_permute import moe_token_permute, moe_token_unpermute, sort_chunks_by_idxs
from turnout.check.moe_re_routing import moe_re_routing, moe_re_routing_inverse
from turnout.check.moe_routing import moe_combine, moe_combine_backward, moe_dispatch, moe_locations
from turnout.check.mutual_information import (
    mutual_information_backward,
    mutual_information_forward,
    mutual_information_forward_backward,
)
from turnout.check.rnnt_loss import (
    rnnt_align,
    rnnt_logprobs_fused_backward,
    rnnt_logprobs_fused_forward,
    rnnt_logprobs_joint_backward,
    rnnt_logprobs_joint_forward,
    rnnt_logprobs_pruned_backward,
    rnnt_logprobs_pruned_forward,
    rnnt_logprobs_simple_backward,
    rnnt_logprobs_simple_forward,
    rnnt_prune_ranges,
    rnnt_pruning_backward,
    rnnt_pruning_forward,
)
from turnout.check.scatter import (
    scatter_max,
    scatter_max_backward,
    scatter_mean,
    scatter_mean_backward,
    scatter_sum,
    scatter_sum_backward,
)
from turnout.check.sparse_conv import get_indice_pairs

CHECKS = {
    **_dynamic_scatter.CHECKS,
    **_indice_convolution.CHECKS,
    **_moe_dispatch.CHECKS,
    **_moe_permute.CHECKS,
    **_moe_re_routing.CHECKS,
    **_moe_routing.CHECKS,
    **_mutual_information.CHECKS,
    **_rnnt_loss.CHECKS,
    **_scatter.CHECKS,
    **_sparse_conv.CHECKS,
}

__all__ = [
    "CHECKS",
    "dynamic_scatter_backward",
    "dynamic_scatter_forward",
    "get_indice_pairs",
    "indice_avg_pool_backward",
    "indice_avg_pool_forward",
    "indice_convolution_backward_data",
    "indice_convolution_backward_filter",
    "indice_convolution_forward",
    "indice_max_pool_backward",
    "indice_max_pool_forward",
    "moe_combine",
    "moe_combine_backward",
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
    "mutual_information_backward",
    "mutual_information_forward",
    "mutual_information_forward_backward",
    "rnnt_align",
    "rnnt_logprobs_fused_backward",
    "rnnt_logprobs_fused_forward",
    "rnnt_logprobs_joint_backward",
    "rnnt_logprobs_joint_forward",
    "rnnt_logprobs_pruned_backward",
    "rnnt_logprobs_pruned_forward",
    "rnnt_logprobs_simple_backward",
    "rnnt_logprobs_simple_forward",
    "rnnt_prune_ranges",
    "rnnt_pruning_backward",
    "rnnt_pruning_forward",
    "scatter_max",
    "scatter_max_backward",
    "scatter_mean",
    "scatter_mean_backward",
    "scatter_sum",
    "scatter_sum_backward",
    "sort_chunks_by_idxs",
    "voxelize",
]
