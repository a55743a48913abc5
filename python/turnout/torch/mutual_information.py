"""Mutual information: the lattice of the RNN-T loss as torch operators, and k2's recursions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

import torch

from turnout.torch.messages import own_messages
from turnout.torch.registration import gradient

__all__ = ["joint_mutual_information_recursion", "mutual_information_recursion"]


def _lattice_dtype(px):
    return torch.float64 if px.dtype == torch.float64 else torch.float32


_forward = torch.ops.turnout.mutual_information_forward.default
_backward = torch.ops.turnout.mutual_information_backward.default
_both = torch.ops.turnout.mutual_information_forward_backward.default


@gradient("mutual_information_forward", of="px py", saves="px py boundary p", constant="p", materialize=False)
def _(saved, grad_p, grad_ans):
    if grad_ans is None:
        return {}
    px, py = _backward(saved.px, saved.py, saved.p, grad_ans, saved.boundary)
    return {"px": px, "py": py}


def _refuse_second_derivative(*_):
    raise NotImplementedError(
        "mutual_information_backward: a second derivative was requested, but this operator can be "
        "differentiated only once"
    )


gradient("mutual_information_backward", of="px py p ans_grad")(_refuse_second_derivative)


@gradient(
    "mutual_information_forward_backward",
    of="px py",
    saves="ans px_grad py_grad",
    constant="px_grad py_grad",
    materialize=False,
)
def _(saved, grad_ans, grad_px, grad_py):
    if grad_ans is None:
        return {}
    px, py = _weighted(saved.ans, saved.px_grad, saved.py_grad, grad_ans)
    return {"px": px, "py": py}


def _product(grad, weight):
    return (grad * weight.reshape(-1, 1, 1)).to(grad.dtype)


class WeightedMutualInformation(torch.autograd.Function):
    """The gradients for ans_grad 1, times ans_grad.

    `ans` is an input only so that a second derivative fails: without it, the part that comes through the
    lattice would be silently missing.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(ans, px_grad, py_grad, weight):
        return _product(px_grad, weight), _product(py_grad, weight)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *grads):
        _refuse_second_derivative()


def _weighted(ans, px_grad, py_grad, weight):
    if torch.is_grad_enabled():  # create_graph=True
        return WeightedMutualInformation.apply(ans, px_grad, py_grad, weight)
    return _product(px_grad, weight), _product(py_grad, weight)


# -- k2's functions ----------------------------------------------------------------------------------------


@overload
def mutual_information_recursion(
    px: torch.Tensor,
    py: torch.Tensor,
    boundary: torch.Tensor | None = None,
    return_grad: Literal[False] = False,
) -> torch.Tensor: ...
@overload
def mutual_information_recursion(
    px: torch.Tensor, py: torch.Tensor, boundary: torch.Tensor | None = None, *, return_grad: Literal[True]
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]: ...
@overload
def mutual_information_recursion(
    px: torch.Tensor, py: torch.Tensor, boundary: torch.Tensor | None, return_grad: bool
) -> torch.Tensor | tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]: ...
@own_messages()
def mutual_information_recursion(
    px: torch.Tensor, py: torch.Tensor, boundary: torch.Tensor | None = None, return_grad: bool = False
) -> torch.Tensor | tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """The score of each lattice of the batch: the sum over all paths through it, in log space.

    Returns scores ``[batch]``, and with ``return_grad`` also ``(px_grad, py_grad)``: the probability of each
    step, which is the gradient of the scores' sum. The definition is that of
    :func:`turnout.mutual_information_forward`; scores are float64 for float64, otherwise float32. Tensors may
    be strided.

    Differentiable once. If a gradient will be needed, it is computed together with the scores, while the
    lattice is in the cache, and only multiplied by the upstream gradient later.

    Example:
        >>> px = torch.tensor([[[0.5, 0.5, 0.0]]]).log()  # one symbol, two frames
        >>> py = torch.full((1, 2, 2), 0.5).log()
        >>> scores, (px_grad, py_grad) = turnout.torch.mutual_information_recursion(px, py, return_grad=True)
        >>> scores.exp().tolist()  # two paths of three steps: 2 / 2**3
        [0.25]
        >>> px_grad.tolist()  # the symbol is in either frame with probability 1/2
        [[[0.5, 0.5, 0.0]]]
    """
    if return_grad or (torch.is_grad_enabled() and (px.requires_grad or py.requires_grad)):
        scores, px_grad, py_grad = _both(px, py, boundary)
        return (scores, (px_grad, py_grad)) if return_grad else scores
    return _forward(px, py, boundary)[1]


class JointMutualInformationRecursion(torch.autograd.Function):
    """The contribution of one pair of terms to the score: each term times the probability of its step."""

    generate_vmap_rule = True

    @staticmethod
    def forward(px, py, px_grad, py_grad):
        return _expectation(px, px_grad) + _expectation(py, py_grad)

    @staticmethod
    def setup_context(ctx, inputs, output):
        px, py, px_grad, py_grad = inputs
        ctx.save_for_backward(output, px_grad, py_grad)
        ctx.dtypes = px.dtype, py.dtype

    @staticmethod
    def backward(ctx, grad):
        grads = _weighted(*ctx.saved_tensors, grad)
        return *(g.to(dtype) for g, dtype in zip(grads, ctx.dtypes, strict=True)), None, None


def _expectation(term, taken):
    # A step that is never taken adds nothing, even if the term is -inf.
    return torch.where(taken == 0, 0, term * taken).sum(dim=(1, 2))


@own_messages()
def joint_mutual_information_recursion(
    px: Sequence[torch.Tensor], py: Sequence[torch.Tensor], boundary: torch.Tensor | None = None
) -> torch.Tensor:
    """The score of lattices whose steps are sums of several terms, split into the terms' contributions.

    ``px`` and ``py`` have the same number of tensors; all of ``px`` have one shape, and so have all of
    ``py``. The recursion is that of :func:`mutual_information_recursion` for their sums.

    Returns ``[len(px), batch]``, whose sum over the first dimension is the score. Row i is the expectation of
    term i over the paths through the lattice. The first row also has the rest of the score, so the main term
    should be first. The gradient of row i is the probability of each step; there is no second derivative.

    Example:
        >>> px = torch.tensor([[[0.5, 0.5, 0.0]]]).log()  # one symbol, two frames
        >>> py = torch.full((1, 2, 2), 0.5).log()
        >>> terms = turnout.torch.joint_mutual_information_recursion([px / 2, px / 2], [py / 2, py / 2])
        >>> terms.sum(0).exp().tolist()  # the score of px and py
        [0.25]
    """
    if len(px) != len(py) or len(px) == 0:
        raise ValueError(
            f"joint_mutual_information_recursion: px has {len(px)} tensors and py has {len(py)}, expected "
            "the same number, 1 or more"
        )
    for name, terms in (("px", px), ("py", py)):
        for i, term in enumerate(terms):
            if term.shape != terms[0].shape:
                raise ValueError(
                    f"joint_mutual_information_recursion: {name}[{i}] has shape {list(term.shape)}, expected "
                    f"{list(terms[0].shape)} as {name}[0]"
                )
    dtype = _lattice_dtype(px[0])
    with torch.no_grad():
        sums = (sum(term.to(dtype) for term in terms) for terms in (px, py))
        score, px_grad, py_grad = _both(*sums, boundary)
    shares = [
        JointMutualInformationRecursion.apply(x, y, px_grad, py_grad) for x, y in zip(px, py, strict=True)
    ]
    rest = score - sum(share.detach() for share in shares)
    return torch.stack([shares[0] + rest, *shares[1:]])
