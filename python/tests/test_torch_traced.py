"""Tensors without values are checked like real ones; mixed devices are rejected."""

import contextlib

import pytest
import torch
from registry import CALLS, ROWS, TENSORS
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import turnout.torch
from turnout import _core
from turnout.torch.registration import has_gradient

pytestmark = pytest.mark.torch

OPS = torch.ops.turnout
COUNT = torch.tensor([[3, 1]])
SITES = torch.zeros(5, 4, dtype=torch.int32)
# Further calls that are rejected: an operator, and changes to its valid call.
WRONG = [
    ("moe_dispatch_forward", {"capacity": -1}),
    ("moe_experts", {"activation": "tanh"}),
    ("moe_experts_quantized", {"activation": "tanh"}),
    ("moe_experts", {"hidden_states": torch.ones(5, 5).half()}),
    ("moe_re_routing", {"idx_type": 2}),
    ("moe_re_routing_inverse", {"idx_type": -1}),
    ("mutual_information_forward", {"px": torch.zeros(2, 3, 7)}),
    ("rnnt_logprobs_joint_forward", {"termination_symbol": -1}),
    ("rnnt_logprobs_simple_forward", {"termination_symbol": 6}),
    ("rnnt_logprobs_pruned_forward", {"symbols": torch.zeros(2, 0, dtype=torch.int32)}),
    ("rnnt_prune_ranges", {"score": "most"}),
    ("rnnt_logprobs_fused_forward", {"activation": "gelu"}),
    ("voxelize", {"voxel_size": [1.0, 1.0]}),
    ("voxelize", {"voxel_size": []}),
    ("voxelize", {"points": torch.ones(4, 2)}),
    ("voxelize_hard", {"max_points": -2}),
    ("voxelize_hard", {"point_cloud_range": [1.0] * 5}),
    ("dynamic_scatter_forward", {"reduce_type": "median"}),
    ("dynamic_scatter_forward", {"coors": torch.zeros(5, 5, dtype=torch.int32)}),
    ("scatter_sum", {"dim_size": -1}),
    ("scatter_max", {"dim_size": 2**31}),
    ("get_indice_pairs", {"spatial_shape": [5, 6]}),
    ("get_indice_pairs", {"spatial_shape": [5, 6, 0]}),
    ("get_indice_pairs", {"kernel_size": [3, 3]}),
    ("get_indice_pairs", {"kernel_size": [2], "subm": True}),
    ("get_indice_pairs", {"kernel_size": [7], "padding": [0]}),
    ("get_indice_pairs", {"transpose": True, "subm": True}),
    ("get_indice_pairs", {"batch_size": 0}),
    ("get_indice_pairs", {"indices": SITES[:, :3]}),
    ("indice_convolution_forward", {"filters": torch.ones(3, 5)}),
    ("indice_convolution_backward_data", {"filters": torch.ones(3, 5)}),
    ("boxes_iou_bev", {"boxes_a": torch.ones(5, 5)}),
    ("box_iou_rotated", {"mode": "giou"}),
    ("nms3d", {"max_keep": -1}),
    ("nms", {"offset": 2}),
    ("points_in_boxes", {"z": "top"}),
    ("furthest_point_sample", {"samples": -1}),
    ("ball_query", {"nsample": -1}),
    ("voxel_query", {"x_range": -1}),
    ("three_nn", {"known": torch.ones(5, 3)}),
    ("knn", {"k": -1}),
    ("neighbor_lists", {"region": "box"}),
    ("three_nn_of_lists", {"starts": torch.zeros(9, dtype=torch.int64)}),
    ("vector_pool", {"grid": [2, 2]}),
    ("vector_pool", {"slots": -1}),
    ("global_max_pool_forward", {"features": torch.ones(6, 3)}),
    ("global_avg_pool_forward", {"features": torch.ones(6, 3)}),
    ("global_avg_pool_forward", {"indices": SITES[:, :0]}),
]
# Tensors whose number of rows depends on values of other arguments.
ROWS_BY_VALUES = {(f"indice_convolution_{way}", "index") for way in ("forward", "backward_data")}
# Operators that Python's function of another name runs, too, which messages of real calls then name.
FUNCTIONS = {"voxelize_hard": "voxelize", "points_in_boxes_all": "points_in_boxes"}
FUNCTIONS |= {name: name.removesuffix("_aligned") for name in ROWS if name.endswith("_aligned")}
# Sizes that depend on values.
DYNAMIC_SIZE = {
    "dynamic_scatter_forward": "voxels",
    "furthest_point_sample_stacked": "samples",
    "get_indice_pairs": "num_act_out",
    "indice_convolution_index": "words",
    "neighbor_lists": "entries",
    **dict.fromkeys(("nms", "nms3d", "nms3d_normal", "nms_rotated"), "keep"),
    "rnnt_prune_ranges": "s_range",
    "voxelize_hard": "voxels",
}


