"""dynamic_scatter for PyTorch: operators, gradients, compilation."""

import numpy as np
import pytest
import torch
from conftest import same_bits
from scans import REDUCTIONS, coordinates, features, same_values
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

import turnout
import turnout.torch
from turnout import _core, check
from turnout.torch import dynamic_scatter

pytestmark = pytest.mark.torch

FORWARD = torch.ops.turnout.dynamic_scatter_forward.default
BACKWARD = torch.ops.turnout.dynamic_scatter_backward.default
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def tensors(rng, points=60, channels=5, dims=3, dtype=torch.float32, index=torch.int32, requires_grad=False):
    feats = torch.from_numpy(features(rng, points, channels)).to(dtype)
    coors = torch.from_numpy(coordinates(rng, points, dims)).to(index)
    return feats.requires_grad_(requires_grad), coors


def distinct(rng, points=40, channels=3):
    """Draws features without ties, at which a maximum has no derivative."""
    feats = torch.from_numpy(rng.permutation(points * channels).reshape(points, channels) / 7.0)
    return feats.requires_grad_(), torch.from_numpy(coordinates(rng, points, 2))


def in_torch(feats, coors, reduce_type):
    """Computes voxel_feats and voxel_coors with torch's functions."""
    is_valid = (coors >= 0).all(dim=1)
    rows, inverse = torch.unique(coors[is_valid], dim=0, return_inverse=True)
    start = feats.new_full((len(rows), feats.shape[1]), -torch.inf if reduce_type == "max" else 0)
    index = inverse.unsqueeze(1).expand(-1, feats.shape[1])
    kind = {"max": "amax", "mean": "mean", "sum": "sum"}[reduce_type]
    return start.scatter_reduce(0, index, feats[is_valid], kind, include_self=reduce_type != "mean"), rows


# -- operators ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binding", [turnout.dynamic_scatter_forward, FORWARD])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduce_type", REDUCTIONS)
def test_definition(rng, binding, dtype, reduce_type):
    feats, coors = tensors(rng, dtype=dtype, index=torch.int64)
    results = binding(feats, coors, reduce_type)
    assert all(type(x) is torch.Tensor for x in results)
    assert [x.dtype for x in results] == [dtype, torch.int64, torch.int32, torch.int32]
    wide = feats.double() if dtype == torch.float64 else feats.float()
    voxel_feats, *index = check.dynamic_scatter_forward(wide.numpy(), coors.numpy(), reduce_type)
    expected = torch.from_numpy(voxel_feats).to(dtype)  # 16-bit floats are rounded once
    assert same_values(results[0].double().numpy(), expected.double().numpy())
    assert all(same_bits(a.numpy(), b) for a, b in zip(results[1:], index, strict=True))
    grad = torch.from_numpy(rng.standard_normal(expected.shape)).to(dtype)
    arguments = grad, feats, expected, *results[2:], reduce_type
    bindings = (turnout.dynamic_scatter_backward, BACKWARD)
    first, second = (binding(*arguments) for binding in bindings)
    assert first.dtype == dtype
    assert torch.equal(first, second)
    arrays = (x.to(wide.dtype).numpy() for x in (grad, feats, expected))
    wanted = check.dynamic_scatter_backward(*arrays, *index[1:], reduce_type)
    assert torch.equal(first, torch.from_numpy(wanted).to(dtype))


def test_return_map(rng):
    feats, coors = tensors(rng)
    *plain, point2voxel_map = dynamic_scatter(feats, coors, "mean", return_map=True)
    expected = FORWARD(feats, coors, "mean")
    assert torch.equal(point2voxel_map, expected[2])
    assert all(torch.equal(a, b) for a, b in zip(plain, expected[:2], strict=True))
    assert len(dynamic_scatter(feats, coors)) == 2


def test_index_of_tensors(rng):
    feats, coors = tensors(rng)
    voxels = turnout.VoxelIndex(coors)
    expected = check.dynamic_scatter_forward(feats.numpy(), coors.numpy())
    results = voxels.reduce(feats), voxels.voxel_coors, voxels.point2voxel_map, voxels.voxel_points_count
    for actual, wanted in zip(results, expected, strict=True):
        assert type(actual) is torch.Tensor
        assert same_bits(actual.numpy(), wanted)
    assert type(voxels.first_point) is torch.Tensor
    with pytest.raises(ValueError, match=r"VoxelIndex\.reduce: feats requires grad, which only turnout"):
        voxels.reduce(feats.requires_grad_())


