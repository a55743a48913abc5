# Types of the extension module, which src/bindings/python/module.cc and src/*/python.cc implement.
from collections.abc import Mapping
from types import ModuleType
from typing import Any, SupportsFloat, SupportsIndex, TypedDict

from turnout.typing import Array, ExpertActivation, ExpertPrecision, Ints, R, ReduceType, Source

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

class OutputMemory: ...  # memory from the output cache; returns there when deleted

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

torch: Any  # the submodule with the operators for torch tensors, which run on torch's threads

def schemas() -> list[dict[str, Any]]: ...
def example(op: str, /) -> dict[str, Any]: ...
def defined_operators() -> list[str]: ...
def check_definition(op: str, draws: int, seed: int, /) -> int: ...
def check_metadata(
    op: str,
    arguments: Mapping[str, tuple[str, tuple[int | None, ...]] | None],
    scalars: Mapping[str, int | tuple[int | float | None, ...] | None],
    sizes: Mapping[str, int],
    /,
) -> None: ...
def moe_experts_transposed(
    hidden_states: Source[R],
    topk_ids: Array,
    topk_weights: Array,
    w13: Array,
    w2: Array,
    w13_bias: Array | None,
    w2_bias: Array | None,
    activation: ExpertActivation,
    gated: bool,
    interleaved: bool,
    alpha: SupportsFloat,
    limit: SupportsFloat | None,
    precision: ExpertPrecision,
    transposed: bool,
    out: R | None,
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

# The registered operators. The package's modules have typed functions for them.
def __getattr__(name: str) -> Any: ...
