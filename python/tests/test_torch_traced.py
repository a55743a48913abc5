"""Tensors without values are checked like real ones; mixed devices are refused."""

import contextlib

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import turnout.torch
from turnout import _core

pytestmark = pytest.mark.torch

OPS = torch.ops.turnout
MAP = torch.zeros(4, dtype=torch.int64)
COUNT = torch.tensor([[3, 1]])
SITES = torch.zeros(4, 4, dtype=torch.int32)
PAIRS, NUM = torch.zeros(2, 2, 4, dtype=torch.int32), torch.ones(2, dtype=torch.int64)
SIZE, RANGE = [0.5] * 3, [-4.0] * 3 + [4.0] * 3
BOX = torch.zeros(2, 4, dtype=torch.int64)
TEXT, KEPT = torch.zeros(2, 3, dtype=torch.int64), torch.arange(2).repeat(2, 4, 1)
STEPS = {"px_grad": torch.zeros(2, 3, 5), "py_grad": torch.zeros(2, 4, 4)}

JOINER = {
    **{
        "am": torch.ones(2, 4, 6),
        "lm": torch.ones(2, 4, 6),
        "weight": torch.ones(5, 6),
        "bias": torch.ones(5),
    },
    **{"activation": "tanh", "symbols": TEXT, "ranges": KEPT, "termination_symbol": 0, "boundary": BOX},
}