def test_out_with_spare_rows(rng):
    feats, coors = tensors(rng)
    out = torch.full((60, 5), 7.0), None, None, None
    results = turnout.dynamic_scatter_forward(feats, coors, out=out)
    expected = check.dynamic_scatter_forward(feats.numpy(), coors.numpy())
    assert same_bits(results[0].numpy(), expected[0])
    assert results[0].data_ptr() == out[0].data_ptr()
    assert (out[0][len(results[0]) :] == 7).all()


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
def test_strided_tensors(rng, reduce_type):
    feats, coors = tensors(rng, requires_grad=True)
    strided = feats.detach().T.contiguous().T.requires_grad_(), coors.T.contiguous().T
    assert not any(x.is_contiguous() for x in strided)
    expected = dynamic_scatter(feats, coors, reduce_type)
    actual = dynamic_scatter(*strided, reduce_type)
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))
    # Upstream gradients with stride 0, and in another order.
    for loss in (lambda x: x.sum(), lambda x: (x.T * torch.arange(len(x))).sum()):
        grads = [
            torch.autograd.grad(loss(r[0]), f, retain_graph=True)[0]
            for r, f in ((expected, feats), (actual, strided[0]))
        ]
        assert torch.equal(*grads)


def test_same_messages(rng):
    feats, coors = tensors(rng)
    for binding, name in ((dynamic_scatter, "dynamic_scatter"), (FORWARD, "dynamic_scatter_forward")):
        with pytest.raises(ValueError) as caught:
            binding(feats, coors, "median")
        wanted = "reduce_type is 'median', expected one of 'sum', 'mean', 'max'"
        assert str(caught.value) == f"{name}: {wanted}"
        with pytest.raises(ValueError, match="coors has dtype float32, expected int32, int64"):
            binding(feats, coors.float())
    index = torch.tensor([0, 1, 5])
    with pytest.raises(ValueError, match=r"point2voxel_map\[2\] is 5, expected -1 \.\. 1"):
        BACKWARD(torch.ones(2, 4), None, None, index, None, "sum")


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("reduce_type", REDUCTIONS)
def test_opcheck(rng, reduce_type, requires_grad):
    feats, coors = tensors(rng, requires_grad=requires_grad)
    torch.library.opcheck(FORWARD, (feats, coors, reduce_type))
    voxel_feats, _, index, count = FORWARD(feats.detach(), coors, reduce_type)
    grad = torch.ones_like(voxel_feats).requires_grad_(requires_grad)
    needed = {
        "max": (feats.detach(), voxel_feats, index, None),
        "mean": (None, None, index, count),
        "sum": (None, None, index, None),
    }[reduce_type]
    torch.library.opcheck(BACKWARD, (grad, *needed, reduce_type))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_fake(dtype):
    with FakeTensorMode(shape_env=ShapeEnv()):
        feats, coors = torch.empty(60, 5, dtype=dtype), torch.empty(60, 4, dtype=torch.int64)
        voxel_feats, voxel_coors, index, count = FORWARD(feats, coors, "mean")
        assert free_unbacked_symbols(voxel_feats.shape[0])
        assert voxel_feats.shape[0] == voxel_coors.shape[0] == count.shape[0]
        assert (voxel_feats.shape[1], voxel_coors.shape[1], tuple(index.shape)) == (5, 4, (60,))
        dtypes = [x.dtype for x in (voxel_feats, voxel_coors, index, count)]
        assert dtypes == [dtype, torch.int64, torch.int32, torch.int32]
        grad = BACKWARD(voxel_feats, None, None, index, count, "mean")
        assert (tuple(grad.shape), grad.dtype) == ((60, 5), dtype)


@pytest.mark.parametrize("count", [1, 2])
def test_torch_threads_do_the_work(rng, count):
    feats = torch.from_numpy(rng.standard_normal((40000, 20)).astype(np.float32))
    coors = torch.from_numpy(coordinates(rng, 40000, extent=20))
    expected = turnout.dynamic_scatter_forward(feats.numpy(), coors.numpy(), "mean")
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    before = _core.torch_runs()
    try:
        results = FORWARD(feats, coors, "mean")
        assert (_core.torch_runs() > before) == (count > 1)
    finally:
        torch.set_num_threads(threads)
    assert all(same_bits(a.numpy(), b) for a, b in zip(results, expected, strict=True))


# -- gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
def test_gradcheck(rng, reduce_type):
    feats, coors = distinct(rng)
    assert torch.autograd.gradcheck(lambda x: dynamic_scatter(x, coors, reduce_type)[0], feats)
    assert torch.autograd.gradgradcheck(lambda x: dynamic_scatter(x, coors, reduce_type)[0], feats)


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
def test_second_derivative_of_the_gradient_alone(rng, reduce_type):
    """Also if a voxel has no points and counts differ from the actual numbers."""
    index = torch.tensor([3, 0, -1, 3, 0, 3])
    count = torch.tensor([2, 1, 9, 5])
    grad = torch.from_numpy(rng.standard_normal((4, 3))).requires_grad_()
    feats = torch.from_numpy(features(rng, 6, 3, np.float64))
    voxel_feats = feats[[1, 0, 0, 3]]
    function = lambda g: BACKWARD(g, feats, voxel_feats, index, count, reduce_type)  # noqa: E731
    assert torch.autograd.gradcheck(function, grad)
    (back,) = torch.autograd.grad(function(grad).sum(), grad)
    assert not back[[1, 2]].any()


