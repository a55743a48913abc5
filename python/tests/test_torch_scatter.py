"""scatter_sum, scatter_mean and scatter_max for PyTorch: values, the index, gradients, compilation."""

import numpy as np
import pytest
import torch
from scans import features, same_values
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

import turnout
import turnout.torch
from turnout import _core, check
from turnout.torch import scatter_max, scatter_mean, scatter_min, scatter_sum

pytestmark = pytest.mark.torch

FUNCTIONS = {"sum": scatter_sum, "mean": scatter_mean, "max": scatter_max}
OPS = {name: getattr(torch.ops.turnout, f"scatter_{name}").default for name in FUNCTIONS}
BACKWARD = {name: getattr(torch.ops.turnout, f"scatter_{name}_backward").default for name in FUNCTIONS}
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def tensors(rng, rows=60, channels=5, groups=12, dtype=torch.float32):
    src = torch.from_numpy(features(rng, rows, channels)).to(dtype)
    return src, torch.from_numpy(rng.integers(0, groups, rows))


def distinct(rng, rows=12, channels=3):
    """Draws rows without ties, and an index with empty groups."""
    src = torch.from_numpy(rng.permutation(rows * channels).reshape(rows, channels) / 7.0)
    return src.requires_grad_(), torch.from_numpy(rng.choice([0, 2, 5], rows))


def values(result):
    return result[0] if isinstance(result, tuple) else result


def results_of(result):
    return result if isinstance(result, tuple) else (result,)


def assert_equal(actual, expected):
    for a, b in zip(results_of(actual), results_of(expected), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def in_torch(name, src, index, groups):
    """Computes the result with torch's functions, for an index with the shape of src."""
    kind = {"sum": "sum", "mean": "mean", "max": "amax"}[name]
    start = src.new_zeros((groups, *src.shape[1:]))
    return start.scatter_reduce(0, index, src, kind, include_self=False)


# -- values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_definition(rng, name, dtype):
    src, index = tensors(rng, dtype=dtype)
    wide = src.double() if dtype == torch.float64 else src.float()
    for dim_size in (None, 15):
        results = results_of(FUNCTIONS[name](src, index, 0, dim_size))
        expected = results_of(getattr(check, f"scatter_{name}")(wide.numpy(), index.numpy(), 0, dim_size))
        assert results[0].dtype == dtype
        wanted = torch.from_numpy(expected[0]).to(dtype)  # 16-bit floats are rounded once
        assert same_values(results[0].double().numpy(), wanted.double().numpy())
        if name == "max":
            assert results[1].dtype == torch.int64
            assert np.array_equal(results[1].numpy(), expected[1])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("shape", "dim"), [((7,), 0), ((7,), -1), ((3, 7), 1), ((7, 2, 3), 0), ((2, 7, 3), -2)]
)
def test_dimensions(rng, name, shape, dim):
    src, index = torch.from_numpy(rng.standard_normal(shape)), torch.tensor([4, 0, 4, 2, 0, 4, 4])
    expected = getattr(check, f"scatter_{name}")(src.numpy(), index.numpy(), dim)
    for actual, wanted in zip(
        results_of(FUNCTIONS[name](src, index, dim)), results_of(expected), strict=True
    ):
        assert np.array_equal(actual.numpy(), wanted)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_index_that_expands(rng, name):
    """Broadcasts the index like torch_scatter: columns, expanded views, and copies of them."""
    src, index = tensors(rng, groups=7)
    expected = FUNCTIONS[name](src, index, 0, 9)
    column = index.unsqueeze(1)
    for same in (column, column.expand(-1, 5), column.repeat(1, 5)):
        assert_equal(FUNCTIONS[name](src, same, 0, 9), expected)
        assert_equal(
            FUNCTIONS[name](src, same), tuple(x[:7] for x in expected) if name == "max" else expected[:7]
        )
    cube = src.reshape(60, 1, 5).expand(60, 2, 5)
    wanted = FUNCTIONS[name](cube, index)
    assert_equal(FUNCTIONS[name](cube, column), wanted)
    assert_equal(FUNCTIONS[name](cube.movedim(0, 1), index.reshape(1, 60), 1), tuple_moved(wanted))


def tuple_moved(results):
    moved = tuple(x.movedim(0, 1) for x in results_of(results))
    return moved if isinstance(results, tuple) else moved[0]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dim", [0, 1])