# Arguments of each operator.
CALLS = {
    "moe_dispatch_forward": {
        **{"gates": torch.ones(4), "indices": MAP, "locations": MAP, "input": torch.ones(4, 3)},
        **{"capacity": 2, "num_experts": 2},
    },
    "moe_dispatch_backward_data": {
        **{"gates": torch.ones(4), "indices": MAP, "locations": MAP, "dispatch": torch.ones(4, 3)},
        **{"capacity": 2, "num_experts": 2},
    },
    "moe_dispatch_backward_gate": {
        **{"indices": MAP, "locations": MAP, "input": torch.ones(4, 3), "dispatch": torch.ones(4, 3)},
        **{"capacity": 2, "num_experts": 2},
    },
    "moe_dispatch_backward": {
        **{"gates": torch.ones(4), "indices": MAP, "locations": MAP, "input": torch.ones(4, 3)},
        **{"dispatch": torch.ones(4, 3), "capacity": 2, "num_experts": 2},
    },
    "moe_locations": {"indices": MAP, "num_experts": 2, "priority": torch.ones(4)},
    "moe_dispatch": {
        **{"input": torch.ones(4, 3), "indices": MAP, "locations": MAP, "gates": torch.ones(4)},
        **{"capacity": 2, "num_experts": 2},
    },
    "moe_combine": {
        **{"expert_output": torch.ones(4, 3), "indices": MAP, "locations": MAP, "gates": torch.ones(4)},
        "capacity": 2,
    },
    "moe_combine_backward": {
        **{"grad_output": torch.ones(4, 3), "expert_output": torch.ones(4, 3), "indices": MAP},
        **{"locations": MAP, "gates": torch.ones(4), "capacity": 2},
    },
    "moe_token_permute": {"tokens": torch.ones(4, 3), "indices": MAP, "num_out_tokens": 0},
    "sort_chunks_by_idxs": {
        **{"input": torch.ones(4, 3), "split_sizes": COUNT[0], "sorted_idxs": torch.tensor([1, 0])},
        "probs": torch.ones(4),
    },
    "moe_re_routing": {
        **{"tokens": torch.ones(4, 3), "expert_token_num_per_rank": COUNT, "per_token_scales": torch.ones(4)},
        **{"expert_token_num_type": 1, "idx_type": 0},
    },
    "moe_re_routing_inverse": {
        "permute_tokens": torch.ones(4, 3),
        "permute_token_idx": torch.arange(4),
        "idx_type": 0,
    },
    "mutual_information_forward": {
        "px": torch.zeros(2, 3, 5),
        "py": torch.zeros(2, 4, 4),
        "boundary": torch.zeros(2, 4, dtype=torch.int64),
    },
    "mutual_information_backward": {
        **{"px": torch.zeros(2, 3, 5), "py": torch.zeros(2, 4, 4), "p": torch.zeros(2, 4, 5)},
        **{"ans_grad": torch.zeros(2), "boundary": torch.zeros(2, 4, dtype=torch.int64)},
    },
    "mutual_information_forward_backward": {
        "px": torch.zeros(2, 3, 5),
        "py": torch.zeros(2, 4, 4),
        "boundary": torch.zeros(2, 4, dtype=torch.int64),
    },
    "rnnt_logprobs_joint_forward": {
        **{"logits": torch.ones(2, 4, 4, 6), "symbols": TEXT, "termination_symbol": 0, "boundary": BOX},
        **{"modified": False, "overwrite_logits": False},
    },
    "rnnt_logprobs_joint_backward": {
        **{"logits": torch.ones(2, 4, 4, 6), "symbols": TEXT, "normalizer": torch.ones(2, 4, 4)},
        **{**STEPS, "termination_symbol": 0, "boundary": BOX},
    },
    "rnnt_logprobs_pruned_forward": {
        **{"logits": torch.ones(2, 4, 2, 6), "symbols": TEXT, "ranges": KEPT, "termination_symbol": 0},
        **{"boundary": BOX, "modified": False, "use_hat_loss": False, "overwrite_logits": False},
    },
    "rnnt_logprobs_pruned_backward": {
        **{"logits": torch.ones(2, 4, 2, 6), "symbols": TEXT, "ranges": KEPT, **STEPS},
        **{"normalizer": torch.ones(2, 4, 2), "termination_symbol": 0, "boundary": BOX},
        "use_hat_loss": False,
    },
    "rnnt_logprobs_fused_forward": {**JOINER, "modified": False, "use_hat_loss": False},
    "rnnt_logprobs_fused_backward": {
        **{**JOINER, "normalizer": torch.ones(2, 4, 2), **STEPS, "use_hat_loss": False},
    },
    "rnnt_logprobs_simple_forward": {
        **{"lm": torch.ones(2, 4, 6), "am": torch.ones(2, 4, 6), "symbols": TEXT, "termination_symbol": 0},
        **{"boundary": BOX, "modified": False},
    },
    "rnnt_logprobs_simple_backward": {
        **{"lm": torch.ones(2, 4, 6), "am": torch.ones(2, 4, 6), "symbols": TEXT, **STEPS},
        **{"normalizer": torch.ones(2, 4, 4), "termination_symbol": 0, "boundary": BOX},
    },
    "rnnt_prune_ranges": {**STEPS, "boundary": BOX, "s_range": 2, "score": "flow"},
    "rnnt_pruning_forward": {"lm": torch.ones(2, 4, 6), "ranges": KEPT},
    "rnnt_pruning_backward": {"pruned_grad": torch.ones(2, 4, 2, 6), "ranges": KEPT, "symbols": 3},
    "rnnt_align": {"px": torch.zeros(2, 3, 5), "py": torch.zeros(2, 4, 4), "boundary": BOX},
    "voxelize": {"points": torch.ones(4, 3), "voxel_size": SIZE, "point_cloud_range": RANGE},
    "voxelize_hard": {
        **{"points": torch.ones(4, 3), "voxel_size": SIZE, "point_cloud_range": RANGE},
        **{"max_points": 2, "max_voxels": 3, "return_map": True},
    },
    "dynamic_scatter_forward": {"feats": torch.ones(4, 3), "coors": SITES, "reduce_type": "max"},
    "dynamic_scatter_backward": {
        **{"grad_voxel_feats": torch.ones(2, 3), "feats": torch.ones(4, 3), "voxel_feats": torch.ones(2, 3)},
        **{"point2voxel_map": MAP, "voxel_points_count": torch.ones(2, dtype=torch.int32)},
        "reduce_type": "mean",
    },
    "scatter_sum": {"src": torch.ones(4, 3), "index": MAP, "dim_size": 2},
    "scatter_mean": {"src": torch.ones(4, 3), "index": MAP, "dim_size": 2},
    "scatter_max": {"src": torch.ones(4, 3), "index": MAP, "dim_size": 2},
    "scatter_sum_backward": {"grad_out": torch.ones(2, 3), "index": MAP},
    "scatter_mean_backward": {"grad_out": torch.ones(2, 3), "index": MAP},
    "scatter_max_backward": {"grad_out": torch.ones(2, 3), "index": MAP, "argmax": torch.zeros(2, 3).long()},
    "get_indice_pairs": {
        **{"indices": SITES, "batch_size": 1, "spatial_shape": [5, 6, 7], "kernel_size": [3], "stride": [1]},
        **{"padding": [0], "dilation": [1], "output_padding": [0], "subm": True, "transpose": False},
    },
    "indice_convolution_forward": {
        **{"features": torch.ones(4, 3), "filters": torch.ones(2, 3, 5), "indice_pairs": PAIRS},
        **{"indice_num": NUM, "num_act_out": 4, "bias": torch.ones(5)},
    },
    "indice_convolution_backward_data": {
        **{"output_grad": torch.ones(4, 5), "filters": torch.ones(2, 3, 5), "indice_pairs": PAIRS},
        **{"indice_num": NUM, "num_act_in": 4},
    },
    "indice_convolution_backward_filter": {
        **{"features": torch.ones(4, 3), "output_grad": torch.ones(4, 5), "indice_pairs": PAIRS},
        "indice_num": NUM,
    },
    "indice_convolution_index": {"indice_pairs": PAIRS, "indice_num": NUM, "rows": 4, "out_rows": 4},
    "indice_max_pool_forward": {
        **{"features": torch.ones(4, 3), "indice_pairs": PAIRS, "indice_num": NUM, "num_act_out": 4},
    },
    "indice_max_pool_backward": {
        **{"features": torch.ones(4, 3), "features_out": torch.ones(4, 3), "output_grad": torch.ones(4, 3)},
        **{"indice_pairs": PAIRS, "indice_num": NUM},
    },
    "indice_avg_pool_forward": {
        **{"features": torch.ones(4, 3), "indice_pairs": PAIRS, "indice_num": NUM, "num_act_out": 4},
    },
    "indice_avg_pool_backward": {
        **{"output_grad": torch.ones(4, 3), "indice_pairs": PAIRS, "indice_num": NUM, "num_act_in": 4},
    },
}
TENSORS = [
    (name, argument)
    for name, call in CALLS.items()
    for argument, value in call.items()
    if isinstance(value, torch.Tensor)
]
WITHOUT_GRADIENT = (
    *("moe_dispatch_backward", "moe_combine_backward", "moe_locations"),
    *("indice_max_pool_backward", "rnnt_align"),
)
HAS_DYNAMIC_SIZE = {
    "voxelize_hard": "voxels",
    "dynamic_scatter_forward": "voxels",
    "indice_convolution_index": "elements",
    "rnnt_prune_ranges": "rows",
}


