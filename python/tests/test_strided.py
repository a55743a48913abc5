"""Inputs that are not contiguous are copied, and the log says so; results are not."""

import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from conftest import dispatch_arguments, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st

import turnout

GRID = ((0.5, 0.5, 0.5), (-10, -10, -2, 10, 10, 2))


def unaligned(array):
    memory = np.empty(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[:] = array
    return view


def field(array):
    """Returns a field of packed records, whose stride is not a multiple of the element size."""
    size = array.dtype.itemsize
    records = np.zeros((*array.shape, size + 3), np.uint8)
    records[..., :size] = array[..., None].view(np.uint8)
    strides = records.strides[:-1]
    return np.ndarray(array.shape, array.dtype, records, strides=strides)


LAYOUTS = {
    "columns": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "all reversed": lambda x: np.flip(np.flip(x).copy()),
    "fortran": np.asfortranarray,
    "unaligned": unaligned,
    "field": field,
}


def test_columns_of_a_scan(rng):
    """Passes points[:, :3] of points with more columns than coordinates."""
    points = rng.standard_normal((1000, 5)).astype(np.float32)
    assert same_bits(turnout.voxelize(points[:, :3], *GRID), turnout.voxelize(points[:, :3].copy(), *GRID))
    limits = {"max_points": 5, "max_voxels": 300}
    results = turnout.voxelize(points[:, 1:4], *GRID, **limits)
    expected = turnout.voxelize(points[:, 1:4].copy(), *GRID, **limits)
    assert all(map(same_bits, results, expected))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("choices", [None, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16])
def test_every_input(rng, layout, choices, dtype):
    arguments = dispatch_arguments(rng, choices=choices, dtype=dtype)
    expected = turnout.moe_dispatch_forward(*arguments)
    strided = [LAYOUTS[layout](x) if isinstance(x, np.ndarray) else x for x in arguments]
    assert same_bits(turnout.moe_dispatch_forward(*strided), expected)
    for i in range(4):
        assert same_bits(
            turnout.moe_dispatch_forward(*arguments[:i], strided[i], *arguments[i + 1 :]), expected
        )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_view(data):
    """The copy of any view equals NumPy's."""
    shape = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=2))
    dtype = data.draw(st.sampled_from([np.uint8, np.int16, np.float32, np.int64]))
    whole = np.arange(20 * 30, dtype=np.int64).astype(dtype).reshape(20, 30)
    slices = tuple(
        slice(*data.draw(st.sampled_from([(None, extent * step, step), (extent * step, 0, -step)])))
        for extent, step in ((e, data.draw(st.integers(1, 3))) for e in shape)
    )
    view = whole[slices]
    if data.draw(st.booleans()):
        view = view.T
    if data.draw(st.booleans()):
        view = np.broadcast_to(view[:1], (7, view.shape[1]))
    index = np.arange(view.shape[0], dtype=np.int32)
    assert same_bits(turnout.moe_re_routing_inverse(view, index), view.copy())


def test_large_copies_on_several_threads(rng, threads):
    tokens = rng.integers(0, 255, (3000, 4, 1000), np.uint8)[:, 1:3].transpose(1, 0, 2)[1]
    tall = rng.integers(0, 255, (70, 60000), np.uint8).T
    for count in (1, 2, 3):
        threads(count)
        for rows in (tokens, tall):
            index = np.arange(len(rows), dtype=np.int32)
            assert same_bits(turnout.moe_re_routing_inverse(rows, index), rows.copy())


def test_index_of_strided_coordinates(rng):
    coors = rng.integers(0, 5, (50, 6)).astype(np.int32)
    index, plain = turnout.VoxelIndex(coors[:, ::2]), turnout.VoxelIndex(coors[:, ::2].copy())
    assert same_bits(index.voxel_coors, plain.voxel_coors)
    feats = rng.standard_normal((8, 50)).T
    assert same_bits(index.reduce(feats), plain.reduce(feats.copy()))


def test_a_gradient_that_is_only_read(rng):
    """ans_grad is modified only with overwrite_ans_grad."""
    px, py = rng.standard_normal((2, 3, 5)), rng.standard_normal((2, 4, 4))
    p, _ = turnout.mutual_information_forward(px, py)
    strided = np.ones((2, 2))[:, 0]
    expected = turnout.mutual_information_backward(px, py, p, np.ones(2))
    assert all(map(same_bits, turnout.mutual_information_backward(px, py, p, strided), expected))
    with pytest.raises(ValueError, match=r"ans_grad is strided, expected contiguous .* written in place"):
        turnout.mutual_information_backward(px, py, p, strided, overwrite_ans_grad=True)


def test_empty_arrays_have_no_strides():
    empty = np.zeros((0, 4), np.float32)[:, ::2]
    assert turnout.moe_re_routing_inverse(empty, np.zeros(0, np.int32)).shape == (0, 2)


def test_copies_are_logged():
    program = """
import numpy as np, turnout
rows, index = np.zeros((4, 6), np.float32), np.arange(4, dtype=np.int32)
turnout.moe_re_routing_inverse(rows[:, :3], index)
turnout.moe_re_routing_inverse(rows, index)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"TURNOUT_LOG": "1"},
        timeout=120,
    )
    strided, plain = done.stderr.splitlines()
    start = (
        "[turnout] moe_re_routing_inverse(permute_tokens f32[4, {}], permute_token_idx i32[4], "
        "out f32[4, {}], "
    )
    assert strided.startswith(start.format(3, 3) + "idx_type 0, copied permute_tokens): algorithm=")
    assert plain.startswith(start.format(6, 6) + "idx_type 0): algorithm=")
