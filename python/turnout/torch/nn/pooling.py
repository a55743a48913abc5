"""Pooling of sparse tensors: windows of a grid, and whole batch elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from turnout.torch.global_pool import global_avg_pool, global_max_pool
from turnout.torch.indice_convolution import indice_avg_pool, indice_max_pool
from turnout.torch.indice_pairs import Ints
from turnout.torch.messages import own_messages
from turnout.torch.nn.geometry import Pairs
from turnout.torch.nn.module import SparseModule
from turnout.torch.nn.tensor import SparseTensor
from turnout.torch.nn.window import WindowModule

if TYPE_CHECKING:
    from turnout.typing import PoolInit


class SparsePool(WindowModule):
    """The base class of pools: an output is active if any input is in its window.

    Args:
        ndim: the number of spatial dimensions, 1 to 4.
        kernel_size, stride, padding, dilation: one integer, or one for each dimension. The default of
            ``stride`` is ``kernel_size``.
        indice_key: a name for the pairs, so that a :class:`SparseInverseConv` can go back along them.
        subm: outputs are the input sites, around which the window is centred; stride and padding are ignored.
    """

    def __init__(
        self,
        ndim: int,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        indice_key: str | None = None,
        subm: bool = False,
    ) -> None:
        super().__init__(
            *(ndim, kernel_size, kernel_size if stride is None else stride, padding, dilation),
            subm=subm,
            indice_key=indice_key,
        )

    @own_messages(of_class=True)
    def forward(self, x: SparseTensor) -> SparseTensor:
        pairs = x.find_pairs(self.geometry)
        features = self.pool(x.features, pairs)
        named = x.indice_dict if self.indice_key is None else x.named(self.indice_key, pairs)
        return x.at(features, pairs.out_indices.clone(), list(pairs.out_spatial_shape), named)

    def pool(self, features: torch.Tensor, pairs: Pairs) -> torch.Tensor:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}"
        )


class SparseMaxPool(SparsePool):
    """The maximum of each window over the active sites in it.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> y = turnout.torch.nn.SparseMaxPool(1, kernel_size=2)(x)
        >>> y.indices.tolist(), y.features.tolist()
        ([[0, 0], [0, 2]], [[2.0], [3.0]])
    """

    init: PoolInit = "lowest"  # with "zero", no maximum is below 0

    def pool(self, features: torch.Tensor, pairs: Pairs) -> torch.Tensor:
        return indice_max_pool(
            features, pairs.indice_pairs, pairs.indice_num, pairs.out_indices.shape[0], init=self.init
        )


class SparseAvgPool(SparsePool):
    """The mean of each window over the active sites in it.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> y = turnout.torch.nn.SparseAvgPool(1, kernel_size=2)(x)
        >>> y.indices.tolist(), y.features.tolist()
        ([[0, 0], [0, 2]], [[1.5], [3.0]])
    """

    def pool(self, features: torch.Tensor, pairs: Pairs) -> torch.Tensor:
        return indice_avg_pool(features, pairs.indice_pairs, pairs.indice_num, pairs.out_indices.shape[0])


class SparseGlobalMaxPool(SparseModule):
    """``[batch_size, channels]``: the maximum over the active sites of each batch element; 0 without any.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> turnout.torch.nn.SparseGlobalMaxPool()(x).tolist()
        [[3.0]]
    """

    def forward(self, x: SparseTensor) -> torch.Tensor:
        return global_max_pool(x.features, x.indices, int(x.batch_size))


class SparseGlobalAvgPool(SparseModule):
    """``[batch_size, channels]``: the mean over the active sites of each batch element; 0 without any.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> turnout.torch.nn.SparseGlobalAvgPool()(x).tolist()
        [[2.0]]
    """

    def forward(self, x: SparseTensor) -> torch.Tensor:
        return global_avg_pool(x.features, x.indices, int(x.batch_size))
