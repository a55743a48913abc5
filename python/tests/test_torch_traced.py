"""Tensors without values are checked like real ones; mixed devices are refused."""

import contextlib

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from traced_calls import CALLS, DYNAMIC_SIZE, FREE_RANK, FREE_ROWS, WITHOUT_GRADIENT, WRONG

import turnout.torch
from turnout import _core

pytestmark = pytest.mark.torch

OPS = torch.ops.turnout
COUNT = torch.tensor([[3, 1]])
TENSORS = [
    (name, argument)
    for name, call in CALLS.items()
    for argument, value in call.items()
    if isinstance(value, torch.Tensor)
]


def call(name, **changes):
    return getattr(OPS, name)(**{**CALLS[name], **changes})


def message_of(function):
    with pytest.raises((ValueError, NotImplementedError)) as caught:
        function()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def everywhere(name, **changes):
    """The messages of a call that fails on real, meta and fake tensors."""
    arguments = {**CALLS[name], **changes}

    def of(kind):
        return {k: kind(v) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}

    mode = FakeTensorMode(shape_env=ShapeEnv())
    meta, fake = of(lambda x: x.to("meta")), of(mode.from_tensor)
    messages = [message_of(lambda x=x: getattr(OPS, name)(**x)) for x in (arguments, meta)]
    with mode:
        messages.append(message_of(lambda: getattr(OPS, name)(**fake)))
    if name == "voxelize_hard":  # a real call runs Python's function, which has both under one name
        return [message.replace("voxelize_hard:", "voxelize:") for message in messages]
    return messages


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
    if requiring and name not in WITHOUT_GRADIENT:
        assert message_of(lambda: call(name, **requiring)) == expected


@pytest.mark.parametrize(("name", "argument"), TENSORS)
def test_layouts_are_refused(name, argument):
    sparse = CALLS[name][argument].to_sparse()
    expected = f"{name}: {argument} has the layout torch.sparse_coo, expected torch.strided"
    assert message_of(lambda: call(name, **{argument: sparse})) == expected


@pytest.mark.parametrize(("name", "argument"), TENSORS)
def test_shapes_are_checked(name, argument):
    """The same message for real, meta and fake tensors."""
    value = CALLS[name][argument]
    broken = [value.to(torch.complex64)]
    if (name, argument) not in FREE_RANK:
        broken.append(value.unsqueeze(0).unsqueeze(0))
    if (name, argument) not in FREE_ROWS and len(value) > 1:
        broken.append(torch.cat([value, value]))
    for bad in broken:
        messages = everywhere(name, **{argument: bad})
        assert messages == [messages[0]] * 3
        assert messages[0].startswith(f"{name.removesuffix('_hard')}: ")


@pytest.mark.parametrize(("name", "changes"), WRONG)
def test_values_are_checked(name, changes):
    messages = everywhere(name, **changes)
    assert messages == [messages[0]] * 3


@pytest.mark.parametrize("name", DYNAMIC_SIZE)
def test_sizes_that_depend_on_values(name):
    meta = {k: v.to("meta") for k, v in CALLS[name].items() if isinstance(v, torch.Tensor)}
    assert message_of(lambda: call(name, **meta)) == (
        f"{name}: {DYNAMIC_SIZE[name]} depends on values, which tensors on the device "
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
def test_a_compiler_tells_the_message(dynamic):
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
        with contextlib.suppress(NotImplementedError):  # a dtype that meta tensors do not have
            tokens = tokens.to("meta")
        if tokens.is_meta:
            message = message_of(lambda x=tokens: turnout.torch.moe_re_routing(x, COUNT.to("meta")))
            name = str(dtype).removeprefix("torch.")
            assert message.startswith(f"moe_re_routing: tokens has dtype {name}, expected float32, float64")
    quantized = torch.quantize_per_tensor(torch.ones(4, 3), 0.1, 0, torch.qint8)
    assert "tokens has dtype qint8" in message_of(lambda: turnout.torch.moe_re_routing(quantized, COUNT))


def test_meta_tensors_at_the_numpy_door():
    message = message_of(lambda: turnout.moe_re_routing(torch.ones(4, 3, device="meta"), COUNT))
    assert message.startswith("moe_re_routing: tokens ")
    assert "meta" in message


def test_descriptions_of_an_unknown_operator():
    with pytest.raises(RuntimeError, match="there is no operator nothing"):
        _core.check_metadata("nothing", {}, {}, {})
