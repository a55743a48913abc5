"""mutual_information for PyTorch: operators, k2's recursions, gradients, compilation."""

import numpy as np
import pytest
import torch
from conftest import same_bits
from lattices import MODES, boundaries, diff1, prune, steps
from torch._subclasses.fake_tensor import FakeTensorMode

import turnout
import turnout.torch
from turnout import _core, check
from turnout.torch import joint_mutual_information_recursion, mutual_information_recursion

pytestmark = pytest.mark.torch

FORWARD = torch.ops.turnout.mutual_information_forward.default
BACKWARD = torch.ops.turnout.mutual_information_backward.default
BOTH = torch.ops.turnout.mutual_information_forward_backward.default
SHAPE = 4, 5, 7
SECOND = "mutual_information_backward: a second derivative was requested, but this operator can be"


def tensors(rng, shape=SHAPE, mode="regular", dtype=torch.float32, requires_grad=False):
    px, py = (torch.from_numpy(x).to(dtype) for x in steps(rng, *shape, mode, np.float64))
    return px.requires_grad_(requires_grad), py.requires_grad_(requires_grad)


def boxes(rng, shape=SHAPE):
    return torch.from_numpy(boundaries(rng, *shape))


def arrays(*tensors):
    return [t.detach().double().numpy() for t in tensors]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_definition(rng, mode, dtype):
    px, py = tensors(rng, mode=mode, dtype=dtype)
    box = boxes(rng)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    p, ans = FORWARD(px, py, box)
    expected_p, expected_ans = check.mutual_information_forward(*arrays(px, py), boundary=box.numpy())
    assert (p.dtype, ans.dtype) == (wide, wide)
    assert diff1(p, expected_p) <= 1e-5
    assert diff1(ans, expected_ans) <= 1e-5
    ans_grad = torch.arange(1.0, 5.0, dtype=wide)
    grads = BACKWARD(px, py, p, ans_grad, box)
    expected = check.mutual_information_backward(*arrays(px, py, p, ans_grad), boundary=box.numpy())
    rounding = max(torch.finfo(dtype).eps, 1e-5)
    for actual, wanted in zip(grads, expected, strict=False):
        assert actual.dtype == dtype
        assert diff1(actual.double(), wanted) <= rounding
    both = BOTH(px, py, box)
    expected = check.mutual_information_forward_backward(*arrays(px, py), boundary=box.numpy())
    for actual, wanted in zip(both[1:], expected[1:], strict=True):
        assert actual.dtype == dtype
        assert diff1(actual.double(), wanted) <= 10 * rounding


@pytest.mark.parametrize("binding", [turnout.mutual_information_forward, FORWARD])
def test_torch_in_torch_out(rng, binding):
    px, py = tensors(rng)
    results = binding(px, py)
    assert all(type(x) is torch.Tensor for x in results)
    expected = turnout.mutual_information_forward(px.numpy(), py.numpy())
    assert all(same_bits(a.numpy(), b) for a, b in zip(results, expected, strict=True))


def test_overwrite_in_place(rng):
    px, py = tensors(rng)
    p, ans = turnout.mutual_information_forward(px, py)
    grad = torch.ones_like(ans)
    turnout.mutual_information_backward(px, py, p, grad, overwrite_ans_grad=True)
    torch.testing.assert_close(grad, torch.ones(4))
    with pytest.raises(ValueError, match="px requires grad, which only turnout"):
        turnout.mutual_information_forward(px.requires_grad_(), py)


def test_strided_tensors(rng):
    px, py = tensors(rng)
    box = boxes(rng)
    strided = [x.transpose(0, -1).contiguous().transpose(0, -1) for x in (px, py, box)]
    assert not any(x.is_contiguous() for x in strided)
    expected = mutual_information_recursion(px, py, box, return_grad=True)
    actual = mutual_information_recursion(*strided, return_grad=True)
    assert torch.equal(actual[0], expected[0])
    assert all(torch.equal(a, b) for a, b in zip(actual[1], expected[1], strict=True))
    # An upstream gradient with stride 0.
    px.requires_grad_()
    (grad,) = torch.autograd.grad(FORWARD(px, py, box)[1].sum(), px)
    torch.testing.assert_close(grad, expected[1][0])


def test_same_messages(rng):
    px, py = tensors(rng)
    box = boxes(rng)
    box[2, 3] = 8
    for function in (FORWARD, BOTH, mutual_information_recursion):
        with pytest.raises(ValueError, match=r"boundary\[2, 3\] is 8, expected 0 \.\. 7 frames"):
            function(px, py, box)
    with pytest.raises(ValueError, match="boundary has dtype int32, expected int64"):
        mutual_information_recursion(px, py, box.int())


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_opcheck(rng, mode, requires_grad):
    px, py = tensors(rng, mode=mode, requires_grad=requires_grad)
    box = boxes(rng)
    for arguments in ((px, py), (px, py, box)):
        torch.library.opcheck(FORWARD, arguments)
        torch.library.opcheck(BOTH, arguments)
    px, py = px.detach(), py.detach()
    p, ans = FORWARD(px, py, box)
    torch.library.opcheck(BACKWARD, (px, py, p, torch.ones_like(ans), box))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_fake_and_meta(rng, dtype):
    px, py = tensors(rng, dtype=dtype)
    p, ans = FORWARD(px, py)
    for op, arguments in ((FORWARD, (px, py)), (BOTH, (px, py)), (BACKWARD, (px, py, p, ans))):
        real = op(*arguments)
        with FakeTensorMode() as mode:
            fake = op(*(mode.from_tensor(x) for x in arguments))
        for results in (op(*(x.to("meta") for x in arguments)), fake):
            assert [(x.shape, x.dtype) for x in results] == [(x.shape, x.dtype) for x in real]


