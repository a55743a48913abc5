"""get_indice_pairs for PyTorch: tensors with ``import turnout``, the operator, compilation."""

import numpy as np
import pytest
import torch
from conftest import same_bits
from test_sparse_conv import sites
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

import turnout
import turnout.torch
from turnout import _core, check

pytestmark = pytest.mark.torch

OP = torch.ops.turnout.get_indice_pairs.default
SPACE = (5, 6, 7)
CALLS = [
    {"stride": 2, "padding": (0, 1, 1)},
    {"kernel_size": (3, 1, 5), "dilation": 2, "subm": True},
    {"kernel_size": 2, "stride": (2, 1, 2), "output_padding": 1, "transpose": True},
]


def tensor_sites(rng, rows=60, dtype=np.int32):
    return torch.from_numpy(sites(rng, rows, 2, SPACE, dtype))


def assert_like_definition(results, indices, batch_size, space, **options):
    expected = check.get_indice_pairs(indices.contiguous().numpy(), batch_size, space, **options)
    for actual, wanted in zip(results, expected, strict=True):
        assert type(actual) is torch.Tensor
        assert same_bits(actual.numpy(), wanted)


# -- import turnout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("options", CALLS)
def test_tensors(rng, dtype, options):
    indices = tensor_sites(rng, dtype=dtype)
    assert_like_definition(
        turnout.get_indice_pairs(indices, 2, SPACE, **options), indices, 2, SPACE, **options
    )


def test_out(rng):
    indices = tensor_sites(rng)
    out = (torch.zeros(500, 4, dtype=torch.int32), None, torch.zeros(27, dtype=torch.int32))
    results = turnout.get_indice_pairs(indices, 2, torch.Size(SPACE), out=out)
    assert (results[0] is out[0], results[2] is out[2]) == (True, True)
    count = len(check.get_indice_pairs(indices.numpy(), 2, SPACE)[0])
    assert (out[0][count:] == -1).all()
    assert_like_definition((out[0][:count], *results[1:]), indices, 2, SPACE)


def test_strided_without_turnout_torch(rng):
    indices = tensor_sites(rng)
    strided = turnout.get_indice_pairs(indices.T.contiguous().T, 2, SPACE)
    assert all(map(torch.equal, strided, turnout.get_indice_pairs(indices, 2, SPACE)))


# -- torch.ops ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", CALLS)
@pytest.mark.parametrize("rows", [0, 60])
def test_operator(rng, options, rows):
    indices = tensor_sites(rng, rows)
    assert_like_definition(OP(indices, 2, SPACE, **options), indices, 2, SPACE, **options)


def test_strided_tensors(rng):
    indices = tensor_sites(rng).T.contiguous().T
    assert_like_definition(turnout.torch.get_indice_pairs(indices, 2, SPACE), indices, 2, SPACE)


@pytest.mark.parametrize("shape", [np.array(SPACE), torch.Size(SPACE), torch.tensor(SPACE), list(SPACE)])
def test_kinds_of_integers(rng, shape):
    indices = tensor_sites(rng)
    results = turnout.torch.get_indice_pairs(
        indices, np.int64(2), shape, np.int64(3), np.array([2, 2, 2]), [np.int32(1), 1, 1]
    )
    assert_like_definition(results, indices, 2, SPACE, stride=2, padding=1)


def test_same_messages(rng):
    indices = tensor_sites(rng)
    with pytest.raises(
        ValueError, match=r"get_indice_pairs: stride has 2 elements, expected 3 = indices\.shape\[1\] - 1"
    ):
        OP(indices, 2, SPACE, 3, (1, 2))
    indices[7, 2] = 6
    with pytest.raises(ValueError, match=r"get_indice_pairs: indices\[7, 2\] is 6, expected 0 \.\. 5"):
        turnout.torch.get_indice_pairs(indices, 2, SPACE)
    with pytest.raises(
        ValueError, match=r"get_indice_pairs: indices has dtype float32, expected int32, int64"
    ):
        turnout.torch.get_indice_pairs(indices.float().requires_grad_(), 2, SPACE)


@pytest.mark.parametrize("options", CALLS)
@pytest.mark.parametrize("rows", [0, 60])
def test_opcheck(rng, options, rows):
    torch.library.opcheck(OP, (tensor_sites(rng, rows), 2, SPACE), options)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_fake(dtype):
    with FakeTensorMode(shape_env=ShapeEnv()):
        indices = torch.empty(60, 4, dtype=dtype)
        results = OP(indices, 2, SPACE, (3, 1, 5), subm=True)
        assert [tuple(r.shape) for r in results] == [(60, 4), (15, 2, 60), (15,)]
        assert [r.dtype for r in results] == [dtype, torch.int32, torch.int32]
        results = OP(indices, 2, SPACE, (-1, 3, 3))
        assert free_unbacked_symbols(results[0].shape[0])
        assert results[0].shape[1] == 4
        assert [tuple(r.shape) for r in results[1:]] == [(45, 2, 60), (45,)]
        assert [r.dtype for r in results] == [dtype, torch.int32, torch.int32]


def test_fake_refuses_what_has_no_shape():
    with FakeTensorMode(shape_env=ShapeEnv()), pytest.raises(ValueError) as caught:
        OP(torch.empty(60, 4, dtype=torch.int32), 2, SPACE, (3, 3))
    assert (
        str(caught.value) == "get_indice_pairs: kernel_size has 2 elements, expected 3 = indices.shape[1] - 1"
    )


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("options", [{"subm": True}, {"stride": 2, "padding": 1}])
def test_torch_threads_do_the_work(rng, count, options):
    space = (20, 60, 60)
    indices = torch.from_numpy(sites(rng, 20000, 2, space))
    expected = turnout.get_indice_pairs(indices, 2, space, **options)
    threads = torch.get_num_threads()
    torch.set_num_threads(count)
    before = _core.torch_runs()
    try:
        results = turnout.torch.get_indice_pairs(indices, 2, space, **options)
        assert (_core.torch_runs() > before) == (count > 1)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


# -- torch.compile -----------------------------------------------------------------------------------------
# Inductor compiles C++ for seconds, so one case is enough in addition to aot_eager, which traces the same
# graph.


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_submanifold(rng, dynamic):
    """A full graph, in which the number of outputs equals that of the inputs."""

    def function(indices, features):
        out_indices, pairs, num = turnout.torch.get_indice_pairs(indices, 2, SPACE, subm=True)
        return out_indices + 1, features[pairs[13, 0]] + features, num * 2

    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (60, 40):
        arguments = tensor_sites(rng, rows), torch.arange(float(rows))
        for a, b in zip(function(*arguments), compiled(*arguments), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize(("options", "backend"), [(CALLS[0], "inductor"), (CALLS[2], "aot_eager")])
def test_compile_sparse(rng, options, backend):
    """A full graph with a size that depends on the data."""

    def function(indices):
        out_indices, pairs, num = OP(indices * 1, 2, SPACE, **options)
        features = torch.zeros(out_indices.shape[0] + 1)
        return out_indices + 1, features.index_add(0, pairs[0, 1] + 1, torch.ones(len(indices))), num * 2

    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, fullgraph=True, backend=backend)
        for _ in range(3):  # the same number of rows, different outputs
            indices = tensor_sites(rng, 20)
            for a, b in zip(function(indices), compiled(indices), strict=True):
                assert torch.equal(a, b)
