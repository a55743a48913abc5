"""Mixture of experts without capacity: sorts tokens by expert, and back, as torch operators."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnout.torch.messages import own_messages
from turnout.torch.moe_routing import _combine
from turnout.torch.registration import gradient
from turnout.torch.tracing import computed_size

__all__ = ["moe_token_permute", "moe_token_unpermute", "sort_chunks_by_idxs"]

_permute = torch.ops.turnout.moe_token_permute.default
_sort = torch.ops.turnout.sort_chunks_by_idxs.default


def _kept_rows(choices: int, num_out_tokens: int) -> int:
    """The number of rows of a slice ``[:num_out_tokens]``; 0 means all."""
    if num_out_tokens > 0:
        return min(num_out_tokens, choices)
    return max(choices + num_out_tokens, 0)


@computed_size("moe_token_permute")
def _(arguments):
    indices, num_out_tokens = arguments["indices"], arguments["num_out_tokens"]
    choices = indices.shape[0] * (indices.shape[1] if indices.dim() == 2 else 1)
    if num_out_tokens is None or num_out_tokens == 0:
        return choices
    return _kept_rows(choices, num_out_tokens)


@gradient(
    "moe_token_permute",
    of="tokens",
    saves="tokens sorted_indices",
    constant="sorted_indices",
    materialize=False,
)
def _(saved, grad, grad_indices):
    if grad is None:
        return {}
    samples = saved.tokens.shape[0]
    rows = saved.sorted_indices.reshape(samples, -1) if samples else saved.sorted_indices.reshape(0, 1)
    return {"tokens": _combine(grad, rows, None, 1)}


@gradient("sort_chunks_by_idxs", of="input probs", saves="split_sizes sorted_idxs", materialize=False)
def _(saved, grad, grad_probs):
    order = saved.sorted_idxs.long()
    sizes, back = saved.split_sizes[order], torch.argsort(order)
    grads = {}
    if grad is not None and saved.needs.input:
        grads["input"] = _sort(grad, sizes, back)[0]
    if grad_probs is not None and saved.needs.probs:
        grads["probs"] = _sort(grad_probs.unsqueeze(1), sizes, back)[0].squeeze(1)
    return grads


@own_messages()
def moe_token_permute(
    tokens: torch.Tensor,
    indices: torch.Tensor,
    num_out_tokens: int | None = None,
    padded_mode: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies tokens into the order of their experts.

    Returns permuted_tokens and sorted_indices, int32: the row of each choice. The definition is that of
    :func:`turnout.moe_token_permute`. With ``padded_mode``, ``indices [experts, capacity]`` are token
    numbers, ``permuted_tokens[e * capacity + c] = tokens[indices[e, c]]``, and sorted_indices is ``indices``.
    Differentiable in ``tokens``.

    Example:
        >>> tokens = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> experts = torch.tensor([[1, 0], [1, 2]])  # each token's first and second choice
        >>> permuted, went_to = turnout.torch.moe_token_permute(tokens, experts)
        >>> permuted.tolist(), went_to.tolist()
        ([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0], [3.0, 4.0]], [1, 0, 2, 3])
    """
    if padded_mode:
        return tokens.index_select(0, indices.reshape(-1)), indices
    return _permute(tokens, indices, num_out_tokens)


@own_messages(expert_output="permuted_tokens", indices="sorted_indices", gates="probs")
def moe_token_unpermute(
    permuted_tokens: torch.Tensor,
    sorted_indices: torch.Tensor,
    probs: torch.Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> torch.Tensor:
    """The inverse of :func:`moe_token_permute`: the sum of the rows of each token, times ``probs``.

    The definition is that of :func:`turnout.moe_token_unpermute`. With ``padded_mode``, the rows, times
    ``probs [experts, capacity]``, are added to a result of shape ``restore_shape``; otherwise
    ``restore_shape`` is ignored. Differentiable in ``permuted_tokens`` and ``probs``.

    Example:
        >>> tokens = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> experts = torch.tensor([[1, 0], [1, 2]])  # each token's first and second choice
        >>> permuted, went_to = turnout.torch.moe_token_permute(tokens, experts)
        >>> probs = torch.tensor([[0.75, 0.25], [0.5, 0.5]])
        >>> turnout.torch.moe_token_unpermute(permuted, went_to, probs).tolist()  # the tokens again
        [[1.0, 2.0], [3.0, 4.0]]
    """
    if padded_mode:
        return _added_rows(permuted_tokens, sorted_indices, probs, restore_shape)
    if probs is not None and probs.dim() == 2:
        if sorted_indices.numel() != probs.numel():
            raise ValueError(
                f"moe_token_unpermute: sorted_indices has {sorted_indices.numel()} elements, expected "
                f"{probs.numel()} as probs has shape {list(probs.shape)}"
            )
        sorted_indices = sorted_indices.reshape(probs.shape)
    return _combine(permuted_tokens, sorted_indices, None, 1, probs)


def _added_rows(rows, tokens, probs, shape):
    if shape is None:
        raise ValueError("moe_token_unpermute: restore_shape is None, expected a shape with padded_mode")
    wide = torch.promote_types(rows.dtype, torch.float32)
    values = rows.to(wide)
    if probs is not None:
        values = values * probs.reshape(-1, 1).to(wide)
    return values.new_zeros(tuple(shape)).index_add(0, tokens.reshape(-1), values).to(rows.dtype)


@own_messages()
def sort_chunks_by_idxs(
    input: torch.Tensor,
    split_sizes: torch.Tensor,
    sorted_idxs: torch.Tensor,
    probs: torch.Tensor | None = None,
    fused: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Splits the rows of ``input`` and ``probs [rows]`` into chunks and reorders the chunks.

    The definition is that of :func:`turnout.sort_chunks_by_idxs`. ``fused`` is ignored.
    Differentiable in ``input`` and ``probs``.

    Example:
        >>> rows = torch.arange(5.0).unsqueeze(1)
        >>> sizes, order = torch.tensor([2, 1, 2]), torch.tensor([2, 0, 1])
        >>> output, _ = turnout.torch.sort_chunks_by_idxs(rows, sizes, order)
        >>> output.flatten().tolist()
        [3.0, 4.0, 0.0, 1.0, 2.0]
    """
    del fused
    output, permuted_probs = _sort(input, split_sizes, sorted_idxs, probs)
    return output, None if probs is None else permuted_probs
