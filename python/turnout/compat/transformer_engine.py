"""Transformer Engine's permute functions for CPU tensors: ``turnout.compat.transformer_engine``.

A ``row_id_map`` gives the row of each choice, or -1: ``[tokens, experts]`` for a mask, ``[tokens, choices]``
for indices. Transformer Engine has its own form for its kernels, so pass only maps that this module made.

Example:
    >>> from turnout.compat import transformer_engine as te
    >>> mask = torch.tensor([[1, 0], [1, 1]])  # token 0 goes to expert 0, token 1 to both
    >>> permuted, row_id_map = te.moe_permute(torch.tensor([[1.0], [2.0]]), mask, map_type="mask")
    >>> permuted.tolist()
    [[1.0], [2.0], [2.0]]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnout.compat._install import Installation
from turnout.torch.messages import own_messages
from turnout.torch.moe_permute import moe_token_permute, sort_chunks_by_idxs
from turnout.torch.moe_routing import moe_combine, moe_dispatch

__all__ = [
    "install",
    "moe_permute",
    "moe_permute_and_pad_with_probs",
    "moe_permute_with_probs",
    "moe_sort_chunks_by_index",
    "moe_sort_chunks_by_index_with_probs",
    "moe_unpermute",
    "uninstall",
]

_MAP_TYPES = ("mask", "index")


def _check_map_type(function: str, map_type: str) -> None:
    if map_type not in _MAP_TYPES:
        raise ValueError(f"{function}: map_type is {map_type!r}, expected 'mask' or 'index'")


def _rows_of_mask(function: str, inp: torch.Tensor, routing_map: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Returns the row of each (token, expert) of a mask, expert by expert, and the number of rows."""
    if routing_map.dim() != 2 or routing_map.shape[0] != inp.shape[0]:
        raise ValueError(
            f"{function}: routing_map has shape {list(routing_map.shape)}, expected [tokens, experts] with "
            f"tokens = {inp.shape[0]}"
        )
    chosen = routing_map.mT != 0
    rows = chosen.reshape(-1).cumsum(0, dtype=torch.int32)
    count = int(rows[-1]) if rows.numel() else 0
    return torch.where(chosen, rows.view(chosen.shape) - 1, -1).mT.contiguous(), count


def _scattered(inp: torch.Tensor, rows: torch.Tensor, count: int) -> torch.Tensor:
    return moe_dispatch(inp, rows, None, 1, count).squeeze(1)


