"""Forward-mode differentiation, which no operator has: refused in one message, never dropped in silence."""

import pytest
import torch
from torch.autograd import forward_ad

import turnout.torch  # noqa: F401

pytestmark = pytest.mark.torch

OPS = torch.ops.turnout
COORS = torch.tensor([[0, 1], [2, 0], [0, 1], [-1, 0]])
MAP = torch.tensor([0, 1, 0, -1])
GROUPS = torch.tensor([0, 1, 0, 1])
ORDER = torch.tensor([2, 0, 3, 1])
COUNT = torch.tensor([[4, 0], [0, 0]])
OFFS, WEIGHT = torch.tensor([1, 4]), torch.ones(2, 3, 2)
W13, W2 = torch.ones(2, 4, 3), torch.ones(2, 3, 2)
SIZE, RANGE = [0.5] * 3, [-4.0] * 3 + [4.0] * 3

# For each operator the argument that has the tangent, its shape, and a call.
CALLS = {
    "moe_dispatch_forward": ("input", (4, 3), lambda x: OPS.moe_dispatch_forward(x[:, 0], MAP, MAP, x, 2, 2)),
    "moe_dispatch_backward_data": (
        "gates",
        (4, 3),
        lambda x: OPS.moe_dispatch_backward_data(x[:, 0], MAP, MAP, x, 2, 2),
    ),
    "moe_dispatch_backward_gate": (
        "input",
        (4, 3),
        lambda x: OPS.moe_dispatch_backward_gate(MAP, MAP, x, x, 2, 2),
    ),
    "moe_dispatch_backward": (
        "gates",
        (4, 3),
        lambda x: OPS.moe_dispatch_backward(x[:, 0], MAP, MAP, x, x, 2, 2)[0],
    ),
    "moe_dispatch": ("input", (4, 3), lambda x: OPS.moe_dispatch(x, MAP, MAP, 2, 2, x[:, 0])),
    "moe_combine": ("expert_output", (4, 3), lambda x: OPS.moe_combine(x, MAP, MAP, 2, x[:, 0])),
    "moe_combine_backward": (
        "grad_output",
        (4, 3),
        lambda x: OPS.moe_combine_backward(x, x, MAP, MAP, x[:, 0], 2)[0],
    ),
    "grouped_mm": ("input", (4, 3), lambda x: OPS.grouped_mm(x, WEIGHT, OFFS)),
    "grouped_mm_backward_weight": (
        "input",
        (4, 3),
        lambda x: OPS.grouped_mm_backward_weight(x, x, OFFS)[0],
    ),
    "moe_experts": (
        "hidden_states",
        (4, 3),
        lambda x: OPS.moe_experts(x, GROUPS[:, None], x[:, :1], W13, W2),
    ),
    "moe_experts_quantized": (
        "hidden_states",
        (4, 3),
        lambda x: OPS.moe_experts_quantized(
            x,
            GROUPS[:, None],
            x[:, :1],
            W13.to(torch.int8),
            W13[..., :1],
            W2.to(torch.int8),
            W2[..., :1],
        ),
    ),
    "moe_token_permute": ("tokens", (4, 3), lambda x: OPS.moe_token_permute(x, MAP)[0]),
    "sort_chunks_by_idxs": (
        "input",
        (4, 3),
        lambda x: OPS.sort_chunks_by_idxs(x, torch.ones_like(ORDER), ORDER)[0],
    ),
    "moe_re_routing": ("tokens", (4, 3), lambda x: OPS.moe_re_routing(x, COUNT)[0]),
    "moe_re_routing_inverse": ("permute_tokens", (4, 3), lambda x: OPS.moe_re_routing_inverse(x, ORDER)),
    "mutual_information_forward": ("px", (2, 3, 5), lambda x: OPS.mutual_information_forward(x, PY)[1]),
    "mutual_information_backward": (
        *("ans_grad", (2,)),
        lambda x: OPS.mutual_information_backward(PX, PY, torch.zeros(2, 4, 5), x)[0],
    ),
    "mutual_information_forward_backward": (
        *("px", (2, 3, 5)),
        lambda x: OPS.mutual_information_forward_backward(x, PY)[0],
    ),
    "rnnt_logprobs_joint_forward": (
        *("logits", (2, 4, 4, 6)),
        lambda x: OPS.rnnt_logprobs_joint_forward(x, TEXT, 0)[1],
    ),
    "rnnt_logprobs_joint_backward": (
        *("px_grad", (2, 3, 5)),
        lambda x: OPS.rnnt_logprobs_joint_backward(LOGITS, TEXT, LOGITS[..., 0], x, PY, 0),
    ),
    "rnnt_logprobs_pruned_forward": (
        *("logits", (2, 4, 2, 6)),
        lambda x: OPS.rnnt_logprobs_pruned_forward(x, TEXT, KEPT, 0)[1],
    ),
    "rnnt_logprobs_pruned_backward": (
        *("px_grad", (2, 3, 5)),
        lambda x: OPS.rnnt_logprobs_pruned_backward(
            LOGITS[:, :, :2], TEXT, KEPT, LOGITS[:, :, :2, 0], x, PY, 0
        ),
    ),
    "rnnt_logprobs_fused_forward": (
        *("weight", (6, 6)),
        lambda x: OPS.rnnt_logprobs_fused_forward(*JOINER, x, TEXT, KEPT, "tanh", 0)[1],
    ),
    "rnnt_logprobs_fused_backward": (
        *("px_grad", (2, 3, 5)),
        lambda x: OPS.rnnt_logprobs_fused_backward(
            *(*JOINER, torch.zeros(6, 6), TEXT, KEPT, torch.zeros(2, 4, 2), x, PY, "tanh", 0)
        )[0],
    ),
    "rnnt_logprobs_simple_forward": (
        *("lm", (2, 4, 6)),
        lambda x: OPS.rnnt_logprobs_simple_forward(x, LOGITS[0, :2], TEXT, 0)[1],
    ),
    "rnnt_logprobs_simple_backward": (
        *("px_grad", (2, 3, 5)),
        lambda x: OPS.rnnt_logprobs_simple_backward(
            LOGITS[0, :2], LOGITS[0, :2], TEXT, LOGITS[..., 0], x, PY, 0
        )[0],
    ),
    "rnnt_pruning_forward": ("lm", (2, 4, 6), lambda x: OPS.rnnt_pruning_forward(x, KEPT)),
    "rnnt_pruning_backward": ("pruned_grad", (2, 4, 2, 6), lambda x: OPS.rnnt_pruning_backward(x, KEPT, 3)),
    "rnnt_align": ("px", (2, 3, 5), lambda x: OPS.rnnt_align(x, PY)[1]),
    "voxelize_hard": ("points", (4, 3), lambda x: OPS.voxelize_hard(x, SIZE, RANGE, 3, 4)[0]),
    "dynamic_scatter_forward": ("feats", (4, 3), lambda x: OPS.dynamic_scatter_forward(x, COORS)[0]),
    "dynamic_scatter_backward": (
        *("grad_voxel_feats", (2, 3)),
        lambda x: OPS.dynamic_scatter_backward(x, None, None, MAP, None, "sum"),
    ),
    "scatter_sum": ("src", (4, 3), lambda x: OPS.scatter_sum(x, GROUPS, 2)),
    "scatter_mean": ("src", (4, 3), lambda x: OPS.scatter_mean(x, GROUPS, 2)),
    "scatter_max": ("src", (4, 3), lambda x: OPS.scatter_max(x, GROUPS, 2)[0]),
    "scatter_sum_backward": ("grad_out", (2, 3), lambda x: OPS.scatter_sum_backward(x, GROUPS)),
    "scatter_mean_backward": ("grad_out", (2, 3), lambda x: OPS.scatter_mean_backward(x, GROUPS)),
    "scatter_max_backward": (
        *("grad_out", (2, 3)),
        lambda x: OPS.scatter_max_backward(x, GROUPS, torch.zeros(2, 3, dtype=torch.int64)),
    ),
    "indice_convolution_forward": (
        *("features", (4, 3)),
        lambda x: OPS.indice_convolution_forward(x, FILTERS, *PAIRS, 4),
    ),
    "indice_convolution_backward_data": (
        *("output_grad", (4, 2)),
        lambda x: OPS.indice_convolution_backward_data(x, FILTERS, *PAIRS, 4),
    ),
    "indice_convolution_backward_filter": (
        *("output_grad", (4, 2)),
        lambda x: OPS.indice_convolution_backward_filter(torch.zeros(4, 3), x, *PAIRS),
    ),
    "indice_avg_pool_forward": ("features", (4, 3), lambda x: OPS.indice_avg_pool_forward(x, *PAIRS, 4)),
    "indice_avg_pool_backward": (
        *("output_grad", (4, 3)),
        lambda x: OPS.indice_avg_pool_backward(x, *PAIRS, 4),
    ),
    "global_avg_pool_forward": ("features", (4, 3), lambda x: OPS.global_avg_pool_forward(x, SITES, 1)),
    "global_avg_pool_backward": ("output_grad", (1, 3), lambda x: OPS.global_avg_pool_backward(x, SITES)),
    "global_max_pool_forward": ("features", (4, 3), lambda x: OPS.global_max_pool_forward(x, SITES, 1)),
    "global_max_pool_backward": (
        *("output_grad", (1, 3)),
        lambda x: OPS.global_max_pool_backward(torch.ones(4, 3), torch.ones(1, 3), x, SITES),
    ),
    "indice_max_pool_forward": ("features", (4, 3), lambda x: OPS.indice_max_pool_forward(x, *PAIRS, 4)),
    "indice_max_pool_backward": (
        *("output_grad", (4, 3)),
        lambda x: OPS.indice_max_pool_backward(torch.zeros(4, 3), torch.zeros(4, 3), x, *PAIRS),
    ),
}
FILTERS = torch.rand(2, 3, 2)
PAIRS = torch.zeros(2, 2, 4, dtype=torch.int32), torch.tensor([1, 3])
SITES = torch.zeros(4, 4, dtype=torch.int32)
PX, PY = torch.zeros(2, 3, 5), torch.zeros(2, 4, 4)
LOGITS, TEXT, KEPT = torch.zeros(2, 4, 4, 6), torch.ones(2, 3).long(), torch.arange(2).repeat(2, 4, 1)
JOINER = torch.zeros(2, 4, 6), torch.zeros(2, 4, 6)


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