def call(name, **changes):
    return getattr(OPS, name)(**{**CALLS[name], **changes})


def message_of(function):
    with pytest.raises((ValueError, NotImplementedError)) as caught:
        function()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def outcome(function):
    """Returns the message of a rejected call, or None if it succeeds."""
    try:
        function()
    except (ValueError, NotImplementedError) as error:
        assert "\n" not in str(error)
        return str(error)
    return None


def everywhere(name, **changes):
    arguments = {**CALLS[name], **changes}

    def of(kind):
        return {k: kind(v) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}

    mode = FakeTensorMode(shape_env=ShapeEnv())
    meta, fake = of(lambda x: x.to("meta")), of(mode.from_tensor)
    outcomes = [outcome(lambda x=x: getattr(OPS, name)(**x)) for x in (arguments, meta)]
    with mode:
        outcomes.append(outcome(lambda: getattr(OPS, name)(**fake)))
    return [one and one.replace(f"{name}:", f"{FUNCTIONS.get(name, name)}:") for one in outcomes]


def test_all_operators_are_here():
    names = {name for name in dir(OPS) if hasattr(getattr(OPS, name), "default")}
    assert names == set(CALLS)
    for name in names:
        call(name)


@pytest.mark.parametrize(("name", "argument"), TENSORS)
def test_mixed_devices_are_refused(name, argument):
    first = next(iter(CALLS[name]))
    meta = {argument: CALLS[name][argument].to("meta")}
    others = [a for n, a in TENSORS if n == name and a != argument]
    if not others:
        return
    expected = (
        f"{name}: {argument} is on the device meta, expected cpu as {first}"
        if argument != first
        else f"{name}: {others[0]} is on the device cpu, expected meta as {first}"
    )
    assert message_of(lambda: call(name, **meta)) == expected
    requiring = {a: v.requires_grad_() for a, v in meta.items() if v.is_floating_point()}
    if requiring and has_gradient(name):
        assert message_of(lambda: call(name, **requiring)) == expected


@pytest.mark.parametrize(("name", "argument"), TENSORS)
def test_layouts_are_refused(name, argument):
    sparse = CALLS[name][argument].to_sparse()
    expected = f"{name}: {argument} has the layout torch.sparse_coo, expected torch.strided"
    assert message_of(lambda: call(name, **{argument: sparse})) == expected


@pytest.mark.parametrize(("name", "argument"), TENSORS)
def test_shapes_are_checked(name, argument):
    """Real, meta and fake tensors give the same message or are all accepted."""
    value = CALLS[name][argument]
    dims = next(one["dims"] for one in ROWS[name]["parameters"] if one["name"] == argument)
    outcomes = everywhere(name, **{argument: value.to(torch.complex64)})
    assert outcomes == [outcomes[0]] * 3
    assert outcomes[0].startswith(f"{FUNCTIONS.get(name, name)}: ")
    outcomes = everywhere(name, **{argument: value.unsqueeze(0).unsqueeze(0)})
    is_folded = any(dim[-1] for dim in dims)
    assert outcomes == [outcomes[0]] * 3
    assert is_folded or outcomes[0] is not None
    if len(value) > 1:
        real, meta, fake = everywhere(name, **{argument: torch.cat([value, value])})
        if (name, argument) not in ROWS_BY_VALUES and ".shape[" in f"{real}{meta}{fake}":
            assert real == meta == fake