@own_messages()
def moe_permute(
    inp: torch.Tensor,
    routing_map: torch.Tensor,
    num_out_tokens: int | None = None,
    max_token_num: int = -1,
    map_type: str = "mask",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies tokens into the order of their experts. Returns the output and its row_id_map.

    Args:
        inp: ``[tokens, hidden]``.
        routing_map: a mask ``[tokens, experts]``, nonzero where a token goes, or indices ``[tokens,
            choices]``.
        num_out_tokens: the rows of the output; all if None, 0 or negative. Choices beyond them are dropped,
            and rows beyond the choices of a mask are zero.
        max_token_num: the workspace size on a GPU; ignored.
        map_type: the kind of ``routing_map``, 'mask' or 'index'.
    """
    del max_token_num
    _check_map_type("moe_permute", map_type)
    wanted = max(num_out_tokens or 0, 0)
    if map_type == "index":
        output, order = moe_token_permute(inp, routing_map, wanted)
        return output, order.reshape(routing_map.shape)
    rows, count = _rows_of_mask("moe_permute", inp, routing_map)
    return _scattered(inp, rows, wanted or count), rows


@own_messages()
def moe_permute_with_probs(
    inp: torch.Tensor, probs: torch.Tensor, routing_map: torch.Tensor, num_out_tokens: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """:func:`moe_permute` of a mask, which also permutes ``probs [tokens, experts]``.

    Returns the output, permuted_probs ``[rows]`` and row_id_map. Differentiable in ``inp`` and ``probs``.
    """
    rows, count = _rows_of_mask("moe_permute_with_probs", inp, routing_map)
    count = max(num_out_tokens or 0, 0) or count
    return _scattered(inp, rows, count), _permuted_probs(probs, rows, count), rows


def _permuted_probs(probs: torch.Tensor, rows: torch.Tensor, count: int) -> torch.Tensor:
    kept = (rows >= 0) & (rows < count)
    permuted = probs.new_zeros(count)
    return permuted.index_put((rows[kept].long(),), probs[kept])


@own_messages()
def moe_permute_and_pad_with_probs(
    inp: torch.Tensor,
    probs: torch.Tensor,
    routing_map: torch.Tensor,
    tokens_per_expert: torch.Tensor,
    align_size: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """:func:`moe_permute_with_probs`, with each expert's rows padded to a multiple of ``align_size``.

    Returns the output, permuted_probs, row_id_map, pad_offsets ``[experts]`` (None if nothing is padded)
    and the padded tokens_per_expert. row_id_map does not count padding, so pass pad_offsets to
    :func:`moe_unpermute`.
    """
    if align_size < 1:
        raise ValueError(f"moe_permute_and_pad_with_probs: align_size is {align_size}, expected 1 or more")
    rows, count = _rows_of_mask("moe_permute_and_pad_with_probs", inp, routing_map)
    counts = (rows >= 0).sum(0)
    if not torch.equal(counts, tokens_per_expert.to(counts.dtype)):
        raise ValueError(
            f"moe_permute_and_pad_with_probs: tokens_per_expert is {tokens_per_expert.tolist()}, expected "
            f"{counts.tolist()}, the counts of routing_map"
        )
    padded = (counts + align_size - 1) // align_size * align_size
    offsets = torch.cumsum(padded - counts, 0) - (padded - counts)
    total = int(padded.sum())
    if total == count:
        return _scattered(inp, rows, count), _permuted_probs(probs, rows, count), rows, None, padded
    with_padding = _padded(rows, offsets)
    permuted_probs = _permuted_probs(probs, with_padding, total)
    return _scattered(inp, with_padding, total), permuted_probs, rows, offsets, padded


def _padded(rows: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return torch.where(rows >= 0, rows + offsets.to(rows.dtype), -1)


@own_messages(expert_output="inp", indices="row_id_map", gates="merging_probs")
def moe_unpermute(
    inp: torch.Tensor,
    row_id_map: torch.Tensor,
    merging_probs: torch.Tensor | None = None,
    restore_shape: Sequence[int] | None = None,
    map_type: str = "mask",
    probs: torch.Tensor | None = None,
    pad_offsets: torch.Tensor | None = None,
) -> torch.Tensor:
    """Reverses :func:`moe_permute`: returns the sum of each token's rows times ``merging_probs``.

    Args:
        inp: ``[rows, hidden]``.
        row_id_map: a result of this module's :func:`moe_permute`.
        merging_probs: shaped like ``row_id_map``; None means ones.
        restore_shape: the shape of the result; defaults to ``[tokens, hidden]``.
        map_type: validated but otherwise ignored.
        probs: the older name of ``merging_probs``.
        pad_offsets: a result of :func:`moe_permute_and_pad_with_probs`.
    """
    _check_map_type("moe_unpermute", map_type)
    if probs is not None:
        if merging_probs is not None:
            raise ValueError("moe_unpermute: probs and merging_probs are given, expected only one of them")
        merging_probs = probs
    rows = row_id_map if pad_offsets is None else _padded(row_id_map, pad_offsets)
    output = moe_combine(inp, rows, None, 1, merging_probs)
    return output if restore_shape is None else output.reshape(tuple(restore_shape))


@own_messages(input="inp", sorted_idxs="sorted_index")
def moe_sort_chunks_by_index(
    inp: torch.Tensor, split_sizes: torch.Tensor, sorted_index: torch.Tensor
) -> torch.Tensor:
    """:func:`turnout.torch.sort_chunks_by_idxs`: reorders chunks of rows."""
    return sort_chunks_by_idxs(inp, split_sizes, sorted_index)[0]


@own_messages(input="inp", sorted_idxs="sorted_index")
def moe_sort_chunks_by_index_with_probs(
    inp: torch.Tensor, probs: torch.Tensor, split_sizes: torch.Tensor, sorted_index: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Like :func:`moe_sort_chunks_by_index`, and also reorders ``probs [rows]``."""
    output, permuted_probs = sort_chunks_by_idxs(inp, split_sizes, sorted_index, probs)
    return output, permuted_probs


_names = {name: globals()[name] for name in __all__ if name.startswith("moe_")}
install, uninstall = Installation(
    "transformer_engine",
    {
        "transformer_engine": {},
        "transformer_engine.pytorch": _names,
        "transformer_engine.pytorch.permutation": _names,
    },
).functions("from transformer_engine.pytorch import moe_permute")