def test_loss_of_a_gradient(rng):
    """A penalty on the gradient, as in some losses."""
    feats, coors = distinct(rng)
    results = []
    for function in (dynamic_scatter, in_torch):
        voxel_feats = function(feats, coors, "mean")[0]
        (grad,) = torch.autograd.grad((voxel_feats**3).sum(), feats, create_graph=True)
        results.append(torch.autograd.grad((grad**2).sum(), feats)[0])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
@pytest.mark.parametrize("dims", [1, 2, 3, 4])
def test_like_torch(rng, reduce_type, dims):
    feats = torch.from_numpy(rng.standard_normal((300, 8))).requires_grad_()
    coors = torch.from_numpy(coordinates(rng, 300, dims, np.int64))
    weight = None
    grads = []
    for function in (in_torch, dynamic_scatter):
        voxel_feats, voxel_coors = function(feats, coors, reduce_type)
        if weight is None:
            weight = torch.from_numpy(rng.standard_normal(voxel_feats.shape))
            expected = voxel_feats.detach(), voxel_coors
        torch.testing.assert_close(voxel_feats.detach(), expected[0])
        assert torch.equal(voxel_coors, expected[1])
        grads.append(torch.autograd.grad((voxel_feats * weight).sum(), feats)[0])
    torch.testing.assert_close(*grads)


def test_only_features_have_gradients(rng):
    feats, coors = tensors(rng, requires_grad=True)
    voxel_feats, *others = FORWARD(feats, coors, "mean")
    assert voxel_feats.requires_grad
    assert not any(x.requires_grad for x in others)
    assert not dynamic_scatter(feats.detach(), coors)[0].requires_grad
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert not dynamic_scatter(feats, coors)[0].requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_16_bits(rng, dtype):
    feats, coors = tensors(rng, dtype=dtype, requires_grad=True)
    dynamic_scatter(feats, coors, "mean")[0].sum().backward()
    _, _, index, count = check.dynamic_scatter_forward(feats.detach().float().numpy(), coors.numpy())
    wanted = np.where(index >= 0, 1 / count[index], 0).astype(np.float32)
    assert torch.equal(feats.grad, torch.from_numpy(wanted).to(dtype).unsqueeze(1).expand(-1, 5))


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
@pytest.mark.parametrize(("points", "channels"), [(0, 5), (0, 0), (6, 0)])
def test_empty(rng, reduce_type, points, channels):
    feats = torch.zeros(points, channels, requires_grad=True)
    voxel_feats, voxel_coors = dynamic_scatter(feats, torch.zeros(points, 3, dtype=torch.int32), reduce_type)
    assert (voxel_feats.shape, voxel_coors.shape) == ((min(points, 1), channels), (min(points, 1), 3))
    voxel_feats.sum().backward()
    assert feats.grad.shape == (points, channels)


@pytest.mark.parametrize("reduce_type", REDUCTIONS)
def test_no_point_is_in_a_voxel(rng, reduce_type):
    feats, _ = tensors(rng, requires_grad=True)
    voxel_feats, voxel_coors = dynamic_scatter(feats, torch.full((60, 4), -1), reduce_type)
    assert (voxel_feats.shape, voxel_coors.shape) == ((0, 5), (0, 4))
    voxel_feats.sum().backward()
    assert torch.equal(feats.grad, torch.zeros(60, 5))


# -- compilation -------------------------------------------------------------------------------------------


# aot_eager traces like inductor but does not run g++: seconds instead of half a minute.
@pytest.mark.parametrize(("reduce_type", "backend"), [("mean", "inductor"), ("max", "aot_eager")])
def test_compile(rng, reduce_type, backend):
    def function(feats, coors):
        voxel_feats, voxel_coors = dynamic_scatter(feats * 2, coors, reduce_type)
        return voxel_feats + 1, voxel_coors * 2

    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, fullgraph=True, backend=backend)
        for _ in range(3):  # the same number of points, different voxels
            arguments = tensors(rng, requires_grad=True)
            results = [f(*arguments) for f in (function, compiled)]
            for a, b in zip(*results, strict=True):
                assert torch.equal(a, b)
            grads = [torch.autograd.grad(r[0].sum(), arguments[0])[0] for r in results]
            assert torch.equal(*grads)