def call(name, **changes):
    return getattr(OPS, name)(**{**CALLS[name], **changes})


def sentence_of(function):
    with pytest.raises((ValueError, NotImplementedError)) as caught:
        function()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def everywhere(name, **changes):
    """The sentences of a call that fails on real, meta and fake tensors."""
    arguments = {**CALLS[name], **changes}

    def of(kind):
        return {k: kind(v) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}

    mode = FakeTensorMode(shape_env=ShapeEnv())
    meta, fake = of(lambda x: x.to("meta")), of(mode.from_tensor)
    sentences = [sentence_of(lambda x=x: getattr(OPS, name)(**x)) for x in (arguments, meta)]
    with mode:
        sentences.append(sentence_of(lambda: getattr(OPS, name)(**fake)))
    if name == "voxelize_hard":  # a real call runs Python's function, which has both under one name
        return [sentence.replace("voxelize_hard:", "voxelize:") for sentence in sentences]
    return sentences


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
    assert sentence_of(lambda: call(name, **meta)) == expected
    requiring = {a: v.requires_grad_() for a, v in meta.items() if v.is_floating_point()}
    if requiring and name not in WITHOUT_GRADIENT:
        assert sentence_of(lambda: call(name, **requiring)) == expected


@pytest.mark.parametrize(("name", "argument"), TENSORS)
def test_layouts_are_refused(name, argument):
    sparse = CALLS[name][argument].to_sparse()
    expected = f"{name}: {argument} has the layout torch.sparse_coo, expected torch.strided"
    assert sentence_of(lambda: call(name, **{argument: sparse})) == expected


