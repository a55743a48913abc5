"""Segments, minima, softmax, ranks and bird's-eye views for PyTorch: values and gradients."""

import numpy as np
import pytest
import torch

from turnout.torch import (
    bev_pool,
    gather_coo,
    gather_csr,
    ingroup_indices,
    scatter_min,
    scatter_softmax,
    segment_coo,
    segment_csr,
)

pytestmark = pytest.mark.torch

REDUCTIONS = ["sum", "mean", "min", "max"]
INDPTR = torch.tensor([1, 4, 4, 9, 11])  # row 0 and row 11 are in no segment, segment 1 has no rows


def distinct(rng, *shape):
    """Numbers without ties, as gradients of minima and maxima need them."""
    return torch.from_numpy(rng.permutation(int(np.prod(shape))).reshape(shape) / 7.0).requires_grad_()


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("indptr", [INDPTR, INDPTR.int()])
def test_segment_gradients(rng, reduce, indptr):
    for shape in ((12, 3), (12,), (12, 2, 2)):
        src = distinct(rng, *shape)
        assert torch.autograd.gradcheck(lambda x: segment_csr(x, indptr, reduce), src)
        assert torch.autograd.gradgradcheck(lambda x: segment_csr(x, indptr, reduce), src)


@pytest.mark.parametrize("reduce", ["min", "max"])
def test_the_operator_finds_the_rows_of_extremes_again(rng, reduce):
    """Without return_arg, the gradient has to look for them."""
    src = distinct(rng, 12, 3)
    op = torch.ops.turnout.segment_csr.default
    grads = [
        torch.autograd.grad(op(src, INDPTR, reduce, wanted)[0].sum(), src)[0] for wanted in (False, True)
    ]
    assert torch.equal(*grads)
    assert grads[0].sum() == 9  # one row per channel, for each of three segments


def test_gradients_of_16_bits_divide_in_float():
    src = torch.zeros(70_001, 1, dtype=torch.float16, requires_grad=True)
    segment_csr(src, torch.tensor([0, 70_001]), "mean").sum().mul(8192).backward()
    assert src.grad.unique().tolist() == [torch.tensor(8192 / 70_001).half().item()]


def test_other_gradients(rng):
    src = distinct(rng, 4, 3)
    assert torch.autograd.gradcheck(lambda x: gather_csr(x, INDPTR, 13), src)
    assert torch.autograd.gradgradcheck(lambda x: gather_csr(x, INDPTR), src)
    rows, index = distinct(rng, 12, 3), torch.from_numpy(rng.integers(0, 5, 12))
    assert torch.autograd.gradcheck(lambda x: scatter_min(x, index, 0, 7)[0], rows)
    assert torch.autograd.gradgradcheck(lambda x: scatter_min(x, index)[0], rows)
    assert torch.autograd.gradcheck(lambda x: scatter_softmax(x, index), rows)
    assert torch.autograd.gradgradcheck(lambda x: scatter_softmax(x, index), rows)
    coords = torch.from_numpy(rng.integers(0, [3, 2, 2, 2], (12, 4)))
    assert torch.autograd.gradcheck(lambda x: bev_pool(x, coords, 2, 2, 3, 2), rows)
    assert torch.autograd.gradgradcheck(lambda x: bev_pool(x, coords, 2, 2, 3, 2), rows)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_batches_of_segments(rng, reduce):
    src = distinct(rng, 3, 2, 12, 4)
    indptr = torch.from_numpy(np.sort(rng.integers(0, 13, (3, 2, 6)), axis=-1))
    out, arg = segment_csr(src, indptr, reduce, return_arg=True)
    for i in range(3):
        for j in range(2):
            expected = segment_csr(src[i, j], indptr[i, j], reduce, return_arg=True)
            assert torch.equal(out[i, j], expected[0])
            assert torch.equal(arg[i, j], expected[1])
    assert torch.autograd.gradcheck(lambda x: segment_csr(x, indptr, reduce), src)
    same = segment_csr(src, indptr[:1, :1], reduce)
    assert torch.equal(same[2, 1], segment_csr(src[2, 1], indptr[0, 0], reduce))
    indptr[1, 0, 3] = 13
    with pytest.raises(
        ValueError, match=r"^segment_csr: indptr\[3\] of element 2 is 13, expected \d+ \.\. 12"
    ):
        segment_csr(src, indptr, reduce)
    with pytest.raises(
        ValueError, match=r"^segment_csr: indptr has the shape \[2, 1, 6\], expected one that"
    ):
        segment_csr(src, indptr[:2, :1], reduce)


