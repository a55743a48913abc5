"""Sparse convolution and pooling along given pairs, as torch operators with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from turnout import _core
from turnout.torch.registration import define
from turnout.torch.scatter import scatter_sum
from turnout.torch.tracing import unknown_size

if TYPE_CHECKING:
    from turnout.typing import PoolInit

__all__ = ["indice_avg_pool", "indice_convolution", "indice_convolution_index", "indice_max_pool"]


def _forward_cpu(
    features,
    filters,
    indice_pairs,
    indice_num,
    num_act_out,
    bias=None,
    inverse=False,
    subm=False,
    index=None,
    grad_index=None,
):
    return _core.indice_convolution_forward(
        features.contiguous(),
        filters,
        indice_pairs.contiguous(),
        indice_num.contiguous(),
        num_act_out,
        None if bias is None else bias.contiguous(),
        inverse,
        subm,
        None if index is None else index.contiguous(),
        None,
        True,
    )


def _forward_fake(features, filters, indice_pairs, indice_num, num_act_out, *_):
    return features.new_empty((num_act_out, filters.shape[2]))


def _data_cpu(
    output_grad,
    filters,
    indice_pairs,
    indice_num,
    num_act_in,
    inverse=False,
    subm=False,
    index=None,
    grad_index=None,
):
    return _core.indice_convolution_backward_data(
        output_grad.contiguous(),
        filters,
        indice_pairs.contiguous(),
        indice_num.contiguous(),
        num_act_in,
        inverse,
        subm,
        None if index is None else index.contiguous(),
        None,
        True,
    )


def _data_fake(output_grad, filters, indice_pairs, indice_num, num_act_in, *_):
    return output_grad.new_empty((num_act_in, filters.shape[1]))


def _filter_cpu(features, output_grad, indice_pairs, indice_num, inverse=False, subm=False):
    return _core.indice_convolution_backward_filter(
        features.contiguous(),
        output_grad.contiguous(),
        indice_pairs.contiguous(),
        indice_num.contiguous(),
        inverse,
        subm,
        None,
        True,
    )


def _filter_fake(features, output_grad, indice_pairs, indice_num, inverse=False, subm=False):
    return features.new_empty((indice_num.shape[0], features.shape[1], output_grad.shape[1]))


# A convolution is linear in its features and in its filters, and so are its two gradients in their arguments:
# the derivative of each of the three operators is made of the other two.


def _forward_save(ctx, inputs, output):
    features, filters, indice_pairs, indice_num, _, bias, ctx.inverse, ctx.subm, index, grad_index = inputs
    ctx.save_for_backward(features, filters, index, grad_index, indice_pairs, indice_num)
    ctx.has_bias = bias is not None


def _forward_backward(ctx, grad):
    features, filters, index, grad_index, *pairs = ctx.saved_tensors
    data = filter_grad = bias = None
    if ctx.needs_input_grad[0]:
        rows = features.shape[0]
        data = _data(grad, filters, *pairs, rows, ctx.inverse, ctx.subm, grad_index, index)
    if ctx.needs_input_grad[1]:
        filter_grad = _filter(features, grad, *pairs, ctx.inverse, ctx.subm)
    if ctx.has_bias and ctx.needs_input_grad[5]:
        bias = grad.sum(0)
    return data, filter_grad, None, None, None, bias, None, None, None, None


def _data_save(ctx, inputs, output):
    output_grad, filters, indice_pairs, indice_num, _, ctx.inverse, ctx.subm, index, grad_index = inputs
    ctx.save_for_backward(output_grad, filters, index, grad_index, indice_pairs, indice_num)


def _data_backward(ctx, grad):
    output_grad, filters, index, grad_index, *pairs = ctx.saved_tensors
    of_grad = of_filters = None
    if ctx.needs_input_grad[0]:
        rows = output_grad.shape[0]
        of_grad = _forward(grad, filters, *pairs, rows, None, ctx.inverse, ctx.subm, grad_index, index)
    if ctx.needs_input_grad[1]:
        of_filters = _filter(grad, output_grad, *pairs, ctx.inverse, ctx.subm)
    return of_grad, of_filters, None, None, None, None, None, None, None


def _filter_save(ctx, inputs, output):
    features, output_grad, indice_pairs, indice_num, ctx.inverse, ctx.subm = inputs
    ctx.save_for_backward(features, output_grad, indice_pairs, indice_num)


def _filter_backward(ctx, grad):
    features, output_grad, *pairs = ctx.saved_tensors
    of_features = of_grad = None
    if ctx.needs_input_grad[0]:
        of_features = _data(output_grad, grad, *pairs, features.shape[0], ctx.inverse, ctx.subm)
    if ctx.needs_input_grad[1]:
        of_grad = _forward(features, grad, *pairs, output_grad.shape[0], None, ctx.inverse, ctx.subm)
    return of_features, of_grad, None, None, None, None


_forward = define(
    "indice_convolution_forward(Tensor features, Tensor filters, Tensor indice_pairs, Tensor indice_num, "
    "SymInt num_act_out, Tensor? bias=None, bool inverse=False, bool subm=False, Tensor? index=None, "
    "Tensor? grad_index=None) -> Tensor",
    _forward_cpu,
    _forward_fake,
    save=_forward_save,
    backward=_forward_backward,
)
_data = define(
    "indice_convolution_backward_data(Tensor output_grad, Tensor filters, Tensor indice_pairs, "
    "Tensor indice_num, SymInt num_act_in, bool inverse=False, bool subm=False, Tensor? index=None, "
    "Tensor? grad_index=None) -> Tensor",
    _data_cpu,
    _data_fake,
    save=_data_save,
    backward=_data_backward,
)
_filter = define(
    "indice_convolution_backward_filter(Tensor features, Tensor output_grad, Tensor indice_pairs, "
    "Tensor indice_num, bool inverse=False, bool subm=False) -> Tensor",
    _filter_cpu,
    _filter_fake,
    save=_filter_save,
    backward=_filter_backward,
)


def _index_cpu(indice_pairs, indice_num, rows, out_rows, inverse=False, subm=False):
    return _core.indice_convolution_index(
        indice_pairs.contiguous(), indice_num.contiguous(), rows, out_rows, inverse, subm, None, True
    )


def _index_fake(indice_pairs, indice_num, rows, out_rows, inverse=False, subm=False):
    size = unknown_size("indice_convolution_index", "elements")
    return indice_pairs.new_empty((size,), dtype=torch.int64)


_index = define(
    "indice_convolution_index(Tensor indice_pairs, Tensor indice_num, SymInt rows, SymInt out_rows, "
    "bool inverse=False, bool subm=False) -> Tensor",
    _index_cpu,
    _index_fake,
)


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

    Tensors may be strided. Under ``torch.compile`` the size of the result depends on data.

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
    ``[k..., in, out]`` is read in place, so that ``weight.permute(1, 2, 3, 4, 0)`` of one that is
    ``[out, k..., in]`` costs no copy. ``features``, ``filters`` and ``bias`` have gradients of any order.
    Under ``torch.autocast`` they are cast to its dtype; sums are in float32.

    ``index`` and ``grad_index`` are from :func:`indice_convolution_index`; they save the time to build one in
    this call and in its gradient of ``features``.

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
    return _forward(features, filters, *pairs, num_act_out, bias, inverse, subm, index, grad_index)


def _pool_cpu(features, indice_pairs, indice_num, num_act_out, init="zero"):
    return _core.indice_max_pool_forward(
        features.contiguous(),
        indice_pairs.contiguous(),
        indice_num.contiguous(),
        num_act_out,
        init,
        None,
        True,
    )


def _pool_fake(features, indice_pairs, indice_num, num_act_out, init="zero"):
    return features.new_empty((num_act_out, features.shape[1]))


def _pool_save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output, inputs[1], inputs[2])


def _pool_backward(ctx, grad):
    features, output, indice_pairs, indice_num = ctx.saved_tensors
    return _pool_grad(features, output, grad, indice_pairs, indice_num), None, None, None, None


def _pool_grad_cpu(features, features_out, output_grad, indice_pairs, indice_num):
    return _core.indice_max_pool_backward(
        features.contiguous(),
        features_out.contiguous(),
        output_grad.contiguous(),
        indice_pairs.contiguous(),
        indice_num.contiguous(),
        None,
        True,
    )


def _pool_grad_fake(features, features_out, output_grad, indice_pairs, indice_num):
    return features.new_empty(features.shape)


def _pool_grad_save(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _pool_grad_backward(ctx, grad):
    """The gradient is linear in output_grad: its derivative gathers what it has spread.

    Which inputs equal the maximum does not change with features, except where it has no derivative.
    """
    features, features_out, output_grad, indice_pairs, indice_num = ctx.saved_tensors
    if features_out.shape[0] == 0:
        return None, None, torch.zeros_like(output_grad), None, None
    is_pair = torch.arange(indice_pairs.shape[2], device=indice_num.device) < indice_num.unsqueeze(1)
    # Places behind the pairs of an offset add zeros to the first output.
    rows, out_rows = (torch.where(is_pair, indice_pairs[:, i], 0).flatten().long() for i in (0, 1))
    is_taken = is_pair.reshape(-1, 1) & (features[rows] == features_out[out_rows])
    spread = torch.where(is_taken, grad[rows], 0)
    return None, None, scatter_sum(spread, out_rows, 0, features_out.shape[0]), None, None


_pool = define(
    "indice_max_pool_forward(Tensor features, Tensor indice_pairs, Tensor indice_num, SymInt num_act_out, "
    'str init="zero") -> Tensor',
    _pool_cpu,
    _pool_fake,
    save=_pool_save,
    backward=_pool_backward,
)
_pool_grad = define(
    "indice_max_pool_backward(Tensor features, Tensor features_out, Tensor output_grad, Tensor indice_pairs, "
    "Tensor indice_num) -> Tensor",
    _pool_grad_cpu,
    _pool_grad_fake,
    save=_pool_grad_save,
    backward=_pool_grad_backward,
)


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
    has gradients of any order: every input that equals the maximum of its window gets all of it.

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


def _avg_cpu(features, indice_pairs, indice_num, num_act_out):
    return _core.indice_avg_pool_forward(
        features.contiguous(), indice_pairs.contiguous(), indice_num.contiguous(), num_act_out, None, True
    )


def _avg_grad_cpu(output_grad, indice_pairs, indice_num, num_act_in):
    return _core.indice_avg_pool_backward(
        output_grad.contiguous(), indice_pairs.contiguous(), indice_num.contiguous(), num_act_in, None, True
    )


def _avg_fake(features, indice_pairs, indice_num, num_act_out):
    return features.new_empty((num_act_out, features.shape[1]))


def _avg_grad_fake(output_grad, indice_pairs, indice_num, num_act_in):
    return output_grad.new_empty((num_act_in, output_grad.shape[1]))


# Each of the two is the derivative of the other.


def _avg_save(ctx, inputs, output):
    features, indice_pairs, indice_num, _ = inputs
    ctx.save_for_backward(indice_pairs, indice_num)
    ctx.rows = features.shape[0]


def _avg_backward(ctx, grad):
    return _avg_grad(grad, *ctx.saved_tensors, ctx.rows), None, None, None


def _avg_grad_backward(ctx, grad):
    return _avg(grad, *ctx.saved_tensors, ctx.rows), None, None, None


_avg = define(
    "indice_avg_pool_forward(Tensor features, Tensor indice_pairs, Tensor indice_num, SymInt num_act_out) "
    "-> Tensor",
    _avg_cpu,
    _avg_fake,
    save=_avg_save,
    backward=_avg_backward,
)
_avg_grad = define(
    "indice_avg_pool_backward(Tensor output_grad, Tensor indice_pairs, Tensor indice_num, SymInt num_act_in) "
    "-> Tensor",
    _avg_grad_cpu,
    _avg_grad_fake,
    save=_avg_save,
    backward=_avg_grad_backward,
)


def indice_avg_pool(
    features: torch.Tensor, indice_pairs: torch.Tensor, indice_num: torch.Tensor, num_act_out: int
) -> torch.Tensor:
    """The mean of each window over the pairs it has, along the pairs of :func:`turnout.get_indice_pairs`.

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
