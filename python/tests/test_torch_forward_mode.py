"""Forward-mode differentiation, which no operator supports, raises an error and is never ignored."""

import pytest
import torch
from registry import CALLS, first_floating_result, floating_arguments
from torch.autograd import forward_ad

from turnout.torch.registration import is_constant

pytestmark = pytest.mark.torch

OPS = torch.ops.turnout
# Each operator that could have a derivative, with the argument that has the tangent.
CALLED = {op: floating_arguments(op)[0] for op in CALLS if floating_arguments(op) and not is_constant(op)}


def call_of(op):
    """Returns the operator as a function of the argument with the tangent, and a value for it."""
    argument = CALLED[op]

    def function(x):
        return first_floating_result(op, getattr(OPS, op)(**{**CALLS[op], argument: x}))

    return function, CALLS[op][argument].clone()


def dual_level(function, x):
    with forward_ad.dual_level():
        return function(forward_ad.make_dual(x, torch.ones_like(x)))


def dual_level_without_grad(function, x):
    with torch.no_grad():
        return dual_level(function, x)


DIFFERENTIATIONS = {
    "dual_level": dual_level,
    "dual_level without grad": dual_level_without_grad,
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (torch.ones_like(x),)),
    "jvp of jvp": lambda function, x: torch.func.jvp(
        lambda y: torch.func.jvp(function, (y,), (torch.ones_like(y),))[0], (x,), (torch.ones_like(x),)
    ),
    "jacfwd": lambda function, x: torch.func.jacfwd(function)(x),
    "outer jvp": lambda function, x: torch.func.jvp(
        lambda y: torch.func.jvp(lambda z: function(y) * z, (x,), (x,))[0], (x,), (torch.ones_like(x),)
    ),
}


def test_most_operators_are_here():
    """Results of the others are integers, or constants."""
    constants = {op for op in CALLS if is_constant(op)}
    assert len(constants) == 15
    assert set(CALLS) - set(CALLED) - constants == {
        *("ball_query", "ball_query_stacked", "voxel_query"),
        "get_indice_pairs",
        "indice_convolution_index",
        "ingroup_indices",
        "moe_locations",
        "neighbor_lists",
        *("nms", "nms3d", "nms3d_normal", "nms_rotated", "points_in_boxes", "points_in_boxes_all"),
        "rnnt_prune_ranges",
        "roiaware_points",
        "voxelize",
    }


@pytest.mark.parametrize("name", CALLED)
@pytest.mark.parametrize("how", DIFFERENTIATIONS)
def test_tangents_are_not_dropped(name, how):
    function, x = call_of(name)
    with pytest.raises(NotImplementedError) as caught:
        DIFFERENTIATIONS[how](function, x)
    argument = CALLED[name]
    assert str(caught.value) == (
        f"{name}: {argument} has a tangent of forward-mode differentiation, which this operator does not "
        f"support; use reverse mode, or pass torch.autograd.forward_ad.unpack_dual({argument}).primal"
    )


@pytest.mark.parametrize("name", CALLED)
def test_calls_without_tangents_succeed(name):
    function, x = call_of(name)
    expected = function(x)
    assert torch.equal(dual_level(lambda _: function(x), x), expected)
    assert torch.equal(dual_level(lambda y: function(forward_ad.unpack_dual(y).primal), x), expected)
    _, tangent = torch.func.jvp(lambda y: function(x).sum() + y, (x,), (torch.ones_like(x),))
    assert torch.equal(tangent, torch.ones_like(x))
    with torch.inference_mode():
        assert torch.equal(function(x), expected)