def test_an_index_for_each_element(rng, name, dim):
    src = distinct(rng)[0].detach()
    index = torch.from_numpy(rng.integers(0, 4, src.shape))
    expected = [
        FUNCTIONS[name](column, at, 0, 6)
        for column, at in zip(src.unbind(1 - dim), index.unbind(1 - dim), strict=True)
    ]
    actual = FUNCTIONS[name](src, index, dim, 6)
    for result, *columns in zip(results_of(actual), *map(results_of, expected), strict=True):
        assert torch.equal(result, torch.stack(columns, dim=1 - dim))
    index[2, 1] = 9
    with pytest.raises(ValueError, match=rf"^scatter_{name}: index\[2, 1\] is 9, expected 0 \.\. 5"):
        FUNCTIONS[name](src, index, dim, 6)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0,), (4, 0, 2)])
def test_empty(name, shape):
    src = torch.zeros(shape, requires_grad=True)
    index = torch.zeros(shape[0], dtype=torch.int64)
    for at in (index, index.reshape(-1, *[1] * (len(shape) - 1)).expand(shape)):
        result = FUNCTIONS[name](src, at, 0, 2)
        for one in results_of(result):
            assert one.shape == (2, *shape[1:])
        values(result).sum().backward()
        assert src.grad.shape == shape


@pytest.mark.parametrize("name", FUNCTIONS)
def test_strided_tensors(rng, name):
    src, index = tensors(rng)
    strided, every_other = src.T.contiguous().T, torch.stack([index, index], dim=1)[:, 0]
    assert not strided.is_contiguous() and not every_other.is_contiguous()
    assert_equal(FUNCTIONS[name](strided, every_other), FUNCTIONS[name](src, index))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_messages(rng, name):
    src, index = tensors(rng)
    function = FUNCTIONS[name]
    bad = index.clone()
    bad[7] = -3
    for arguments, kind, message in (
        ((src, index.numpy()), TypeError, "index is of type ndarray, expected a torch.Tensor"),
        ((src, index, 2), ValueError, "dim is 2, expected -2 .. 1"),
        ((src, index, "x"), TypeError, "dim is of type str, expected an integer"),
        ((src[0, 0], index), ValueError, "src has 0 dimensions, expected [rows, channels..?]"),
        ((src, index, 0, -2), ValueError, "dim_size is -2, expected 0 or more"),
        ((src, index[:9]), ValueError, "index.shape[0] is 9, expected 60 = src.shape[0]"),
        ((src, index.reshape(30, 2)), ValueError, "index has the shape [30, 2], expected one dimension, or"),
        ((src, index.float()), ValueError, "index has dtype float32, expected int32, int64"),
        ((src, bad), ValueError, "index[7] is -3, expected 0 .. 2147483646"),
        ((src, bad, 0, 12), ValueError, "index[7] is -3, expected 0 .. 11"),
        ((src, index, 0, 5), ValueError, "index["),
    ):
        with pytest.raises(kind) as caught:
            function(*arguments)
        assert str(caught.value).startswith(f"scatter_{name}: {message}")


@pytest.mark.parametrize("count", [1, 2])
def test_torch_threads_do_the_work(rng, count):
    src, index = tensors(rng, rows=40_000, channels=64, groups=4000)
    expected = turnout.scatter_max(src.numpy(), index.numpy())
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    before = _core.torch_runs()
    try:
        results = scatter_max(src, index)
        assert (_core.torch_runs() > before) == (count > 1)
    finally:
        torch.set_num_threads(threads)
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(results, expected, strict=True))


# -- gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck(rng, name):
    src, index = distinct(rng)
    for dim_size in (None, 8):
        function = lambda x, n=dim_size: values(FUNCTIONS[name](x, index, 0, n))  # noqa: E731
        assert torch.autograd.gradcheck(function, src)
        assert torch.autograd.gradgradcheck(function, src)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck_of_an_index_for_each_element(rng, name):
    src = distinct(rng, rows=8)[0]
    index = torch.from_numpy(rng.integers(0, 4, src.shape))
    assert torch.autograd.gradcheck(lambda x: values(FUNCTIONS[name](x, index, 0, 5)), src)
    assert torch.autograd.gradcheck(lambda x: values(FUNCTIONS[name](x, index, 1, 5)), src)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_like_torch(rng, name, dtype):
    src, index = distinct(rng, rows=40)
    src = src.detach().to(dtype).requires_grad_()
    weight = torch.from_numpy(rng.standard_normal((8, 3))).to(dtype)
    wide = torch.expand_copy(index.unsqueeze(1), (-1, 3))
    ours, theirs = (
        torch.autograd.grad((out * weight).sum(), src)[0]
        for out in (values(FUNCTIONS[name](src, index, 0, 8)), in_torch(name, src, wide, 8))
    )
    assert ours.dtype == dtype
    if dtype in (torch.float32, torch.float64):  # 16-bit rounding causes ties, whose gradient torch divides
        torch.testing.assert_close(ours, theirs)


