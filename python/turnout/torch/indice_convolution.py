"""Sparse convolution and pooling along given pairs, as torch operators with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from turnout.torch.messages import own_messages
from turnout.torch.registration import gradient
from turnout.torch.scatter import scatter_sum

if TYPE_CHECKING:
    from turnout.typing import PoolInit

__all__ = ["indice_avg_pool", "indice_convolution", "indice_convolution_index", "indice_max_pool"]

_forward = torch.ops.turnout.indice_convolution_forward.default
_data = torch.ops.turnout.indice_convolution_backward_data.default
_filter = torch.ops.turnout.indice_convolution_backward_filter.default
_index = torch.ops.turnout.indice_convolution_index.default
_pool = torch.ops.turnout.indice_max_pool_forward.default
_pool_grad = torch.ops.turnout.indice_max_pool_backward.default
_avg = torch.ops.turnout.indice_avg_pool_forward.default
_avg_grad = torch.ops.turnout.indice_avg_pool_backward.default


# The three operators are bilinear, so the derivative of each consists of the other two.


def _filters_grad(saved, features, output_grad):
    grad = _filter(features, output_grad, saved.indice_pairs, saved.indice_num, saved.inverse, saved.subm)
    return grad if saved.filters.dim() == 3 else grad.reshape(saved.filters.shape)


@gradient(
    "indice_convolution_forward",
    of="features filters bias",
    saves="features filters indice_pairs indice_num index grad_index",
)
def _(saved, grad):
    grads = {}
    if saved.needs.features:
        grads["features"] = _data(
            grad,
            saved.filters,
            saved.indice_pairs,
            saved.indice_num,
            saved.features.shape[0],
            saved.grad_index,
            saved.inverse,
            saved.subm,
            saved.index,
        )
    if saved.needs.filters:
        grads["filters"] = _filters_grad(saved, saved.features, grad)
    if saved.needs.bias:
        grads["bias"] = grad.sum(0)
    return grads


@gradient(
    "indice_convolution_backward_data",
    of="output_grad filters",
    saves="output_grad filters indice_pairs indice_num index grad_index",
)
def _(saved, grad):
    grads = {}
    if saved.needs.output_grad:
        grads["output_grad"] = _forward(
            grad,
            saved.filters,
            saved.indice_pairs,
            saved.indice_num,
            saved.output_grad.shape[0],
            None,
            saved.grad_index,
            saved.inverse,
            saved.subm,
            saved.index,
        )
    if saved.needs.filters:
        grads["filters"] = _filters_grad(saved, grad, saved.output_grad)
    return grads


@gradient(
    "indice_convolution_backward_filter",
    of="features output_grad",
    saves="features output_grad indice_pairs indice_num",
)
def _(saved, grad):
    features, output_grad, grads = saved.features, saved.output_grad, {}
    pairs, kind = (saved.indice_pairs, saved.indice_num), (saved.inverse, saved.subm)
    if saved.needs.features:
        grads["features"] = _data(output_grad, grad, *pairs, features.shape[0], None, *kind)
    if saved.needs.output_grad:
        grads["output_grad"] = _forward(features, grad, *pairs, output_grad.shape[0], None, None, *kind)
    return grads


@own_messages()
def indice_convolution_index(
    indice_pairs: torch.Tensor,
    indice_num: torch.Tensor,
    rows: int,
    out_rows: int,
    *,
    inverse: bool = False,
    subm: bool = False,
) -> torch.Tensor:
    """An index of the pairs by output row, to keep between convolutions along the same pairs.

    See :func:`turnout.indice_convolution_index`. For a call of :func:`indice_convolution` from ``rows`` to
    ``out_rows`` rows::

        index = indice_convolution_index(pairs, num, rows, out_rows, inverse=inverse)
        grad_index = indice_convolution_index(pairs, num, out_rows, rows, inverse=not inverse)

    Tensors may be strided. Under ``torch.compile`` the size of the result is data-dependent.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> _, pairs, num = turnout.torch.get_indice_pairs(sites, 1, [6], 3, subm=True)
        >>> index = turnout.torch.indice_convolution_index(pairs, num, 3, 3, subm=True)
        >>> features = torch.tensor([[1.0], [2.0], [3.0]])
        >>> filters = torch.tensor([10.0, 1.0, 100.0]).reshape(3, 1, 1)
        >>> out = turnout.torch.indice_convolution(features, filters, pairs, num, 3, subm=True, index=index)
        >>> out.tolist()
        [[201.0], [12.0], [3.0]]
    """
    return _index(indice_pairs, indice_num, rows, out_rows, inverse, subm)


def indice_convolution(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_num: torch.Tensor,
    num_act_out: int,
    *,
    bias: torch.Tensor | None = None,
    inverse: bool = False,
    subm: bool = False,
    index: torch.Tensor | None = None,
    grad_index: torch.Tensor | None = None,
) -> torch.Tensor:
    """A sparse convolution along the pairs of :func:`turnout.get_indice_pairs`.

    The definition is that of :func:`turnout.indice_convolution_forward`. Tensors may be strided; ``filters``
    ``[k..., in, out]`` is read in place, so ``weight.permute(1, 2, 3, 4, 0)`` of a weight ``[out, k..., in]``
    costs no copy. ``features``, ``filters`` and ``bias`` have gradients of any order. Under
    ``torch.autocast`` they are cast to its dtype; sums are in float32.

    ``index`` and ``grad_index`` are from :func:`indice_convolution_index`; they save the time to build one in
    this call and in its gradient with respect to ``features``.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> _, pairs, num = turnout.torch.get_indice_pairs(sites, 1, [6], 3, subm=True)
        >>> features = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
        >>> filters = torch.tensor([10.0, 1.0, 100.0]).reshape(3, 1, 1)  # left, centre, right
        >>> out = turnout.torch.indice_convolution(features, filters, pairs, num, 3, subm=True)
        >>> out.tolist()
        [[201.0], [12.0], [3.0]]
        >>> out.sum().backward()
        >>> features.grad.tolist()
        [[11.0], [101.0], [1.0]]
    """
    if filters.dim() > 3:
        filters = filters.flatten(0, -3)
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        features, filters = features.to(dtype), filters.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    pairs = indice_pairs, indice_num
    return _forward(features, filters, *pairs, num_act_out, bias, index, inverse, subm, grad_index)


@gradient("indice_max_pool_forward", of="features", saves="features features_out indice_pairs indice_num")
def _(saved, grad):
    pairs = saved.indice_pairs, saved.indice_num
    return {"features": _pool_grad(saved.features, saved.features_out, grad, *pairs)}


@gradient("indice_max_pool_backward", of="output_grad", saves="features features_out indice_pairs indice_num")
def _(saved, grad):
    """The gradient is linear in output_grad, so its derivative is the transposed operation, a gather.

    Which inputs equal the maximum does not change with features, except where it has no derivative.
    """
    features, features_out, indice_pairs = saved.features, saved.features_out, saved.indice_pairs
    if features_out.shape[0] == 0:
        return {"output_grad": torch.zeros_like(features_out)}
    columns = torch.arange(indice_pairs.shape[2], device=indice_pairs.device)
    is_pair = columns < saved.indice_num.unsqueeze(1)
    # Columns after the pairs of an offset add zeros to the first output.
    rows, out_rows = (torch.where(is_pair, indice_pairs[:, i], 0).flatten().long() for i in (0, 1))
    is_taken = is_pair.reshape(-1, 1) & (features[rows] == features_out[out_rows])
    spread = torch.where(is_taken, grad[rows], 0)
    return {"output_grad": scatter_sum(spread, out_rows, 0, features_out.shape[0])}


def indice_max_pool(
    features: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_num: torch.Tensor,
    num_act_out: int,
    *,
    init: PoolInit = "zero",
) -> torch.Tensor:
    """The maximum of each window, along the pairs of :func:`turnout.get_indice_pairs`.

    The definition is that of :func:`turnout.indice_max_pool_forward`. Tensors may be strided. ``features``
    has gradients of any order; every input that equals the maximum of its window gets the whole gradient.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> out_sites, pairs, num = turnout.torch.get_indice_pairs(sites, 1, [6], 2, 2)  # windows of 2
        >>> features = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
        >>> pooled = turnout.torch.indice_max_pool(features, pairs, num, len(out_sites))
        >>> pooled.tolist()
        [[2.0], [3.0]]
        >>> pooled.sum().backward()
        >>> features.grad.tolist()
        [[0.0], [1.0], [1.0]]
    """
    return _pool(features, indice_pairs, indice_num, num_act_out, init)


# Each of the two is the derivative of the other.


@gradient("indice_avg_pool_forward", of="features", saves="indice_pairs indice_num", shapes="features")
def _(saved, grad):
    rows = saved.features_shape[0]
    return {"features": _avg_grad(grad, saved.indice_pairs, saved.indice_num, rows)}


@gradient("indice_avg_pool_backward", of="output_grad", saves="indice_pairs indice_num", shapes="output_grad")
def _(saved, grad):
    rows = saved.output_grad_shape[0]
    return {"output_grad": _avg(grad, saved.indice_pairs, saved.indice_num, rows)}


def indice_avg_pool(
    features: torch.Tensor, indice_pairs: torch.Tensor, indice_num: torch.Tensor, num_act_out: int
) -> torch.Tensor:
    """The mean of each window over its pairs, along the pairs of :func:`turnout.get_indice_pairs`.

    The definition is that of :func:`turnout.indice_avg_pool_forward`. Tensors may be strided. ``features``
    has gradients of any order.

    Example:
        >>> sites = torch.tensor([[0, 0], [0, 1], [0, 5]], dtype=torch.int32)  # batch number, x
        >>> out_sites, pairs, num = turnout.torch.get_indice_pairs(sites, 1, [6], 2, 2)  # windows of 2
        >>> features = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
        >>> pooled = turnout.torch.indice_avg_pool(features, pairs, num, len(out_sites))
        >>> pooled.tolist()
        [[1.5], [3.0]]
        >>> pooled.sum().backward()
        >>> features.grad.tolist()
        [[0.5], [0.5], [1.0]]
    """
    return _avg(features, indice_pairs, indice_num, num_act_out)