@pytest.mark.parametrize(("name", "argument"), TENSORS)
def test_shapes_are_checked(name, argument):
    """The same sentence for real, meta and fake tensors."""
    value = CALLS[name][argument]
    broken = [value.unsqueeze(0).unsqueeze(0), value.to(torch.complex64)]
    if argument == "filters":
        broken[0] = value[0]
    rows_are_free = argument in ("points", "filters", "expert_output") or (
        name.startswith("indice_") and value.dim() == 2
    )
    if name.startswith("scatter_") and name.endswith("_backward"):
        rows_are_free = argument == "index" or name != "scatter_max_backward"
    if not rows_are_free and len(value) > 1:
        broken.append(torch.cat([value, value]))
    if (name, argument) == ("get_indice_pairs", "indices"):
        broken[-1] = value[:, :3]
    for bad in broken:
        if (name, argument) == ("moe_re_routing", "expert_token_num_per_rank") and bad.shape == (2, 2):
            continue  # more ranks, whose counts are another matter
        sentences = everywhere(name, **{argument: bad})
        assert sentences == [sentences[0]] * 3
        assert sentences[0].startswith(f"{name.removesuffix('_hard')}: ")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("moe_dispatch_forward", {"capacity": -1}),
        ("moe_re_routing", {"idx_type": 2}),
        ("moe_re_routing_inverse", {"idx_type": -1}),
        ("voxelize", {"voxel_size": [1.0, 1.0]}),
        ("voxelize", {"voxel_size": []}),
        ("voxelize", {"points": torch.ones(4, 2)}),
        ("voxelize_hard", {"max_points": -2}),
        ("voxelize_hard", {"point_cloud_range": [1.0] * 5}),
        ("dynamic_scatter_forward", {"reduce_type": "median"}),
        ("dynamic_scatter_forward", {"coors": torch.zeros(4, 5, dtype=torch.int32)}),
        ("mutual_information_forward", {"px": torch.zeros(2, 3, 6)}),
        ("rnnt_logprobs_joint_forward", {"termination_symbol": -1}),
        ("rnnt_logprobs_simple_forward", {"termination_symbol": 6}),
        ("rnnt_logprobs_pruned_forward", {"symbols": TEXT[:, :0]}),
        ("rnnt_prune_ranges", {"score": "most"}),
        ("scatter_sum", {"dim_size": -1}),
        ("scatter_max", {"dim_size": 2**31}),
        ("rnnt_logprobs_fused_forward", {"activation": "gelu"}),
        ("get_indice_pairs", {"spatial_shape": [5, 6]}),
        ("get_indice_pairs", {"spatial_shape": [5, 6, 0]}),
        ("get_indice_pairs", {"kernel_size": [3, 3]}),
        ("get_indice_pairs", {"kernel_size": [2]}),
        ("get_indice_pairs", {"subm": False, "kernel_size": [7], "padding": [0]}),
        ("get_indice_pairs", {"transpose": True}),
        ("get_indice_pairs", {"batch_size": 0}),
    ],
)
def test_scalars_are_checked(name, changes):
    sentences = everywhere(name, **changes)
    assert sentences == [sentences[0]] * 3


@pytest.mark.parametrize("name", HAS_DYNAMIC_SIZE)
def test_sizes_that_depend_on_values(name):
    meta = {k: v.to("meta") for k, v in CALLS[name].items() if isinstance(v, torch.Tensor)}
    assert sentence_of(lambda: call(name, **meta)) == (
        f"{name}: the number of {HAS_DYNAMIC_SIZE[name]} depends on values, which tensors on the device "
        "meta do not have; use "
        "fake tensors, or real ones"
    )


def test_symbolic_sizes_make_no_guards():
    """One graph for all sizes: a check that fails is one of its example alone."""

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
    """voxels is a symbol without a value."""
    with FakeTensorMode(shape_env=ShapeEnv()):
        voxel_feats, _, index, _ = OPS.dynamic_scatter_forward(torch.ones(4, 3), torch.ones(4, 3).int())
        OPS.dynamic_scatter_backward(voxel_feats, None, None, index, None, "sum")
        with pytest.raises(ValueError, match="dynamic_scatter_backward: point2voxel_map has 2 dimensions"):
            OPS.dynamic_scatter_backward(voxel_feats, None, None, index[:, None], None, "sum")


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiler_tells_the_sentence(dynamic):
    torch.compiler.reset()
    compiled = torch.compile(
        turnout.torch.mutual_information_recursion, fullgraph=True, dynamic=dynamic, backend="eager"
    )
    with pytest.raises(Exception, match=r"py.shape\[0\] is 1, expected batch = 2"):
        compiled(torch.zeros(2, 3, 5), torch.zeros(1, 4, 4))


def test_unknown_dtypes(recwarn):
    for dtype in (torch.complex64, torch.bits8, torch.float8_e4m3fnuz):
        tokens = torch.empty(4, 3, dtype=dtype)
        for function in (turnout.moe_re_routing, turnout.torch.moe_re_routing):
            sentence = sentence_of(lambda f=function, x=tokens: f(x, COUNT))
            assert sentence.startswith("moe_re_routing: tokens ")
        with contextlib.suppress(NotImplementedError):  # a dtype that meta tensors do not have
            tokens = tokens.to("meta")
        if tokens.is_meta:
            sentence = sentence_of(lambda x=tokens: turnout.torch.moe_re_routing(x, COUNT.to("meta")))
            assert sentence.startswith(f"moe_re_routing: tokens has dtype {dtype}, expected f32, f64")
    quantized = torch.quantize_per_tensor(torch.ones(4, 3), 0.1, 0, torch.qint8)
    assert "tokens has dtype torch.qint8" in sentence_of(
        lambda: turnout.torch.moe_re_routing(quantized, COUNT)
    )


def test_meta_tensors_at_the_numpy_door():
    sentence = sentence_of(lambda: turnout.moe_re_routing(torch.ones(4, 3, device="meta"), COUNT))
    assert sentence.startswith("moe_re_routing: tokens ")
    assert "meta" in sentence


def test_descriptions_of_an_unknown_operator():
    with pytest.raises(RuntimeError, match="there is no operator nothing"):
        _core.check_descriptions("nothing", {}, {})