def test_batches_are_gathered(rng):
    src = distinct(rng, 3, 4, 2)
    indptr = torch.tensor([[0, 2, 2, 5, 7], [1, 2, 3, 4, 7], [0, 0, 0, 0, 7]])
    out = gather_csr(src, indptr)
    for i in range(3):
        assert torch.equal(out[i], gather_csr(src[i], indptr[i]))
    assert torch.autograd.gradcheck(lambda x: gather_csr(x, indptr), src)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_ascending_index(rng, reduce):
    src, index = distinct(rng, 12, 3), torch.tensor([0, 0, 1, 1, 1, 3, 3, 4, 4, 4, 4, 4])
    indptr = torch.tensor([0, 2, 5, 5, 7, 12, 12])
    out = segment_coo(src, index, 6, reduce)
    assert torch.equal(out, segment_csr(src, indptr, reduce))
    assert torch.equal(segment_coo(src, index, reduce=reduce), out[:5])
    batch = torch.stack([src, src.flip(0)])
    two = segment_coo(batch, index[None], 6, reduce)
    assert torch.equal(two[0], out)
    assert torch.equal(gather_coo(out, index), gather_csr(out, indptr))
    assert torch.equal(gather_coo(two, index[None])[0], gather_coo(out, index))
    with pytest.raises(ValueError, match=r"^gather_coo: index\[11\] is 4, expected 0 \.\. 1"):
        gather_coo(out[:2], index.where(index == 4, 0).sort()[0][torch.tensor([*[0] * 11, 11])])
    with pytest.raises(ValueError, match=r"^segment_coo: reduce is 'mul', expected 'sum', 'mean'"):
        segment_coo(src, index, reduce="mul")


def test_softmax(rng):
    src, index = distinct(rng, 12, 3).detach(), torch.from_numpy(rng.integers(0, 3, 12))
    out = scatter_softmax(src * 100, index, dim_size=5)
    for group in range(3):
        torch.testing.assert_close(out[index == group], (src[index == group] * 100).softmax(0))
    assert torch.equal(scatter_softmax(src.T * 100, index, 1), out.T)
    assert torch.equal(scatter_softmax(src * 100, index[:, None].expand(12, 3)), out)
    with pytest.raises(TypeError, match=r"^scatter_softmax: src has dtype int64, expected floating-point"):
        scatter_softmax(index, index)


def test_ranks_and_grids(rng):
    groups = torch.tensor([3, 1, 3, 3, 1])
    assert ingroup_indices(groups).tolist() == [0, 0, 1, 2, 1]
    feats = torch.from_numpy(rng.standard_normal((50, 4)))
    coords = torch.from_numpy(rng.integers(0, [3, 4, 2, 2], (50, 4)))
    h, w, d, b = coords.unbind(1)
    sums = torch.zeros(2, 2, 3, 4, 4, dtype=torch.float64).index_put((b, d, h, w), feats, accumulate=True)
    torch.testing.assert_close(bev_pool(feats, coords, 2, 2, 3, 4), sums.permute(0, 4, 1, 2, 3))


def test_messages():
    src = torch.ones(4, 2)
    with pytest.raises(ValueError, match=r"^segment_csr: indptr\[1\] is 5, expected 0 \.\. 4"):
        segment_csr(src, torch.tensor([0, 5]))
    with pytest.raises(ValueError, match=r"^gather_csr: src\.shape\[1\] is 2, expected 1, the segments"):
        gather_csr(src, torch.tensor([[0, 1]]))
    for function, first in ((segment_csr, src.T), (gather_csr, src[:1])):
        with pytest.raises(
            ValueError, match=rf"^{function.__name__}: indptr has dtype float32, expected int32"
        ):
            function(first, torch.tensor([[0, 2.5]]))
    with pytest.raises(ValueError, match=r"^ingroup_indices: groups\[1\] is -1, expected 0 or more"):
        ingroup_indices(torch.tensor([0, -1]))