@pytest.mark.parametrize("count", [1, 2])
def test_torch_threads_do_the_work(rng, count):
    px, py = tensors(rng, (16, 50, 500))
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    before = _core.torch_runs()
    try:
        scores = mutual_information_recursion(px, py)
        if count == 1:
            assert _core.torch_runs() == before
        else:
            assert _core.torch_runs() > before
    finally:
        torch.set_num_threads(threads)
    assert same_bits(scores.numpy(), turnout.mutual_information_forward(px.numpy(), py.numpy())[1])


# -- the recursion -----------------------------------------------------------------------------------------


def test_return_grad(rng):
    px, py = tensors(rng)
    box = boxes(rng)
    scores, (px_grad, py_grad) = mutual_information_recursion(px, py, box, return_grad=True)
    expected = turnout.mutual_information_forward_backward(px.numpy(), py.numpy(), boundary=box.numpy())
    for actual, wanted in zip((scores, px_grad, py_grad), expected, strict=True):
        assert same_bits(actual.numpy(), wanted)
        assert not actual.requires_grad
    torch.testing.assert_close(mutual_information_recursion(px, py, boundary=box), scores)
    px.requires_grad_()
    scores, grads = mutual_information_recursion(px, py, box, True)
    assert scores.requires_grad
    assert not any(grad.requires_grad for grad in grads)
    (grad,) = torch.autograd.grad(scores.sum(), px)
    assert torch.equal(grad, px_grad)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("with_boundary", [False, True])
def test_gradcheck(rng, mode, with_boundary):
    inputs = tensors(rng, (4, 3, 5), mode, torch.float64, requires_grad=True)
    box = boxes(rng, (4, 3, 5)) if with_boundary else None
    for function in (mutual_information_recursion, lambda *a: FORWARD(*a)[1]):
        assert torch.autograd.gradcheck(lambda px, py, f=function: f(px, py, box), inputs)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (2, 3, 0), (2, 0, 0)])
def test_empty_shapes(rng, shape):
    px, py = tensors(rng, shape, dtype=torch.float64, requires_grad=True)
    scores = mutual_information_recursion(px, py)
    wanted = torch.zeros(shape[0], dtype=torch.float64) + px.sum((1, 2)) + py.sum((1, 2))  # only one path
    torch.testing.assert_close(scores, wanted)
    scores.sum().backward()
    torch.testing.assert_close(px.grad, torch.ones_like(px))
    torch.testing.assert_close(py.grad, torch.ones_like(py))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_upstream_gradient(rng, dtype):
    px, py = tensors(rng, dtype=dtype, requires_grad=True)
    scores, grads = mutual_information_recursion(px, py, return_grad=True)
    weight = torch.tensor([1.0, -2.0, 0.25, 1000.0])
    (scores * weight).sum().backward()
    for x, grad in zip((px, py), grads, strict=True):
        assert x.grad.dtype == dtype
        assert torch.equal(x.grad, (grad.float() * weight[:, None, None]).to(dtype))


def test_only_requested_gradients(rng):
    px, py = tensors(rng)
    mutual_information_recursion(px, py.requires_grad_()).sum().backward()
    assert px.grad is None
    assert py.grad.shape == py.shape
    with torch.no_grad():
        assert not mutual_information_recursion(px, py).requires_grad
    with torch.inference_mode():
        assert not mutual_information_recursion(px, py).requires_grad
    p, ans = FORWARD(px, py)
    assert (p.requires_grad, ans.requires_grad) == (False, True)


def test_gradient_twice_by_retain_graph(rng):
    px, py = tensors(rng, requires_grad=True)
    scores = mutual_information_recursion(px, py).sum()
    first = torch.autograd.grad(scores, px, retain_graph=True)
    assert torch.equal(first[0], torch.autograd.grad(scores, px)[0])


@pytest.mark.parametrize(
    "function",
    [
        mutual_information_recursion,
        lambda px, py: FORWARD(px, py)[1],
        lambda px, py: joint_mutual_information_recursion([px, px * 2], [py, py]),
    ],
)
def test_second_derivative_is_refused(rng, function):
    """Also for a constant upstream gradient: the part through the lattice must not be ignored."""
    px, py = tensors(rng, dtype=torch.float64, requires_grad=True)
    for loss in (lambda s: s.sum(), lambda s: (s**2).sum()):
        (grad,) = torch.autograd.grad(loss(function(px, py)), px, create_graph=True)
        with pytest.raises(NotImplementedError, match=SECOND):
            torch.autograd.grad((grad**2).sum(), px)


