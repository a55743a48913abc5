"""``turnout.torch``: operators registered with torch, on torch's threads."""

import subprocess
import sys

import pytest
import torch
from conftest import dispatch_arguments, in_forked_child, same_bits
from test_torch_arrays import tensors
from torch._subclasses.fake_tensor import FakeTensorMode

import turnout
import turnout.torch
from turnout import _core, check

pytestmark = pytest.mark.torch

OP = torch.ops.turnout.moe_dispatch_forward.default
# 4 MB of output: enough for the library to use several threads.
LARGE = {"samples": 2500, "hidden": 512, "capacity": 1024, "num_experts": 2}


@pytest.fixture
def torch_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_definition(rng):
    for choices in (None, 2):
        arguments = dispatch_arguments(rng, choices=choices)
        result = turnout.torch.moe_dispatch_forward(*tensors(arguments))
        assert same_bits(result.numpy(), check.moe_dispatch_forward(*arguments))


def test_strided_tensors(rng):
    gates, indices, locations, tokens, *sizes = tensors(dispatch_arguments(rng, choices=2))
    strided = [t.T.contiguous().T for t in (gates, indices, locations, tokens)]
    assert not any(t.is_contiguous() for t in strided)
    expected = OP(gates, indices, locations, tokens, *sizes)
    assert torch.equal(turnout.torch.moe_dispatch_forward(*strided, *sizes), expected)


def test_same_messages(rng):
    gates, indices, locations, tokens, *sizes = tensors(dispatch_arguments(rng))
    with pytest.raises(
        ValueError, match=r"moe_dispatch_forward: gates.shape\[0\] is 5, expected 23 = indices"
    ):
        turnout.torch.moe_dispatch_forward(gates[:5], indices, locations, tokens, *sizes)


@pytest.mark.parametrize("choices", [None, 2])
def test_opcheck(rng, choices):
    torch.library.opcheck(OP, tensors(dispatch_arguments(rng, choices=choices)))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(rng, dynamic):
    def function(gates, indices, locations, tokens, capacity, num_experts):
        dispatch = turnout.torch.moe_dispatch_forward(
            gates, indices, locations, tokens * 2, capacity, num_experts
        )
        return dispatch + 1

    arguments = tensors(dispatch_arguments(rng))
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
    assert torch.equal(compiled(*arguments), function(*arguments))
    arguments = tensors(dispatch_arguments(rng, samples=40, capacity=8))
    assert torch.equal(compiled(*arguments), function(*arguments))


def test_fake_and_meta(rng):
    *arrays, capacity, num_experts = tensors(dispatch_arguments(rng, choices=2))
    meta = OP(*(a.to("meta") for a in arrays), capacity, num_experts)
    with FakeTensorMode() as mode:
        fake = OP(*(mode.from_tensor(a) for a in arrays), capacity, num_experts)
    for result in (meta, fake):
        assert (result.shape, result.dtype) == ((15, 17), torch.float32)


@pytest.mark.parametrize("name", ["gates", "input", "dispatch"])
def test_missing_gradient_is_an_error(rng, name):
    gates, indices, locations, tokens, *sizes = tensors(dispatch_arguments(rng))
    dispatch = torch.ones(sizes[0] * sizes[1], tokens.shape[1])
    {"gates": gates, "input": tokens, "dispatch": dispatch}[name].requires_grad_()
    arguments = (gates, indices, locations, tokens, dispatch, *sizes)
    backward = turnout.torch.moe_dispatch_backward
    message = (
        f"moe_dispatch_backward: {name} requires grad, but this operator has no gradient yet; pass "
        f"{name}.detach(), or call it under torch.no_grad()"
    )
    with pytest.raises(NotImplementedError) as caught:
        backward(*arguments)
    assert str(caught.value) == message
    with pytest.raises(Exception, match="has no gradient yet"):
        torch.compile(backward, fullgraph=True, backend="aot_eager")(*arguments)
    with torch.no_grad():
        assert not backward(*arguments)[0].requires_grad


@pytest.mark.parametrize("count", [1, 2, 5])
def test_torch_threads_do_the_work(rng, torch_threads, count):
    arguments = dispatch_arguments(rng, **LARGE)
    torch_threads(count)
    before = _core.torch_runs()
    result = turnout.torch.moe_dispatch_forward(*tensors(arguments))
    assert _core.torch_runs() - before == (count > 1)
    assert same_bits(result.numpy(), check.moe_dispatch_forward(*arguments))


@pytest.mark.parametrize("count", [1, 2])
def test_numpy_functions_use_torch_threads_for_torch_tensors(rng, threads, torch_threads, count):
    arguments = dispatch_arguments(rng, **LARGE)
    threads(2)
    torch_threads(count)
    before = _core.torch_runs()
    result = turnout.moe_dispatch_forward(*tensors(arguments))
    assert _core.torch_runs() - before == (count > 1)
    assert same_bits(result.numpy(), check.moe_dispatch_forward(*arguments))
    before = _core.torch_runs()
    turnout.moe_dispatch_forward(*arguments)
    assert _core.torch_runs() == before


def test_torch_threads_are_found_without_turnout_torch():
    program = (
        "import torch, turnout; from turnout import _core\n"
        "torch.set_num_threads(2); turnout.set_num_threads(1)\n"
        "order, rows = torch.arange(4096), torch.ones(4096, 1024)\n"
        "turnout.moe_re_routing_inverse(rows, order)\n"
        "assert _core.torch_runs() == 1, _core.torch_runs()\n"
        "import sys; assert 'turnout.torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def call_in_child(binding, arguments):
    torch.set_num_threads(2)
    before = _core.torch_runs()
    result = binding(*tensors(arguments)).numpy()
    return result, _core.torch_runs() - before


@pytest.mark.parametrize("binding", [turnout.moe_dispatch_forward, turnout.torch.moe_dispatch_forward])
def test_forked_child_uses_our_threads(rng, torch_threads, binding):
    torch_threads(2)
    arguments = dispatch_arguments(rng, **LARGE)
    expected = turnout.torch.moe_dispatch_forward(
        *tensors(arguments)
    ).numpy()  # starts torch's thread pool before the fork
    result, torch_runs = in_forked_child(call_in_child, binding, arguments)
    assert torch_runs == 0
    assert same_bits(result, expected)


class Batches(torch.utils.data.Dataset):
    def __init__(self, binding, calls):
        self.binding, self.calls = binding, calls

    def __len__(self):
        return len(self.calls)

    def __getitem__(self, i):
        return self.binding(*tensors(self.calls[i]))


def two_threads(worker):
    torch.set_num_threads(2)


@pytest.mark.parametrize("worker_init_fn", [None, two_threads])
@pytest.mark.parametrize("binding", [turnout.moe_dispatch_forward, turnout.torch.moe_dispatch_forward])
def test_forked_data_loader(rng, torch_threads, binding, worker_init_fn):
    torch_threads(2)
    calls = [dispatch_arguments(rng, **LARGE) for _ in range(4)]
    expected = [binding(*tensors(arguments)) for arguments in calls]
    loader = torch.utils.data.DataLoader(
        Batches(binding, calls),
        batch_size=None,
        num_workers=2,
        multiprocessing_context="fork",
        worker_init_fn=worker_init_fn,
        timeout=60,
    )
    assert all(torch.equal(a, b) for a, b in zip(loader, expected, strict=True))
