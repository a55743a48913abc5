# Types of the extension module; src/bindings/python/module.cc and src/*/python.cc are its sources.
from collections.abc import Mapping
from types import ModuleType
from typing import Any, SupportsFloat, SupportsIndex, TypedDict

from turnout.typing import (
    R2,
    R3,
    Activation,
    Array,
    ExpertActivation,
    Int,
    Ints,
    PoolInit,
    PruneScore,
    R,
    ReduceType,
    Source,
)

__version__: str

class ScalarRow(TypedDict):
    name: str
    range: str
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
def find_torch_threads(torch: ModuleType, /) -> None: ...
def use_torch_threads(parallel_for: int, get_num_threads: int, /) -> None: ...
def torch_runs() -> int: ...
def stream_copy(to: Any, source: Any, /) -> None: ...
def fma_peak() -> float: ...
def invoke(op: str, arguments: list[tuple[Any, ...] | None], scalars: list[int | list[int]], /) -> None: ...

torch: Any

def schemas() -> list[dict[str, Any]]: ...
def check_metadata(
    op: str,
    arguments: Mapping[str, tuple[str, tuple[int | None, ...]] | None],
    scalars: Mapping[str, int | tuple[float | None, ...] | None],
    sizes: Mapping[str, int],
    /,
) -> None: ...
def grouped_mm(
    input: Source[R],
    weight: Array,
    offs: Array,
    bias: Array | None,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def grouped_mm_backward_weight(
    input: Source[R],
    out_grad: Array,
    offs: Array,
    with_bias: bool,
    out: tuple[R | None, R | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R | None]: ...
def moe_experts(
    hidden_states: Source[R],
    topk_ids: Array,
    topk_weights: Array,
    w13: Array,
    w2: Array,
    w13_bias: Array | None,
    w2_bias: Array | None,
    activation: ExpertActivation,
    interleaved: bool,
    transposed: bool,
    gated: bool,
    alpha: SupportsFloat,
    limit: SupportsFloat | None,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def moe_experts_quantized(
    hidden_states: Source[R],
    topk_ids: Array,
    topk_weights: Array,
    w13: Array,
    w13_scale: Array,
    w2: Array,
    w2_scale: Array,
    w13_bias: Array | None,
    w2_bias: Array | None,
    activation: ExpertActivation,
    interleaved: bool,
    gated: bool,
    alpha: SupportsFloat,
    limit: SupportsFloat | None,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def moe_token_unpermute(
    permuted_tokens: Source[R],
    sorted_indices: Array,
    probs: Array | None,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def moe_re_routing(
    tokens: Source[R],
    expert_token_num_per_rank: Source[R3],
    per_token_scales: Source[R2] | None,
    expert_token_num_type: Int,
    idx_type: Int,
    out: tuple[R | None, R2 | None, R | None, R3 | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R2 | None, R, R3]: ...
def moe_re_routing_inverse(
    permute_tokens: Source[R],
    permute_token_idx: Array,
    idx_type: Int,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def sort_chunks_by_idxs(
    input: Source[R],
    split_sizes: Array,
    sorted_idxs: Array,
    probs: Source[R2] | None,
    out: tuple[R | None, R2 | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R2 | None]: ...
def mutual_information_forward(
    px: Source[R],
    py: Array,
    boundary: Array | None,
    out: tuple[R | None, R | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R]: ...
def mutual_information_backward(
    px: Source[R],
    py: Array,
    p: Array,
    ans_grad: Array,
    boundary: Array | None,
    overwrite_ans_grad: bool,
    out: tuple[R | None, R | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R]: ...
def mutual_information_forward_backward(
    px: Source[R],
    py: Array,
    boundary: Array | None,
    out: tuple[R | None, R | None, R | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R, R]: ...
def rnnt_logprobs_joint_forward(
    logits: Source[R],
    symbols: Array,
    termination_symbol: Int,
    boundary: Array | None,
    modified: bool,
    out: tuple[R | None, R | None, R | None, R | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R, R, R]: ...
def rnnt_logprobs_joint_backward(
    logits: Source[R],
    symbols: Array,
    normalizer: Array,
    px_grad: Array,
    py_grad: Array,
    termination_symbol: Int,
    boundary: Array | None,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def rnnt_logprobs_pruned_forward(
    logits: Source[R],
    symbols: Array,
    ranges: Array,
    termination_symbol: Int,
    boundary: Array | None,
    modified: bool,
    use_hat_loss: bool,
    out: tuple[R | None, R | None, R | None, R | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R, R, R]: ...
def rnnt_logprobs_pruned_backward(
    logits: Source[R],
    symbols: Array,
    ranges: Array,
    normalizer: Array,
    px_grad: Array,
    py_grad: Array,
    termination_symbol: Int,
    boundary: Array | None,
    use_hat_loss: bool,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def rnnt_logprobs_fused_forward(
    am: Source[R],
    lm: Array,
    weight: Array,
    bias: Array | None,
    activation: Activation,
    symbols: Array,
    ranges: Array,
    termination_symbol: Int,
    boundary: Array | None,
    modified: bool,
    use_hat_loss: bool,
    out: tuple[R | None, R | None, R | None, R | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R, R, R]: ...
def rnnt_logprobs_fused_backward(
    am: Source[R],
    lm: Array,
    weight: Array,
    bias: Array | None,
    activation: Activation,
    symbols: Array,
    ranges: Array,
    normalizer: Array,
    px_grad: Array,
    py_grad: Array,
    termination_symbol: Int,
    boundary: Array | None,
    use_hat_loss: bool,
    out: tuple[R | None, R | None, R | None, R | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R, R, R | None]: ...
def rnnt_logprobs_simple_forward(
    lm: Source[R],
    am: Array,
    symbols: Array,
    termination_symbol: Int,
    boundary: Array | None,
    modified: bool,
    out: tuple[R | None, R | None, R | None, R | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R, R, R]: ...
def rnnt_logprobs_simple_backward(
    lm: Source[R],
    am: Array,
    symbols: Array,
    normalizer: Array,
    px_grad: Array,
    py_grad: Array,
    termination_symbol: Int,
    boundary: Array | None,
    out: tuple[R | None, R | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R]: ...
def rnnt_prune_ranges(
    px_grad: Source[R],
    py_grad: Array,
    boundary: Array,
    s_range: Int,
    score: PruneScore,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def rnnt_pruning_forward(lm: Source[R], ranges: Array, out: R | None, use_torch_threads: bool, /) -> R: ...
def rnnt_pruning_backward(
    pruned_grad: Source[R], ranges: Array, symbols: Int, out: R | None, use_torch_threads: bool, /
) -> R: ...
def rnnt_align(
    px: Source[R],
    py: Array,
    boundary: Array | None,
    out: tuple[R | None, R | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R]: ...
def get_indice_pairs(
    indices: Source[R],
    batch_size: Int,
    spatial_shape: Ints,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    output_padding: Ints,
    subm: bool,
    transpose: bool,
    out: tuple[R | None, R | None, R | None] | None,
    use_torch_threads: bool,
    /,
) -> tuple[R, R, R]: ...
def indice_pairs_output_shape(
    spatial_shape: Ints,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    output_padding: Ints,
    subm: bool,
    transpose: bool,
    /,
) -> tuple[int, ...]: ...
def indice_convolution_forward(
    features: Source[R],
    filters: Array,
    indice_pairs: Array,
    indice_num: Array,
    num_act_out: Int,
    bias: Array | None,
    inverse: bool,
    subm: bool,
    index: Array | None,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def indice_convolution_backward_data(
    output_grad: Source[R],
    filters: Array,
    indice_pairs: Array,
    indice_num: Array,
    num_act_in: Int,
    inverse: bool,
    subm: bool,
    index: Array | None,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def indice_convolution_index(
    indice_pairs: Source[R],
    indice_num: Array,
    rows: Int,
    out_rows: Int,
    inverse: bool,
    subm: bool,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def indice_convolution_backward_filter(
    features: Source[R],
    output_grad: Array,
    indice_pairs: Array,
    indice_num: Array,
    inverse: bool,
    subm: bool,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def global_max_pool_forward(
    features: Source[R], indices: Array, batch_size: Int, out: R | None, use_torch_threads: bool, /
) -> R: ...
def global_max_pool_backward(
    features: Source[R],
    features_out: Array,
    output_grad: Array,
    indices: Array,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def global_avg_pool_forward(
    features: Source[R], indices: Array, batch_size: Int, out: R | None, use_torch_threads: bool, /
) -> R: ...
def global_avg_pool_backward(
    output_grad: Source[R], indices: Array, out: R | None, use_torch_threads: bool, /
) -> R: ...
def indice_avg_pool_forward(
    features: Source[R],
    indice_pairs: Array,
    indice_num: Array,
    num_act_out: Int,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def indice_avg_pool_backward(
    output_grad: Source[R],
    indice_pairs: Array,
    indice_num: Array,
    num_act_in: Int,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def indice_max_pool_forward(
    features: Source[R],
    indice_pairs: Array,
    indice_num: Array,
    num_act_out: Int,
    init: PoolInit,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def indice_max_pool_backward(
    features: Source[R],
    features_out: Array,
    output_grad: Array,
    indice_pairs: Array,
    indice_num: Array,
    out: R | None,
    use_torch_threads: bool,
    /,
) -> R: ...
def voxel_index(coors: Source[R], use_torch_threads: bool, /) -> tuple[VoxelIndex, tuple[R, R, R]]: ...
def voxel_index_first_points(index: VoxelIndex, /) -> Any: ...
def voxel_index_reduce(
    index: VoxelIndex, feats: Source[R], reduce_type: ReduceType, out: R | None, /
) -> R: ...
def voxel_index_reduce_backward(
    index: VoxelIndex,
    grad_voxel_feats: Source[R],
    feats: Array | None,
    voxel_feats: Array | None,
    reduce_type: ReduceType,
    out: R | None,
    /,
) -> R: ...

# The operators of the registry, for which the modules of the package have types.
def __getattr__(name: str) -> Any: ...