@pytest.mark.parametrize(("name", "changes"), WRONG)
def test_values_are_checked(name, changes):
    messages = everywhere(name, **changes)
    assert messages == [messages[0]] * 3
    assert messages[0] is not None


@pytest.mark.parametrize("name", DYNAMIC_SIZE)
def test_sizes_that_depend_on_values(name):
    meta = {k: v.to("meta") for k, v in CALLS[name].items() if isinstance(v, torch.Tensor)}
    assert message_of(lambda: call(name, **meta)) == (
        f"{name}: the size {DYNAMIC_SIZE[name]} depends on values, which tensors on the device meta do not "
        "have; use fake tensors, or real ones"
    )


def test_symbolic_sizes_make_no_guards():
    """One graph serves all sizes, because checks add no guards."""

    def function(tokens, counts):
        return turnout.torch.moe_re_routing(tokens, counts)[0] + 1

    torch.compiler.reset()
    frames = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend=frames)
    for rows in (4, 6, 9):
        tokens, counts = torch.ones(rows, 3), torch.tensor([[rows - 1, 1]])
        assert torch.equal(compiled(tokens, counts), function(tokens, counts))
    assert frames.frame_count == 1


def test_unknown_sizes_are_left_to_the_call():
    """The size voxels is a symbol without a value."""
    with FakeTensorMode(shape_env=ShapeEnv()):
        voxel_feats, _, index, _ = OPS.dynamic_scatter_forward(torch.ones(4, 3), torch.ones(4, 3).int())
        OPS.dynamic_scatter_backward(voxel_feats, None, None, index, None, "sum")
        with pytest.raises(ValueError, match="dynamic_scatter_backward: point2voxel_map has 2 dimensions"):
            OPS.dynamic_scatter_backward(voxel_feats, None, None, index[:, None], None, "sum")


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_calls_raise_the_same_message(dynamic):
    torch.compiler.reset()
    compiled = torch.compile(
        turnout.torch.mutual_information_recursion, fullgraph=True, dynamic=dynamic, backend="eager"
    )
    with pytest.raises(Exception, match=r"py.shape\[0\] is 1, expected 2 = px.shape"):
        compiled(torch.zeros(2, 3, 5), torch.zeros(1, 4, 4))


def test_unknown_dtypes(recwarn):
    for dtype in (torch.complex64, torch.bits8, torch.float8_e4m3fnuz):
        tokens = torch.empty(4, 3, dtype=dtype)
        for function in (turnout.moe_re_routing, turnout.torch.moe_re_routing):
            message = message_of(lambda f=function, x=tokens: f(x, COUNT))
            assert message.startswith("moe_re_routing: tokens ")
        with contextlib.suppress(NotImplementedError):  # a dtype that meta tensors do not support
            tokens = tokens.to("meta")
        if tokens.is_meta:
            message = message_of(lambda x=tokens: turnout.torch.moe_re_routing(x, COUNT.to("meta")))
            name = str(dtype).removeprefix("torch.")
            assert message.startswith(f"moe_re_routing: tokens has dtype {name}, expected float32, float64")
    quantized = torch.quantize_per_tensor(torch.ones(4, 3), 0.1, 0, torch.qint8)
    assert "tokens has dtype qint8" in message_of(lambda: turnout.torch.moe_re_routing(quantized, COUNT))


def test_meta_tensors_through_the_numpy_binding():
    message = message_of(lambda: turnout.moe_re_routing(torch.ones(4, 3, device="meta"), COUNT))
    assert message.startswith("moe_re_routing: tokens ")
    assert "meta" in message


def test_descriptions_of_an_unknown_operator():
    with pytest.raises(RuntimeError, match="there is no operator nothing"):
        _core.check_metadata("nothing", {}, {}, {})