def test_the_first_of_equal_rows_has_the_gradient():
    src = torch.ones(4, 2, requires_grad=True)
    scatter_max(src, torch.tensor([1, 0, 1, 0]))[0].sum().backward()
    assert src.grad.tolist() == [[1, 1], [1, 1], [0, 0], [0, 0]]
    argmax = scatter_max(src, torch.tensor([1, 0, 1, 0]))[1]
    assert not argmax.requires_grad


@pytest.mark.parametrize("function", [scatter_max, scatter_min])
def test_values_without_rows(function):
    src = torch.tensor([[1.0, 9.0], [2.0, 8.0], [4.0, 0.0]], requires_grad=True)
    index = torch.tensor([0, 2, 0])
    both, out = function(src, index), function(src, index, return_arg=False)
    assert torch.equal(out, both[0])
    weights = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    wanted, found = (torch.autograd.grad((x * weights).sum(), src)[0] for x in (both[0], out))
    assert torch.equal(found, wanted)
    # The operator itself, which did not save the rows.
    op = getattr(torch.ops.turnout, function.__name__)
    out, none = op(src, index)
    assert none.numel() == 0
    assert torch.equal(torch.autograd.grad((out * weights).sum(), src)[0], wanted)
    assert torch.equal(function(src.T, index, 1, return_arg=False), both[0].T)


def test_integers_have_no_gradient(rng):
    src, index = torch.arange(12).reshape(6, 2), torch.tensor([0, 2, 0, 2, 0, 2])
    assert scatter_sum(src, index).tolist() == [[12, 15], [0, 0], [18, 21]]
    assert scatter_max(src, index)[1].tolist() == [[4, 4], [6, 6], [5, 5]]
    with pytest.raises(ValueError, match="scatter_mean: src has dtype int64"):
        scatter_mean(src, index)


# -- tracing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_opcheck(rng, name, requires_grad):
    src, index = tensors(rng)
    src.requires_grad_(requires_grad)
    torch.library.opcheck(OPS[name], (src, index))
    sizes = (14, True) if name == "max" else (14,)  # with the rows of maxima
    torch.library.opcheck(OPS[name], (src, index, *sizes))
    out = results_of(OPS[name](src.detach(), index, *sizes))
    grad = torch.ones_like(out[0]).requires_grad_(requires_grad)
    torch.library.opcheck(BACKWARD[name], (grad, index, *out[1:]))


def test_fake():
    with FakeTensorMode(shape_env=ShapeEnv()):
        src, index = torch.empty(60, 5), torch.empty(60, dtype=torch.int64)
        out, argmax = scatter_max(src, index)
        assert free_unbacked_symbols(out.shape[0])
        assert out.shape[0] == argmax.shape[0]
        assert scatter_sum(src, index, 0, 9).shape == (9, 5)
        assert scatter_mean(src, index, 0, 9).shape == (9, 5)


def encoder(src, index):
    """Like a dynamic voxel encoder: subtracts the mean from rows and reduces again."""
    mean = scatter_mean(src, index, 0, 12)
    out, argmax = scatter_max(src - mean[index], index, 0, 12)
    return out + scatter_sum(src, index.unsqueeze(1).expand(-1, 5), 0, 12), argmax


class Encoder(torch.nn.Module):
    def forward(self, src, index):
        return encoder(src, index)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(rng, backend):
    torch.compiler.reset()
    compiled = torch.compile(encoder, fullgraph=True, backend=backend)
    for _ in range(2):
        src, index = tensors(rng)
        src.requires_grad_()
        results = [f(src, index) for f in (encoder, compiled)]
        assert torch.equal(results[0][1], results[1][1])
        torch.testing.assert_close(results[0][0], results[1][0])
        torch.testing.assert_close(*(torch.autograd.grad(x[0].sum(), src)[0] for x in results))


def test_compile_of_a_size_that_depends_on_data(rng):
    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(lambda s, i: scatter_max(s * 2, i)[0], fullgraph=True, backend="aot_eager")
        for groups in (12, 3):
            src, index = tensors(rng, groups=groups)
            assert torch.equal(compiled(src, index), scatter_max(src * 2, index)[0])


@pytest.mark.parametrize("strict", [False, True])
def test_export(rng, strict):
    exported = torch.export.export(Encoder(), tensors(rng), strict=strict)
    calls = [str(node.target) for node in exported.graph.nodes if "turnout" in str(node.target)]
    assert calls == [f"turnout.scatter_{name}.default" for name in ("mean", "max", "sum")]
    assert_equal(exported.module()(*(arguments := tensors(rng))), encoder(*arguments))