def test_all_operators_are_here():
    names = {name for name in dir(OPS) if hasattr(getattr(OPS, name), "default")}
    # As results.
    have_integers = {
        "get_indice_pairs",
        "indice_convolution_index",
        "moe_locations",
        "rnnt_prune_ranges",
        "voxelize",
    }
    assert names - have_integers == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("how", DIFFERENTIATIONS)
def test_tangents_are_not_dropped(name, how):
    argument, shape, function = CALLS[name]
    x = torch.rand(shape)
    if name == "moe_dispatch_forward":
        argument = "gates"  # the first of the two that have one
    with pytest.raises(NotImplementedError) as caught:
        DIFFERENTIATIONS[how](function, x)
    assert str(caught.value) == (
        f"{name}: {argument} has a tangent of forward-mode differentiation, which this operator does not "
        f"follow; use reverse mode, or pass torch.autograd.forward_ad.unpack_dual({argument}).primal"
    )


@pytest.mark.parametrize("name", CALLS)
def test_what_has_no_tangent_is_no_matter(name):
    _, shape, function = CALLS[name]
    x = torch.rand(shape)
    expected = function(x)
    assert torch.equal(dual_level(lambda _: function(x), x), expected)
    assert torch.equal(dual_level(lambda y: function(forward_ad.unpack_dual(y).primal), x), expected)
    _, tangent = torch.func.jvp(lambda y: function(x).sum() + y, (x,), (torch.ones_like(x),))
    assert torch.equal(tangent, torch.ones_like(x))
    with torch.inference_mode():
        assert torch.equal(function(x), expected)
