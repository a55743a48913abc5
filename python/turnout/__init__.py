"""Index-driven operators for machine learning on the CPU: which row goes where.

Functions take NumPy arrays, and the arrays of every library that speaks DLPack; nothing but NumPy is needed.
With PyTorch installed, ``import turnout.torch`` brings the same operators as torch operators.
"""

from turnout.dynamic_scatter import (
    VoxelIndex,
    dynamic_scatter_backward,
    dynamic_scatter_forward,
    voxelize,
)
from turnout.indice_convolution import (
    indice_avg_pool_backward,
    indice_avg_pool_forward,
    indice_convolution_backward_data,
    indice_convolution_backward_filter,
    indice_convolution_forward,
    indice_convolution_index,
    indice_max_pool_backward,
    indice_max_pool_forward,
)
from turnout.library import (
    OutputCache,
    __version__,
    get_num_threads,
    output_cache,
    set_log,
    set_num_threads,
    show_config,
    trim,
)
from turnout.moe_dispatch import (
    moe_dispatch_backward,
    moe_dispatch_backward_data,
    moe_dispatch_backward_gate,
    moe_dispatch_forward,
)
from turnout.moe_permute import moe_token_permute, moe_token_unpermute, sort_chunks_by_idxs
from turnout.moe_re_routing import moe_re_routing, moe_re_routing_inverse
from turnout.moe_routing import moe_combine, moe_combine_backward, moe_dispatch, moe_locations
from turnout.mutual_information import (
    mutual_information_backward,
    mutual_information_forward,
    mutual_information_forward_backward,
)
from turnout.rnnt_loss import (
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
from turnout.scatter import (
    scatter_max,
    scatter_max_backward,
    scatter_mean,
    scatter_mean_backward,
    scatter_sum,
    scatter_sum_backward,
)
from turnout.sparse_conv import get_indice_pairs, indice_pairs_output_shape

__all__ = [
    "OutputCache",
    "VoxelIndex",
    "__version__",
    "dynamic_scatter_backward",
    "dynamic_scatter_forward",
    "get_indice_pairs",
    "get_num_threads",
    "indice_avg_pool_backward",
    "indice_avg_pool_forward",
    "indice_convolution_backward_data",
    "indice_convolution_backward_filter",
    "indice_convolution_forward",
    "indice_convolution_index",
    "indice_max_pool_backward",
    "indice_max_pool_forward",
    "indice_pairs_output_shape",
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
    "output_cache",
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
    "set_log",
    "set_num_threads",
    "show_config",
    "sort_chunks_by_idxs",
    "trim",
    "voxelize",
]