def test_pruned_training_step(rng):
    """With bands of -inf, as in pruned losses, there is no NaN and the total flow is 1."""
    px, py = steps(rng, 3, 20, 60)
    prune(px, py, 6)
    px[:, :, -1] = -np.inf
    px, py = (torch.from_numpy(x).requires_grad_() for x in (px, py))
    (-mutual_information_recursion(px, py)).mean().backward()
    assert torch.isfinite(px.grad).all()
    torch.testing.assert_close(px.grad.sum((1, 2)), torch.full((3,), -20 / 3), rtol=1e-4, atol=0)
    torch.testing.assert_close(py.grad.sum((1, 2)), torch.full((3,), -60 / 3), rtol=1e-4, atol=0)


# -- the joint recursion -----------------------------------------------------------------------------------


def joint_inputs(rng, count, mode="regular", dtype=torch.float64):
    pairs = [tensors(rng, mode=mode, dtype=dtype, requires_grad=True) for _ in range(count)]
    return [list(terms) for terms in zip(*pairs, strict=True)]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_joint(rng, count, mode):
    px, py = joint_inputs(rng, count, mode)
    box = boxes(rng)
    scores = joint_mutual_information_recursion(px, py, box)
    assert scores.shape == (count, 4)
    whole, (px_grad, py_grad) = mutual_information_recursion(sum(px), sum(py), box, return_grad=True)
    torch.testing.assert_close(scores.sum(0), whole)
    for i in range(1, count):  # the first gets the rest
        share = (px[i] * px_grad).sum((1, 2)) + (py[i] * py_grad).sum((1, 2))
        torch.testing.assert_close(scores[i], share)
    grads = torch.autograd.grad(scores.sum(), [*px, *py])
    for i in range(count):
        torch.testing.assert_close(grads[i], px_grad)
        torch.testing.assert_close(grads[count + i], py_grad)


def test_joint_gradient_of_one_row(rng):
    px, py = joint_inputs(rng, 2, dtype=torch.float16)
    scores = joint_mutual_information_recursion(px, py)
    assert scores.dtype == torch.float32
    _, (px_grad, _) = mutual_information_recursion(
        sum(x.float() for x in px), sum(y.float() for y in py), return_grad=True
    )
    grads = torch.autograd.grad(scores[1].sum() * 3, [*px, *py])
    assert all(grad.dtype == torch.float16 for grad in grads)
    assert not (grads[0].any() or grads[2].any())
    torch.testing.assert_close(grads[1].float(), px_grad * 3, rtol=1e-3, atol=1e-5)


def test_joint_with_forbidden_steps(rng):
    px, py = joint_inputs(rng, 2)
    with torch.no_grad():
        px[0][:, :, -1] = -torch.inf
        py[1][0, 2] = -torch.inf
    scores = joint_mutual_information_recursion(px, py)
    assert torch.isfinite(scores).all()
    scores.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in (*px, *py))


def test_joint_refusals(rng):
    px, py = joint_inputs(rng, 2)
    with pytest.raises(ValueError, match="px has 2 tensors and py has 1, expected the same number, 1 or"):
        joint_mutual_information_recursion(px, py[:1])
    with pytest.raises(ValueError, match="px has 0 tensors and py has 0, expected the same number"):
        joint_mutual_information_recursion([], [])
    with pytest.raises(ValueError, match=r"py\[1\] has shape \[1, 6, 7\], expected \[4, 6, 7\] as py\[0\]"):
        joint_mutual_information_recursion(px, [py[0], py[1][:1]])


# -- compilation -------------------------------------------------------------------------------------------


def with_joint(px, py, box):
    scores = mutual_information_recursion(px * 0.5, py, box)
    joint = joint_mutual_information_recursion([px, px * 0.1], [py, py * 0.2], box)
    return scores * torch.arange(1, 1 + len(scores)) + joint[1]


# aot_eager traces like inductor but does not run g++: seconds instead of half a minute.
@pytest.mark.parametrize(
    ("function", "options"),
    [
        (mutual_information_recursion, {"dynamic": False}),
        (with_joint, {"dynamic": False, "backend": "aot_eager"}),
        (with_joint, {"dynamic": True, "backend": "aot_eager"}),
    ],
)
def test_compile(rng, function, options):
    torch.compiler.reset()  # the cases share a recompilation limit
    compiled = torch.compile(function, fullgraph=True, **options)
    for shape in (SHAPE, (7, 8, 9)) if options["dynamic"] else (SHAPE,):
        arguments = *tensors(rng, shape, requires_grad=True), boxes(rng, shape)
        results = [f(*arguments) for f in (function, compiled)]
        torch.testing.assert_close(*results)
        grads = [torch.autograd.grad(result.sum(), arguments[:2]) for result in results]
        for a, b in zip(*grads, strict=True):
            torch.testing.assert_close(a, b)
        with torch.no_grad():
            torch.testing.assert_close(compiled(*arguments), function(*arguments))
