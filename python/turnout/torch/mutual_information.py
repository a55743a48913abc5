"""Mutual information: the lattice of the RNN-T loss as torch operators, and the recursions that k2 has."""

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
        "mutual_information_backward: a derivative of the gradients was asked for, but there is none: "
        "this operator can be differentiated once"
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
    """Gradients for ans_grad 1, times ans_grad.

    `ans` is there to be differentiated: without it the part of a second derivative that comes through the
    lattice would be missing in silence.
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


# -- the signatures that users of k2 know ------------------------------------------------------------------


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
    """The score of each lattice of the batch: the sum over all ways through it, in log space.

    Returns scores ``[batch]``, and with ``return_grad`` also ``(px_grad, py_grad)``: how often each step is
    taken, which are the gradients of the scores' sum. The definition is that of
    :func:`turnout.mutual_information_forward`; scores are float64 for float64, else float32. Tensors may be
    strided.

    Differentiable, once: when a gradient will be needed it is computed together with the scores, while the
    lattice is in the cache, and only multiplied by the upstream gradient later.

    Example:
        >>> px = torch.tensor([[[0.5, 0.5, 0.0]]]).log()  # one symbol, two frames
        >>> py = torch.full((1, 2, 2), 0.5).log()
        >>> scores, (px_grad, py_grad) = turnout.torch.mutual_information_recursion(px, py, return_grad=True)
        >>> scores.exp().tolist()  # two ways of three steps: 2 / 2**3
        [0.25]
        >>> px_grad.tolist()  # the symbol is in either frame with probability 1/2
        [[[0.5, 0.5, 0.0]]]
    """
    if return_grad or (torch.is_grad_enabled() and (px.requires_grad or py.requires_grad)):
        scores, px_grad, py_grad = _both(px, py, boundary)
        return (scores, (px_grad, py_grad)) if return_grad else scores
    return _forward(px, py, boundary)[1]


class JointMutualInformationRecursion(torch.autograd.Function):
    """What one pair of terms adds to the score: each times how often its step is taken."""

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
    # A step that is never taken adds nothing, also where the term is -inf.
    return torch.where(taken == 0, 0, term * taken).sum(dim=(1, 2))


@own_messages()
def joint_mutual_information_recursion(
    px: Sequence[torch.Tensor], py: Sequence[torch.Tensor], boundary: torch.Tensor | None = None
) -> torch.Tensor:
    """The score of lattices whose steps are sums of several terms, and what each term adds to it.

    ``px`` and ``py`` have as many tensors, those of each the same shape. The recursion is that of
    :func:`mutual_information_recursion` for their sums.

    Returns ``[len(px), batch]``, whose sum over the first dimension is the score. Row i is the expectation of
    term i over the ways through the lattice; the first row also has what the score has beyond all of them, so
    the main term goes first. The gradient of row i is how often each step is taken; there is no second one.

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
            "as many, and at least one"
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
