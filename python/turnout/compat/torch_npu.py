"""torch_npu's names: ``turnout.compat.torch_npu``.

Example:
    >>> from turnout.compat import torch_npu
    >>> tokens, experts = torch.tensor([[1.0], [2.0]]), torch.tensor([[1, 0], [1, 2]])
    >>> permuted, went_to = torch_npu.npu_moe_token_permute(tokens, experts)
    >>> permuted.tolist(), went_to.tolist()
    ([[1.0], [1.0], [2.0], [2.0]], [1, 0, 2, 3])
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnout.compat._install import Installation
from turnout.torch.messages import own_messages
from turnout.torch.moe_permute import moe_token_permute, moe_token_unpermute
from turnout.torch.moe_re_routing import moe_re_routing

__all__ = [
    "install",
    "npu_moe_re_routing",
    "npu_moe_token_permute",
    "npu_moe_token_unpermute",
    "uninstall",
]

_BYTE_FLOATS = (torch.float8_e4m3fn, torch.float8_e5m2)
# E8M0, which torch_npu also accepts as plain bytes. Older torch releases lack the type.
_BYTE_SCALES = tuple(getattr(torch, name) for name in ("float8_e8m0fnu", "uint8") if hasattr(torch, name))


@own_messages()
def npu_moe_re_routing(
    tokens: torch.Tensor,
    expert_token_num_per_rank: torch.Tensor,
    *,
    per_token_scales: torch.Tensor | None = None,
    expert_token_num_type: int = 1,
    idx_type: int = 0,
    tokens_dtype: torch.dtype | int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """:func:`turnout.torch.moe_re_routing` with torch_npu's arguments and results.

    Scales of 8-bit floats are E8M0, as ``torch.float8_e8m0fnu`` or as bytes in ``torch.uint8``. Without
    scales, the second result is float32 zeros ``[rows]``. ``tokens_dtype``, a dtype or one of torch_npu's
    numbers, says how torch_npu interprets the bytes of ``tokens``. It has no effect here, because rows are
    moved as bytes.
    """
    if not isinstance(tokens_dtype, (torch.dtype, int, type(None))):
        raise TypeError(
            f"npu_moe_re_routing: tokens_dtype is of type {type(tokens_dtype).__name__}, expected a "
            "torch.dtype, an integer or None"
        )
    if (
        tokens.dtype in _BYTE_FLOATS
        and per_token_scales is not None
        and per_token_scales.dtype not in _BYTE_SCALES
    ):
        raise ValueError(
            f"npu_moe_re_routing: per_token_scales has dtype {per_token_scales.dtype}, expected "
            f"torch.float8_e8m0fnu or torch.uint8 for tokens of {tokens.dtype}"
        )
    permuted, scales, idx, num = moe_re_routing(
        tokens,
        expert_token_num_per_rank,
        per_token_scales=per_token_scales,
        expert_token_num_type=expert_token_num_type,
        idx_type=idx_type,
    )
    if scales is None:
        scales = tokens.new_zeros((tokens.shape[0],), dtype=torch.float32)
    return permuted, scales, idx, num


@own_messages()
def npu_moe_token_permute(
    tokens: torch.Tensor,
    indices: torch.Tensor,
    num_out_tokens: int | None = None,
    padded_mode: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`turnout.torch.moe_token_permute`: returns the permuted tokens and the row of each choice."""
    return moe_token_permute(tokens, indices, num_out_tokens, padded_mode)


@own_messages()
def npu_moe_token_unpermute(
    permuted_tokens: torch.Tensor,
    sorted_indices: torch.Tensor,
    probs: torch.Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> torch.Tensor:
    """:func:`turnout.torch.moe_token_unpermute`: returns the sum of each token's rows times ``probs``."""
    return moe_token_unpermute(permuted_tokens, sorted_indices, probs, padded_mode, restore_shape)


install, uninstall = Installation(
    "torch_npu",
    {
        "torch_npu": {name: globals()[name] for name in __all__ if name.startswith("npu_")},
    },
).functions("import torch_npu")
