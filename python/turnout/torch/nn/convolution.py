"""The base class of sparse convolutions: parameters, weight layout and lookup of pairs."""

from __future__ import annotations

import math
from typing import Any

import torch

from turnout.torch.indice_convolution import indice_convolution
from turnout.torch.indice_pairs import Ints
from turnout.torch.messages import own_messages
from turnout.torch.nn.geometry import Geometry, Pairs
from turnout.torch.nn.tensor import SparseTensor, integers
from turnout.torch.nn.window import WindowModule


class SparseConvolution(WindowModule):
    """The base class of all sparse convolutions, here and in ``turnout.compat``.

    Args:
        ndim: the number of spatial dimensions, 1 to 4.
        in_channels, out_channels: the numbers of columns of the features.
        kernel_size, stride, padding, dilation, output_padding: one integer, or one for each dimension.
        groups: must be 1.
        bias: whether to add a bias to every active output.
        subm: submanifold; outputs are the input sites. The kernel must be odd in every dimension; stride and
            padding are validated but otherwise ignored.
        transposed: outputs spread over the grid as in ``torch.nn.ConvTranspose3d``.
        inverse: goes back along the pairs that an earlier layer named ``indice_key``, to its input sites.
        indice_key: a name for the pairs. A later layer with this name uses them without comparing sites.

    Classes for other packages derive from this one and define their weight layout and their rules for
    ``indice_key``.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> x = turnout.torch.nn.SparseTensor(torch.tensor([[1.0], [2.0], [3.0]]), sites, [6], 1)
        >>> layer = turnout.torch.nn.SparseConvolution(1, 1, 16, kernel_size=2, stride=2)
        >>> layer(x)
        SparseTensor(rows=2, channels=16, spatial_shape=[3], batch_size=1, dtype=torch.float32)
    """

    # Whether `weight` is [out, k..., in] instead of [k..., in, out]. The operator reads both in place.
    out_channels_first = False

    def __init__(
        self,
        ndim: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints = 3,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        subm: bool = False,
        output_padding: Ints = 0,
        transposed: bool = False,
        inverse: bool = False,
        indice_key: str | None = None,
    ) -> None:
        super().__init__(
            *(ndim, kernel_size, stride, padding, dilation, output_padding, subm, transposed, indice_key)
        )
        if groups != 1:
            raise ValueError(f"{type(self).__name__}: groups is {groups}, expected 1")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.groups = groups
        self.inverse = inverse
        self.conv1x1 = self.keeps_sites()
        self.weight = torch.nn.Parameter(torch.empty(self.weight_shape()))
        if bias:
            self.bias = torch.nn.Parameter(torch.empty(out_channels))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    # -- parameters ----------------------------------------------------------------------------------------

    def weight_shape(self) -> tuple[int, ...]:
        if self.out_channels_first:
            return (self.out_channels, *self.kernel_size, self.in_channels)
        return (*self.kernel_size, self.in_channels, self.out_channels)

    def filters(self) -> torch.Tensor:
        """Returns a view of the weight as ``[k..., in, out]``."""
        return self.weight.movedim(0, -1) if self.out_channels_first else self.weight

    def matrix(self) -> torch.Tensor:
        """Returns a view of the weight of a kernel with one offset as ``[in, out]``."""
        return self.filters().flatten(0, -2)

    def reset_parameters(self) -> None:
        """Draws uniformly from +-1/sqrt(in_channels * kernel volume), like ``torch.nn.Conv3d``."""
        bound = 1 / math.sqrt(max(1, self.in_channels * math.prod(self.kernel_size)))
        torch.nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            torch.nn.init.uniform_(self.bias, -bound, bound)

    # -- pairs ---------------------------------------------------------------------------------------------

    def keeps_sites(self) -> bool:
        """Returns whether the layer is a matrix product: one kernel offset and no stride.

        Such a layer needs no pairs and ignores ``indice_key``.
        """
        if math.prod(self.kernel_size) != 1 or self.inverse:
            return False
        moves = any(s != 1 for s in self.stride) or any(self.padding) or any(self.output_padding)
        return self.subm or not moves

    def find_pairs(self, x: SparseTensor) -> Pairs:
        """Returns the pairs with this layer's ``indice_key``, or those of its geometry on these sites."""
        pairs = self.named_pairs(x)
        if pairs is None:
            return x.find_pairs(self.geometry)
        if self.inverse:
            if pairs.geometry.subm:
                raise ValueError(
                    f"{type(self).__name__}: indice_key {self.indice_key!r} names the pairs of a submanifold "
                    "layer, expected those of a layer with other output sites"
                )
            self._check("kernel_size", tuple(self.kernel_size), pairs.geometry.kernel_size)
            shape, indices = pairs.out_spatial_shape, pairs.out_indices
        else:
            kinds_first = reversed([*zip(Geometry._fields, self.geometry, pairs.geometry, strict=True)])
            for name, own, named in kinds_first:
                self._check(name, own, named)
            shape, indices = pairs.spatial_shape, pairs.indices
        self._check("spatial_shape", integers(x.spatial_shape), shape)
        self._check("features.shape[0]", x.features.shape[0], indices.shape[0])
        return pairs

    def named_pairs(self, x: SparseTensor) -> Pairs | None:
        """Returns the pairs with this layer's ``indice_key``, or None; an inverse layer requires them."""
        pairs = None if self.indice_key is None else x.indice_dict.get(self.indice_key)
        if pairs is None and self.inverse:
            known = ", ".join(repr(name) for name in x.indice_dict) or "none"
            raise ValueError(
                f"{type(self).__name__}: indice_key is {self.indice_key!r}, expected the name of an earlier "
                f"layer's pairs; known names: {known}"
            )
        return pairs

    def _check(self, what: str, own: Any, named: Any) -> None:
        if own != named:
            raise ValueError(
                f"{type(self).__name__}: {what} is {own}, expected {named}, that of the pairs named "
                f"{self.indice_key!r}"
            )

    # -- the layer -----------------------------------------------------------------------------------------

    @own_messages(of_class=True, filters="weight")
    def forward(self, x: SparseTensor) -> SparseTensor:
        shape, expected = tuple(x.features.shape), (x.indices.shape[0], self.in_channels)
        if shape != expected:
            raise ValueError(
                f"{type(self).__name__}: features have shape {list(shape)}, expected {list(expected)}: the "
                "rows of indices, in_channels"
            )
        if self.conv1x1:
            return x.with_features(self._multiply(x.features))
        pairs = self.find_pairs(x)
        rows = x.features.shape[0]
        out_rows = (pairs.indices if self.inverse else pairs.out_indices).shape[0]
        filters = self.filters_along(pairs)
        needs_gradient = torch.is_grad_enabled() and x.features.requires_grad
        features = indice_convolution(
            x.features,
            filters,
            pairs.indice_pairs,
            pairs.indice_num,
            out_rows,
            bias=self.bias,
            inverse=self.inverse,
            subm=self.subm,
            index=pairs.index(rows, out_rows, inverse=self.inverse, subm=self.subm),
            grad_index=pairs.index(out_rows, rows, inverse=not self.inverse, subm=self.subm)
            if needs_gradient
            else None,
        )
        key = None if self.inverse else self.indice_key
        named = x.indice_dict if key is None else x.named(key, pairs)
        return x.at(features, *self.out_sites(x, pairs), named)

    def filters_along(self, pairs: Pairs) -> torch.Tensor:
        """Returns the filters ``[k..., in, out]`` or ``[offsets, in, out]`` for these pairs."""
        return self.filters()

    def out_sites(self, x: SparseTensor, pairs: Pairs) -> tuple[torch.Tensor, Any]:
        """Returns the output's indices, which callers may modify, and its spatial shape."""
        if self.inverse:
            return pairs.indices.clone(), list(pairs.spatial_shape)
        if self.subm:
            return x.indices, x.spatial_shape
        return pairs.out_indices.clone(), list(pairs.out_spatial_shape)

    def _multiply(self, features: torch.Tensor) -> torch.Tensor:
        if self.bias is None:
            return torch.mm(features, self.matrix())
        return torch.addmm(self.bias, features, self.matrix())

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        ]
        for name, usual in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            if any(value != usual for value in getattr(self, name)):
                parts.append(f"{name}={getattr(self, name)}")
        parts += [f"{name}=True" for name in ("subm", "transposed", "inverse") if getattr(self, name)]
        if self.bias is None:
            parts.append("bias=False")
        if self.indice_key is not None:
            parts.append(f"indice_key={self.indice_key!r}")
        return ", ".join(parts)
