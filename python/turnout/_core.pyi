# Types of the extension module; src/doors/python/module.cc and src/*/python.cc are its sources.
from collections.abc import Sequence
from typing import Any, SupportsIndex, TypedDict

__version__: str

class ScalarRow(TypedDict):
    name: str
    min: int
    max: int
    values: str
    length: str

class ArgumentRow(TypedDict):
    name: str
    role: str
    optional: bool
    dtypes: str
    dims: str

class SignatureRow(TypedDict):
    op: str
    scalars: list[ScalarRow]
    arguments: list[ArgumentRow]

class Info(TypedDict):
    version: str
    isa: str
    isa_note: str
    supported_isas: list[str]
    threads: int
    output_cache_limit: int
    output_cache_idle: int
    scratch_idle: int

class OutputMemory: ...

class VoxelIndex:
    def __getstate__(self) -> tuple[Any, bool]: ...
    def __setstate__(self, state: tuple[Any, bool], /) -> None: ...

def signatures() -> list[SignatureRow]: ...
def functions() -> list[SignatureRow]: ...
def info() -> Info: ...
def get_num_threads() -> int: ...
def set_num_threads(threads: SupportsIndex, /) -> None: ...
def set_log(level: SupportsIndex, /) -> None: ...
def output_cache_limit() -> int: ...
def output_cache_idle() -> int: ...
def set_output_cache_limit(limit: SupportsIndex, /) -> None: ...
def trim() -> None: ...
def use_torch_threads(parallel_for: int, get_num_threads: int, /) -> None: ...
def torch_runs() -> int: ...
def stream_copy(to: Any, source: Any, /) -> None: ...
def fma_peak() -> float: ...
def invoke(op: str, arguments: list[tuple[Any, ...] | None], scalars: list[int | list[int]], /) -> None: ...
def check_descriptions(
    op: str,
    arguments: dict[str, tuple[str, tuple[int | None, ...]] | None],
    scalars: dict[str, int | tuple[int | None, ...] | None],
    /,
) -> None: ...
def moe_dispatch_forward(
    gates: Any,
    indices: Any,
    locations: Any,
    input: Any,
    capacity: SupportsIndex,
    num_experts: SupportsIndex,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def moe_dispatch_backward_data(
    gates: Any | None,
    indices: Any,
    locations: Any,
    dispatch: Any,
    capacity: SupportsIndex,
    num_experts: SupportsIndex,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def moe_dispatch_backward_gate(
    indices: Any,
    locations: Any,
    input: Any,
    dispatch: Any,
    capacity: SupportsIndex,
    num_experts: SupportsIndex,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def moe_dispatch_backward(
    gates: Any,
    indices: Any,
    locations: Any,
    input: Any,
    dispatch: Any,
    capacity: SupportsIndex,
    num_experts: SupportsIndex,
    out: tuple[Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any]: ...
def moe_locations(
    indices: Any,
    num_experts: SupportsIndex,
    priority: Any | None,
    out: tuple[Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any]: ...
def moe_dispatch(
    input: Any,
    indices: Any,
    locations: Any | None,
    capacity: SupportsIndex,
    num_experts: SupportsIndex,
    gates: Any | None,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def moe_combine(
    expert_output: Any,
    indices: Any,
    locations: Any | None,
    capacity: SupportsIndex,
    gates: Any | None,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def moe_combine_backward(
    grad_output: Any,
    expert_output: Any,
    indices: Any,
    locations: Any | None,
    capacity: SupportsIndex,
    gates: Any,
    out: tuple[Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any]: ...
def moe_token_permute(
    tokens: Any,
    indices: Any,
    num_out_tokens: SupportsIndex | None,
    out: tuple[Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any]: ...
def moe_token_unpermute(
    permuted_tokens: Any, sorted_indices: Any, probs: Any | None, out: Any | None, torch_team: bool, /
) -> Any: ...
def moe_re_routing(
    tokens: Any,
    expert_token_num_per_rank: Any,
    per_token_scales: Any | None,
    expert_token_num_type: SupportsIndex,
    idx_type: SupportsIndex,
    out: tuple[Any | None, Any | None, Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any | None, Any, Any]: ...
def moe_re_routing_inverse(
    permute_tokens: Any,
    permute_token_idx: Any,
    idx_type: SupportsIndex,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def sort_chunks_by_idxs(
    input: Any,
    split_sizes: Any,
    sorted_idxs: Any,
    probs: Any | None,
    out: tuple[Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any | None]: ...
def mutual_information_forward(
    px: Any,
    py: Any,
    boundary: Any | None,
    out: tuple[Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any]: ...
def mutual_information_backward(
    px: Any,
    py: Any,
    p: Any,
    ans_grad: Any,
    boundary: Any | None,
    overwrite_ans_grad: bool,
    out: tuple[Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any]: ...
def mutual_information_forward_backward(
    px: Any,
    py: Any,
    boundary: Any | None,
    out: tuple[Any | None, Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any, Any]: ...
def rnnt_logprobs_joint_forward(
    logits: Any,
    symbols: Any,
    termination_symbol: SupportsIndex,
    boundary: Any | None,
    modified: bool,
    out: tuple[Any | None, ...] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any, Any, Any]: ...
def rnnt_logprobs_joint_backward(
    logits: Any,
    symbols: Any,
    normalizer: Any,
    px_grad: Any,
    py_grad: Any,
    termination_symbol: SupportsIndex,
    boundary: Any | None,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def rnnt_logprobs_pruned_forward(
    logits: Any,
    symbols: Any,
    ranges: Any,
    termination_symbol: SupportsIndex,
    boundary: Any | None,
    modified: bool,
    use_hat_loss: bool,
    out: tuple[Any | None, ...] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any, Any, Any]: ...
def rnnt_logprobs_pruned_backward(
    logits: Any,
    symbols: Any,
    ranges: Any,
    normalizer: Any,
    px_grad: Any,
    py_grad: Any,
    termination_symbol: SupportsIndex,
    boundary: Any | None,
    use_hat_loss: bool,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def rnnt_logprobs_fused_forward(
    am: Any,
    lm: Any,
    weight: Any,
    bias: Any | None,
    activation: str,
    symbols: Any,
    ranges: Any,
    termination_symbol: SupportsIndex,
    boundary: Any | None,
    modified: bool,
    use_hat_loss: bool,
    out: tuple[Any | None, ...] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any, Any, Any]: ...
def rnnt_logprobs_fused_backward(
    am: Any,
    lm: Any,
    weight: Any,
    bias: Any | None,
    activation: str,
    symbols: Any,
    ranges: Any,
    normalizer: Any,
    px_grad: Any,
    py_grad: Any,
    termination_symbol: SupportsIndex,
    boundary: Any | None,
    use_hat_loss: bool,
    out: tuple[Any | None, ...] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any, Any, Any | None]: ...
def rnnt_logprobs_simple_forward(
    lm: Any,
    am: Any,
    symbols: Any,
    termination_symbol: SupportsIndex,
    boundary: Any | None,
    modified: bool,
    out: tuple[Any | None, ...] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any, Any, Any]: ...
def rnnt_logprobs_simple_backward(
    lm: Any,
    am: Any,
    symbols: Any,
    normalizer: Any,
    px_grad: Any,
    py_grad: Any,
    termination_symbol: SupportsIndex,
    boundary: Any | None,
    out: tuple[Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any]: ...
def rnnt_prune_ranges(
    px_grad: Any,
    py_grad: Any,
    boundary: Any,
    s_range: SupportsIndex,
    score: str,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def rnnt_pruning_forward(lm: Any, ranges: Any, out: Any | None, torch_team: bool, /) -> Any: ...
def rnnt_pruning_backward(
    pruned_grad: Any, ranges: Any, symbols: SupportsIndex, out: Any | None, torch_team: bool, /
) -> Any: ...
def rnnt_align(
    px: Any,
    py: Any,
    boundary: Any | None,
    out: tuple[Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any]: ...
def get_indice_pairs(
    indices: Any,
    batch_size: SupportsIndex,
    spatial_shape: Sequence[SupportsIndex],
    kernel_size: SupportsIndex | Sequence[SupportsIndex],
    stride: SupportsIndex | Sequence[SupportsIndex],
    padding: SupportsIndex | Sequence[SupportsIndex],
    dilation: SupportsIndex | Sequence[SupportsIndex],
    output_padding: SupportsIndex | Sequence[SupportsIndex],
    subm: bool,
    transpose: bool,
    out: tuple[Any | None, Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any, Any]: ...
def indice_pairs_output_shape(
    spatial_shape: Sequence[SupportsIndex],
    kernel_size: SupportsIndex | Sequence[SupportsIndex],
    stride: SupportsIndex | Sequence[SupportsIndex],
    padding: SupportsIndex | Sequence[SupportsIndex],
    dilation: SupportsIndex | Sequence[SupportsIndex],
    output_padding: SupportsIndex | Sequence[SupportsIndex],
    subm: bool,
    transpose: bool,
    /,
) -> tuple[int, ...]: ...
def indice_convolution_forward(
    features: Any,
    filters: Any,
    indice_pairs: Any,
    indice_num: Any,
    num_act_out: SupportsIndex,
    bias: Any | None,
    inverse: bool,
    subm: bool,
    index: Any | None,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def indice_convolution_backward_data(
    output_grad: Any,
    filters: Any,
    indice_pairs: Any,
    indice_num: Any,
    num_act_in: SupportsIndex,
    inverse: bool,
    subm: bool,
    index: Any | None,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def indice_convolution_index(
    indice_pairs: Any,
    indice_num: Any,
    rows: SupportsIndex,
    out_rows: SupportsIndex,
    inverse: bool,
    subm: bool,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def indice_convolution_backward_filter(
    features: Any,
    output_grad: Any,
    indice_pairs: Any,
    indice_num: Any,
    inverse: bool,
    subm: bool,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def global_max_pool_forward(
    features: Any, indices: Any, batch_size: SupportsIndex, out: Any | None, torch_team: bool, /
) -> Any: ...
def global_max_pool_backward(
    features: Any,
    features_out: Any,
    output_grad: Any,
    indices: Any,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def global_avg_pool_forward(
    features: Any, indices: Any, batch_size: SupportsIndex, out: Any | None, torch_team: bool, /
) -> Any: ...
def global_avg_pool_backward(output_grad: Any, indices: Any, out: Any | None, torch_team: bool, /) -> Any: ...
def indice_avg_pool_forward(
    features: Any,
    indice_pairs: Any,
    indice_num: Any,
    num_act_out: SupportsIndex,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def indice_avg_pool_backward(
    output_grad: Any,
    indice_pairs: Any,
    indice_num: Any,
    num_act_in: SupportsIndex,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def indice_max_pool_forward(
    features: Any,
    indice_pairs: Any,
    indice_num: Any,
    num_act_out: SupportsIndex,
    init: str,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def indice_max_pool_backward(
    features: Any,
    features_out: Any,
    output_grad: Any,
    indice_pairs: Any,
    indice_num: Any,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def voxelize(
    points: Any,
    voxel_size: Any,
    point_cloud_range: Any,
    max_points: SupportsIndex,
    max_voxels: SupportsIndex,
    return_map: bool,
    out: Any | tuple[Any | None, ...] | None,
    torch_team: bool,
    /,
) -> Any | tuple[Any, ...]: ...
def dynamic_scatter_forward(
    feats: Any,
    coors: Any,
    reduce_type: str,
    out: tuple[Any | None, Any | None, Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any, Any, Any]: ...
def dynamic_scatter_backward(
    grad_voxel_feats: Any,
    feats: Any | None,
    voxel_feats: Any | None,
    point2voxel_map: Any,
    voxel_points_count: Any | None,
    reduce_type: str,
    out: Any | None,
    torch_team: bool,
    /,
) -> Any: ...
def voxel_index(coors: Any, torch_team: bool, /) -> tuple[VoxelIndex, tuple[Any, Any, Any]]: ...
def voxel_index_first_points(index: VoxelIndex, /) -> Any: ...
def voxel_index_reduce(index: VoxelIndex, feats: Any, reduce_type: str, out: Any | None, /) -> Any: ...
def voxel_index_reduce_backward(
    index: VoxelIndex,
    grad_voxel_feats: Any,
    feats: Any | None,
    voxel_feats: Any | None,
    reduce_type: str,
    out: Any | None,
    /,
) -> Any: ...
def scatter_sum(
    src: Any, index: Any, dim_size: SupportsIndex | None, out: Any | None, torch_team: bool, /
) -> Any: ...
def scatter_mean(
    src: Any, index: Any, dim_size: SupportsIndex | None, out: Any | None, torch_team: bool, /
) -> Any: ...
def scatter_max(
    src: Any,
    index: Any,
    dim_size: SupportsIndex | None,
    out: tuple[Any | None, Any | None] | None,
    torch_team: bool,
    /,
) -> tuple[Any, Any]: ...
def scatter_sum_backward(grad_out: Any, index: Any, out: Any | None, torch_team: bool, /) -> Any: ...
def scatter_mean_backward(grad_out: Any, index: Any, out: Any | None, torch_team: bool, /) -> Any: ...
def scatter_max_backward(
    grad_out: Any, index: Any, argmax: Any, out: Any | None, torch_team: bool, /
) -> Any: ...
