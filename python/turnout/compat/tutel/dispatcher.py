"""Tutel's encode and decode: tokens to slots and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from turnout.compat.tutel.routing import Critical
from turnout.torch.moe_routing import moe_combine, moe_dispatch


def _as_columns(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(tuple(tensors), dim=1)


class fast_dispatcher:  # noqa: N801 -- Tutel's name
    """Copies tokens to their slots (``encode``) and sums the results of the slots (``decode``).

    A call uses the routing of the last :meth:`update`, and its gradient keeps that routing.
    Computes in the dtype of the data, 16-bit floats in float32; ``dispatch_dtype`` is ignored.
    """

    def __init__(
        self,
        num_global_experts: int,
        capacity: int,
        model_dim: int,
        dispatch_dtype: torch.dtype | None = None,
    ) -> None:
        self.num_global_experts = int(num_global_experts)
        self.capacity = int(capacity)
        self.model_dim = int(model_dim)
        self.dtype = dispatch_dtype
        self.is_postscore = True
        self._routing: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
        self._capacity = self.capacity

    def update(
        self,
        indices_: Sequence[torch.Tensor],
        locations_: Sequence[torch.Tensor],
        gates_: Sequence[torch.Tensor],
        capacity: int | None = None,
        is_postscore: bool = True,
    ) -> None:
        """Sets the routing of later calls. The capacity defaults to that of the constructor."""
        self.is_postscore = is_postscore
        self._routing = (_as_columns(indices_), _as_columns(locations_), _as_columns(gates_))
        self._capacity = int(capacity or self.capacity)

    def _current(self, name: str, data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if self._routing is None:
            raise RuntimeError(f"fast_dispatcher.{name}: there is no routing, expected update() first")
        if not data.is_contiguous():
            raise ValueError(f"fast_dispatcher.{name}: data is strided, expected contiguous memory")
        return self._routing

    def encode(self, data: torch.Tensor) -> torch.Tensor:
        """Copies ``[samples, hidden]`` to ``[experts * capacity, hidden]``."""
        indices, locations, gates = self._current("encode", data)
        weights = None if self.is_postscore else gates.to(data.dtype)
        sizes = self._capacity, self.num_global_experts
        return moe_dispatch(data, indices, locations, *sizes, weights).flatten(0, 1)

    def decode(self, data: torch.Tensor) -> torch.Tensor:
        """Sums ``[experts * capacity, hidden]`` into ``[samples, hidden]``."""
        indices, locations, gates = self._current("decode", data)
        weights = gates.to(data.dtype) if self.is_postscore else None
        return moe_combine(data, indices, locations, self._capacity, weights)


def _dispatcher(critical: Critical, model_dim: int, is_postscore: bool) -> fast_dispatcher:
    experts, indices, locations, gates, capacity, _ = critical
    dispatcher = fast_dispatcher(experts, capacity, model_dim)
    dispatcher.update(indices, locations, gates, is_postscore=is_postscore)
    return dispatcher


def fast_encode(data: torch.Tensor, critical_data: Critical, is_postscore: bool = True) -> torch.Tensor:
    """Copies tokens ``[samples, hidden]`` to slots ``[experts, capacity, hidden]``; other slots are zero."""
    encoded = _dispatcher(critical_data, data.shape[-1], is_postscore).encode(data)
    return encoded.view(critical_data[0], critical_data[4], data.shape[-1])


def fast_decode(data: torch.Tensor, critical_data: Critical, is_postscore: bool = True) -> torch.Tensor:
    """Sums each token's slots ``[experts, capacity, hidden]`` times its gates into ``[samples, hidden]``."""
    dispatcher = _dispatcher(critical_data, data.shape[-1], is_postscore)
    return dispatcher.decode(data.reshape(-1, data.shape[-1]))
